"""Fabric: the Python face of one frozen core fabric, with its failures and prices."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.circuits import Circuits, check_demand
from rostam_py.fabrics.config import FabricConfig
from rostam_py.fabrics.failures import (
    FAILURE_KINDS,
    FAILURE_PLANES,
    FAILURE_SCOPES,
    Failures,
    check_choice,
    count_of,
    share_of,
)
from rostam_py.fabrics.lids import check_lids
from rostam_py.fabrics.link_classes import LinkClass
from rostam_py.fabrics.optical import check_routing_over, refuse_failures
from rostam_py.fabrics.routings import layers_of
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.units import format_bandwidth, parse_time

# Distance of vertices that nothing connects, as the core has it.
_UNREACHABLE = 2**30
# Of every link's bandwidth and latency, arrays, and of the latency of forwarding.
LinkFactors = tuple[np.ndarray, np.ndarray, float]


class Fabric:
    """A built fabric; nothing about it changes. Copies with failed parts come from ``with_failures``.

    Model: ``planes`` planes stand side by side and a message of S bytes stripes over them (MODEL A1). Planes that are
        alike are simulated as one, which carries S / planes; a failure hits one plane, unless it says otherwise, and
        a message then stripes over the planes in which its pair is connected, in proportion to what each offers it.
        Accelerators that failures cut off in every plane count as failed.
        An optical fabric holds ports, switches and fibres; routes need ``with_circuits`` (MODEL G22), and its
        failures hit every plane, since all planes have the same circuits.
    Args: name: registered name. config: its Config. failures: parts that do not work. demand: (traffic, seed) that
        circuits are set for. factors: of its links, as ``with_factors`` takes them. apart: planes simulated on their
        own, as ``with_planes_apart`` takes them.
    """

    def __init__(
        self,
        name: str,
        config: FabricConfig,
        failures: Failures | None = None,
        demand: tuple[Traffic, int] | None = None,
        factors: LinkFactors | None = None,
        apart: tuple[int, ...] = (),
    ) -> None:
        intact = config.build(name)
        self._fill(name, config, intact, _checked(failures or Failures(), intact, config), demand, apart)
        self._apply(factors)

    def _fill(
        self,
        name: str,
        config: FabricConfig,
        intact: "_core.Fabric",
        failures: Failures,
        demand: tuple[Traffic, int] | None,
        apart: tuple[int, ...] = (),
    ) -> None:
        """Set every field: ``intact`` is the core's fabric of one plane as built, ``apart`` as of with_planes_apart."""
        self._apart = apart
        self._name = name
        self._config = config
        self._intact = intact
        self._vertex_names = config.vertex_names()
        failed = ("links", "switches", "accelerators")
        refuse_failures(self, [f"failures.{kind}" for kind in failed if getattr(failures, kind)])
        self._planes, self._failures = _failed_planes(intact, config, failures, apart)
        self._cores = [core for core, _ in self._planes]
        self._demand = demand
        self._circuits = None
        self._factors: LinkFactors | None = None
        if demand is not None:
            demand = (demand[0].only(self.healthy_accelerators), demand[1])
            self._demand = demand
            self._circuits = config.set_circuits(demand[0], self.failures, demand[1])
            self._cores = [_circuit_core(self, self._circuits)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._config, self._failures, self._demand, self._factors, self._apart)

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
        """The core's fabric of plane 0; with circuits, one link a connected pair."""
        return self._cores[0]

    @property
    def plane_classes(self) -> list[tuple[int, ...]]:
        """The planes, those that are alike together, each class ascending and the classes by their first plane."""
        return [planes for _, planes in self._planes]

    @property
    def num_accelerators(self) -> int:
        """Accelerators, failed ones included."""
        return int(self._intact.num_accelerators)

    @property
    def num_switches(self) -> int:
        """Switches of all planes, failed ones included; those inside servers of a fat tree are not counted."""
        return self.planes * int(self._intact.num_switches)

    @property
    def num_links(self) -> int:
        """Cables of all planes (each two directed links), failed ones included; not those inside servers of a tree."""
        return self.planes * int(self._intact.num_cables)

    @property
    def num_boards(self) -> int:
        """Boards, failed ones included, each of consecutive accelerators; 0 where the fabric has none."""
        return int(self._intact.num_boards)

    def num_parts(self, kind: str) -> int:
        """Return how many parts of a kind of FAILING_KINDS may fail during a run, failed ones included."""
        counts = {
            "links": self.num_links, "switches": self.num_switches, "accelerators": self.num_accelerators,
            "boards": self.num_boards, "planes": 0 if self.is_circuit_switched else self.planes,
        }  # fmt: skip
        return counts.get(kind, 0) or self._config.optical_parts.get(kind, 0)

    @property
    def planes(self) -> int:
        """Planes side by side; a message stripes over them."""
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
        """Directed links of one plane of each class (with circuits: one a connected pair), a structured array (links,).

        Fields: src, dst (vertices: accelerators first, then switches, then NICs and switches inside servers),
        bandwidth_bytes_per_s, latency_s, cable (ids of all planes), bundle (-1: none), is_failed, plane (the first one
        of its class: planes that are alike have the same links).
        """
        tables = []
        for core, planes in zip(self._cores, self.plane_classes, strict=True):
            columns = core.link_columns()
            columns["cable"] = columns["cable"] + planes[0] * int(self._intact.num_cables)
            columns["plane"] = np.full(len(columns["src"]), planes[0], np.int32)
            table = np.empty(len(columns["src"]), dtype=[(key, values.dtype) for key, values in columns.items()])
            for key, values in columns.items():
                table[key] = values
            tables.append(table)
        return tables[0] if len(tables) == 1 else np.concatenate(tables)

    @property
    def num_directed_links(self) -> int:
        """Entries of ``links``."""
        return sum(int(core.num_directed_links) for core in self._cores)

    def vertex_name(self, vertex: int) -> str:
        """Return "accelerator 3", "switch 0" (as ``with_failures`` counts them), "NIC 3" or "server 0".

        A fabric whose vertices the user named has those names.
        """
        if self._vertex_names:
            return self._vertex_names[vertex]
        part = vertex - self.num_accelerators - int(self._intact.num_switches)
        if part >= self.num_accelerators:
            return f"server {part - self.num_accelerators}"
        if part >= 0:
            return f"NIC {part}"
        is_switch = vertex >= self.num_accelerators
        return f"switch {vertex - self.num_accelerators}" if is_switch else f"accelerator {vertex}"

    @property
    def failures(self) -> Failures:
        """The parts that have failed, in all planes."""
        return self._failures

    @property
    def healthy_accelerators(self) -> np.ndarray:
        """Ids of the accelerators that work, ascending."""
        return np.asarray(self._planes[0][0].healthy_accelerators(), dtype=np.int64)

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
            slowest pairs (MODEL G21, G22): the largest possible, or a heuristic's (its Config says how far from the
            optimum). Circuits set before are dropped; later failures set them again.
        Args: traffic: of one iteration. seed: of the rounding to whole wavelengths, >= 0.
        Raises: ConfigError for a fabric without circuits, or a demand that it cannot hold.
        """
        if not self.is_circuit_switched:
            raise ConfigError(f"fabric {self._name!r} switches packets and has no circuits to set")
        seed = check_seed("seed", seed)
        check_demand(traffic, self.num_accelerators, self.healthy_accelerators)
        return self._changed(self._failures, (traffic, seed))

    def ring_order(self) -> np.ndarray:
        """Return the working accelerators in an order that suits rings.

        On a torus it is a Hamiltonian cycle, so that every step of a ring is one link (longer near failed
        accelerators); elsewhere it is the numbering, which fills leaves and servers consecutively.
        """
        order = self._config.ring_order()
        healthy = self.healthy_accelerators
        if order is None:
            return healthy
        ring = np.asarray(order, dtype=np.int64)
        return ring[np.isin(ring, healthy)]

    def grid(self) -> np.ndarray | None:
        """Return the accelerators by their places on the torus that they form, int array of its sides.

        None where they form none, or where accelerators have failed; cut links and switches only lengthen paths.
        """
        return None if self.failures.accelerators else self._config.grid()

    def diameter(self) -> int:
        """Return the longest shortest path between working accelerators, in links.

        Raises: NoRouteError if failures cut two of them apart.
        Cost: constant where a closed form holds, else links x accelerators, those on one switch counted once.
        """
        if len(self._cores) == 1:
            return int(self._cores[0].diameter())
        healthy = self.healthy_accelerators
        alike = np.array([core.first_alike() for core in self._cores])[:, healthy]  # in every plane
        targets = healthy[np.unique(alike, axis=1, return_index=True)[1]]
        return max(int(self._hops_to(int(dst))[healthy].max()) for dst in sorted(targets))

    def _hops_to(self, dst: int) -> np.ndarray:
        """Return links from every accelerator to ``dst`` in the plane where they are fewest, int array.

        Raises: NoRouteError if a working one has no path in any plane.
        """
        hops = np.min([core.search_distances(dst)[: self.num_accelerators] for core in self._cores], axis=0)
        cut = [int(src) for src in self.healthy_accelerators if hops[src] >= _UNREACHABLE]
        if cut:
            raise NoRouteError(
                f"no path is left from accelerator {cut[0]} to accelerator {dst} of fabric {self._name} in any plane"
            )
        return hops

    def router(
        self,
        routing: str = "spray",
        *,
        message_overhead: str | float = 0.0,
        enable_bundling: bool = True,
    ) -> "_core.RouteTable":
        """Return the core's routes over this fabric; each session needs its own.

        Args: routing: a registered one, layers:8 for layers with another number of them than its own. message_overhead:
            added to every message's latency [s]. enable_bundling: false makes every link an engine link of its own.
        Raises: ConfigError for an unknown routing, listing those there are, an optical fabric without circuits, layers
            that take more addresses than InfiniBand has, or paths over circuits that are set anew for others.
        """
        if self.is_circuit_switched and self._circuits is None:
            raise ConfigError(
                f"fabric {self._name!r} has no circuits, so nothing can be routed; set them for the demand with "
                "fabric.with_circuits(traffic)"
            )
        check_routing_over(self, routing)
        if layers := layers_of(routing):
            num_switches = int(self._intact.num_switches)
            check_lids(routing, layers, self.num_accelerators, num_switches, self._config.nearest_with_layers(layers))
        overhead_s = parse_time(message_overhead, "message_overhead")
        planes = [(core, len(alike)) for core, alike in zip(self._cores, self.plane_classes, strict=True)]
        return _core.make_routes(routing, planes, overhead_s, enable_bundling)

    def with_failures(
        self,
        *,
        switches: Iterable[int] = (),
        links: Iterable[int] = (),
        accelerators: Iterable[int] = (),
        boards: Iterable[int] = (),
        planes: str = "one",
    ) -> "Fabric":
        """Return this fabric with more parts failed, each in its plane.

        Circuits are set again for the same demand, less that of failed accelerators.
        Args:
            switches: ids from 0, plane by plane: number k of plane p is p x (switches of a plane) + k.
            links: cable ids, the field ``cable`` of ``links`` (of a fabric without circuits), plane by plane as well.
            accelerators: ids; they fail in every plane.
            boards: ids, row-major; a failed board is all of its accelerators.
            planes: "all" fails the same switches and links in every plane; ids are then those of plane 0.
        Raises: ConfigError for ids that do not exist, and for boards where the fabric has none. A pair that is cut
            apart in every plane raises NoRouteError when routed, unless one of the two counts as failed by itself.
        """
        check_choice("planes", planes, FAILURE_PLANES)
        is_everywhere = planes == "all" or self.is_circuit_switched
        lost = _ids("accelerators", accelerators, self.num_accelerators)
        lost += self._intact.accelerators_on(_ids("boards", boards))
        parts = {}
        for kind, given, count in (
            ("switches", switches, int(self._intact.num_switches)),
            ("links", links, int(self._intact.num_cables)),
        ):
            ids = _ids(kind, given, count if is_everywhere else count * self.planes)
            if is_everywhere and not self.is_circuit_switched:
                ids = [plane * count + one for plane in range(self.planes) for one in ids]
            parts[kind] = ids
        before = self._failures
        more = Failures(
            _merged(before.switches, parts["switches"]),
            _merged(before.links, parts["links"]),
            _merged(set(before.accelerators) - set(before.cut_off), lost),
        )
        return self._changed(more, self._demand)

    def with_random_failures(
        self,
        kind: str = "links",
        count: int | str = 1,
        seed: int = 0,
        *,
        scope: str = "network",
        planes: str = "one",
    ) -> "Fabric":
        """Return this fabric with ``count`` more working parts failed, drawn with ``seed`` (>= 0).

        Args:
            kind: "switches", "links", "accelerators", or "boards" on a fabric that has any; a board works while one of
                its accelerators does.
            count: how many, or a share of those that work such as "5%".
            scope: of links: "network" draws from every cable except those of accelerators that do not forward, "host"
                from those, "all" from every cable.
            planes: "one" draws from the parts of all planes; "all" from those of one and fails them in every plane.
        Raises: ConfigError for another kind, more parts than work, or a share of parts that the fabric has none of.
        """
        check_choice("kind", kind, FAILURE_KINDS)
        check_choice("failures.scope", scope, FAILURE_SCOPES)
        check_choice("failures.planes", planes, FAILURE_PLANES)
        checked_seed = check_seed("failures.seed", seed)
        if kind == "boards" and self.num_boards == 0:
            raise ConfigError(
                f"failures.boards is {count}, but fabric {self._name!r} has no boards; fail accelerators, switches or"
                " links instead"
            )
        pool = self._working_parts(kind, scope, is_everywhere=planes == "all")
        wanted = count_of(f"failures.{kind}", count, len(pool))
        within = f" of scope {scope!r}" if kind == "links" and scope != "all" else ""
        if not pool and share_of(f"failures.{kind}", count):
            raise ConfigError(f"failures.{kind} is {count}, but fabric {self._name!r} has no working {kind}{within}")
        if wanted > len(pool):
            raise ConfigError(f"failures.{kind} is {count}; allowed: 0..{len(pool)}, the working {kind}{within}")
        drawn = [pool[k] for k in _core.draw_parts(len(pool), wanted, checked_seed)]
        failed: dict[str, Any] = {kind: drawn}
        return self.with_failures(**failed, planes=planes)

    def _working_parts(self, kind: str, scope: str, *, is_everywhere: bool) -> list[int]:
        """Return ids of working parts, of all planes or, where failures hit every plane, of those whole in each."""
        if kind in ("accelerators", "boards"):
            return list(self._planes[0][0].working_parts(kind, scope))
        of_class = [set(core.working_parts(kind, scope)) for core, _ in self._planes]
        if is_everywhere or self.is_circuit_switched:
            return sorted(set.intersection(*of_class))
        count = int(self._intact.num_switches if kind == "switches" else self._intact.num_cables)
        of_plane = {plane: ids for ids, (_, alike) in zip(of_class, self._planes, strict=True) for plane in alike}
        return [plane * count + one for plane in range(self.planes) for one in sorted(of_plane[plane])]

    def bill_of_materials(self) -> BillOfMaterials:
        """Price switches and cables of all planes.

        Raises: ConfigError for fabrics that are ideal or have parts without a price.
        """
        try:
            return self._config.bill_of_materials()
        except ConfigError as error:
            raise ConfigError(f"fabric {self._name!r} has no bill of materials: {error}") from error

    @property
    def network_usd(self) -> float | None:
        """Price of switches and cables [US dollars], None without a bill of materials or where it lacks prices."""
        try:
            bill = self._config.bill_of_materials()
        except ConfigError:
            return None
        return None if bill.missing_prices else float(bill.total_usd)

    @property
    def missing_prices(self) -> tuple[str, ...]:
        """What a bill of materials lacks prices of; none without a bill."""
        try:
            return self._config.bill_of_materials().missing_prices
        except ConfigError:
            return ()

    def describe(self) -> str:
        """Return one line for tables: name, size, bandwidth and failures."""
        parts = [f"{self._name}, {self.num_accelerators:,} accelerators"]
        parts.append(f"{format_bandwidth(self.injection_bandwidth_bytes_per_s)} each")
        if self.planes > 1:
            parts.append(f"{self.planes} planes")
        parts += [f"{count} {what}" for what, count in self._failures.counts().items()]
        remainder = self._config.describe_remainder()
        if remainder is not None:
            parts.append(remainder)
        if self._circuits is not None:
            parts.append(f"{self._circuits.num_circuits:,} circuits")
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: sizes, bandwidth, price, failed parts."""
        usd = self.network_usd
        failed = [f"{count:,} {what}" for what, count in self._failures.counts().items()]
        pairs = {
            "accelerators": f"{self.num_accelerators:,}",
            "bandwidth": f"{format_bandwidth(self.injection_bandwidth_bytes_per_s)} an accelerator",
            "planes": f"{self.planes}" if self.planes > 1 else None,
            "switches": f"{self.num_switches:,}",
            "cables": f"{self.num_links:,}",
            "price": None if usd is None else f"{usd:,.0f} USD",
            "circuits": f"{self._circuits.num_circuits:,}" if self._circuits is not None else None,
            "failed": ", ".join(failed) or None,
        }
        return html_pairs(f"fabric {self._name}", pairs)

    def failures_in(self, plane: int) -> Failures:
        """Return the failed parts of one plane by their ids in plane 0."""
        if self.is_circuit_switched:
            return self._failures
        return _in_plane(self._failures, self._intact, plane)

    def with_planes_apart(self, planes: Iterable[int]) -> "Fabric":
        """Return this fabric with planes simulated each on its own, as those are that something will happen to.

        Nothing else changes; an optical fabric is returned as it is, since all its planes have the same circuits.
        Raises: ConfigError for planes that do not exist.
        """
        wanted = _ids("planes", planes, self.planes)
        apart = tuple(sorted({*self._apart, *wanted}))
        if self.is_circuit_switched or self.planes == 1 or apart == self._apart:
            return self
        return Fabric(self._name, self._config, self._failures, self._demand, self._factors, apart)

    def with_factors(self, bandwidth: Any = 1.0, latency: Any = 1.0, forward_latency: float = 1.0) -> "Fabric":
        """Return this fabric with faster or slower links; its parameters and prices stay as they are.

        Args: bandwidth: what the links' bandwidths are multiplied by, a number or one for each of ``links``, > 0.
            latency: what their latencies are divided by, likewise. forward_latency: what that of switches is.
        Raises: ConfigError for other factors, or where it has some already.
        """
        if self._factors is not None:
            raise ConfigError(f"fabric {self._name!r} has factors of its links already; start from the one without")
        count = sum(len(core.link_columns()["src"]) for core in self._cores)
        spread = [np.broadcast_to(np.asarray(one, dtype=float), (count,)) for one in (bandwidth, latency)]
        changed = self._changed(self._failures, self._demand)
        changed._apply((spread[0], spread[1], float(forward_latency)))
        return changed

    def with_link_classes(self, change: Callable[[LinkClass], LinkClass]) -> "Fabric":
        """Return this fabric on other classes of links: bandwidths of their links, start-ups, hops, ends and rates.

        Args: change: a class to what replaces it; the same parts have failed, and circuits are of the same demand.
        """
        return Fabric(
            self._name, self._config.with_link_classes(change), self._failures, self._demand, self._factors, self._apart
        )

    def with_circuits_around_failures(self) -> "Fabric":
        """Return this fabric with circuits that a controller sets around parts that fail in a run."""
        config = self._config.around_failures()
        return Fabric(self._name, config, self._failures, self._demand, self._factors, self._apart)

    def _apply(self, factors: LinkFactors | None) -> None:
        """Make the links of all planes as fast as factors say."""
        self._factors = factors
        if factors is None:
            return
        ends = np.cumsum([len(core.link_columns()["src"]) for core in self._cores])
        parts = [np.split(one, ends[:-1]) for one in factors[:2]]
        self._cores = [core.with_factors(*own, factors[2]) for core, *own in zip(self._cores, *parts, strict=True)]

    def _changed(self, failures: Failures, demand: tuple[Traffic, int] | None) -> "Fabric":
        """Return a fabric with these failures, and circuits for what of the demand is left on it."""
        if self._factors is not None:
            raise ConfigError(f"fabric {self._name!r} has factors of its links; fail parts and set circuits before")
        changed = object.__new__(type(self))
        changed._fill(self._name, self._config, self._intact, failures, demand, self._apart)
        return changed


