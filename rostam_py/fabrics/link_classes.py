"""Link classes: what kind of link a fabric has, how much of its data sheet's rate is achieved, and what starting costs.

Example:
    LINK_CLASSES.get("nvlink4").share                       # of 450 GB/s, what NCCL's rings achieve
    LINK_CLASSES.get("nvlink4").start_up_s("ring", "LL")    # once per collective
    LINK_CLASSES.get("nvlink4").hop_s("ring", "LL")         # per step

A class is a line here and, unless it is ideal, constants in links/NAME.json, which ``make calibrate`` fits on measured
tables (docs/collectives.md).
"""

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rostam_py.errors import ConfigError
from rostam_py.registry import Registry

LINKS = Path(__file__).parent / "links"

LINK_CLASSES = Registry("link class")
LINK_CLASSES.add("ideal", "rostam_py.fabrics.link_classes:IDEAL")
LINK_CLASSES.add("nvlink2", "rostam_py.fabrics.link_classes:NVLINK2")
LINK_CLASSES.add("nvlink3", "rostam_py.fabrics.link_classes:NVLINK3")
LINK_CLASSES.add("nvlink4", "rostam_py.fabrics.link_classes:NVLINK4")
LINK_CLASSES.add("nvlink4_xla", "rostam_py.fabrics.link_classes:NVLINK4_XLA")
LINK_CLASSES.add("nvlink5", "rostam_py.fabrics.link_classes:NVLINK5")
LINK_CLASSES.add("nvlink5_xla", "rostam_py.fabrics.link_classes:NVLINK5_XLA")
LINK_CLASSES.add("infiniband", "rostam_py.fabrics.link_classes:INFINIBAND")

# Bytes on the wire for each byte of payload. LL sends four bytes of flag with four of data, LL128 eight with 120.
# Source: NCCL src/device/prims_ll.h, prims_ll128.h; calibration.md: 50%, 120/128.
PROTOCOLS = {"LL": 2.0, "LL128": 128 / 120, "Simple": 1.0}


class _Tuned(NamedTuple):
    """What NCCL's tuning model takes: once per collective, per step over NVLink, per step over the network [us]."""

    base: float
    inside: float
    between: float


# Source: NCCL src/graph/tuning.cc, tables of base and hardware latencies (2.19).
_TUNING = {
    "ring": {"LL": _Tuned(6.6, 0.6, 2.7), "LL128": _Tuned(14.0, 1.9, 4.0), "Simple": _Tuned(8.4, 3.4, 14.0)},
    "tree": {"LL": _Tuned(6.8, 0.6, 5.0), "LL128": _Tuned(14.0, 1.25, 8.5), "Simple": _Tuned(8.4, 4.0, 14.0)},
    "nvls": {"Simple": _Tuned(0.0, 25.0, 18.0)},
    # In-switch reduction over InfiniBand: NCCL's CollNet row has 31 us over the network and NVLS inside the server.
    "collnet": {"Simple": _Tuned(0.0, 25.0, 31.0)},
    "nvls_tree": {"Simple": _Tuned(0.0, 25.0, 14.0)},
}


# A tree's bandwidth over that of its links; that of LL over Simple's; and what its pipeline reaches at 64 B, 128 B, ...
# of buffer. Source: NCCL src/graph/tuning.cc (2.19), ncclTopoTuneModel and treeCorrectionFactor.
_TREE_SHARE = 0.92
_TREE_LL = 3.8
_TREE_FILLED = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "Simple": (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9,
        0.9,
    ),
}  # fmt: skip


def tree_overhead(protocol: str, num_bytes: int) -> float:
    """Return the bytes that a pipelined tree's links are busy for, for each byte of a message.

    Model: NCCL's factors; its pipeline's between two powers of two linear in the logarithm, so that no greater buffer
        takes less time.
    """
    flags = _TREE_LL if protocol == "LL" else PROTOCOLS[protocol]
    filled = _TREE_FILLED[protocol]
    at = min(max(math.log2(max(1, num_bytes)) - 6, 0.0), len(filled) - 1.0)
    low = min(int(at), len(filled) - 2)
    return flags / (_TREE_SHARE * (filled[low] + (at - low) * (filled[low + 1] - filled[low])))


