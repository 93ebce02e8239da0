"""Transport: how messages of collectives, and those between two ranks, go over links that cost something to start.

Example:
    how = transport(fabric, key, num_bytes)          # key.protocol is "LL128"
    how.startup_s, how.server_hop_s                  # once per rank; per message inside a server

On ideal links all of it is nothing.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rostam_py import _core
from rostam_py.collectives.between_servers import MIN_SWITCH_RANKS, Servers, switch_tree_depth_s, tuned_between
from rostam_py.collectives.direct_links import MOST_RANKS, are_joined
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.route_latencies import route_latencies
from rostam_py.collectives.row_exchanges import row_overhead
from rostam_py.collectives.switch_costs import region_rate, waiting_s
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.link_classes import IN_SWITCH, MIN_NVLS_RANKS, PROTOCOLS, protocols_of, tree_overhead

TREES = ("tree", "nvls_tree")
TUNED_BETWEEN = ("nvlink4", "nvlink4_xla")  # classes whose servers NCCL's model between them is known for
_MESSAGES = ("send_recv", "shift", "copy", "halo", "halo_up", "halo_down")


class Transport(NamedTuple):
    """What a protocol adds to the fabric's own latencies and rates.

    startup_s: before a rank's first message [s]. wire_overhead: bytes on links for each byte of a message.
    server_hop_s, network_hop_s: of each message inside a server, between servers [s]. server_rate: what a message
    inside a server reaches at most [bytes/s]. region_rate: what a rank's transfer through switches that reduce reaches
    at most [bytes/s].
    """

    startup_s: float = 0.0
    wire_overhead: float = 1.0
    server_hop_s: float = 0.0
    network_hop_s: float = 0.0
    server_rate: float = math.inf
    region_rate: float = math.inf


PLAIN = Transport()


def protocols_for(fabric: Fabric, collective: str, algorithm: str) -> Sequence[str]:
    """Return the protocols to choose from; one without a name where links are ideal or messages have no protocols."""
    if fabric.config.link_classes.are_ideal or collective == "all_to_all" or collective in _MESSAGES:
        return ("",)
    return protocols_of(algorithm)


def is_bandwidth_model(collective: str, algorithm: str) -> bool:
    """Return whether an algorithm is a model of bandwidth, whose messages are not those that are sent."""
    return bool(_core.models_bandwidth(collective, algorithm))


def needs_trees(collective: str, algorithm: str) -> bool:
    """Return whether an algorithm runs only where transfers may be trees, with neither packets nor adaptive routing."""
    return bool(_core.reduces_in_switches(collective, algorithm)) and algorithm not in IN_SWITCH


def is_tuned(fabric: Fabric, collective: str, algorithm: str, members: np.ndarray) -> bool:
    """Return whether the default choice may take an algorithm: on links with costs one that NCCL has, elsewhere any
    but models of bandwidth, where no direct links join ranks none that is for those, and nowhere one that runs by name
    only."""
    if _core.is_by_name_only(collective, algorithm):
        return False
    if _core.takes_direct_links(collective, algorithm):
        is_small = len(members) <= MOST_RANKS or _core.works_in_pieces(collective, algorithm)
        if not (is_small and are_joined(fabric, members)):
            return False
    classes = fabric.config.link_classes
    if _core.models_bandwidth(collective, algorithm):
        if not classes.are_ideal and algorithm == "nvls" and len(members) < MIN_NVLS_RANKS:
            return False
        # On ideal links NCCL's tree is a model of what is not there; in-switch reduction is where switches reduce.
        is_in_switch = algorithm in IN_SWITCH or _core.reduces_in_switches(collective, algorithm)
        is_weighed = not classes.are_ideal or is_in_switch
        return is_weighed and len(members) > 1 and refusal(fabric, collective, algorithm, members) is None
    if classes.are_ideal or collective == "all_to_all" or collective in _MESSAGES:
        return True
    return bool(protocols_of(algorithm))


def nccl_choices(fabric: Fabric, collective: str, num_bytes: int, members: np.ndarray) -> list[tuple[str, str]]:
    """Return algorithms and protocols, the one that NCCL's tuning model takes first (``LinkClass.choices``, and for an
    all_reduce over servers of H100s with a NIC for each ``tuned_between``); none where predicted times choose."""
    if len(members) < 2:
        return []
    config = fabric.config
    counts = np.unique(members // config.accelerators_per_server, return_counts=True)[1]
    if len(counts) == 1:
        return config.link_classes.inside.choices(collective, num_bytes, len(members))
    inside, between = config.link_classes
    is_known = inside.name in TUNED_BETWEEN and between.name == "infiniband" and config.nics_per_server > 1
    if collective != "all_reduce" or not is_known or counts.min() != counts.max() or config.reduces_in_network:
        return []
    servers = Servers(len(counts), int(counts[0]))
    return tuned_between(servers, config.injection_bandwidth_bytes_per_s, num_bytes)


def refusal(fabric: Fabric, collective: str, algorithm: str, members: np.ndarray) -> str | None:
    """Return why ranks on these accelerators cannot run an algorithm that is a model of bandwidth, or None."""
    if not _core.models_bandwidth(collective, algorithm) or len(members) == 1:
        return None
    config = fabric.config
    counts = np.unique(members // config.accelerators_per_server, return_counts=True)[1]
    num_servers = len(counts)
    if algorithm == "nvls" and num_servers > 1:
        return f"its ranks are on {num_servers} servers; it takes those of one"
    if algorithm == "collnet" and (num_servers == 1 or not config.reduces_in_network):
        return "it takes ranks of several servers and a network whose switches reduce (in_network_reduction)"
    if needs_trees(collective, algorithm):
        return _network_refusal(fabric)
    if algorithm in TREES and num_servers == 1:
        return "its ranks are on one server; it takes those of several"
    if algorithm == "tree":
        return None
    if algorithm == "nvls_tree" and config.nics_per_server == 1:
        return "its servers have one NIC; it takes one for each rank"
    if algorithm == "nvls_tree" and counts.min() < MIN_SWITCH_RANKS:
        return f"it takes {MIN_SWITCH_RANKS} ranks or more of every server"
    if counts.min() != counts.max():
        return "every server must have as many of its ranks"
    inside = config.link_classes.inside
    if not inside.is_ideal and not inside.reduces:
        return f"switches of {inside.name} do not reduce"
    if algorithm in ("nvls", "nvls_tree") and not config.reduces_in_servers:
        return "switches inside its servers do not reduce (fabric.in_server_reduction)"
    return None


def _network_refusal(fabric: Fabric) -> str | None:
    """Return why no ranks can run an algorithm for networks whose switches reduce, or None."""
    config = fabric.config
    if config.accelerators_per_server > 1:
        return "it takes networks without servers; inside one nvls runs, and between them collnet"
    if not config.link_classes.are_ideal:
        return f"links of {config.link_classes.between.name} run what NCCL has, which this is not"
    if not config.reduces_in_network:
        return "its switches do not reduce (fabric.in_network_reduction)"
    return None


def transport(fabric: Fabric, key: ScheduleKey, num_bytes: int) -> Transport:
    """Return how a collective of ``num_bytes`` goes by its schedule's protocol.

    Model: the start-up is that of the class with the greater one, the hops those of both, and what a rank does for
        itself when the last chunk has come (``LinkClass``) comes before its first message, since where it stands does
        not change the end. Rings in several channels go in step here, while a chunk of NCCL's crosses the network in
        m of p steps: each step takes the mean hop. A tree pays the hops of its depth and the latencies of their routes
        at once, up and down: a chain inside a server, one less than ranks, and the levels between m servers,
        ceil(log2 m); its one step here pays a route's itself. Of routes the longest that start at one accelerator
        count. Rows that go once to each rank (``row_exchanges``) go at a share of their links. A copy goes straight
        into another rank's memory: it starts no communicator, has no channels, and pays the hop of the protocol that
        fences behind data. On ideal links what switches that reduce wait for (``switch_costs``).
    """
    classes = fabric.config.link_classes
    if key.num_ranks == 1:
        return PLAIN
    if classes.are_ideal:
        return _ideal_transport(fabric, key)
    if key.collective == "copy":
        server_hop_s, network_hop_s = _hops(fabric, key, "ring", "Simple")
        return Transport(server_hop_s=server_hop_s, network_hop_s=network_hop_s)
    if key.collective in _MESSAGES:
        return message_transport(fabric, num_bytes, key.num_ranks, is_both_ways=key.collective != "send_recv")
    inside = classes.inside
    chunk = math.ceil(num_bytes / key.num_ranks)
    end_s = inside.end_s(key.collective, chunk, fabric.config.server_bytes_per_s)
    if key.collective == "all_to_all" and key.protocol:
        return Transport(wire_overhead=row_overhead(classes, key.protocol))
    if key.collective == "all_to_all":
        launch_s = max(one.exchange_launch_us for one in classes) * 1e-6
        rate = inside.message_rate(chunk, key.num_ranks, is_both_ways=True)
        return Transport(launch_s + end_s, server_rate=rate)
    algorithm = key.algorithm
    protocol = key.protocol or "Simple"
    if protocol not in protocols_of(algorithm):
        algorithm = "ring"  # no algorithm of NCCL: its steps are taken to cost what a ring's do
    startup_s = classes.start_up_s(algorithm, protocol)
    if algorithm in ("ring", "nvls"):
        startup_s += end_s
    hops = _hops(fabric, key, algorithm, protocol)
    if key.algorithm == "tree":
        return Transport(startup_s + _depth_s(fabric, key, hops), tree_overhead(protocol, num_bytes))
    if key.algorithm == "nvls_tree":
        return Transport(startup_s + _depth_s(fabric, key, hops), inside.overhead(algorithm, protocol))
    return Transport(startup_s, inside.overhead(algorithm, protocol), *hops)


def _ideal_transport(fabric: Fabric, key: ScheduleKey) -> Transport:
    """Return how messages go on ideal links: with a flag behind each step of an algorithm, and in packets, where a
    fabric states these (``SwitchReduction``)."""
    how = fabric.config.switch_reduction
    plain = PLAIN._replace(wire_overhead=how.wire_overhead)
    if not _core.reduces_in_switches(key.collective, key.algorithm):
        startup_s = _depth_s(fabric, key, (0.0, 0.0)) if key.algorithm in TREES else 0.0
        return plain._replace(startup_s=startup_s, server_hop_s=how.flag_s, network_hop_s=how.flag_s)
    return plain._replace(startup_s=waiting_s(fabric, key), region_rate=region_rate(fabric, key))


def _depth_s(fabric: Fabric, key: ScheduleKey, hops: tuple[float, float]) -> float:
    """Return what the depth of a tree takes up and down beyond one route's latency [s]. Args: hops: of the protocol."""
    per_server, num_servers = _servers(fabric, key)
    inside_s, between_s = route_latencies(fabric)
    if key.algorithm == "nvls_tree":
        return switch_tree_depth_s(num_servers, hops, between_s)
    depth_s = (per_server - 1) * (hops[0] + inside_s) + math.ceil(math.log2(num_servers)) * (hops[1] + between_s)
    return max(0.0, 2 * depth_s - (between_s if num_servers > 1 else inside_s))


