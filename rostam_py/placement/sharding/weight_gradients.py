"""How tensors on the way to a parameter's gradient should be spread, so that it ends as its parameter lies.

The way are the ops behind the one that makes a gradient, or a part of it: views, casts, sums over the parameter's uses,
joins of what it was cut into. What they read has no samples in it.

Example: of a table whose rows are split the gradient is wanted by rows, however the gradients of the vectors lie.
"""

from rostam_py.graph import PARTIAL, WHOLE, Op, OperatorGraph
from rostam_py.graph.vocabulary import FLOATING_DTYPES
from rostam_py.placement.sharding.layouts import FREE, Place, Shard, SplitAxis, State, Stretches
from rostam_py.placement.sharding.space import Level, Space


class WeightGradients:
    """What is wanted of gradients of parameters whose states a level has settled.

    Model: a summand serves where the parameter is whole (``Level.summed``), whole ones serve everywhere.
    """

    def __init__(self, space: Space, level: Level) -> None:
        self.space, self.graph, self.level = space, space.graph, level
        self._parameters = _final_gradients(self.graph)
        self._wanted: dict[int, State] = {}

    def wanted(self, tensor: int) -> State:
        """Return how a tensor should lie, FREE if it leads to no parameter's gradient or in no way known."""
        if tensor in self._parameters:
            return self.level.states[self._parameters[tensor]]
        if tensor not in self._wanted:
            self._wanted[tensor] = FREE
            users = self.graph.consumers[tensor]
            if len(users) == 1 and not self._has_batch(tensor):
                self._wanted[tensor] = self._before(self.graph.ops[users[0]], tensor)
        return self._wanted[tensor]

    def splits(self, op: Op) -> list[tuple[SplitAxis, Stretches]]:
        """Return the splits of an op of one output that leave it as it is wanted."""
        if op.phase != "backward" or len(op.outputs) != 1:
            return []
        state = self.wanted(op.outputs[0])
        if not isinstance(state, Shard):
            return []
        found = []
        for axis in self.space.axes(op):
            where = axis.outputs[0]
            stretches = where.axis(state) if isinstance(where, Place) else None
            if stretches is not None and axis.made(stretches) == (state,):
                found.append((axis, stretches))
        return found

    def left_bytes(self, op: Op, made: tuple[State, ...]) -> float:
        """Return the bytes that must be collected behind an op that leaves its outputs so."""
        total = 0.0
        for t, state in zip(op.outputs if op.phase == "backward" else (), made, strict=False):
            wanted = WHOLE if state is WHOLE else self.wanted(t)
            if wanted == FREE or state in (WHOLE, wanted) or (state == PARTIAL and wanted is WHOLE):
                continue
            total += self.space.bytes[t] * (2 if state == PARTIAL else 1)
        return total

    def _before(self, op: Op, tensor: int) -> State:
        """Return what an op on the way wants of an input that it alone reads."""
        place = op.inputs.index(tensor)
        if len(op.outputs) != 1 or not any(place in places for places in op.linear_in):
            return FREE
        if any(self._has_batch(t) for t in op.inputs):
            return FREE
        state = self.wanted(op.outputs[0])
        if not isinstance(state, Shard):
            return state
        wanted = (axis.wanted(stretches) for axis, stretches in self.splits(op))
        return next((states[place] for states in wanted if states is not None), FREE)

    def _has_batch(self, tensor: int) -> bool:
        one = self.graph.tensors[tensor]
        return one.dtype in FLOATING_DTYPES and any(dim.per_sample for dim in one.shape)


def _final_gradients(graph: OperatorGraph) -> dict[int, int]:
    """Return gradient -> its parameter."""
    parameters = {t.name: t.id for t in graph.parameters}
    return {t.id: parameters[t.name] for t in graph.tensors if t.kind == "gradient" and t.name in parameters}
