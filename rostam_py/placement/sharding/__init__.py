"""Tensor-parallel sharding: how every op and tensor of a graph is spread over the tp group (MODEL D13).

The forward pass is split for least time (search), backward follows (propagation). Where an axis that weights are split
along, the key heads of grouped-query attention, has fewer entries than the group members, the group may split in two
levels, w x r: then r members hold the same key heads, and each the gradient that its own query heads give them.
For a GPT the outcome is Megatron's (Shoeybi et al. 2019, section 3).

Example:
    sharding = propagate(graph, degree=8, batch=1)
    sharding.comms                         # tensor -> its collectives
"""

import math

from rostam_py.graph import OperatorGraph
from rostam_py.placement.sharding.costs import NotionalCosts
from rostam_py.placement.sharding.layouts import is_divisible, local_extent
from rostam_py.placement.sharding.propagation import Propagation
from rostam_py.placement.sharding.search import ForwardSearch
from rostam_py.placement.sharding.sharding import HaloExchange, Sharding, TensorComm
from rostam_py.placement.sharding.space import Level, Space

__all__ = ["HaloExchange", "Sharding", "TensorComm", "is_divisible", "local_extent", "propagate"]


def propagate(graph: OperatorGraph, degree: int, batch: float) -> Sharding:
    """Return how the graph's ops and tensors are spread over ``degree`` members.

    Model: forward by shortest path, at notional costs (costs.py); backward op by op. Of one level and every two
        levels that some axis asks for, the one whose ops and collectives take least.
    Args: batch: samples of one micro-batch.
    Cost: linear in ops; the path is sought once for all equal blocks.
    Source: own; tests/placement compares the messages with Megatron's.
    """
    if degree == 1:
        return Sharding(graph, batch)
    first, narrow = _level(graph, degree, batch, ())
    options = [Sharding(graph, batch, (first,))]
    for ways in sorted(narrow):
        outer, _ = _level(graph, ways, batch, ())
        inner, _ = _level(graph, degree // ways, batch, (outer,))
        options.append(Sharding(graph, batch, (outer, inner)))
    return min(options, key=seconds)


def _level(graph: OperatorGraph, degree: int, batch: float, above: tuple[Level, ...]) -> tuple[Level, frozenset[int]]:
    """Return a level and the smaller degrees that would divide axes this one does not."""
    space = Space(graph, degree, batch, above)
    search = ForwardSearch(space, NotionalCosts(degree, batch, math.prod(level.degree for level in above)))
    return Propagation(space, search.run()).run(), frozenset(search.narrow)


def seconds(sharding: Sharding) -> float:
    """Return the notional seconds of one micro-batch and of holding the parameters."""
    graph, batch = sharding.graph, sharding.batch
    costs = NotionalCosts(sharding.degree, batch)
    total = 0.0
    for op in graph.ops:
        total += costs.op_s(op, sharding.op_fraction(op), 1)
        kind, _ = sharding.op_split(op.id)
        total += sum(costs.inner_s(kind, comm.kind, size) for comm, size in sharding.inner_comms(op.id))
        for halo in sharding.halo_exchanges(op.id):
            size = graph.tensors[halo.tensor].num_bytes(batch) * (halo.before + halo.after)
            total += costs.inner_s(kind, "halo", size)
    for tensor, comms in sharding.comms.items():
        size = graph.tensors[tensor].num_bytes(batch) * sharding.tensor_fraction(tensor, whole=True)
        total += sum(costs.collective_s(comm.kind, size) for comm in comms)
    for t in graph.parameters:
        if t.name in sharding.summed:
            total += costs.summing_s(t.num_bytes(batch) * sharding.tensor_fraction(t.id))
    for t in graph.weights:
        total += costs.holding_s(t.num_elements(1) * sharding.tensor_fraction(t.id))
    return total
