"""Whether less is left to collect behind the ops that read summands than of the summands themselves.

Example: the gradient of rows, one for each of a token's experts, is read twice: summed over the experts, and, times the
row, over its features. Both sums are smaller than the rows: they are collected, the rows are not.
"""

from collections.abc import Sequence

from rostam_py.graph import Op, passes_partial
from rostam_py.placement.sharding.space import Space

_MOST_OPS = 6  # that summands are followed through


class Summands:
    """Bytes that summands leave to collect behind their readers."""

    def __init__(self, space: Space) -> None:
        self.space, self.graph = space, space.graph
        self._least: dict[tuple[int, int], float] = {}

    def shrinks(self, op: Op, partial: Sequence[int]) -> bool:
        """Tell whether less is left behind an op and all other readers of its summands.

        So the rows of a token's experts are combined before they are all-reduced. What forward has left as summands,
        and collected for its own readers, counts for this op alone: so the gradient of experts' weights is taken.
        """
        bytes_of = self.space.bytes
        have = sum(bytes_of[t] for t in partial)
        if op.phase == "backward" and all(self._phase(t) == "forward" for t in partial):
            return self._behind(op, partial[0], 1) < have
        return sum(self._behind_all(t, _MOST_OPS) for t in dict.fromkeys(partial)) < have

    def _behind_all(self, tensor: int, depth: int) -> float:
        """Return the bytes left of a tensor behind its readers, no more than its own."""
        key = (tensor, depth)
        if key not in self._least:
            ops = (self.graph.ops[user] for user in self.graph.consumers[tensor])
            readers = [op for op in ops if () not in op.linear_in]
            have = self.space.bytes[tensor]
            behind = sum(self._behind(op, tensor, depth) for op in readers) if readers else have
            self._least[key] = min(have, behind)
        return self._least[key]

    def _behind(self, op: Op, tensor: int, depth: int) -> float:
        """Return the bytes left behind an op that reads a tensor, and behind what reads its result."""
        places = frozenset(place for place, t in enumerate(op.inputs) if t == tensor)
        if not passes_partial(op, places):
            return self.space.bytes[tensor]
        made = sum(self.space.bytes[t] for t in op.outputs)
        if not depth or len(op.outputs) != 1:
            return made
        return min(made, self._behind_all(op.outputs[0], depth - 1))

    def _phase(self, tensor: int) -> str:
        producer = self.graph.tensors[tensor].producer
        return "" if producer is None else self.graph.ops[producer].phase
