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
from typing import NamedTuple

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import OperatorGraph
from rostam_py.placement.sharding.costs import NotionalCosts
from rostam_py.placement.sharding.layouts import is_divisible, local_extent
from rostam_py.placement.sharding.own_rows import OwnRows
from rostam_py.placement.sharding.propagation import Propagation
from rostam_py.placement.sharding.search import ForwardSearch
from rostam_py.placement.sharding.sequence import SequenceSplit
from rostam_py.placement.sharding.sharding import Gather, HaloExchange, Sharding, TensorComm
from rostam_py.placement.sharding.space import Level, Space

__all__ = ["Gather", "HaloExchange", "OwnRows", "Sharding", "TensorComm", "is_divisible", "local_extent", "propagate"]


def propagate(
    graph: OperatorGraph,
    degree: int,
    batch: float,
    is_sequence_parallel: bool = False,
    own: OwnRows = OwnRows(),  # noqa: B008
) -> Sharding:
    """Return how the graph's ops and tensors are spread over ``degree`` members.

    Model: forward by shortest path, at notional costs (costs.py); backward op by op. Of one level and every two
        levels that some axis asks for, the one whose ops and collectives take least.
    Args:
        batch: samples of one micro-batch.
        is_sequence_parallel: split along the sequence, too (sequence.py).
        own: what works on a member's own tokens then.
    Raises: DegreeError for a sequence that ``degree`` does not divide; ConfigError for a graph without one.
    Cost: linear in ops; the path is sought once for all equal blocks.
    Source: own; tests/placement compares the messages with Megatron's.
    """
    if degree == 1:
        return Sharding(graph, batch)
    first, narrow = _found(graph, degree, batch, (), own)
    options: list[tuple[_Found, ...]] = [(first,)]
    for ways in sorted(narrow):
        outer, _ = _found(graph, ways, batch, (), own)
        inner, _ = _found(graph, degree // ways, batch, (outer.level,), own)
        options.append((outer, inner))
    if is_sequence_parallel:
        made = [_split_along_sequence(graph, batch, found, own) for found in options]
    else:
        made = [_plain(graph, batch, found) for found in options]
    return min(made, key=seconds) if narrow else made[0]


class _Found(NamedTuple):
    """A level, and the ops that run whole inside a region there."""

    level: Level
    regions: frozenset[int]


def _found(
    graph: OperatorGraph, degree: int, batch: float, above: tuple[Level, ...], own: OwnRows
) -> tuple[_Found, frozenset[int]]:
    """Return a level and the smaller degrees that would divide axes this one does not."""
    space = Space(graph, degree, batch, above)
    costs = NotionalCosts(degree, batch, math.prod(level.degree for level in above))
    search = ForwardSearch(space, costs, own.ops)
    decisions = search.run()
    regions = frozenset(op for op, decision in decisions.items() if decision.mode == "region")
    return _Found(Propagation(space, decisions, own.ops).run(), regions), frozenset(search.readers.narrow)


def _plain(graph: OperatorGraph, batch: float, found: tuple[_Found, ...]) -> Sharding:
    return Sharding(graph, batch, tuple(one.level for one in found))


def _split_along_sequence(graph: OperatorGraph, batch: float, found: tuple[_Found, ...], own: OwnRows) -> Sharding:
    """Return the sharding with sequence parallelism, level by level.

    Raises: DegreeError or ConfigError where the model's largest all-reduces have no sequence that can be split.
    """
    levels: tuple[Level, ...] = ()
    undivided: dict[int, int] = {}
    for one in found:
        split = SequenceSplit(Space(graph, one.level.degree, batch, levels), *one, own)
        levels = (*levels, split.run())
        undivided |= split.undivided
    degree = math.prod(level.degree for level in levels)
    sizes = {t: graph.tensors[t].num_bytes(batch) for t in undivided}
    scattered = [t for level in levels for t, kind in level.comms.items() if kind == "reduce_scatter"]
    largest = max((graph.tensors[t].num_bytes(batch) for t in scattered), default=0.0)
    if sizes and max(sizes.values()) >= largest:
        extent = undivided[max(sizes, key=lambda t: sizes[t])]
        raise DegreeError(
            f"strategy.sequence_parallel splits a sequence of {extent:,} over strategy.tp = {degree}, which must divide"
            f" it; choose another tp, or another sequence length of {graph.name}"
        )
    if not scattered:
        raise ConfigError(
            f"strategy.sequence_parallel is true, but {graph.name} has no sequence to split: with strategy.tp ="
            f" {degree} it all-reduces no activations with a dimension between samples and features. Set"
            " strategy.sequence_parallel=false"
        )
    return Sharding(graph, batch, levels)


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
        size = graph.tensors[tensor].num_bytes(batch) * sharding.collective_fraction(tensor)
        total += sum(costs.collective_s(comm.kind, size) for comm in comms)
    gathered = {(gather, graph.ops[op].phase) for op, found in sharding.gathers.items() for gather in found}
    for gather, _ in sorted(gathered):
        size = graph.tensors[gather.tensor].num_bytes(batch) * sharding.gathered_fraction(gather)
        total += costs.collective_s("all_gather", size)
    for t in graph.parameters:
        if t.name in sharding.summed:
            total += costs.summing_s(t.num_bytes(batch) * sharding.tensor_fraction(t.id))
    for t in graph.weights:
        total += costs.holding_s(t.num_elements(1) * sharding.tensor_fraction(t.id))
    return total
