"""Lists of links as users write them: from a CSV file, columns or rows, each with the place to name in an error.

Example:
    table = read_links("cluster.csv")
    table["src"][0], table.place(0, "src")          # "gpu0", "fabric.links, line 2 of 'cluster.csv': src"
"""

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fabrics.topologies import TOPOLOGIES, format_of

_MOST_TEXT = 2**26  # characters of a topology file
_EMPTY = "fabric.links is empty; it needs at least one link"
COLUMNS = ("src", "dst", "bandwidth", "latency", "count", "cable_usd", "port_usd")


class LinkTable(dict[str, list[Any]]):
    """Columns of links by name, equally long."""

    lines: list[int] | None = None
    path: str = ""

    def place(self, row: int, column: str = "") -> str:
        """Return what names an entry, or a row, in an error: with the line of a file."""
        if self.lines is None:
            return f"fabric.links[{row}].{column}" if column else f"fabric.links[{row}]"
        line = f"fabric.links, line {self.lines[row]} of {self.path!r}"
        return f"{line}: {column}" if column else line


def read_links(links: Any) -> LinkTable:
    """Return the columns of a CSV file, another simulator's topology file, a mapping of arrays, or a list of rows.

    A row is a tuple or a mapping.

    Raises: ConfigError for a file that cannot be read, unknown or missing columns, or none of unequal length.
    """
    if isinstance(links, LinkTable):
        return links
    if isinstance(links, str):
        table = _read_topology(links) or _read_csv(links)
    elif isinstance(links, Mapping):
        table = LinkTable({str(key): list(values) for key, values in links.items()})
    elif isinstance(links, Iterable):
        table = _transpose(list(links))
    else:
        raise ConfigError(f"fabric.links is {links!r}; expected a CSV path, columns or rows")
    if not table:
        raise ConfigError(_EMPTY)
    unknown = sorted(set(table) - set(COLUMNS))
    if unknown or not {"src", "dst"} <= set(table):
        said = f"has a column {unknown[0]!r}" if unknown else f"has columns {', '.join(table)}"
        raise ConfigError(f"fabric.links {said}; allowed: {', '.join(COLUMNS)}, src and dst needed")
    lengths = {len(values) for values in table.values()}
    if len(lengths) != 1:
        raise ConfigError(f"fabric.links has columns of {sorted(lengths)} entries; they must be equally long")
    if lengths == {0}:
        raise ConfigError(_EMPTY)
    return table


def _read_topology(path: str) -> LinkTable | None:
    """Return the links of another simulator's topology file; None for a file that is none, or cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_MOST_TEXT + 1)
    except (OSError, ValueError):
        return None
    lines = text.splitlines()
    form = format_of(path, next((one for one in lines if one.strip()), ""))
    if not form:
        return None
    if len(text) > _MOST_TEXT:
        raise ConfigError(f"fabric.links is {path!r}, of more than {_MOST_TEXT:,} characters, the most that are read")
    rows = TOPOLOGIES.get(form)(path, lines)
    table = LinkTable({name: [row[k] for row in rows] for k, name in enumerate(COLUMNS[:4], 1)})
    table.lines, table.path = [row[0] for row in rows], path
    return table


def _read_csv(path: str) -> LinkTable:
    rows, lines = [], []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            for row in reader:
                if row and not row[0].startswith("#") and any(cell.strip() for cell in row):
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except OSError as error:
        raise ConfigError(f"fabric.links is {path!r}; the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"fabric.links is {path!r}, which is not UTF-8 text: byte {error.object[error.start]:#04x} at place"
            f" {error.start}; save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise ConfigError(f"fabric.links is {path!r}; it is no CSV file: {error}") from error
    if not rows or "src" not in rows[0]:
        raise ConfigError(f"fabric.links is {path!r}; its first line must be a header such as {','.join(COLUMNS[:4])}")
    twice = [name for name in rows[0] if rows[0].count(name) > 1]
    if twice:
        raise ConfigError(f"fabric.links is {path!r}; its header names {twice[0]!r} twice")
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(rows[0]):
            raise ConfigError(f"fabric.links, line {line} of {path!r}: {len(row)} cells; the header has {len(rows[0])}")
    table = LinkTable({name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])})
    table.lines, table.path = lines[1:], path
    return table


def _transpose(rows: list[Any]) -> LinkTable:
    if all(isinstance(row, Mapping) for row in rows):
        names = {key: None for row in rows for key in row}
        return LinkTable({str(name): [row.get(name) for row in rows] for name in names})
    for i, row in enumerate(rows):
        if isinstance(row, str) or not 2 <= len(row) <= len(COLUMNS):
            raise ConfigError(f"fabric.links[{i}] is {row!r}; expected (src, dst[, bandwidth[, latency]])")
    return LinkTable({name: [row[i] if i < len(row) else None for row in rows] for i, name in enumerate(COLUMNS)})