class _Channels(NamedTuple):
    """What NCCL opens on a kind of link inside a server: ring channels, those of in-switch reduction, and whether rings
    between servers double theirs while they have fewer than 16."""

    rings: int
    switch: int = 0
    doubles: bool = False


# Source: twice the rings that NCCL's search finds (ncclTopoPostset in src/graph/connect.cc): 6 over a V100's links
# (issue 713), 12 over an A100's 12 links and, of 30 GB/s, over an H100's 18 (a log of eight H100 has more than 20,
# issue 1259; eight links of an H800 make 16, issue 892). A B200's are taken to be the H100's. In-switch:
# ncclNvlsChannels in src/transport/nvls.cc, of one NVLink domain. Doubled: compute capability 9.0 and later, rings of
# more than 45 GB/s (connect.cc).
_CHANNELS = {
    "nvlink2": _Channels(12), "nvlink3": _Channels(24), "nvlink4": _Channels(24, 16, True),
    "nvlink4_xla": _Channels(24, 16, True), "nvlink5": _Channels(24, 24, True), "nvlink5_xla": _Channels(24, 24, True),
}  # fmt: skip
NO_CHANNELS = _Channels(0)


class _Rates(NamedTuple):
    """What NCCL's tuning model gives links inside a server [bytes/s]. rings: bus bandwidth by protocol. switch: what
    each rank, up to eight, adds to the algorithm bandwidth of in-switch reduction."""

    rings: dict[str, float]
    switch: float = 0.0


# Source: NCCL src/graph/tuning.cc (2.27 to 2.29), one server. Rings, by src/graph/topo.h, the speeds of search.cc and
# the doubling of connect.cc: 12 of 20 GB/s on A100, 12 of 30 on H100, 16 of 45 on B200. LL at most 87.7, 141 and 282
# GB/s, and half of these; LL128 0.92 of these and at most 20, 36.7 and 40 for each ring. In-switch: a channel for each
# rank, of 50 GB/s on H100 and 90 on B200, of which 0.85 and 0.74, and p - 1 in p, count, both halves at once.
_A100 = _Rates({"LL": 87.7e9, "LL128": 220.8e9, "Simple": 240e9})
_H100 = _Rates({"LL": 141e9, "LL128": 331.2e9, "Simple": 360e9}, switch=0.85 * 50e9)
_B200 = _Rates({"LL": 282e9, "LL128": 640e9, "Simple": 720e9}, switch=0.74 * 90e9)
_RATES = {"nvlink3": _A100, "nvlink4": _H100, "nvlink4_xla": _H100, "nvlink5": _B200, "nvlink5_xla": _B200}
_MAX_SWITCH_RANKS = 8


# NCCL's bus bandwidths of 2 to 4 H100 are those of rings, in-switch reduction taken or not: it starts with five.
# Source: calibration/measured/collectives_published.csv; four H100 of XLA's table are slower still.
MIN_NVLS_RANKS = 5


IN_SWITCH = ("nvls", "collnet", "nvls_tree")
# Ends grow more slowly than the chunk: what 2 ranks take beyond their bytes grows 1.3 to 1.7 times where the size
# doubles. Of powers 1, 0.75 and 0.6 the middle one meets the tables of A100 and H100 best (docs/collectives.md).
_END_BYTES, END_POWER = 2**20, 0.75


def tuned_latencies(algorithm: str, protocol: str) -> tuple[float, float, float]:
    """Return base, hop over NVLink and hop over the network of NCCL's tuning table [us]."""
    return _TUNING[algorithm][protocol]


def protocols_of(algorithm: str) -> list[str]:
    """Return the protocols that an algorithm has; none for one that NCCL's tuning table does not list."""
    return list(_TUNING.get(algorithm, ()))