def _hops(fabric: Fabric, key: ScheduleKey, algorithm: str, protocol: str) -> tuple[float, float]:
    classes = fabric.config.link_classes
    inside = classes.inside.hop_s(algorithm, protocol, is_inside=True)
    between = classes.between.hop_s(algorithm, protocol, is_inside=False)
    if algorithm == "ring" and key.group_size != 1 and _core.uses_servers(key.collective, key.algorithm):
        num_servers = _servers(fabric, key)[1]
        mean = (inside * (key.num_ranks - num_servers) + between * num_servers) / key.num_ranks
        return mean, mean
    return inside, between


def _servers(fabric: Fabric, key: ScheduleKey) -> tuple[int, int]:
    """Return the ranks of the fullest server, and how many servers there are; where servers have one port and ranks
    keep their order (``by_server``), as if the ranks filled them."""
    sizes = key.group_size
    if not isinstance(sizes, int):
        return max(sizes), len(sizes)
    if sizes == 1 and fabric.config.nics_per_server == 1:
        sizes = min(key.num_ranks, fabric.config.accelerators_per_server)
    return sizes, -(-key.num_ranks // sizes)


def message_transport(fabric: Fabric, num_bytes: int, num_ranks: int, *, is_both_ways: bool) -> Transport:
    """Return how a point-to-point message goes.

    Model: start-ups were measured inside servers, a hop included; between servers the difference of the hops is added.
    Args: num_ranks: of the group that it is in. is_both_ways: a rank that sends receives at the same time.
    """
    classes = fabric.config.link_classes
    if classes.are_ideal:
        return PLAIN
    rate = classes.inside.message_rate(num_bytes, num_ranks, is_both_ways=is_both_ways)
    inside_s = classes.inside.hop_s("ring", "Simple", is_inside=True)
    between_s = classes.between.hop_s("ring", "Simple", is_inside=False)
    return Transport(
        max(one.message_launch_us for one in classes) * 1e-6, network_hop_s=max(0.0, between_s - inside_s),
        server_rate=rate,
    )  # fmt: skip


def add_protocol(graph: "_core.TaskGraph", how: Transport) -> int:
    """Add a transport's protocol to the core's task graph and return its index."""
    server_hop_ps, network_hop_ps = (round(hop * 1e12) for hop in (how.server_hop_s, how.network_hop_s))
    return int(graph.add_protocol(how.wire_overhead, server_hop_ps, network_hop_ps, how.server_rate, how.region_rate))


def check_protocol(fabric: Fabric, collective: str, algorithm: str, protocol: str | None) -> None:
    """Raise ConfigError for a protocol that an algorithm on these links does not have."""
    if protocol is None:
        return
    if protocol not in PROTOCOLS:
        raise ConfigError(f"protocol is {protocol!r}; protocols: {', '.join(PROTOCOLS)}")
    known = protocols_for(fabric, collective, algorithm)
    if protocol not in known:
        allowed = ", ".join(filter(None, known)) or "none"
        raise ConfigError(
            f"protocol is {protocol!r}, but {collective} by {algorithm} on {fabric.describe()} has: {allowed}"
        )
