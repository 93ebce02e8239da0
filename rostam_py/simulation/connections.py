"""Flows from a file: CSV, or a connection matrix as the simulator htsim reads it (NAME.cm).

Example:
    found = read_connections("incast.cm")
    run_flows(fabric, connections=found)        # or connections="incast.cm"

A connection matrix has a line "Nodes N", a line "Connections M", and M lines "SRC->DST [id K] start PS size BYTES",
starts in picoseconds. CSV has the columns src, dst, num_bytes and, if flows do not start at once, start_s; numbers, or
text with a unit.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rostam_py.documents import refused
from rostam_py.errors import ConfigError
from rostam_py.units import parse_sizes, parse_time

_COLUMNS, _OPTIONAL = ("src", "dst", "num_bytes"), ("start_s",)
_NEEDED = ("start", "size")
# What htsim knows besides, and rostam would have to leave out silently.
_REFUSED = {
    "trigger": "flows that start when others end", "send_done_trigger": "flows that start others",
    "recv_done_trigger": "flows that start others", "addon": "flows that start when others end",
    "prio": "priorities", "failure": "failures (give failures.links, or events)",
}  # fmt: skip
_FEW = 2  # numbers of a head line: its word and the number


@dataclass(frozen=True)
class Connections:
    """Flows, one an entry. src, dst: accelerators. num_bytes: sizes. start_s: starts [s]. num_nodes: 0 if unsaid."""

    src: tuple[int, ...]
    dst: tuple[int, ...]
    num_bytes: tuple[int, ...]
    start_s: tuple[float, ...]
    num_nodes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all flows."""
        return sum(self.num_bytes)


def read_connections(path: str | Path) -> Connections:
    """Return the flows of a file.

    Raises: ConfigError naming file, line, what stands there and what is allowed; for what a file says and rostam does
        not simulate, too.
    """
    path = Path(path)
    readers: dict[str, Callable[[str, str], Connections]] = {".cm": _read_matrix, ".csv": _read_csv}
    if path.suffix not in readers:
        raise ConfigError(f"connections is {str(path)!r}; it must end in one of: {', '.join(readers)}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"connections: cannot read {path}: {error}") from error
    found = readers[path.suffix](text, str(path))
    if not found.src:
        raise ConfigError(f"{path} holds no flow; it needs one at least")
    return found


def _read_matrix(text: str, where: str) -> Connections:
    heads: dict[str, int] = {}
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        words, place = line.split(), f"{where}:{number}"
        if not words or line.startswith("#"):
            continue
        if words[0] in ("Nodes", "Connections", "Triggers", "Failures") and len(words) == _FEW:
            heads[words[0]] = _whole(words[1], words[0], place)
        elif "->" in words[0]:
            rows.append(_flow(words, place))
        elif words[0] in _REFUSED:
            raise ConfigError(f"{place}: {words[0]} is not simulated here: {_REFUSED[words[0]]}")
        else:
            raise ConfigError(f"{place}: {line.strip()!r} is neither a flow SRC->DST nor Nodes N nor Connections N")
    if heads.get("Connections", len(rows)) != len(rows):
        raise ConfigError(f"{where} says Connections {heads['Connections']} and holds {len(rows)} flows")
    return _connections(rows, heads.get("Nodes", 0), where)


def _flow(words: list[str], place: str) -> tuple[int, int, int, float]:
    """Return source, destination, bytes and start [s] of the words of a line."""
    src, _, dst = words[0].partition("->")
    said: dict[str, str] = {}
    for key, value in zip(words[1::2], words[2::2], strict=False):
        if key in _REFUSED:
            raise ConfigError(f"{place}: {key} is not simulated here: {_REFUSED[key]}")
        if key not in ("id", *_NEEDED):
            raise ConfigError(f"{place}: {key!r} is unknown; a flow has id, start and size, each with a number")
        said[key] = value
    if len(words) % _FEW == 0 or not set(_NEEDED) <= set(said):
        raise ConfigError(f"{place}: {' '.join(words)!r}; a flow is SRC->DST [id K] start PICOSECONDS size BYTES")
    start_ps = _number(said["start"], "start", place)
    return (
        _whole(src, "source", place),
        _whole(dst, "destination", place),
        _whole(said["size"], "size", place),
        (start_ps * 1e-12),
    )


def _read_csv(text: str, where: str) -> Connections:
    lines = list(enumerate(text.splitlines(), 1))
    kept = [(number, line) for number, line in lines if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(line for _, line in kept)
    names = [name.strip() for name in reader.fieldnames or ()]
    wrong = [name for name in names if name not in (*_COLUMNS, *_OPTIONAL)]
    if wrong or not set(_COLUMNS) <= set(names):
        raise ConfigError(
            f"{where} has the columns {', '.join(names) or 'none'}; it needs {', '.join(_COLUMNS)}, and start_s where"
            " flows do not start at once"
        )
    rows = [_row(row, f"{where}:{number}") for (number, _), row in zip(kept[1:], reader, strict=False)]
    return _connections(rows, 0, where)


def _row(row: dict[str, str | None], place: str) -> tuple[int, int, int, float]:
    said = {str(key).strip(): (value or "").strip() for key, value in row.items() if key is not None}
    if None in row or any(not said.get(key) for key in _COLUMNS):
        raise ConfigError(f"{place}: the row has not one value for each of {', '.join(said)}")
    size, start_s = _size(said["num_bytes"], place), _start(said.get("start_s") or "0", place)
    return _whole(said["src"], "src", place), _whole(said["dst"], "dst", place), size, start_s


def _connections(rows: list[tuple[int, int, int, float]], num_nodes: int, where: str) -> Connections:
    for src, dst, _, _ in rows:
        if num_nodes and max(src, dst) >= num_nodes:
            raise ConfigError(f"{where} has a flow {src}->{dst} and Nodes {num_nodes}; nodes are 0 to {num_nodes - 1}")
    return Connections(
        src=tuple(row[0] for row in rows), dst=tuple(row[1] for row in rows), num_bytes=tuple(row[2] for row in rows),
        start_s=tuple(row[3] for row in rows), num_nodes=num_nodes,
    )  # fmt: skip


def _start(text: str, place: str) -> float:
    """Return a start in seconds: a number, or text with a unit."""
    try:
        float(text)
    except ValueError:
        with refused(place):
            return parse_time(text, "start_s")
    return _number(text, "start_s", place)


def _size(text: str, place: str) -> int:
    """Return a size in bytes: a whole number, or text with a unit."""
    if text.isdecimal():
        return int(text)
    with refused(place):
        return int(parse_sizes([text], "num_bytes")[0])


def _whole(text: str, what: str, place: str) -> int:
    if not text.strip().isdecimal():
        raise ConfigError(f"{place}: {what} is {text!r}; it must be a whole number >= 0")
    return int(text)


def _number(text: str, what: str, place: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ConfigError(f"{place}: {what} is {text!r}; it must be a number >= 0")
    return found
