"""Verdicts: reproduced, or why not, from an experiment's reasons.yaml.

Example of reasons.yaml; the first pattern that a figure's name matches holds:
    - {figures: "2D torus*", deviates: its cables are priced as copper, tried: "as optical ones: 2.46, printed 2.5"}
    - {figures: "*large", underivable: the source names no message size}
"""

import dataclasses
import enum
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.reproduction.figures import Figure

FILE = "reasons.yaml"
_KEYS = ({"figures", "deviates", "tried"}, {"figures", "underivable"})
_SHOWN = ("name", "published", "ours", "difference", "unit", "is_met")  # of a figure; its reason is the row's
_NOT_PRINTED = "the source prints no figure to compare with"


class Verdict(enum.StrEnum):
    """What a ledger says of a figure. UNEXPLAINED: it is not met, and no reason is stated."""

    REPRODUCED = "reproduced"
    DEVIATES = "deviates"
    UNDERIVABLE = "cannot be derived"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure with its verdict. because: why it is not met. tried: the one change that was tried to meet it."""

    figure: Figure
    verdict: Verdict
    because: str = ""
    tried: str = ""

    @property
    def words(self) -> str:
        """The verdict in words."""
        if not self.because:
            return self.verdict.value
        return f"{self.verdict.value} because {self.because}" + (f"; tried: {self.tried}" if self.tried else "")


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment of a ledger. failed: why it has no rows, "" where it ran. cpu_s: that it took [s]."""

    name: str
    title: str
    rows: tuple[Row, ...]
    failed: str = ""
    cpu_s: float = 0.0

    def count(self, verdict: Verdict) -> int:
        """Return how many figures have a verdict."""
        return sum(row.verdict is verdict for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON holds."""
        rows = [
            {key: getattr(row.figure, key) for key in _SHOWN}
            | {"verdict": row.verdict.value, "because": row.because, "tried": row.tried}
            for row in self.rows
        ]
        return {"name": self.name, "title": self.title, "failed": self.failed, "cpu_s": self.cpu_s, "figures": rows}

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Entry":
        """Return the entry that ``to_dict`` wrote."""
        rows = tuple(
            Row(Figure(**{key: one[key] for key in _SHOWN}), Verdict(one["verdict"]), one["because"], one["tried"])
            for one in record["figures"]
        )
        return cls(record["name"], record["title"], rows, record["failed"], record["cpu_s"])


def reasons_of(folder: Path) -> list[dict[str, str]]:
    """Return the reasons that an experiment states.

    Raises: ConfigError for a file that does not hold a list of them.
    """
    path = folder / FILE
    if not path.exists():
        return []
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for place, one in enumerate(found if isinstance(found, list) else [found]):
        if (
            not isinstance(one, dict)
            or set(one) not in _KEYS
            or not all(isinstance(text, str) for text in one.values())
        ):
            raise ConfigError(
                f"{path}, entry {place}, is {one!r}; it must have figures (a pattern of names) with deviates and tried,"
                " or with underivable, each a text"
            )
    return list(found)


def judged(figures: Iterable[Figure], reasons: Sequence[dict[str, str]]) -> tuple[Row, ...]:
    """Return figures with their verdicts."""
    return tuple(_judged(figure, reasons) for figure in figures)


def stale(rows: Sequence[Row], reasons: Sequence[dict[str, str]]) -> list[str]:
    """Return the patterns of reasons that explain no figure: all that they match are met, or matched before."""
    used = {_first(row.figure.name, reasons) for row in rows if row.figure.is_met is not True}
    return [one["figures"] for place, one in enumerate(reasons) if place not in used]


def _judged(figure: Figure, reasons: Sequence[dict[str, str]]) -> Row:
    if figure.is_met:
        return Row(figure, Verdict.REPRODUCED)
    if figure.deviates:
        return Row(
            dataclasses.replace(figure, deviates="", tried=""), Verdict.DEVIATES, figure.deviates, figure.tried
        )  # fmt: skip
    place = _first(figure.name, reasons)
    if place is None:
        if figure.is_met is None:
            return Row(figure, Verdict.UNDERIVABLE, _NOT_PRINTED)
        return Row(figure, Verdict.UNEXPLAINED)
    reason = reasons[place]
    if "underivable" in reason:
        return Row(figure, Verdict.UNDERIVABLE, reason["underivable"])
    return Row(figure, Verdict.DEVIATES, reason["deviates"], reason["tried"])


def _first(name: str, reasons: Sequence[dict[str, str]]) -> int | None:
    return next((k for k, one in enumerate(reasons) if fnmatch.fnmatchcase(name, one["figures"])), None)
