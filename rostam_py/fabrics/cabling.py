"""Cabling checks: what a list of real cables lacks, has too much, or joins to the wrong place.

Example:
    check = check_cabling(rostam.fabric("slim_fly", q=5), "cables.csv")     # columns src and dst, names of vertices
    print(check)                                # missing: ..., extra: ..., wrong end: ...
    write_cabling(fabric, "plan.csv")           # the plan in the same form
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.documents import write_whole
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric, check_fabric

Cable = tuple[str, str]
_COLUMNS = ("src", "dst")
_SHOWN = 20  # of each kind in prose


@dataclass(frozen=True, slots=True)
class Cabling:
    """How cables differ from a fabric's plan, each as the names of its two ends.

    missing: planned and not there. extra: there and not planned. wrong: (cable that is there, planned one that it
    should be): one end is right, and both are counted here alone. num_right: as planned.
    """

    missing: tuple[Cable, ...]
    extra: tuple[Cable, ...]
    wrong: tuple[tuple[Cable, Cable], ...]
    num_right: int

    @property
    def is_right(self) -> bool:
        """Whether every cable is where the plan has it, and no other is there."""
        return not (self.missing or self.extra or self.wrong)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and all cables that differ."""
        return {
            "is_right": self.is_right,
            "num_right": self.num_right,
            "missing": [list(cable) for cable in self.missing],
            "extra": [list(cable) for cable in self.extra],
            "wrong": [{"is": list(there), "should_be": list(plan)} for there, plan in self.wrong],
        }

    def __str__(self) -> str:
        """Return the verdict, a line for each of the first cables of a kind."""
        lines = [f"{self.num_right:,} cables as planned"]
        lines += _listed("missing", [_named(one) for one in self.missing])
        lines += _listed("extra", [_named(one) for one in self.extra])
        lines += _listed("wrong end", [f"{_named(there)}, should be {_named(plan)}" for there, plan in self.wrong])
        return "\n".join(lines)


def planned_cables(fabric: Fabric) -> list[Cable]:
    """Return the cables of one plane of an intact fabric by the names of their ends, in the order of their ids.

    Raises: ConfigError for a non-fabric, or one of fibres to optical switches.
    """
    if check_fabric(fabric).is_circuit_switched:
        raise ConfigError(f"fabric {fabric.name!r} has fibres to optical switches, which are no list of cables")
    links = fabric.links
    ends: dict[int, Cable] = {}
    for src, dst, cable in zip(links["src"].tolist(), links["dst"].tolist(), links["cable"].tolist(), strict=True):
        ends.setdefault(cable, (fabric.vertex_name(src), fabric.vertex_name(dst)))
    return [ends[cable] for cable in sorted(ends) if cable < int(fabric.core.num_cables)]


def write_cabling(fabric: Fabric, path: str | Path, key: str | None = None) -> None:
    """Write the plan of one plane as a CSV file of columns src and dst.

    Args: key: the setting that gives the path, for errors.
    Raises: ConfigError where it cannot be written.
    """
    rows = [_COLUMNS, *planned_cables(fabric)]  # first: a fabric without such cables leaves the file as it is
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_whole(path, text.getvalue().encode(), key)