@dataclass(frozen=True, kw_only=True)
class LinkClass:
    """Constants of one kind of link; each holds for any number of ranks and bytes.

    Model: a collective takes start_up_s + steps x (hop_s + chunk x overhead / (share x rate)) + end_s, where a chunk is
        what a rank passes on in a step, one part in p of the buffer. The last term is what a rank does for itself that
        no transfer hides (``end_s``).
    share: achieved by rings with the Simple protocol, of the data sheet's rate. launch_us: once per collective on top
        of NCCL's base. base_factor: share of that base.
        hop_factor: measured hops over those of NCCL's table. copy_end, reduce_end, all_reduce_end,
        own_end: in an all_gather, a reduce_scatter, an all_reduce, an all_to_all, the end of a chunk of 1 MiB over its
        time on the link. nvls_launch_us: as launch_us, of in-switch
        reduction. nvls_overhead: bytes that in-switch reduction costs for each byte that crosses a link, None where
        switches do not reduce. exchange_launch_us: of an all_to_all. message_launch_us: of a point-to-point message.
        channels: of point-to-point, at most. channel_gb_per_s: of one channel. both_ways: of that, what is left in
        each direction where a rank sends and receives at once. tuned: protocols of rings among which NCCL's
        tuning model chooses inside one server (``choices``); none where the fastest by these constants meets the tables
        better. sources: files and rows that the constants were fitted on.
    """

    name: str
    share: float = 1.0
    launch_us: float = 0.0
    hop_factor: float = 0.0
    copy_end: float = 0.0
    reduce_end: float = 0.0
    all_reduce_end: float = 0.0
    own_end: float = 0.0
    nvls_launch_us: float = 0.0
    nvls_overhead: float | None = None
    exchange_launch_us: float = 0.0
    message_launch_us: float = 0.0
    channels: int = 0
    channel_gb_per_s: float = 0.0
    both_ways: float = 1.0
    base_factor: float = 1.0
    tuned: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def is_ideal(self) -> bool:
        """Whether it costs nothing to start and achieves all of its rate."""
        return self.name == "ideal"

    @property
    def reduces(self) -> bool:
        """Whether its switches add up what comes through them."""
        return self.nvls_overhead is not None

    @property
    def constants(self) -> dict[str, Any]:
        """What its file states; ``base_factor`` is 1 in all of them."""
        return {key: value for key, value in vars(self).items() if key not in ("name", "base_factor")}

    @property
    def opened(self) -> _Channels:
        """The channels that NCCL opens on such links; none on those that are no NVLink."""
        return _CHANNELS.get(self.name, NO_CHANNELS)

    def scaled(self, bandwidth: float = 1.0, latency: float = 1.0) -> "LinkClass":
        """Return links of this kind of which more is achieved, or which start sooner.

        Model: ends and in-switch reduction follow the share; channels of messages have a rate of their own.
        Args: bandwidth: what achieved rates are multiplied by. latency: what start-ups and hops are divided by.
        """
        return replace(
            self, share=self.share * bandwidth, channel_gb_per_s=self.channel_gb_per_s * bandwidth,
            base_factor=self.base_factor / latency, launch_us=self.launch_us / latency,
            nvls_launch_us=self.nvls_launch_us / latency, exchange_launch_us=self.exchange_launch_us / latency,
            message_launch_us=self.message_launch_us / latency, hop_factor=self.hop_factor / latency,
        )  # fmt: skip

    def start_up_s(self, algorithm: str, protocol: str) -> float:
        """Return what a collective takes before its first message [s]."""
        return (self.launch_us_of(algorithm) + self.base_factor * _TUNING[algorithm][protocol].base) * 1e-6

    def launch_us_of(self, algorithm: str) -> float:
        """Return what a collective takes once on top of NCCL's base [us]."""
        return self.nvls_launch_us if algorithm in IN_SWITCH else self.launch_us

    def end_s(self, collective: str, chunk_bytes: float, rate: float) -> float:
        """Return what a rank does for itself that no transfer hides [s]: copying its own chunk, adding to the last one.

        Model: nothing in collectives without a chunk of its own, whose last piece is small.
        Args: chunk_bytes: of a rank. rate: achieved [bytes/s].
        """
        ends = {
            "all_reduce": self.all_reduce_end,
            "reduce_scatter": self.reduce_end,
            "all_gather": self.copy_end,
            "all_to_all": self.own_end,
        }
        return ends.get(collective, 0.0) * (_END_BYTES / rate) * (chunk_bytes / _END_BYTES) ** END_POWER

    def hop_s(self, algorithm: str, protocol: str, *, is_inside: bool) -> float:
        """Return what each step takes besides latency and bytes [s]. is_inside: of links inside servers."""
        tuned = _TUNING[algorithm][protocol]
        return self.hop_factor * (tuned.inside if is_inside else tuned.between) * 1e-6

    def choices(self, collective: str, num_bytes: float, num_ranks: int) -> list[tuple[str, str]]:
        """Return algorithms and protocols of a collective inside one server, the one that NCCL takes first; none where
        the class leaves the choice to predicted times (``tuned``), or NCCL's rates are not known.

        Model: NCCL's own, base + steps x hop + bytes / algorithm bandwidth, whatever the links really take. In-switch
            reduction from five ranks on, as everywhere here.
        Args: num_bytes: of the whole buffer. num_ranks: two or more.
        Source: NCCL src/graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime.
        """
        passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(collective, 0)
        if not self.tuned or not passes or not has_rates(self.name):
            return []
        rates, steps = _RATES[self.name], passes * (num_ranks - 1)
        times = {}
        for protocol in self.tuned:
            base, inside, _ = _TUNING["ring"][protocol]
            seconds = num_bytes * steps / num_ranks / rates.rings[protocol]
            times["ring", protocol] = (base + steps * inside) * 1e-6 + seconds
        if passes == 2 and self.nvls_overhead is not None and num_ranks >= MIN_NVLS_RANKS:
            base, inside, _ = _TUNING["nvls"]["Simple"]
            seconds = num_bytes / (min(num_ranks, _MAX_SWITCH_RANKS) * rates.switch)
            times["nvls", "Simple"] = (base + inside) * 1e-6 + seconds
        return sorted(times, key=lambda one: times[one])

    def overhead(self, algorithm: str, protocol: str) -> float:
        """Return the bytes on the wire for each byte of a message."""
        if algorithm in IN_SWITCH:
            return self.nvls_overhead or 1.0
        return PROTOCOLS[protocol]

    def message_rate(self, num_bytes: int, num_ranks: int, *, is_both_ways: bool) -> float:
        """Return what one point-to-point message can reach inside a server [bytes/s].

        Model: NCCL gives a message channels / ranks channels, rounded down to a power of two, and doubles them while
            each has more than 16 MiB, 32 steps of its 512 KiB buffer.
        Args: num_ranks: of the communicator. is_both_ways: ranks that send receive at the same time.
        Source: NCCL src/enqueue.cc, channels of point-to-point; fitted on permutes (sources).
        """
        if self.channels == 0:
            return float("inf")
        count = self.message_channels(num_bytes, num_ranks)
        return count * self.channel_gb_per_s * 1e9 * (self.both_ways if is_both_ways else 1.0)

    def message_channels(self, num_bytes: int, num_ranks: int) -> int:
        """Return the channels of a point-to-point message inside a server, 0 where none are known (message_rate)."""
        if self.channels == 0:
            return 0
        count = 1 << max(0, (self.channels // max(1, num_ranks)).bit_length() - 1)
        while count * 2 <= self.channels and num_bytes > count * _CHANNEL_BYTES:
            count *= 2
        return count


_CHANNEL_BYTES = 16 * 2**20


class LinkClasses(NamedTuple):
    """The links of a fabric. inside: servers. between: servers, or of all links where there are no servers."""

    inside: LinkClass
    between: LinkClass

    @property
    def are_ideal(self) -> bool:
        """Whether neither costs anything to start and both achieve all of their rate."""
        return self.inside.is_ideal and self.between.is_ideal

    def start_up_s(self, algorithm: str, protocol: str) -> float:
        """Return what a collective takes before its first message [s]: that of the class that takes more on top of
        NCCL's base, of equal ones of that inside servers, so that one class alone has the base."""
        return max(self, key=lambda one: (one.launch_us_of(algorithm), not one.is_ideal)).start_up_s(
            algorithm, protocol
        )


def read_link_class(name: str, folder: Path = LINKS) -> LinkClass:
    """Return the class whose constants are in ``folder``/NAME.json."""
    constants = json.loads((folder / f"{name}.json").read_text())
    for stated in ("held_out", "harness"):
        constants.pop(stated, None)
    return LinkClass(name=name, **constants | {"tuned": tuple(constants["tuned"])})


def has_rates(name: str) -> bool:
    """Return whether it is known what NCCL's tuning model gives a class's links."""
    return name in _RATES


# Mean and largest absolute error allowed on rows that were not fitted; of collectives that are not named, the last.
HELD_OUT_RULES = {"all_reduce": (0.10, 0.25)}
HELD_OUT_RULE = (0.15, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutCollective:
    """Errors of a class on the rows of one collective in one table that it was not fitted on, 1 MiB to 1 GiB.

    num_even, num_held_out: such rows, of even sizes and of the number of ranks that was held out. absolute, signed:
    means of predicted over measured time - 1. worst: the largest, at worst_bytes and worst_ranks. is_rival: the table
    measured the same links by other means, and has a class of its own.
    """

    device: str
    collective: str
    table: str
    num_fitted: int
    num_even: int
    num_held_out: int
    absolute: float
    signed: float
    worst: float
    worst_bytes: int
    worst_ranks: int
    is_rival: bool = False

    @property
    def is_miss(self) -> bool:
        """Whether it breaks the rule."""
        mean, largest = HELD_OUT_RULES.get(self.collective, HELD_OUT_RULE)
        return self.absolute > mean or abs(self.worst) > largest


def held_out_of(name: str, folder: Path = LINKS) -> list[HeldOutCollective]:
    """Return the errors that the file of a class states; none for classes without a table of their own."""
    path = folder / f"{name}.json"
    stated = json.loads(path.read_text()).get("held_out", ()) if path.exists() else ()
    return [HeldOutCollective(**one) for one in stated]


def link_class(name: Any, key: str) -> LinkClass:
    """Return the class that a parameter names, or is (``FabricConfig.with_link_classes``).

    Raises: ConfigError for a name that is not registered.
    """
    if isinstance(name, LinkClass):
        return name
    if name not in LINK_CLASSES:
        raise ConfigError(f"{key} is {name!r}; link classes: {', '.join(LINK_CLASSES.names())}")
    found: LinkClass = LINK_CLASSES.get(name)
    return found


def check_server_reduction(given: bool | None, server_size: int, classes: LinkClasses) -> None:
    """Raise ConfigError where fabric.in_server_reduction is true and no switch inside servers could reduce."""
    if not given:
        return
    if server_size == 1:
        raise ConfigError("fabric.in_server_reduction is true, but fabric.server_size is 1; it needs servers")
    if not classes.inside.is_ideal and not classes.inside.reduces:
        able = ", ".join(name for name in LINK_CLASSES.names() if LINK_CLASSES.get(name).reduces)
        raise ConfigError(
            f"fabric.in_server_reduction is true, but fabric.server_links is {classes.inside.name!r}, whose switches do"
            f" not reduce; those of {able} do, and ideal ones may"
        )


IDEAL = LinkClass(name="ideal")
NVLINK2 = read_link_class("nvlink2")
NVLINK3 = read_link_class("nvlink3")
NVLINK4 = read_link_class("nvlink4")
NVLINK4_XLA = read_link_class("nvlink4_xla")
NVLINK5 = read_link_class("nvlink5")
NVLINK5_XLA = read_link_class("nvlink5_xla")
INFINIBAND = read_link_class("infiniband")
