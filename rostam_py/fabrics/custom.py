"""custom: the user's own cables, from a CSV file, rows or arrays."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.units import parse_bandwidth, parse_time

_COLUMNS = ("src", "dst", "bandwidth", "latency")
_MOST_DIGITS = 18  # of a vertex number; Python refuses to read thousands


@dataclass(kw_only=True, slots=True)
class CustomConfig(FabricConfig):
    """A fabric given link by link; distances come from breadth-first searches.

    Model: ends are named a0, a1, ... (accelerators) and s0, s1, ... (switches), or numbered 0.. with the
        accelerators first, which needs ``num_accelerators``. The links describe one plane.
    Args:
        links: path of a CSV file with the header src,dst,bandwidth,latency (the last two may be missing), or a
            mapping of those columns, or a list of such rows.
        num_accelerators: needed for numbered ends; else the highest a<k> decides.
        duplex: each row is a cable of two directions; false makes it one directed link.
        forwarding: accelerators forward for others, as on a torus.
        link_bandwidth, link_latency: of rows that give none; a number in a CSV needs a unit.
        switch_latency: of every vertex that a path goes through; 0, since rows carry what the user knows.
    Source: own; tests/fabrics/test_custom.py rebuilds a tree and a torus from their links.
    """

    links: Any
    num_accelerators: int | None = None
    duplex: bool = True
    forwarding: bool = False
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})
    switch_latency: Any = field(default="0 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        FabricConfig.__post_init__(self)
        if self.accelerator_bandwidth is not None:
            raise ConfigError(
                f"fabric.accelerator_bandwidth is {self.accelerator_bandwidth!r}; a custom fabric's links carry their "
                "own bandwidths, or fabric.link_bandwidth"
            )
        if self.num_accelerators is not None:
            self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.links = _read_columns(self.links)
        bandwidths = self._accelerator_bandwidths(self.core_parameters())
        if not all(bandwidths):
            idle = bandwidths.index(0.0)
            raise ConfigError(f"fabric.links gives accelerator a{idle} no link to send on; every accelerator needs one")

    @classmethod
    def example(cls) -> Self:
        """Return four racks of four accelerators under one switch."""
        hosts = [(f"a{k}", f"s{k // 4}") for k in range(16)]
        return cls(links=hosts + [(f"s{k}", "s4") for k in range(4)], link_bandwidth="100 Gb/s")

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Raise ConfigError: the links are given."""
        raise ConfigError(
            f"num_accelerators is {num_accelerators}, but cannot size a custom fabric: its links are given one by one"
        )

    @property
    def injection_bandwidth_bytes_per_s(self) -> float:
        """B: the least that any accelerator can send over all planes [bytes/s]."""
        return self.planes * min(self._accelerator_bandwidths(self.core_parameters()))

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        rows = len(self.links["src"])
        src, dst = (self._ends(column) for column in ("src", "dst"))
        num_accelerators = self.num_accelerators
        if num_accelerators is None:
            num_accelerators = 1 + max((number for kind, number in src + dst if kind == "a"), default=-1)
        vertices = [
            [num_accelerators + number if kind == "s" else number for kind, number in ends] for ends in (src, dst)
        ]
        for kind, number in src + dst:
            if kind == "a" and number >= num_accelerators:
                raise ConfigError(f"fabric.links names a{number}; fabric.num_accelerators is {num_accelerators}")
        return {
            "num_accelerators": num_accelerators,
            "num_switches": max(0, 1 + max(vertices[0] + vertices[1], default=0) - num_accelerators),
            "accelerators_forward": int(self.forwarding),
            "duplex": int(self.duplex),
            "src": vertices[0],
            "dst": vertices[1],
            "bandwidth_bytes_per_s": self._quantities("bandwidth", self.link_bandwidth, rows),
            "latency_s": self._quantities("latency", self.link_latency, rows),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def _accelerator_bandwidths(self, parameters: dict[str, Any]) -> list[float]:
        """Return what every accelerator can send in one plane [bytes/s]."""
        sent = [0.0] * parameters["num_accelerators"]
        for column in ("src", "dst") if self.duplex else ("src",):
            for end, bandwidth in zip(parameters[column], parameters["bandwidth_bytes_per_s"], strict=True):
                if end < len(sent):
                    sent[end] += bandwidth
        return sent

    def _ends(self, column: str) -> list[tuple[str, int]]:
        """Return (kind, number) of every entry: kind "a", "s", or "" for a plain vertex number."""
        ends = []
        for i, name in enumerate(self.links[column]):
            text = str(name).strip()
            kind, number = (text[:1], text[1:]) if text[:1] in ("a", "s") else ("", text)
            if not number.isdecimal() or not number.isascii() or len(number) > _MOST_DIGITS:
                shown = text if len(text) <= 40 else f"{text[:40]}... ({len(text)} characters)"
                raise ConfigError(
                    f"fabric.links[{i}].{column} is {shown!r}; expected a<k>, s<k> or a vertex number of at most"
                    f" {_MOST_DIGITS} digits"
                )
            if kind == "" and self.num_accelerators is None:
                raise ConfigError(
                    f"fabric.links[{i}].{column} is {name!r}; vertex numbers need fabric.num_accelerators"
                )
            ends.append((kind, check_integer(f"the number in fabric.links[{i}].{column}", int(number), 0)))
        return ends

    def _quantities(self, column: str, default: Any, rows: int) -> list[float]:
        parse = parse_bandwidth if column == "bandwidth" else parse_time
        values = self.links.get(column, [None] * rows)
        parsed = []
        for i, given in enumerate(values):
            value = default if given is None or given == "" else given
            if value is None:
                raise ConfigError(f"fabric.links[{i}] has no {column}; give it or fabric.link_{column}")
            parsed.append(parse(value, f"fabric.links[{i}].{column}"))
        return parsed


def _read_columns(links: Any) -> dict[str, list[Any]]:
    """Return the columns of a CSV file, a mapping of arrays, or a list of rows (tuples or mappings)."""
    if isinstance(links, str):
        columns = _read_csv(links)
    elif isinstance(links, Mapping):
        columns = {str(key): list(values) for key, values in links.items()}
    elif isinstance(links, Iterable):
        columns = _transpose(list(links))
    else:
        raise ConfigError(f"fabric.links is {links!r}; expected a CSV path, columns or rows")
    unknown = sorted(set(columns) - set(_COLUMNS))
    if unknown or not {"src", "dst"} <= set(columns):
        raise ConfigError(
            f"fabric.links has columns {', '.join(columns)}; allowed: {', '.join(_COLUMNS)}, src and dst needed"
        )
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ConfigError(f"fabric.links has columns of {sorted(lengths)} entries; they must be equally long")
    if lengths == {0}:
        raise ConfigError("fabric.links is empty; it needs at least one link")
    return columns


def _read_csv(path: str) -> dict[str, list[Any]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row and not row[0].startswith("#")]
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
        raise ConfigError(f"fabric.links is {path!r}; its first line must be a header such as {','.join(_COLUMNS)}")
    for i, row in enumerate(rows[1:]):
        if len(row) != len(rows[0]):
            raise ConfigError(f"fabric.links[{i}] of {path!r} has {len(row)} cells; the header has {len(rows[0])}")
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def _transpose(rows: list[Any]) -> dict[str, list[Any]]:
    if all(isinstance(row, Mapping) for row in rows):
        names = {key: None for row in rows for key in row}
        return {str(name): [row.get(name) for row in rows] for name in names}
    for i, row in enumerate(rows):
        if isinstance(row, str) or not 2 <= len(row) <= len(_COLUMNS):
            raise ConfigError(f"fabric.links[{i}] is {row!r}; expected (src, dst[, bandwidth[, latency]])")
    return {name: [row[i] if i < len(row) else None for row in rows] for i, name in enumerate(_COLUMNS)}
