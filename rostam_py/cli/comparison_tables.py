"""Tables of two sides: what is compared, differences of their configurations, and figures side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Look:
    """How a section's rows are written: their names, their figures, and how far two figures are apart."""

    words: Callable[[str], str]
    shown: Callable[[str, float], str]
    apart: Callable[[str, float], str] | None = None

    def signed(self, name: str, change: float | None) -> str:
        """Return a difference with its sign, nothing for one that is unknown."""
        if change is None:
            return ""
        size = (self.apart or self.shown)(name, abs(change))
        return f"{'+' if change > 0 else '-'}{size}" if change else "0"


def print_comparison(
    console: Console, what: str, document: dict[str, Any], tables: Sequence[tuple[str, dict[str, Look]]]
) -> None:
    """Print a document of two sides.

    Args: what: title of the first table. tables: title, and the look of each section in it.
    """
    about = Table(title=what, show_header=True)
    for column in ("", "A", "B"):
        about.add_column(column, overflow="fold")
    for key in document["a"]:
        values = [document[side][key] for side in ("a", "b")]
        if any(value is not None for value in values):
            about.add_row(key.replace("_", " "), *map(_value, values))
    console.print(about)
    if document["configuration"]:
        table = Table(title="differences of the configuration", min_width=60)
        for column in ("key", "A", "B"):
            table.add_column(column, overflow="fold")
        for row in document["configuration"]:
            table.add_row(row["key"], _value(row["a"]), _value(row["b"]))
        console.print(table)
    else:
        console.print("the configurations are the same", highlight=False)
    for title, sections in tables:
        console.print(_figures(title, document, sections))
    console.print("difference: B - A; ratio: B / A", style="dim", highlight=False)


def _figures(title: str, document: dict[str, Any], sections: dict[str, Look]) -> Table:
    table = Table(title=title)
    for column in ("", "A", "B", "difference", "ratio"):
        table.add_column(column, justify="left" if column == "" else "right", overflow="fold")
    for section, look in sections.items():
        for row in document[section]:
            name, ratio = row["name"], row["ratio"]
            sides = ["-" if row[side] is None else look.shown(name, row[side]) for side in ("a", "b")]
            signed = look.signed(name, row["difference"])
            table.add_row(look.words(name), *sides, signed, "" if ratio is None else f"{ratio:.3f}")
        table.add_section()
    return table


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
