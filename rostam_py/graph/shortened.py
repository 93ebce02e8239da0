"""Shorten a model: the same graph with fewer of its repeated blocks, for quantities linear in their number.

Of every stack the first blocks and the last stay. What read a block that is gone reads its counterpart: forward the
last block that is left before it, backward the first one behind it.
"""

from collections import Counter
from dataclasses import replace

from rostam_py.errors import ConfigError
from rostam_py.graph.operator_graph import OperatorGraph
from rostam_py.graph.ops import Op
from rostam_py.graph.vocabulary import WEIGHT_KINDS

_Place = tuple[str, int]  # of an op in its block: phase, and how many of it come before


def stacks_of(graph: OperatorGraph) -> list[tuple[int, int]]:
    """Return the first block of each stack of equal blocks and the one behind its last."""
    return [(int(begin), int(end)) for begin, end in graph.metadata.get("block_groups", ())]


def shortened(graph: OperatorGraph, depths: dict[int, int]) -> OperatorGraph | None:
    """Return the graph with fewer blocks, None where the rest would not be the same model.

    Args: depths: stack, by its place in ``stacks_of`` -> blocks that stay, at least 2.
    Cost: linear in ops.
    """
    gone: dict[int, tuple[int, int]] = {}  # block -> (the last left before it, the first left behind it)
    for number, (begin, end) in enumerate(stacks_of(graph)):
        depth = depths.get(number, end - begin)
        for block in range(begin + depth - 1, end - 1):
            gone[block] = begin + depth - 2, end - 1
    if not gone:
        return graph
    try:
        return _Shortener(graph, gone).run()
    except (_UnlikeError, ConfigError):
        return None


class _UnlikeError(Exception):
    """Two blocks are not alike where one stands for the other."""


class _Shortener:
    def __init__(self, graph: OperatorGraph, gone: dict[int, tuple[int, int]]) -> None:
        self.graph, self.gone = graph, gone
        self.places: dict[int, _Place] = {}
        self.blocks: dict[tuple[int, str], list[Op]] = {}
        seen: Counter[tuple[int, str]] = Counter()
        for op in graph.ops:
            if op.block >= 0:
                key = (op.block, op.phase)
                self.places[op.id] = (op.phase, seen[key])
                self.blocks.setdefault(key, []).append(op)
                seen[key] += 1

    def run(self) -> OperatorGraph:
        """Return the shorter graph. Raises: _UnlikeError."""
        kept = [op for op in self.graph.ops if op.block not in self.gone]
        inputs = {op.id: tuple(self._counterpart(t) for t in op.inputs) for op in kept}
        used = {t for op in kept for t in (*inputs[op.id], *op.outputs)}
        used |= {t.id for t in self.graph.tensors if t.kind == "input"}
        op_ids = {op.id: new for new, op in enumerate(kept)}
        tensors = [t for t in self.graph.tensors if t.id in used]
        ids = {t.id: new for new, t in enumerate(tensors)}
        block_ids = {
            old: new for new, old in enumerate(sorted(set(range(len(self.graph.block_names))) - set(self.gone)))
        }
        ops = tuple(
            replace(
                op, id=op_ids[op.id], inputs=tuple(ids[t] for t in inputs[op.id]),
                outputs=tuple(ids[t] for t in op.outputs), block=block_ids.get(op.block, -1),
                forward_op=None if op.forward_op is None else op_ids.get(op.forward_op),
            )
            for op in kept
        )  # fmt: skip
        made = tuple(
            replace(t, id=ids[t.id], producer=None if t.producer is None else op_ids[t.producer]) for t in tensors
        )
        groups = [[block_ids[begin], block_ids[end - 1] + 1] for begin, end in stacks_of(self.graph)]
        return replace(
            self.graph, ops=ops, tensors=made, block_names=tuple(self.graph.block_names[old] for old in block_ids),
            metadata={**self.graph.metadata, "block_groups": groups},
        )  # fmt: skip

    def _counterpart(self, tensor: int) -> int:
        """Return what stands for a tensor where the block that makes it is gone."""
        t = self.graph.tensors[tensor]
        if t.producer is None or (maker := self.graph.ops[t.producer]).block not in self.gone:
            return tensor
        before, behind = self.gone[maker.block]
        phase, place = self.places[maker.id]
        others = self.blocks.get((before if phase == "forward" else behind, phase), [])
        if place >= len(others) or not _is_alike(others[place], maker):
            raise _UnlikeError
        found = others[place].outputs[maker.outputs.index(tensor)]
        other = self.graph.tensors[found]
        if (other.shape, other.dtype) != (t.shape, t.dtype) or t.kind in WEIGHT_KINDS:
            raise _UnlikeError
        return found


def _is_alike(one: Op, other: Op) -> bool:
    return (one.role, one.arguments, one.flops, one.model_flops, len(one.outputs)) == (
        other.role, other.arguments, other.flops, other.model_flops, len(other.outputs),
    )  # fmt: skip
