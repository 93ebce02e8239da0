"""Collectives along spanning trees: what they cost in K pieces of the buffer.

Legend: K = pieces, Z = stages of one piece, L = links that they use.
"""

from dataclasses import dataclass

import numpy as np

from rostam_py import _core
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.transport import PLAIN, Transport
from rostam_py.fabrics.fabric import Fabric

_MOST_PIECES = 1024
_NEAR = 1.002  # own choice: half as many messages for each 0.2%


@dataclass(frozen=True, slots=True)
class TreeCosts:
    """What the stages of one piece cost.

    num_chunks: of a piece. alpha_s, inside: of each stage's messages the greatest latency, and whether all are inside a
    server, arrays (Z,). seconds: that each link needs in each stage for a byte a chunk, float array (Z, L).
    """

    num_chunks: int
    alpha_s: np.ndarray
    inside: np.ndarray
    seconds: np.ndarray

    def time_s(self, num_bytes: float, num_pieces: int, how: Transport = PLAIN) -> float:
        """Return the time in K pieces: the sum over Z + K - 1 steps of the latency and of the fullest link.

        Model: csrc/collectives/spanning_trees.cpp; in step t the stages from t - K + 1 to t are under way, each with a
            piece of its own.
        """
        chunk = float(np.ceil(num_bytes / (num_pieces * self.num_chunks))) * how.wire_overhead
        num_stages = len(self.alpha_s)
        # Every step in which stages begin or end; while all are under way, steps are alike.
        steps = np.arange(num_stages + num_pieces - 1)
        last = num_stages + num_stages - 1 if num_pieces > num_stages else len(steps)
        steps = steps[:last]
        pieces = min(num_pieces, num_stages)
        first, end = np.maximum(0, steps - pieces + 1), np.minimum(steps + 1, num_stages)
        sums = np.concatenate([np.zeros((1, self.seconds.shape[1])), np.cumsum(self.seconds, axis=0)])
        serial = (sums[end] - sums[first]).max(axis=1) * chunk
        hop_s = self.alpha_s + np.where(self.inside, how.server_hop_s, how.network_hop_s)
        latency = np.array([hop_s[a:b].max() for a, b in zip(first, end, strict=True)])
        repeats = np.ones(len(steps))
        repeats[num_stages - 1] += max(0, num_pieces - num_stages)
        return how.startup_s + float(((latency + serial) * repeats).sum())

    def best_pieces(self, num_bytes: float, how: Transport = PLAIN) -> int:
        """Return the smallest power of two up to 1,024 that takes little more than the best of them."""
        most = max(1, min(_MOST_PIECES, int(num_bytes) // self.num_chunks))
        choices = [2**k for k in range(most.bit_length())]
        times = np.array([self.time_s(num_bytes, choice, how) for choice in choices])
        return choices[int(np.flatnonzero(times <= times.min() * _NEAR)[0])]


def tree_costs(fabric: Fabric, key: ScheduleKey, groups: np.ndarray, routing: str) -> TreeCosts:
    """Return the costs on groups that run at once. Args: groups: accelerators in rank order, int array (groups, p).

    Cost: one route for each link of a tree.
    """
    schedule = key._replace(num_pieces=1).schedule()
    router, per_server = fabric.router(routing), fabric.config.accelerators_per_server
    capacity = np.asarray(router.capacities)
    alpha_s, inside, loads = [], [], []
    for stage in range(schedule.num_steps):
        _, src, dst, chunks = schedule.messages_of(stage)
        starts, ends = (groups[:, side].ravel().astype(np.int32) for side in (src, dst))
        sizes = np.broadcast_to(np.asarray(chunks, dtype=float), (len(groups), len(src))).ravel()
        latency_ps, _ = _core.route_costs(router, starts, ends, sizes)
        alpha_s.append(float(latency_ps.max(initial=0)) * 1e-12)
        inside.append(bool((starts // per_server == ends // per_server).all()))
        loads.append(_core.link_loads(router, starts, ends, sizes))
    seconds = np.divide(np.stack(loads), capacity, out=np.zeros((len(loads), len(capacity))), where=capacity > 0)
    is_used = seconds.any(axis=0)
    return TreeCosts(int(schedule.num_chunks), np.array(alpha_s), np.array(inside), seconds[:, is_used])
