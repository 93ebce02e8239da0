"""Failures of a CSV file: a row for each, with the columns time, kind, number and, where there are any, repair.

Example:
    time,kind,number,repair
    250 ms,accelerators,3,400 ms
    500 ms,links,17,
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rostam_py.errors import ConfigError

COLUMNS = ("time", "kind", "number", "repair")


class FailureList(list[Any]):
    """Failures as mappings of the fields of Failure, and where each one stands. places: "failures.csv, line 3"."""

    places: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str | Path, check: Callable[..., object], key: str = "outages.events") -> Self:
        """Return the failures of a file; "#" begins a line of comment, an empty repair is none.

        Args: check: called with the fields of each; the class Failure. key: that gives the path, for errors.
        Raises: ConfigError naming file, line, column, value and what is allowed.
        """
        lines = _lines(Path(path), key)
        head, *rows = list(csv.reader(line for _, line in lines)) or [[]]
        columns = [one.strip() for one in head]
        if not set(COLUMNS[:3]) <= set(columns) <= set(COLUMNS) or len(columns) > len({*columns}):
            raise ConfigError(
                f"{key} is {str(path)!r}; the file's columns are {', '.join(columns) or 'none'}; they must be"
                f" {', '.join(COLUMNS[:3])} and may be {COLUMNS[3]}"
            )
        found = cls()
        places = [f"{path}, line {number}" for number, _ in lines[1:]]
        for row, place in zip(rows, places, strict=True):
            found.append(_event(columns, row, place, check))
        found.places = tuple(places)
        return found


def _lines(path: Path, key: str) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{key} is {str(path)!r}; it must be a list of failures, such as {{time: 2 ms, kind: links, number: 17,"
            f" repair: 1 s}}, or a CSV file with the columns {', '.join(COLUMNS)}, which cannot be read: {reason}"
        ) from None
    return [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"]


def _event(columns: list[str], row: list[str], place: str, check: Callable[..., object]) -> dict[str, Any]:
    """Return a row as the fields of a Failure."""
    if len(row) != len(columns):
        raise ConfigError(f"{place}: the row has {len(row)} cells; it must have {len(columns)}: {', '.join(columns)}")
    cells = dict(zip(columns, map(str.strip, row), strict=True))
    number = cells["number"]
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(f"{place}: number is {number!r}; it must be an integer >= 0")
    for column in ("time", "repair"):
        _check_unit(cells.get(column), column, place)
    event: dict[str, Any] = {"time": cells["time"], "kind": cells["kind"], "number": int(number)}
    event |= {"repair": cells["repair"]} if cells.get("repair") else {}
    try:
        check(**event)
    except ConfigError as error:
        raise type(error)(f"{place}: {str(error).replace('failure.', '')}") from None
    return event


def _check_unit(cell: str | None, column: str, place: str) -> None:
    """Refuse a number without a unit, which the command line refuses too."""
    try:
        float(cell or "none")
    except ValueError:
        return
    raise ConfigError(f"{place}: {column} is {cell!r}, a number without a unit; give one, such as '{cell} s'")
