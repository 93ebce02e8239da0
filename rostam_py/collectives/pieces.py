"""Algorithms that take the buffer in pieces, through phases inside and between groups or through a pipeline: what they
cost in K pieces.

Legend: K = pieces, g = ranks of a group, m = groups, L = steps of one piece, P = phases of one piece.
"""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from rostam_py import _core
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.transport import PLAIN, Transport
from rostam_py.collectives.tree_costs import TreeCosts, tree_costs
from rostam_py.fabrics.fabric import Fabric

MAX_PIECES = 64
MAX_PIPELINED = 1024
# Beyond it latencies are those of some messages, taken evenly.
_NUM_SAMPLES = 2**12


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """What a step of the phases inside and between groups costs, and of both together.

    num_ranks: p. phases: what a piece goes through, (is it between groups, steps) of each. alpha_s: (inside, between).
    inside, between: of every link that messages of the phase use, the seconds that it needs for a byte a chunk of the
    messages (inside, between), float arrays (links, 2), distinct ones that no other exceeds in both.
    """

    num_ranks: int
    phases: tuple[tuple[bool, int], ...]
    alpha_s: tuple[float, float]
    inside: np.ndarray
    between: np.ndarray

    def time_s(self, num_bytes: float, num_pieces: int, how: Transport = PLAIN) -> float:
        """Return the time in K pieces: the sum over L + K - 1 steps of the slowest message of each.

        Model: csrc/collectives/hierarchical.cpp and rail_aligned.cpp; the messages of a step start together.
        """
        chunk = np.ceil(num_bytes / (num_pieces * self.num_ranks))
        pieces, counts = self._pieces_of_steps(num_pieces)
        loads = pieces * (chunk * how.wire_overhead)
        slowest = np.zeros(len(pieces))
        for phase, links in enumerate((self.inside, self.between)):
            hop_s = how.network_hop_s if phase else how.server_hop_s
            seconds = self.alpha_s[phase] + hop_s + (loads @ links.T).max(axis=1)
            slowest = np.maximum(slowest, np.where(pieces[:, phase] > 0, seconds, 0.0))
        return how.startup_s + float(slowest @ counts)

    def best_pieces(self, num_bytes: float, how: Transport = PLAIN) -> int:
        """Return the power of two up to 64 of least time, the smallest of equals."""
        most = max(1, min(MAX_PIECES, int(num_bytes) // self.num_ranks))
        choices = [2**k for k in range(most.bit_length())]
        times = [self.time_s(num_bytes, choice, how) for choice in choices]
        return choices[int(np.argmin(times))]

    def _pieces_of_steps(self, num_pieces: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct (pieces inside, pieces between) of a step, and how many steps each."""
        ends = np.cumsum([0, *(num_steps for _, num_steps in self.phases)])
        steps = np.arange(ends[-1] + num_pieces - 1)
        # In step t piece k is in its step t - k; a phase of steps [first, last) has those of t - last < k <= t - first.
        under_way = [
            np.maximum(0, np.minimum(num_pieces - 1, steps - first) - np.maximum(-1, steps - last))
            for first, last in zip(ends[:-1], ends[1:], strict=True)
        ]
        both = np.zeros((len(steps), 2), np.int64)
        for (is_between, _), pieces in zip(self.phases, under_way, strict=True):
            both[:, int(is_between)] += pieces
        return np.unique(both, axis=0, return_counts=True)


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """What a pipeline costs whose pieces go one behind the other through all steps.

    num_steps: of one piece. chunks_per_piece: of the buffer. alpha_s: of a message, the slowest where ranks answer each
    other, else the mean. inside: share of messages inside a server. beta_s_per_byte: that the fullest link needs for a
    byte of every chunk, while all ranks are busy; mean_beta_s_per_byte: that a mean message's does. is_chain: ranks
    receive from one and send to another. lead: steps that ranks may be ahead of what they await, 0 for in step.
    """

    num_steps: int
    chunks_per_piece: int
    alpha_s: float
    inside: float
    beta_s_per_byte: float
    mean_beta_s_per_byte: float
    is_chain: bool
    lead: int

    def time_s(self, num_bytes: float, num_pieces: int, how: Transport = PLAIN) -> float:
        """Return the time in n pieces.

        Model: along a chain latency counts while it fills: the sum of all its messages, and n - 1 times what the
            fullest link needs. Where ranks of several chains are lead steps ahead, a place takes a message, or lead + 1
            of a chain's own pieces, and each further piece the fullest link, or one part in lead + 1 of a message.
            Elsewhere L + n - 1 steps of the slowest message.
        """
        chunk = float(np.ceil(num_bytes / (num_pieces * self.chunks_per_piece))) * how.wire_overhead
        serial_s = self.beta_s_per_byte * chunk
        latency_s = self.alpha_s + how.network_hop_s + self.inside * (how.server_hop_s - how.network_hop_s)
        if not (self.is_chain or self.lead):
            return how.startup_s + (self.num_steps + num_pieces - 1) * (latency_s + serial_s)
        ahead, own_s = self.lead + 1, self.mean_beta_s_per_byte * chunk
        filling_s = (self.num_steps // ahead) * max(latency_s + own_s, ahead * own_s)
        step_s = max(serial_s, (latency_s + serial_s) / ahead) if self.lead else serial_s
        return how.startup_s + filling_s + (num_pieces - 1) * step_s

    def best_pieces(self, num_bytes: float, how: Transport = PLAIN) -> int:
        """Return the power of two up to 1,024 of least time, the smallest of equals."""
        most = max(1, min(MAX_PIPELINED, int(num_bytes) // self.chunks_per_piece))
        choices = [2**k for k in range(most.bit_length())]
        times = np.array([self.time_s(num_bytes, choice, how) for choice in choices])
        return choices[int(np.flatnonzero(times <= times.min() * (1 + 1e-12))[0])]  # to the last digit or two


def _pipeline_costs(fabric: Fabric, key: ScheduleKey, groups: np.ndarray, routing: str) -> PipelineCosts:
    """Return the costs of a pipelined algorithm. Cost: one route for each message of a step in which all are busy."""
    alone = key._replace(num_pieces=1).schedule()
    # With as many pieces as steps one step has them all under way.
    full = key._replace(num_pieces=int(alone.num_steps)).schedule()
    _, src, dst, chunks = full.messages_of(int(alone.num_steps) - 1)
    router = fabric.router(routing)
    starts, ends = (groups[:, side].ravel().astype(np.int32) for side in (src, dst))
    sizes = np.broadcast_to(np.asarray(chunks, dtype=float), (len(groups), len(src))).ravel()
    latency_ps, own = _core.route_costs(router, starts, ends, sizes)
    seconds = _core.link_loads(router, starts, ends, sizes) / np.maximum(np.asarray(router.capacities), 1e-300)
    per_server = fabric.config.accelerators_per_server
    is_chain = len(np.unique(src)) == len(src) and len(np.unique(dst)) == len(dst) and alone.lead == 0
    alpha_ps = latency_ps.mean() if is_chain or alone.lead else latency_ps.max()
    return PipelineCosts(
        int(alone.num_steps), int(alone.num_chunks), float(alpha_ps) * 1e-12,
        float((starts // per_server == ends // per_server).mean()), float(seconds.max()), float(own.mean()),
        bool(is_chain), int(alone.lead),
    )  # fmt: skip


def phase_costs(
    fabric: Fabric, key: ScheduleKey, groups: np.ndarray, routing: str
) -> PhaseCosts | PipelineCosts | TreeCosts | None:
    """Return the costs of an algorithm that works in pieces on groups that run it at once; None with one phase only.

    Args: groups: accelerators in rank order, int array (groups, p).
    Cost: one route a message of a step inside and of one between groups.
    """
    if _core.takes_trees(key.collective, key.algorithm):
        return tree_costs(fabric, key, groups, routing) if key.num_ranks > 1 else None
    if _core.is_pipelined(key.collective, key.algorithm):
        return _pipeline_costs(fabric, key, groups, routing) if key.num_ranks > 1 else None
    size = int(key.group_size)  # type: ignore[arg-type]
    if not 1 < size < key.num_ranks:
        return None
    schedule = key._replace(num_pieces=1).schedule()
    router = fabric.router(routing)
    alphas, columns = [0.0, 0.0], [np.empty(0), np.empty(0)]  # inside, between
    capacity = np.asarray(router.capacities)
    for _, src, dst, chunks in schedule.distinct_steps():
        starts, ends = (groups[:, side].ravel().astype(np.int32) for side in (src, dst))
        sizes = np.broadcast_to(np.asarray(chunks, dtype=float), (len(groups), len(src))).ravel()
        few = slice(None, None, max(1, len(sizes) // _NUM_SAMPLES))
        latency_ps, _ = _core.route_costs(router, starts[few], ends[few], sizes[few])
        is_between = int(src[0] // size != dst[0] // size)
        alphas[is_between] = float(latency_ps.max()) * 1e-12
        loads = _core.link_loads(router, starts, ends, sizes)
        columns[is_between] = np.divide(loads, capacity, out=np.zeros_like(loads), where=loads > 0)
    seconds = np.stack(columns, axis=1)
    inside, between = (_fullest(seconds[seconds[:, phase] > 0]) for phase in (0, 1))
    return PhaseCosts(key.num_ranks, _phases(schedule, size), (alphas[0], alphas[1]), inside, between)


def _phases(schedule: "_core.Schedule", group_size: int) -> tuple[tuple[bool, int], ...]:
    """Return (is it between groups, steps) of every phase of a schedule in one piece, as rank 0 goes through them."""
    is_between = [schedule.sends(0, step)[0].peer >= group_size for step in range(schedule.num_steps)]
    return tuple((between, len(list(steps))) for between, steps in groupby(is_between))


def _fullest(seconds: np.ndarray) -> np.ndarray:
    """Return the distinct rows that no other row exceeds in both columns."""
    rows = np.unique(seconds, axis=0)[::-1]  # by falling first column, then falling second
    before = np.concatenate([[-1.0], np.maximum.accumulate(rows[:, 1])[:-1]])
    return rows[rows[:, 1] > before]
