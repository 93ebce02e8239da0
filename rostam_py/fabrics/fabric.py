"""Fabric: the Python face of one frozen core fabric, with its failures and prices."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed
from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.circuits import Circuits, check_demand
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.units import format_bandwidth, parse_time

# Parts that can be drawn to fail, and what that means.
FAILURE_KINDS = {
    "links": "cables that fail",
    "switches": "switches that fail",
    "accelerators": "accelerators that fail",
    "boards": "boards that fail, with all on them (hammingmesh, torus)",
}


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed parts by id, each tuple sorted: switches from 0, cables of one plane, accelerators."""

    switches: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    accelerators: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.switches or self.links or self.accelerators)


class Fabric:
    """A built fabric; nothing about it changes. Copies with failed parts come from ``with_failures``.

    Model: one plane is held; ``planes`` identical ones stand side by side and a message of S bytes puts
        S / planes on each (MODEL A1). Failures name no plane, so they hit every one.
        An optical fabric holds ports, switches and fibres; routes need ``with_circuits`` (MODEL G22).
    Args: name: registered name. config: its Config. failures: parts that do not work. demand: (traffic, seed) that
        circuits are set for.
    """

    def __init__(
        self,
        name: str,
        config: FabricConfig,
        failures: Failures | None = None,
        demand: tuple[Traffic, int] | None = None,
    ) -> None:
        core = config.build(name)
        if failures:
            core = core.with_failures(failures.switches, failures.links, failures.accelerators)
        self._fill(name, config, core, demand)

    def _fill(self, name: str, config: FabricConfig, parts: "_core.Fabric", demand: tuple[Traffic, int] | None) -> None:
        """Set every field: ``parts`` is the core's fabric as built; routes run over the one that circuits make."""
        self._name = name
        self._config = config
        self._parts = parts
        self._core = parts
        self._demand = demand
        self._circuits = None
        if demand is not None:
            self._circuits = config.set_circuits(demand[0], self.failures, demand[1])
            self._core = _circuit_core(self, self._circuits)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._config, self.failures, self._demand)

    def __repr__(self) -> str:
        return f"Fabric({self.describe()})"

    @property
    def name(self) -> str:
        """Registered name."""
        return self._name

    @property
    def demand(self) -> tuple[Traffic, int] | None:
        """Traffic and seed that its circuits are set for; None without circuits."""
        return self._demand

    @property
    def config(self) -> FabricConfig:
        """The parameters it was built from."""
        return self._config

    @property
    def core(self) -> "_core.Fabric":
        """The core's fabric (one plane), as routers and sessions take it; with circuits, one link a connected pair."""
        return self._core

    @property
    def num_accelerators(self) -> int:
        """Accelerators, failed ones included."""
        return int(self._parts.num_accelerators)

    @property
    def num_switches(self) -> int:
        """Switches of all planes, failed ones included; those inside servers of a fat tree are not counted."""
        return self.planes * int(self._parts.num_switches)

    @property
    def num_links(self) -> int:
        """Cables of all planes (each two directed links), failed ones included; not those inside servers of a tree."""
        return self.planes * int(self._parts.num_cables)

    @property
    def num_boards(self) -> int:
        """Boards, failed ones included, each of consecutive accelerators; 0 where the fabric has none."""
        return int(self._parts.num_boards)

    @property
    def planes(self) -> int:
        """Identical planes; a message stripes equally over them."""
        return self._config.planes

    @property
    def injection_bandwidth_bytes_per_s(self) -> float:
        """B: what one accelerator can send, and receive, over all planes [bytes/s]."""
        return self._config.injection_bandwidth_bytes_per_s

    @property
    def plane_bandwidth_bytes_per_s(self) -> float:
        """What one accelerator can send, and receive, in the one plane that is simulated: B / planes [bytes/s]."""
        return self.injection_bandwidth_bytes_per_s / self.planes

    @property
    def links(self) -> np.ndarray:
        """Directed links of one plane (with circuits: one a connected pair), a structured array (directed links,).

        Fields: src, dst (vertices: accelerators first, then switches, then NICs and switches inside servers),
        bandwidth_bytes_per_s, latency_s, cable, bundle (-1: none), is_failed.
        """
        columns = self._core.link_columns()
        table = np.empty(len(columns["src"]), dtype=[(key, values.dtype) for key, values in columns.items()])
        for key, values in columns.items():
            table[key] = values
        return table

    def vertex_name(self, vertex: int) -> str:
        """Return "accelerator 3", "switch 0" (as ``with_failures`` counts them), "NIC 3" or "server 0"."""
        part = vertex - self.num_accelerators - int(self._parts.num_switches)
        if part >= self.num_accelerators:
            return f"server {part - self.num_accelerators}"
        if part >= 0:
            return f"NIC {part}"
        is_switch = vertex >= self.num_accelerators
        return f"switch {vertex - self.num_accelerators}" if is_switch else f"accelerator {vertex}"

    @property
    def failures(self) -> Failures:
        """The parts that have failed."""
        core = self._parts
        return Failures(tuple(core.failed_switches), tuple(core.failed_links), tuple(core.failed_accelerators))

    @property
    def healthy_accelerators(self) -> np.ndarray:
        """Ids of the accelerators that work, ascending."""
        return np.asarray(self._parts.healthy_accelerators(), dtype=np.int64)

    @property
    def is_circuit_switched(self) -> bool:
        """Whether routes need circuits: an optical fabric."""
        return self._config.is_circuit_switched

    @property
    def max_circuit_degree(self) -> int | None:
        """Peers that an accelerator can send to, and receive from; None without a limit (MODEL C12)."""
        return self._config.max_circuit_degree(self.failures)

    def can_connect(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return, for each pair of accelerators, whether a circuit could join them, as booleans."""
        return self._config.can_connect(src, dst, self.failures)

    @property
    def circuits(self) -> Circuits | None:
        """The circuits that ``with_circuits`` set, else None."""
        return self._circuits

    def with_circuits(self, traffic: Traffic, *, seed: int = 0) -> "Fabric":
        """Return this fabric with circuits set for a demand: a link for every connected pair, and so routes.

        Model: the least bandwidth / bytes over the demanded pairs is made large, then left-over bandwidth goes to the
            slowest pairs (MODEL G21, G22): the largest possible on sip_ocs but for what duplex loses, by a greedy
            heuristic on sip_ring (``SipRingConfig`` says how far from the optimum). Circuits set before are dropped;
            later failures set them again.
        Args: traffic: of one iteration. seed: of the rounding to whole wavelengths, >= 0.
        Raises: ConfigError for a fabric without circuits, or a demand that it cannot hold.
        """
        if not self.is_circuit_switched:
            raise ConfigError(f"fabric {self._name!r} switches packets and has no circuits to set")
        seed = check_seed("seed", seed)
        check_demand(traffic, self.num_accelerators, self.healthy_accelerators)
        return self._with_parts(self._parts, (traffic, seed))

    def ring_order(self) -> np.ndarray:
        """Return the working accelerators in an order that suits rings.

        On a torus it is a Hamiltonian cycle, so that every step of a ring is one link (longer beside failed
        accelerators); elsewhere it is the numbering, which fills leaves and servers consecutively.
        """
        order = self._config.ring_order()
        healthy = self.healthy_accelerators
        if order is None:
            return healthy
        ring = np.asarray(order, dtype=np.int64)
        return ring[np.isin(ring, healthy)]

    def grid(self) -> np.ndarray | None:
        """Return the accelerators as (rows, columns) of the 2D torus that they form, int array.

        None where they form none, or where accelerators have failed; cut links and switches only lengthen paths.
        """
        return None if self.failures.accelerators else self._config.grid()

    def diameter(self) -> int:
        """Return the longest shortest path between working accelerators, in links.

        Raises: NoRouteError if failures cut two of them apart.
        Cost: constant where a closed form holds, else accelerators x links.
        """
        return int(self._core.diameter())

    def router(
        self,
        routing: str = "spray",
        *,
        message_overhead: str | float = 0.0,
        enable_bundling: bool = True,
    ) -> "_core.RouteTable":
        """Return the core's routes over this fabric; each session needs its own.

        Args: routing: a registered one. message_overhead: added to every message's latency [s]. enable_bundling:
            false makes every link an engine link of its own.
        Raises: ConfigError for an unknown routing, listing those there are, or an optical fabric without circuits.
        """
        if self.is_circuit_switched and self._circuits is None:
            raise ConfigError(
                f"fabric {self._name!r} has no circuits, so nothing can be routed; set them for the demand with "
                "fabric.with_circuits(traffic)"
            )
        overhead_s = parse_time(message_overhead, "message_overhead")
        return _core.make_routes(routing, [(self._core, self.planes)], overhead_s, enable_bundling)

    def with_failures(
        self,
        *,
        switches: Iterable[int] = (),
        links: Iterable[int] = (),
        accelerators: Iterable[int] = (),
        boards: Iterable[int] = (),
    ) -> "Fabric":
        """Return this fabric with more parts failed, in every plane.

        Circuits are set again for the same demand, less that of failed accelerators.
        Args: switches: ids from 0. links: cable ids, the field ``cable`` of ``links`` (of a fabric without circuits).
            accelerators: ids. boards: ids, row-major; a failed board is all of its accelerators.
        Raises: ConfigError for ids that do not exist, and for boards where the fabric has none. A pair that is cut
            apart raises NoRouteError when routed.
        """
        lost = _ids("accelerators", accelerators) + list(self._parts.accelerators_on(_ids("boards", boards)))
        parts = self._parts.with_failures(_ids("switches", switches), _ids("links", links), lost)
        return self._with_parts(parts, self._demand)

    def with_random_failures(self, kind: str = "links", count: int = 1, seed: int = 0) -> "Fabric":
        """Return this fabric with ``count`` more working parts failed, drawn with ``seed`` (>= 0).

        Args: kind: "switches", "links", "accelerators", or "boards" on a fabric that has any (hammingmesh, and a
            torus of several boards); a board works while one of its accelerators does.
        Raises: ConfigError for another kind or more parts than work.
        """
        if kind not in FAILURE_KINDS:
            raise ConfigError(f"kind is {kind!r}; it must be one of: {', '.join(FAILURE_KINDS)}")
        checked_count, checked_seed = check_integer(f"failures.{kind}", count, 0), check_seed("failures.seed", seed)
        if kind == "boards" and self.num_boards == 0:
            raise ConfigError(
                f"failures.boards is {count}, but fabric {self._name!r} has no boards; fail accelerators, switches or"
                " links instead"
            )
        parts = self._parts.with_random_failures(kind, checked_count, checked_seed)
        return self._with_parts(parts, self._demand)

    def bill_of_materials(self) -> BillOfMaterials:
        """Price switches and cables of all planes.

        Raises: ConfigError for ideal fabrics, which nobody can buy.
        """
        try:
            return self._config.bill_of_materials()
        except ConfigError as error:
            raise ConfigError(f"fabric {self._name!r} has no bill of materials: it is ideal or unpriced") from error

    def describe(self) -> str:
        """Return one line for tables: name, size, bandwidth and failures."""
        parts = [f"{self._name}, {self.num_accelerators:,} accelerators"]
        parts.append(f"{format_bandwidth(self.injection_bandwidth_bytes_per_s)} each")
        if self.planes > 1:
            parts.append(f"{self.planes} planes")
        for entry in fields(Failures):
            count = len(getattr(self.failures, entry.name))
            if count:
                parts.append(f"{count} {entry.name} failed")
        remainder = self._config.describe_remainder()
        if remainder is not None:
            parts.append(remainder)
        if self._circuits is not None:
            parts.append(f"{self._circuits.num_circuits:,} circuits")
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: sizes, bandwidth, price, failed parts."""
        try:
            price: str | None = f"{self.bill_of_materials().total_usd:,.0f} USD"
        except ConfigError:
            price = None
        failed = [f"{len(ids):,} {kind}" for kind, ids in asdict(self.failures).items() if ids]
        pairs = {
            "accelerators": f"{self.num_accelerators:,}",
            "bandwidth": f"{format_bandwidth(self.injection_bandwidth_bytes_per_s)} an accelerator",
            "planes": f"{self.planes}" if self.planes > 1 else None,
            "switches": f"{self.num_switches:,}",
            "cables": f"{self.num_links:,}",
            "price": price,
            "circuits": f"{self._circuits.num_circuits:,}" if self._circuits is not None else None,
            "failed": ", ".join(failed) or None,
        }
        return html_pairs(f"fabric {self._name}", pairs)

    def _with_parts(self, parts: "_core.Fabric", demand: tuple[Traffic, int] | None) -> "Fabric":
        """Return a fabric of these parts, with circuits for what of the demand is left on them."""
        if demand is not None:
            healthy = np.asarray(parts.healthy_accelerators(), dtype=np.int64)
            demand = (demand[0].only(healthy), demand[1])
        changed = object.__new__(type(self))
        changed._fill(self._name, self._config, parts, demand)
        return changed


def _circuit_core(fabric: Fabric, circuits: Circuits) -> "_core.Fabric":
    """Return the core's fabric of one plane's circuits, with the accelerators failed that have."""
    core = _core.make_circuit_fabric(
        fabric.name, fabric.num_accelerators, circuits.src, circuits.dst,
        circuits.bandwidth_bytes_per_s / fabric.planes, circuits.latency_s,
        is_relay_enabled=bool(getattr(fabric.config, "relay", False)),
    )  # fmt: skip
    return core.with_failures([], [], list(fabric.failures.accelerators))


def _ids(kind: str, values: Iterable[int]) -> list[int]:
    ids: list[int] = check_integers(f"failures.{kind}", values).tolist()
    for value in ids:
        if not 0 <= value < 2**31:
            raise ConfigError(f"failures.{kind} holds {value}; it must be an integer >= 0")
    return ids