def check_fabric(value: Any) -> Fabric:
    """Return ``value``, a Fabric.

    Raises: ConfigError for anything else, a registered name say.
    """
    if not isinstance(value, Fabric):
        raise ConfigError(f"fabric is {value!r}; it must be a Fabric, as rostam.fabric(name, ...) returns it")
    return value


def _in_plane(failures: Failures, intact: "_core.Fabric", plane: int) -> Failures:
    def own(ids: tuple[int, ...], count: int) -> tuple[int, ...]:
        return tuple(one - plane * count for one in ids if one // count == plane)

    switches, links = int(intact.num_switches), int(intact.num_cables)
    return Failures(
        own(failures.switches, switches), own(failures.links, links), failures.accelerators, failures.cut_off
    )


def _failed_planes(
    intact: "_core.Fabric", config: FabricConfig, failures: Failures, apart: tuple[int, ...]
) -> tuple[list[tuple["_core.Fabric", tuple[int, ...]]], Failures]:
    """Return (core of one plane, planes like it) for each class of planes, and all failures.

    Accelerators that are cut off in every plane have failed in addition.
    """
    all_planes = tuple(range(config.planes))
    if not failures and not apart:
        return [(intact, all_planes)], failures
    classes: dict[tuple[Any, Any, int], list[int]] = {}
    for plane in all_planes:
        own = failures if config.is_circuit_switched else _in_plane(failures, intact, plane)
        classes.setdefault((own.switches, own.links, plane if plane in apart else -1), []).append(plane)
    lost = list(failures.accelerators)
    cores = [intact.with_failures(list(switches), list(links), lost) for switches, links, _ in classes]
    cut_off = set(failures.cut_off)
    if not config.is_circuit_switched:  # what joins accelerators of an optical fabric is its circuits
        cut_off |= set.intersection(*(set(core.cut_off()) for core in cores)) - set(lost)
    if cut_off:
        cores = [core.with_failures([], [], sorted(cut_off)) for core in cores]
    merged = _merged(lost, cut_off)
    planes = [tuple(alike) for alike in classes.values()]
    return list(zip(cores, planes, strict=True)), Failures(
        failures.switches, failures.links, merged, tuple(sorted(cut_off))
    )


def _checked(failures: Failures, intact: "_core.Fabric", config: FabricConfig) -> Failures:
    """Return failures of parts that exist.

    Raises: ConfigError for ids that do not.
    """
    num_planes = 1 if config.is_circuit_switched else config.planes
    _ids("switches", failures.switches, num_planes * int(intact.num_switches))
    _ids("links", failures.links, num_planes * int(intact.num_cables))
    _ids("accelerators", failures.accelerators, int(intact.num_accelerators))
    if not set(failures.cut_off) <= set(failures.accelerators):
        raise ConfigError(f"failures.cut_off is {list(failures.cut_off)}; each must be one of failures.accelerators")
    return failures


def _merged(before: Iterable[int], more: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*before, *more}))


def _circuit_core(fabric: Fabric, circuits: Circuits) -> "_core.Fabric":
    """Return the core's fabric of one plane's circuits, with the accelerators failed that have."""
    src, dst, bandwidth_bytes_per_s, latency_s = circuits.links
    core = _core.make_circuit_fabric(
        fabric.name, fabric.num_accelerators, src, dst, bandwidth_bytes_per_s / fabric.planes, latency_s,
        is_relay_enabled=bool(getattr(fabric.config, "relay", False)),
    )  # fmt: skip
    return core.with_failures([], [], list(fabric.failures.accelerators))


def _ids(kind: str, values: Iterable[int], count: int = 2**31) -> list[int]:
    """Return ids below ``count`` as a list.

    Raises: ConfigError naming the first that does not exist.
    """
    ids: list[int] = check_integers(f"failures.{kind}", values).tolist()
    for value in ids:
        if value < 0:
            raise ConfigError(f"failures.{kind} holds {value}; it must be an integer >= 0")
        if value >= count:
            allowed = f"0..{count - 1}" if count else "none"
            raise ConfigError(f"failures.{kind} names {value}; this fabric's {kind} are {allowed}")
    return ids
