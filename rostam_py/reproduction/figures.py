"""Figures: what a source prints, next to what rostam gives, as an experiment's own comparison judges it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = r"([\d,]*\.?\d+) ?(%|[A-Za-z]\w*(?:/s)?)?"
_PRINTED = re.compile(rf"(?:about |up to |<= |>= |< |> )?{_NUMBER}$")
# Ours may have a band behind it, in brackets, but is one number.
_OWN = re.compile(rf"{_NUMBER}(?: \(.*\))?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One published figure or statement.

    name: unique in its experiment. published: as printed, "" where the source prints none. ours: as the experiment
    prints it. difference: signed, "" where it is no number. unit: of published and ours, and of a difference that is
    not relative; "" where they have none or state it. is_met: whether ours agrees; None where nothing is printed.
    deviates, tried: why it is not met, where the comparison itself finds that; else reasons.yaml says so.
    """

    name: str
    published: str
    ours: str
    difference: str = ""
    unit: str = ""
    is_met: bool | None = None
    deviates: str = ""
    tried: str = ""


def signed_difference(published: str, ours: str) -> str:
    """Return by what share ours differs from a printed number, or from a printed bound; "" where either is none.

    Example: "about 300 us" and "3000 us (100 us to none)" differ by "+900.0%", "<= 1x" and "1.086x" by "+8.6%".
    """
    printed, own = _PRINTED.match(published), _OWN.match(ours)
    if printed is None or own is None or printed[2] != own[2]:
        return ""
    reference = float(printed[1].replace(",", ""))
    return f"{float(own[1].replace(',', '')) / reference - 1:+.1%}" if reference else ""


def claim_figures(rows: Iterable[Mapping[str, Any]], where: str) -> list[Figure]:
    """Return the figures of claims that a comparison lists.

    Args:
        rows: with "claim", "theirs", "ours", "is_met".
        where: what tells equal claims apart, such as "{model}, {space}"; the rows' other keys in braces.
    """
    return [
        Figure(
            name=": ".join(part for part in (where.format_map(row), row["claim"]) if part), published=row["theirs"],
            ours=row["ours"], difference=signed_difference(row["theirs"], row["ours"]), is_met=bool(row["is_met"]),
        )
        for row in rows
    ]  # fmt: skip
