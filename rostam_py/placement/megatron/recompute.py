"""Recomputation: which forward ops are replayed in backward, when, and what is kept for it.

Model: "full" replays the whole forward of a repeated block, collectives included, just before the block's first
backward op, or no more of it than backward reads (early_stop of torch.utils.checkpoint); activations are kept at block
inputs only. "selective" replays what ``recompute_modules`` selects
(recompute_modules.py): just before the first backward op that reads a result of it, as far as that needs it. Of an
attention core, or a module that is replayed as a whole, the results that it alone reads are dropped and all of it runs
again (Korthikanti et al. 2022; tensor_parallel.checkpoint of Megatron-Core); of all else every result that its own
block alone reads, as Megatron-Core's output-discarding checkpoints do. What it is replayed from is kept.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from rostam_py.graph import WEIGHT_KINDS, Derived, OperatorGraph
from rostam_py.placement.megatron.recompute_modules import Selection


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What is replayed.

    points: backward op -> forward ops replayed just before it, ascending. dropped: tensors that are not kept, views
        included. kept: tensors that are kept for it alone.
    """

    points: dict[int, list[int]] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()

    @property
    def replayed(self) -> set[int]:
        """All forward ops that run again."""
        return {op for ops in self.points.values() for op in ops}


def replay_blocks(
    graph: OperatorGraph, op_stages: Sequence[int], blocks: Collection[int], weight_ops: Collection[int] = frozenset(),
    derived: Derived | None = None,
) -> dict[int, list[int]]:  # fmt: skip
    """Return backward op -> forward ops replayed just before it: blocks in full, those that span stages in parts.

    Args: blocks: those that are replayed. weight_ops: backward ops that run apart, and find what the others have had
        replayed.
        derived: what kernels compute again themselves, where replays stop early; None where they do not.
    """
    needed = None if derived is None else _needed(graph, derived)
    group_of: dict[tuple[int, int], list[int]] = {}
    for op in graph.ops:
        if op.phase == "forward" and op.block in blocks and (needed is None or op.id in needed):
            group_of.setdefault((op.block, op_stages[op.id]), []).append(op.id)
    points: dict[int, list[int]] = {}
    for op in graph.ops:
        if op.phase != "backward" or op.is_metadata or op.is_accumulation or op.id in weight_ops:
            continue
        group = group_of.pop((op.block, op_stages[op.id]), None)
        if group:
            points[op.id] = group
    return points


def _needed(graph: OperatorGraph, derived: Derived) -> set[int]:
    """Return the forward ops that make what the backward of their own block reads; blocks' inputs are kept."""
    found: set[int] = set()
    pending = [
        (op.block, source)
        for op in graph.ops if op.phase == "backward"
        for t in op.inputs
        for source in derived.get(graph.view_roots[t], (t,))
    ]  # fmt: skip
    while pending:
        block, tensor = pending.pop()
        producer = graph.tensors[tensor].producer
        if producer is None or producer in found:
            continue
        op = graph.ops[producer]
        if op.phase == "forward" and op.block == block:
            found.add(producer)
            pending += [(block, t) for t in op.inputs]
    return found


def first_blocks(graph: OperatorGraph, op_stages: Sequence[int], count: int | None) -> frozenset[int]:
    """Return the blocks that are replayed in full: all, or the first ``count`` of each stage."""
    found: dict[int, dict[int, None]] = {}
    for op in graph.ops:
        if op.phase == "forward" and op.block >= 0 and not op.is_metadata:
            found.setdefault(op_stages[op.id], {})[op.block] = None
    return frozenset(block for blocks in found.values() for block in list(blocks)[:count])


def recompute_selected(
    graph: OperatorGraph,
    selection: Selection,
    op_stages: Sequence[int],
    is_local: Sequence[bool],
    derived: Derived,
    weight_ops: Collection[int] = frozenset(),
) -> Recomputation:
    """Return the recomputation of selected ops.

    Args: is_local: per tensor, whether it is there without being kept. derived: what kernels compute again themselves.
        weight_ops: backward ops that run apart, and find what the others have had replayed.
    """
    return _Selected(graph, selection, op_stages, is_local, derived, weight_ops).run()


