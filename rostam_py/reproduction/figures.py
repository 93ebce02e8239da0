"""Figures: what a source prints, next to what rostam gives, as an experiment's own comparison judges it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


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


def claim_figures(rows: Iterable[Mapping[str, Any]], where: str) -> list[Figure]:
    """Return the figures of claims that a comparison lists.

    Args:
        rows: with "claim", "theirs", "ours", "is_met".
        where: what tells equal claims apart, such as "{model}, {space}"; the rows' other keys in braces.
    """
    return [
        Figure(
            name=": ".join(part for part in (where.format_map(row), row["claim"]) if part), published=row["theirs"],
            ours=row["ours"], is_met=bool(row["is_met"]),
        )
        for row in rows
    ]  # fmt: skip
