"""custom: the user's own cables, from a CSV file, rows or arrays."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials, OwnBill, Part
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.link_names import LinkEnds, kind_of, number_ends
from rostam_py.fabrics.link_tables import LinkTable, read_links
from rostam_py.fabrics.reducing import ReducingFabricConfig
from rostam_py.units import check_simulated, parse_bandwidth, parse_time

_SHOWN = 3  # of what has no price, by name

_MOST_DIGITS = 18  # of a count


@dataclass(kw_only=True, slots=True)
class CustomConfig(ReducingFabricConfig):
    """A fabric given link by link; distances come from breadth-first searches.

    Model: ends have names, of which those that end in an accelerator's word (gpu0, node3-gpu0) are accelerators and all
        others switches (leaf0, rack1/spine0), numbered in the order of their names; or all are a0, a1, ...
        (accelerators) and s0, s1, ... (switches); or numbers 0.. with the accelerators first, which needs
        ``num_accelerators``. The links describe one plane. It has a price where any is given: of every cable, of every
        cable's end at a switch, of every switch, in each plane; NICs are not counted.
    Args:
        links: path of a CSV file with a header of src, dst and any of bandwidth, latency, count (parallel cables of a
            row, each of that bandwidth), cable_usd and port_usd; or a mapping of those columns, or a list of such rows.
        num_accelerators: needed for numbered ends; else the highest a<k> decides.
        accelerator_names: last words of accelerators' names.
        duplex: each row is a cable of two directions; false makes it one directed link.
        forwarding: accelerators forward for others, as on a torus.
        link_bandwidth, link_latency: defaults of rows that give none; a number in a CSV needs a unit.
        switch_latency: latency of every vertex that a path goes through; 0, since rows carry what the user knows.
        cable_usd, port_usd: default price of a cable, and of its end at a switch [US dollars].
        switch_usd: price of every switch, or {name or its last word: price} such as {leaf: 14280, spine0: 20000}.
    Source: own; tests/fabrics/test_custom.py rebuilds a tree and a torus from their links.
    """

    links: Any
    num_accelerators: int | None = None
    accelerator_names: Any = ("a", "gpu")
    duplex: bool = True
    forwarding: bool = False
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})
    switch_latency: Any = field(default="0 ns", metadata={"unit": "time"})
    cable_usd: float | None = None
    port_usd: float | None = None
    switch_usd: Any = None

    def __post_init__(self) -> None:
        ReducingFabricConfig.__post_init__(self)
        if self.accelerator_bandwidth is not None:
            raise ConfigError(
                f"fabric.accelerator_bandwidth is {self.accelerator_bandwidth!r}; a custom fabric's links carry their "
                "own bandwidths, or fabric.link_bandwidth"
            )
        if self.num_accelerators is not None:
            self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.accelerator_names = _words(self.accelerator_names)
        for key in ("cable_usd", "port_usd"):
            if getattr(self, key) is not None:
                setattr(self, key, _dollars(getattr(self, key), f"fabric.{key}"))
        table = read_links(self.links)
        ends = self._check(table)
        self.links = dict(table)
        self._check_switch_prices(ends)

    def _check(self, table: LinkTable) -> LinkEnds:
        """Check every row, with what names it at hand, and return its ends."""
        ends = number_ends(table, set(self.accelerator_names), self.num_accelerators)
        rows = zip(ends.vertices["src"], ends.vertices["dst"], _bandwidths(table, self.link_bandwidth), strict=True)
        sends: set[int] = set()
        for row, (src, dst, bandwidth) in enumerate(rows):
            if src == dst:
                raise ConfigError(f"{table.place(row)} joins {table['src'][row]} to itself")
            if bandwidth <= 0:
                raise ConfigError(f"{table.place(row, 'bandwidth')} is {table['bandwidth'][row]!r}; it must be > 0")
            sends.update((src, dst) if self.duplex else (src,))
        _latencies(table, self.link_latency)
        _counts(table)
        for column in ("cable_usd", "port_usd"):
            _prices(table, column, None)
        idle = next((k for k in range(ends.num_accelerators) if k not in sends), None)
        if idle is not None:
            name = ends.names[idle] if ends.names else f"a{idle}"
            raise ConfigError(f"fabric.links gives accelerator {name} no link to send on; every accelerator needs one")
        return ends

    def _check_switch_prices(self, ends: LinkEnds) -> None:
        if self.switch_usd is None:
            return
        if not isinstance(self.switch_usd, Mapping):
            self.switch_usd = _dollars(self.switch_usd, "fabric.switch_usd")
            return
        self.switch_usd = {
            str(name): _dollars(usd, f"fabric.switch_usd.{name}") for name, usd in self.switch_usd.items()
        }
        switches = self._switch_names(ends)
        known = {*switches, *map(kind_of, switches)}
        for name in self.switch_usd:
            if name not in known:
                some = ", ".join(sorted(known)[:10])
                raise ConfigError(f"fabric.switch_usd names {name!r}, which no switch has; those there are: {some}")

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
        parameters = self.core_parameters()
        sent = [0.0] * parameters["num_accelerators"]
        for column in ("src", "dst") if self.duplex else ("src",):
            for end, bandwidth in zip(parameters[column], parameters["bandwidth_bytes_per_s"], strict=True):
                if end < len(sent):
                    sent[end] += bandwidth
        return self.planes * min(sent)

    def vertex_names(self) -> tuple[str, ...]:
        """Return the names of all vertices, none where they are a<k>, s<k> or numbers."""
        return self._ends().names

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units, an entry for each cable."""
        table, ends = LinkTable(self.links), self._ends()
        counts = _counts(table)

        def each_cable(values: list[Any]) -> list[Any]:
            return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]

        return {
            "num_accelerators": ends.num_accelerators,
            "num_switches": ends.num_switches,
            "accelerators_forward": int(self.forwarding),
            "duplex": int(self.duplex),
            "src": each_cable(ends.vertices["src"]),
            "dst": each_cable(ends.vertices["dst"]),
            "bandwidth_bytes_per_s": each_cable(_bandwidths(table, self.link_bandwidth)),
            "latency_s": each_cable(_latencies(table, self.link_latency)),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def bill_of_materials(self) -> BillOfMaterials:
        """Price what prices are given for, and say what has none.

        Raises: ConfigError where no price is given at all.
        """
        table, ends = LinkTable(self.links), self._ends()
        counts, switches = _counts(table), self._switch_names(ends)
        cables, ports = (_prices(table, column, getattr(self, column)) for column in ("cable_usd", "port_usd"))
        frames = [self._switch_price(name) for name in switches]
        if all(usd is None for usd in [*cables, *ports, *frames]):
            raise ConfigError(
                "a custom fabric has a price where fabric.links or fabric.cable_usd, port_usd, switch_usd say"
            )
        rows = list(zip(ends.vertices["src"], ends.vertices["dst"], counts, strict=True))
        at_switches = [count * sum(end >= ends.num_accelerators for end in pair) for *pair, count in rows]
        parts = [
            *_parts("cables", counts, cables),
            *_parts("switch ports", at_switches, ports),
            *_parts("switches", [1] * len(switches), frames),
        ]
        without_port = {
            end - ends.num_accelerators
            for (src, dst, _), usd in zip(rows, ports, strict=True)
            for end in (src, dst)
            if usd is None and end >= ends.num_accelerators
        }
        missing = [
            _missing(
                "cable", [f"{table['src'][k]} - {table['dst'][k]}" for k, usd in enumerate(cables) if usd is None]
            ),
            _missing("switch", [switches[k] for k, usd in enumerate(frames) if usd is None and k in without_port]),
        ]
        scaled = tuple(Part(one.name, self.planes * one.count, one.usd) for one in parts)
        num_cables = {"cable": self.planes * sum(counts)}
        return OwnBill(self.planes * len(switches), num_cables, scaled, tuple(one for one in missing if one))

    def _ends(self) -> LinkEnds:
        return number_ends(LinkTable(self.links), set(self.accelerator_names), self.num_accelerators)

    def _switch_names(self, ends: LinkEnds) -> list[str]:
        if ends.names:
            return list(ends.names[ends.num_accelerators :])
        return [f"s{k}" for k in range(ends.num_switches)]

    def _switch_price(self, name: str) -> float | None:
        if not isinstance(self.switch_usd, Mapping):
            return None if self.switch_usd is None else float(self.switch_usd)
        return self.switch_usd.get(name, self.switch_usd.get(kind_of(name)))


def _words(names: Any) -> tuple[str, ...]:
    words = [names] if isinstance(names, str) else list(names) if hasattr(names, "__iter__") else []
    if not words or not all(isinstance(word, str) and word.isalpha() for word in words):
        raise ConfigError(f"fabric.accelerator_names is {names!r}; it must be a list of words such as [gpu, tpu]")
    return tuple(word.lower() for word in words)


def _dollars(value: Any, key: str) -> float:
    try:
        usd = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        usd = math.nan
    if not (math.isfinite(usd) and usd >= 0):
        raise ConfigError(f"{key} is {value!r}; it must be a number of US dollars >= 0")
    return usd


def _entries(table: LinkTable, column: str) -> list[Any]:
    """Return a column with None for empty cells."""
    given = table.get(column, [None] * len(table["src"]))
    return [None if one is None or one == "" else one for one in given]


def _bandwidths(table: LinkTable, default: Any) -> list[float]:
    return _quantities(table, "bandwidth", default, parse_bandwidth)


def _latencies(table: LinkTable, default: Any) -> list[float]:
    return _quantities(table, "latency", default, lambda value, key: check_simulated(parse_time(value, key), key))


def _quantities(table: LinkTable, column: str, default: Any, parse: Callable[[Any, str], float]) -> list[float]:
    parsed = []
    for row, given in enumerate(_entries(table, column)):
        value = default if given is None else given
        if value is None:
            raise ConfigError(f"{table.place(row)} has no {column}; give it or fabric.link_{column}")
        parsed.append(parse(value, table.place(row, column)))
    return parsed


def _counts(table: LinkTable) -> list[int]:
    counts = []
    for row, given in enumerate(_entries(table, "count")):
        is_number = isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) <= _MOST_DIGITS
        value = int(given) if is_number else given
        counts.append(1 if value is None else check_integer(table.place(row, "count"), value, 1))
    return counts


def _prices(table: LinkTable, column: str, default: float | None) -> list[float | None]:
    return [
        default if given is None else _dollars(given, table.place(row, column))
        for row, given in enumerate(_entries(table, column))
    ]


def _parts(name: str, counts: list[int], prices: list[float | None]) -> list[Part]:
    """Return the parts of each price, in the order in which the prices come."""
    total: Counter[float] = Counter()
    for count, usd in zip(counts, prices, strict=True):
        if usd is not None and count > 0:
            total[usd] += count
    return [Part(name, count, usd) for usd, count in total.items()]


def _missing(what: str, names: list[str]) -> str:
    """Return which of the parts have no price, a few by name; "" where all have."""
    if not names:
        return ""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"no price of {what} {', '.join(names[:_SHOWN])}{rest}"