def check_cabling(fabric: Fabric, cables: str | Path | Iterable[Cable]) -> Cabling:
    """Compare cables with a fabric's plan of one plane, whichever end comes first.

    Model: equal cables are counted. Of what is left a cable that is there and a planned one that share an end are one
        wired to the wrong place; they are paired so that as many as possible are, in the order of the file, with the
        first planned one that leaves the pairs before a partner. Others are extra, or missing.
    Args:
        fabric: the plan.
        cables: a CSV file with columns src and dst, or pairs of names such as ("switch 0", "accelerator 3").
    Raises: ConfigError for a non-fabric, a file without these columns, an entry without two names, or a name that
        no vertex has.
    """
    as_planned = {_sorted(one): one for one in planned_cables(fabric)}
    plan = [_sorted(one) for one in planned_cables(fabric)]
    given = list(_read(cables)) if isinstance(cables, str | Path) else _pairs(cables)
    known = {name for cable in plan for name in cable}
    for where, cable in given:
        for name in cable:
            if name not in known:
                near = ", ".join(sorted(known, key=lambda one: (len(one), one))[:3])
                raise ConfigError(f"{where} ends at {name!r}, which the fabric does not have; names are such as {near}")
    as_given = {_sorted(cable): cable for _, cable in given}
    there = [_sorted(cable) for _, cable in given]
    left = Counter(plan)
    left.subtract(there)
    missing = [cable for cable in dict.fromkeys(plan) for _ in range(max(0, left[cable]))]
    extra = [cable for cable in dict.fromkeys(there) for _ in range(max(0, -left[cable]))]
    planned_of = _most_pairs(extra, missing)
    wrong = [(extra[one], missing[other]) for one, other in sorted(planned_of.items())]
    missing = [cable for k, cable in enumerate(missing) if k not in set(planned_of.values())]
    extra = [cable for k, cable in enumerate(extra) if k not in planned_of]
    return Cabling(
        missing=tuple(as_planned[one] for one in missing),
        extra=tuple(as_given[one] for one in extra),
        wrong=tuple((as_given[one], as_planned[planned]) for one, planned in wrong),
        num_right=len(there) - len(extra) - len(wrong),
    )


def _most_pairs(extra: list[Cable], missing: list[Cable]) -> dict[int, int]:
    """Return which missing cable each extra one should be, by their places: those with a common end, as many as can be.

    Cost: extra x pairs with a common end (augmenting paths).
    """
    at_end: dict[str, list[int]] = {}
    for k, cable in enumerate(missing):
        for name in cable:
            at_end.setdefault(name, []).append(k)
    planned_of: dict[int, int] = {}
    extra_of: dict[int, int] = {}
    for first in range(len(extra)):
        came_from: dict[int, int] = {}  # missing cable -> the extra one that asked for it
        queue = [first]
        for asking in queue:
            near = sorted({k for name in extra[asking] for k in at_end.get(name, ())} - came_from.keys())
            came_from |= dict.fromkeys(near, asking)
            free = next((k for k in near if k not in extra_of), None)
            if free is None:
                queue += [extra_of[k] for k in near]
                continue
            place: int | None = free
            while place is not None:  # each on the way takes what it asked for, and gives up what it had
                one = came_from[place]
                given_up = planned_of.get(one)
                planned_of[one], extra_of[place] = place, one
                place = given_up
            break
    return planned_of


def _read(path: str | Path) -> Iterable[tuple[str, Cable]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not set(_COLUMNS) <= set(reader.fieldnames or ()):
                raise ConfigError(f"{path} has columns {', '.join(reader.fieldnames or ())}; it needs src and dst")
            for row in reader:
                yield f"{path}, line {reader.line_num}", ((row["src"] or "").strip(), (row["dst"] or "").strip())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is no CSV file in UTF-8: {error}") from error


def _pairs(cables: Any) -> list[tuple[str, Cable]]:
    """Return cables with what to call each."""
    form = 'pairs of names such as ("switch 0", "accelerator 3"), or the path of a CSV file'
    if not isinstance(cables, Iterable):
        raise ConfigError(f"cables is {cables!r}; it must be {form}")
    checked = []
    for k, one in enumerate(cables):
        ends = tuple(one) if isinstance(one, list | tuple) else ()
        if len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            raise ConfigError(f"cables[{k}] is {one!r}; cables must be {form}")
        checked.append((f"cables[{k}]", (ends[0], ends[1])))
    return checked


def _sorted(cable: Cable) -> Cable:
    src, dst = cable
    return (src, dst) if src <= dst else (dst, src)


def _named(cable: Cable) -> str:
    return f"{cable[0]} - {cable[1]}"


def _listed(what: str, lines: list[str]) -> list[str]:
    rest = [f"{what}: and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [f"{what}: {one}" for one in lines[:_SHOWN]] + rest
