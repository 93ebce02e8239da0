"""What collectives cost that switches add up or copy: what they wait for, how fast data go, and predicted times.

Example:
    waiting_s(fabric, key)        # flags and accesses to memory, once per collective
    region_rate(fabric, key)      # of each rank's transfer, by tables, speed-up, injection and waves
"""

import math
from dataclasses import dataclass

import numpy as np

from rostam_py import _core
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.route_latencies import route_latencies
from rostam_py.fabrics.fabric import Fabric


def waiting_s(fabric: Fabric, key: ScheduleKey) -> float:
    """Return what ranks wait for besides the crossings of a schedule's steps [s].

    Model: L one crossing, s the flag behind a step, g an access to memory. pull: all ranks are ready (L + s), requests
        (L), an access (g) and sums (L), results and a flag (L + s); its reduce_scatter ends with the sums. push: data
        (L), an access (g), all ranks are through (L + s). multicast: all are ready (L + s), data and a flag (L + s).
        nvls is a pull whose one step pays L once, so that three crossings are left; collnet a pull inside its servers
        around a push between them.
    Source: Klenk et al. (ISCA 2020): a pull needs a barrier before, so that no stale data are read, a push one after.
    """
    how = fabric.config.switch_reduction
    inside_s, between_s = route_latencies(fabric)
    pull_s = 2 * how.flag_s + how.memory_s
    if key.algorithm == "nvls":
        return 3 * inside_s + pull_s
    if key.algorithm == "collnet":
        has_servers = key.group_size != 1
        crossings_s = 2 * between_s + (4 * inside_s if has_servers else 0.0)
        return crossings_s - max(between_s, inside_s) + how.flag_s + how.memory_s + (pull_s if has_servers else 0.0)
    if key.algorithm == "multicast":
        return 2 * how.flag_s
    return pull_s if (key.collective, key.algorithm) == ("all_reduce", "pull") else how.flag_s + how.memory_s


def region_rate(fabric: Fabric, key: ScheduleKey) -> float:
    """Return what a rank's transfer through switches reaches at most, as engines limit it [bytes/s].

    Model: the share of ``SwitchReduction.rate_share`` of B; transfers of all ranks share it, where each loads all links
        (multicast of an all_gather) in equal parts. Copies alone know no table and no speed-up.
    """
    how = fabric.config.switch_reduction
    full = fabric.config.injection_bandwidth_bytes_per_s
    if key.algorithm in ("nvls", "collnet"):
        return math.inf
    if key.algorithm == "multicast":
        share = how.injection / (key.num_ranks if key.collective == "all_gather" else 1)
        return math.inf if how.injection == 1 else full * share
    hops, latency_s = (fabric.diameter(), max(route_latencies(fabric))) if how.needs_round_trip else (2, 0.0)
    is_pull = key.algorithm == "pull"
    factor = 1 + 1 / key.num_ranks if is_pull and key.collective == "all_reduce" else 1.0
    share = how.rate_share(full, hops=hops, latency_s=latency_s, is_pull=is_pull, factor=factor)
    return math.inf if share >= 1 else full * share


@dataclass(frozen=True, slots=True)
class SwitchCosts:
    """All steps of a schedule that switches serve. Stands for a step of others.

    latency_s: of all crossings. beta_s_per_byte: of the fullest link for a byte of a chunk, float array (1,).
    num_chunks: of a rank's transfer.
    """

    latency_s: float
    beta_s_per_byte: np.ndarray
    num_chunks: int
    count: int = 1

    @property
    def alpha_s(self) -> np.ndarray:
        """Latency of all crossings [s], float array (1,)."""
        return np.array([self.latency_s])

    def time_s(self, chunk_bytes: float, wire_overhead: float = 1.0, region_rate: float = math.inf) -> float:
        """Return the time of all steps [s]. Args: region_rate: of one plane."""
        on_wire = chunk_bytes * wire_overhead
        return self.latency_s + max(float(self.beta_s_per_byte[0]) * on_wire, self.num_chunks * on_wire / region_rate)


def switch_costs(fabric: Fabric, key: ScheduleKey, groups: np.ndarray, routing: str) -> SwitchCosts | None:
    """Return the costs on groups that run at once, None of schedules whose messages load links as their regions do.

    Args: groups: accelerators in rank order, int array (groups, p).
    Cost: one tree for each rank, group and region.
    """
    schedule = key.schedule()
    if schedule.loads_as_messages:
        return None
    router = fabric.router(routing)
    latency_ps, loads, most_chunks = _core.region_costs(router, schedule, groups.tolist())
    capacity = np.asarray(router.capacities)
    seconds = np.divide(loads, capacity, out=np.where(loads > 0, np.inf, 0.0), where=capacity > 0)
    return SwitchCosts(float(latency_ps.sum()) * 1e-12, np.array([seconds.max(initial=0.0)]), int(most_chunks))