class _Selected:
    def __init__(
        self,
        graph: OperatorGraph,
        selection: Selection,
        op_stages: Sequence[int],
        is_local: Sequence[bool],
        derived: Derived,
        weight_ops: Collection[int],
    ) -> None:
        self.graph, self.op_stages, self.is_local, self.derived = graph, op_stages, is_local, derived
        self.weight_ops, self.ops, self.roots = weight_ops, selection.ops, graph.view_roots
        self.cores = {op: core for core in selection.cores for op in core}
        wholes = [part for whole in selection.wholes for part in self._by_stage(whole)]
        self.whole_of = {op: whole for whole in wholes for op in whole}
        saved = {self.roots[t.id] for t in graph.tensors if t.is_saved and t.kind not in WEIGHT_KINDS} - derived.keys()
        self.dropped = {t for t in _dropped_by_cores(graph, selection.cores) if self.roots[t] == t} | {
            t for t in saved if self._is_dropped(t) or self._is_inside(t)
        }
        self.there = saved - self.dropped
        self.done: set[int] = set()

    def run(self) -> Recomputation:
        before, points = set(self.there), {}
        for op in self.graph.ops:
            if op.phase != "backward" or op.is_metadata or op.is_accumulation or op.id in self.weight_ops:
                continue
            wanted: set[int] = set()
            for t in op.inputs:
                for source in self.derived.get(self.roots[t], (t,)):
                    if self.roots[source] in self.dropped:
                        self._replay(source, wanted)
            if wanted:
                self.done |= wanted
                points[op.id] = sorted(wanted)
        dropped = frozenset(t.id for t in self.graph.tensors if self.roots[t.id] in self.dropped)
        return Recomputation(points, dropped, frozenset(self.there - before))

    def _home(self, op: int) -> tuple[int, int]:
        return self.graph.ops[op].block, self.op_stages[op]

    def _is_dropped(self, root: int) -> bool:
        """Tell whether a saved tensor is made by a selected op and read by its own block on its own stage alone.

        What weight gradients alone read is kept where they run apart: replays run in the backward.
        """
        producer = self.graph.tensors[root].producer
        if producer is None or producer not in self.ops:
            return False
        readers = [u for u in self.graph.readers.get(root, ()) if self.graph.ops[u].phase == "backward"]
        if all(u in self.weight_ops for u in readers):
            return False
        return {self._home(u) for u in self.graph.readers[root]} == {self._home(producer)}

    def _is_made_by(self, tensor: int, ops: Collection[int]) -> bool:
        return self.graph.tensors[tensor].producer in ops

    def _by_stage(self, whole: set[int]) -> list[set[int]]:
        """Return the ops of a module that each stage runs."""
        found: dict[int, set[int]] = {}
        for op in whole:
            found.setdefault(self.op_stages[op], set()).add(op)
        return list(found.values())

    def _is_inside(self, root: int) -> bool:
        """Tell whether a module that is replayed as a whole makes a saved tensor, and no forward outside reads it.

        What weight gradients alone read is kept where they run apart.
        """
        producer, ops = self.graph.tensors[root].producer, self.graph.ops
        whole = self.whole_of.get(-1 if producer is None else producer, set())
        readers = self.graph.readers.get(root, ())
        if not whole or any(ops[u].phase == "forward" and u not in whole for u in readers):
            return False
        return not all(u in self.weight_ops for u in readers if ops[u].phase == "backward")

    def _replay(self, tensor: int, wanted: set[int]) -> None:
        """Add the ops that make a tensor again, of those that have not run again yet."""
        pending = [tensor]
        while pending:
            t = pending.pop()
            producer = self.graph.tensors[t].producer
            root = self.roots[t]
            if producer is None or producer in wanted or producer in self.done or root in self.there:
                continue
            if producer in self.cores:
                core = self.cores[producer]
                wanted |= core
                pending += [i for op in core for i in self.graph.ops[op].inputs if self.roots[i] in self.dropped]
                continue
            whole = self.whole_of.get(producer)
            if whole is not None and root in self.dropped:
                wanted |= whole
                pending += [i for op in whole for i in self.graph.ops[op].inputs if not self._is_made_by(i, whole)]
                continue
            op = self.graph.ops[producer]
            may_run = producer in self.ops or root in self.dropped or root in self.derived
            if self.is_local[root] or self.graph.tensors[root].kind in WEIGHT_KINDS:
                continue
            if not op.is_metadata and not may_run:
                self.there.add(root)
                continue
            wanted.add(producer)
            pending += op.inputs


def _dropped_by_cores(graph: OperatorGraph, cores: Iterable[set[int]]) -> set[int]:
    """Return the tensors that cores alone read."""
    dropped = set()
    for core in cores:
        for index in core:
            for t in graph.ops[index].outputs:
                users = [u for u in graph.consumers[t] if graph.ops[u].phase == "forward"]
                if all(u in core for u in users):
                    dropped.add(t)
    return dropped
