"""What the schemas of all fabrics share: bandwidths, latency, planes, and the checks of single values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rostam_py.checks import check_booleans, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials, parts_per_port
from rostam_py.fabrics.link_classes import IDEAL, LinkClass, LinkClasses, link_class
from rostam_py.fabrics.switch_reduction import SwitchReduction
from rostam_py.field_words import in_brackets
from rostam_py.units import check_simulated, parse_bandwidth, parse_time

if TYPE_CHECKING:
    from rostam_py import _core
    from rostam_py.fabrics.blocks import CompactOrder
    from rostam_py.fabrics.circuits import Circuits
    from rostam_py.fabrics.layout import Layout
    from rostam_py.fabrics.switching import Switching
    from rostam_py.fabrics.traffic import Traffic

# HammingMesh, section III: 16 ports of 400 Gb/s (800 GB/s) into every accelerator package, on every fabric.
DEFAULT_ACCELERATOR_BANDWIDTH = "6400 Gb/s"


# Accelerators of an example: enough to see a fabric's shape, few enough to draw each.
EXAMPLE_SIZE = 16

# Vertices and directed links are int32 in the core; a link count stays below some hundred times this.
MAX_COUNT = 2**24


def check_integer(key: str, value: Any, minimum: int) -> int:
    """Return ``value`` as an int.

    Raises: ConfigError naming key, value and the allowed range.
    """
    if not is_integer(value) or int(value) < minimum:
        raise ConfigError(f"{key} is {value!r}; it must be an integer >= {minimum}")
    if int(value) > MAX_COUNT:
        raise ConfigError(f"{key} is {value!r}; it must be <= {MAX_COUNT}")
    return int(value)


def check_dims(key: str, values: Any, minimum: int, what: str) -> tuple[int, ...]:
    """Return a list or tuple of integers as a tuple; a list is what Hydra hands down.

    Raises: ConfigError naming the first bad entry.
    """
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ConfigError(f"{key} is {values!r}; it must be a list of integers such as [4, 4]")
    checked = tuple(values)
    for i, value in enumerate(checked):
        if not is_integer(value) or int(value) < minimum:
            raise ConfigError(f"{key}[{i}] is {value!r}; every {what} must be an integer >= {minimum}")
    if not checked:
        raise ConfigError(f"{key} is empty; it needs at least one {what}")
    return tuple(int(value) for value in checked)


@dataclass(kw_only=True, slots=True)
class FabricConfig:
    """Parameters of every fabric; each fabric's Config adds its own.

    Model: B = planes x ports per plane x link bandwidth, in each direction (MODEL A1). Messages stripe equally
        over the planes and one plane is simulated: a message of S bytes puts S / planes on it.
    Args:
        link_bandwidth: bandwidth of a link and direction ["400 Gb/s", or bytes/s as a number].
        accelerator_bandwidth: B [as above]; give at most one of the two. Default "6400 Gb/s", the 16 ports of
            400 Gb/s of HammingMesh, section III.
        link_latency: latency of one link ["20 ns", or seconds as a number].
        planes: number of identical parallel planes, >= 1.
    """

    # Whether the price list has every switch of the fabric, so that its price may be compared with others'.
    is_fully_priced: ClassVar[bool] = True
    # Whether light joins accelerators over circuits that are set for demands, at once or in a run.
    has_circuits: ClassVar[bool] = False
    # Whether direct links between a server's accelerators decide the channels of rings (``ring_channels``).
    has_direct_links: ClassVar[bool] = False

    link_bandwidth: Any = field(default=None, metadata={"unit": "bandwidth"})
    accelerator_bandwidth: Any = field(default=None, metadata={"unit": "bandwidth"})
    link_latency: Any = field(default="20 ns", metadata={"unit": "time"})
    planes: int = 1

    def __post_init__(self) -> None:
        check_booleans("fabric", self)
        self.planes = check_integer("fabric.planes", self.planes, 1)
        if self.link_bandwidth is not None and self.accelerator_bandwidth is not None:
            raise ConfigError(
                f"fabric.link_bandwidth is {self.link_bandwidth!r} and fabric.accelerator_bandwidth is "
                f"{self.accelerator_bandwidth!r}; give one of them, the other follows"
            )
        for entry in fields(self):
            self._check_quantity(entry.name, entry.metadata.get("unit"))

    def _check_quantity(self, name: str, unit: str | None) -> None:
        value = getattr(self, name)
        if unit == "bandwidth" and value is not None and parse_bandwidth(value, f"fabric.{name}") == 0:
            raise ConfigError(f"fabric.{name} is {value!r}; it must be > 0")
        if unit == "time" and value is not None:
            check_simulated(parse_time(value, f"fabric.{name}"), f"fabric.{name}")

    @classmethod
    def example(cls) -> Self:
        """Return a small fabric of this kind that shows its shape: the one drawn, tested and tried first."""
        return cls(**cls.resized({}, EXAMPLE_SIZE))

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with what decides the size replaced: here ``num_accelerators``, any number of them.

        Args: parameters: of this Config, required ones of the size may be missing. num_accelerators: >= 1.
        Raises: ConfigError for a size that this kind of fabric, with these parameters, cannot have.
        """
        if "num_accelerators" not in (entry.name for entry in fields(cls)):
            keys = ", ".join(entry.name for entry in fields(cls) if entry not in fields(FabricConfig))
            raise ConfigError(
                f"num_accelerators is {num_accelerators}, but cannot size this fabric: its size follows from {keys}"
            )
        return {**parameters, "num_accelerators": num_accelerators}

    @classmethod
    def whole_size(cls, num_accelerators: int) -> int:
        """Return the least size, of at least so many accelerators, that a fabric of this kind has in whole servers."""
        return num_accelerators

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Return where the vertices of a fabric of this Config are drawn, and how its links run.

        Model: in layers by the distance from accelerators; on a circle without switches.
        Args:
            fabric: a Fabric of this Config; with circuits, its links are those.
            level: 0 draws every vertex by itself, 1 what belongs together (a leaf, a board) as one, each further
                level twice as many.
        """
        from rostam_py.fabrics.layout import num_vertices
        from rostam_py.fabrics.layout_circle import draw_circle
        from rostam_py.fabrics.layout_tiers import draw_layers

        is_circle = fabric.is_circuit_switched or num_vertices(fabric) == fabric.num_accelerators
        return (draw_circle if is_circle else draw_layers)(fabric, level)

    @property
    def ports_per_plane(self) -> int:
        """Links that an accelerator has in one plane."""
        return 1

    @property
    def injection_bandwidth_bytes_per_s(self) -> float:
        """B: what one accelerator can send, and receive, over all planes [bytes/s]."""
        if self.link_bandwidth is not None:
            bandwidth = parse_bandwidth(self.link_bandwidth, "fabric.link_bandwidth")
            return self.planes * self.ports_per_plane * bandwidth
        given = self.accelerator_bandwidth
        return parse_bandwidth(
            DEFAULT_ACCELERATOR_BANDWIDTH if given is None else given, "fabric.accelerator_bandwidth"
        )

    @property
    def link_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of one accelerator link of one plane, in each direction [bytes/s]."""
        if self.link_bandwidth is not None:
            return parse_bandwidth(self.link_bandwidth, "fabric.link_bandwidth")
        return self.injection_bandwidth_bytes_per_s / (self.planes * self.ports_per_plane)

    @property
    def peak_bandwidth_bytes_per_s(self) -> float:
        """What an accelerator can send, or receive, at most over every link that it has: B, or more [bytes/s]."""
        return self.injection_bandwidth_bytes_per_s

    @property
    def parts_per_link(self) -> int:
        """Priced parts that stand for one link: those of its bandwidth in every plane (MODEL 28)."""
        return self.planes * parts_per_port(self.link_bandwidth_bytes_per_s)

    @property
    def is_circuit_switched(self) -> bool:
        """Whether routes need circuits (MODEL G)."""
        return False

    @property
    def optical_parts(self) -> dict[str, int]:
        """How many there are of the kinds of parts that only this fabric has and that may fail during a run."""
        return {}

    def optical_part(self, kind: str, number: int, failures: Any) -> tuple[int, int] | None:
        """Return the core's kind and id of a part that circuits go through; None if it failed before the run.

        Args: kind: of FAILING_KINDS, except accelerators and boards. failures: before the run.
        """
        raise NotImplementedError(f"{type(self).__name__} has no circuits")

    def around_failures(self) -> "FabricConfig":
        """Return a Config whose circuits a controller sets around parts that fail in a run; this one without any."""
        return self

    @property
    def is_dynamic(self) -> bool:
        """Whether circuits are set anew during a run."""
        return False

    def unread_keys(self) -> tuple[str, ...]:
        """Return a note for every key that differs from its default and that nothing reads, because of another."""
        return ()

    @property
    def serves_beyond_degree(self) -> bool:
        """Whether an accelerator may have more peers than circuits: by relays, or by one circuit after another."""
        return False

    @property
    def nics_per_server(self) -> int:
        """Accelerators of a server, numbered consecutively, where each has its own port to the network; else 1.

        Rings and hierarchical collectives then use the ports of all ranks on a server (MODEL 6a).
        """
        return 1

    def ring_channels(self, places: Sequence[int], num_servers: int) -> tuple[tuple[int, ...], ...]:
        """Return orders of a server's ranks for the channels of a ring, where direct links decide them; else none.

        Args: places: of the ranks in their server, in rank order. num_servers: with ranks at these places; of several,
            a channel enters each at the first rank of its order and leaves it at the last.
        """
        return ()

    @property
    def link_classes(self) -> LinkClasses:
        """What kinds of links it has: ideal ones, where nothing is said."""
        return LinkClasses(IDEAL, IDEAL)

    def with_link_classes(self, change: Callable[[LinkClass], LinkClass]) -> Self:
        """Return these parameters with each class of links replaced by what ``change`` makes of it."""
        keys = [entry.name for entry in fields(self) if entry.metadata.get("is_link_class")]
        changed: dict[str, Any] = {key: change(link_class(getattr(self, key), f"fabric.{key}")) for key in keys}
        return replace(self, **changed)

    @property
    def accelerators_per_server(self) -> int:
        """Accelerators of a server, numbered consecutively; 1 without servers."""
        return 1

    @property
    def server_bytes_per_s(self) -> float:
        """What an accelerator achieves inside its server over all planes, of its link classes' share [bytes/s]."""
        return self.injection_bandwidth_bytes_per_s

    @property
    def reduces_in_servers(self) -> bool:
        """Whether the switches inside servers add up what comes through them: as the class of their links says."""
        return self.link_classes.inside.reduces

    @property
    def reduces_in_network(self) -> bool:
        """Whether the switches between servers add up what comes through them."""
        return False

    @property
    def switch_reduction(self) -> SwitchReduction:
        """What switches that reduce are like; ideal ones, where nothing is said."""
        return SwitchReduction()

    def nearest_with_layers(self, layers: int) -> str:
        """Return, in words, the nearest fabric of this kind with addresses for as many layers; "" where unknown."""
        return ""

    def max_circuit_degree(self, failures: Any) -> int | None:
        """Return how many peers an accelerator can have, with these failed parts; None without a limit."""
        return None

    def can_connect(self, src: np.ndarray, dst: np.ndarray, failures: Any) -> np.ndarray:
        """Return, for each pair, whether data get from src to dst at all, as booleans: not where light would fade."""
        return np.ones(len(src), dtype=bool)

    def set_circuits(self, traffic: "Traffic", failures: Any, seed: int) -> "Circuits":
        """Return the circuits of a demand on the working parts, of a fabric that needs circuits."""
        raise NotImplementedError

    def switchings(self) -> list["Switching"]:
        """Return how circuits next to an electrical network are set anew in a run, each on its own; none without."""
        return []

    def describe_remainder(self) -> str | None:
        """Return what of the bandwidth cannot be used, or None."""
        return None

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units: {name: number or array}."""
        raise NotImplementedError

    def build(self, name: str) -> "_core.Fabric":
        """Return the core's fabric of one plane.

        Args: name: as registered; the core has a fabric of that name, or the Config overrides this.
        """
        from rostam_py import _core

        return _core.make_fabric(name, self.core_parameters())

    def vertex_names(self) -> tuple[str, ...]:
        """Return the user's names of all vertices, accelerators first; none where there are only numbers."""
        return ()

    def ring_order(self) -> list[int] | None:
        """Return all accelerators in the order of a ring over neighbours, or None where numbering serves."""
        return None

    def numberings(self) -> list[np.ndarray]:
        """Return the orders that accelerators would have with the dimensions in other orders; none without any."""
        return []

    def grid(self) -> np.ndarray | None:
        """Return all accelerators by place on the torus that they form, or None where they form none."""
        return None

    def compact_orders(self, degrees: Sequence[int], num_blocks: int) -> "list[CompactOrder]":
        """Return orders of all accelerators in which consecutive ones lie close, where numbering does not see to it.

        Args: degrees: of parallelism, the innermost first: each ``degrees[0]`` consecutive accelerators talk most, then
            each ``degrees[0] x degrees[1]``, and so on. num_blocks: of all degrees that are needed.
        Returns: the most compact ones; none where numbering serves, or no blocks of this size fit.
        """
        return []

    def bill_of_materials(self) -> BillOfMaterials:
        """Price switches and cables of all planes; a link, and a switch, count ``parts_per_link`` times.

        Raises: ConfigError for a fabric that cannot be bought.
        """
        raise ConfigError(f"{type(self).__name__} describes a fabric that is ideal or has no prices")


def make_config(name: str, schema: type[FabricConfig], params: dict[str, Any]) -> FabricConfig:
    """Return ``schema(**params)``.

    Raises: ConfigError for unknown or missing parameters, listing those there are.
    """
    known = {entry.name: entry for entry in fields(schema)}
    for key in params:
        if key not in known:
            hint = in_brackets(key, params[key], lambda other: other.removeprefix("fabric.") in known)
            raise ConfigError(f"fabric {name!r} has no parameter {key!r}{hint}; it has {', '.join(sorted(known))}")
    for key, entry in known.items():
        if key not in params and entry.default is MISSING and entry.default_factory is MISSING:
            raise ConfigError(f"fabric.{key} is missing; fabric {name!r} needs it")
    return schema(**params)
