"""What a search for splits reads off the forward graph before it begins: what depends on what, and for how long."""

from rostam_py.graph import Op
from rostam_py.placement.sharding.space import Space, follows


class ForwardFacts:
    """Facts of a forward graph.

    ops: all but views of weights. needs_gradient, from_input: tensors that depend on a parameter, on an input. root: of
    every tensor what its gradient is summed at. backward: forward op that is split along space -> ops that
    differentiate it. small_tables: tables that positions look up. last_use: of every tensor the last op that reads it.
    """

    def __init__(self, space: Space) -> None:
        self.space, self.graph = space, space.graph
        self.ops = [op for op in self.graph.ops if op.phase == "forward" and not self._is_weight_view(op)]
        self.needs_gradient = self._reach({t.id for t in self.graph.parameters})
        self.from_input = self._reach({t.id for t in self.graph.tensors if t.kind == "input"})
        self.root = self._roots()
        self.backward = self._backward()
        self.small_tables = self._small_tables()
        self.last_use = self._last_uses()

    def gives_gradient(self, tensor: int) -> bool:
        """Tell whether a tensor that is no weight takes a gradient."""
        return tensor in self.needs_gradient and tensor not in self.space.origin

    def is_trained(self, op: Op) -> bool:
        """Tell whether an op has a backward."""
        return any(t in self.needs_gradient for t in op.inputs)

    def is_trained_weight(self, tensor: int) -> bool:
        """Tell whether a weight, or what a view shows of it, is trained."""
        return self.graph.tensors[self.space.origin[tensor][0]].kind == "parameter"

    def _is_weight_view(self, op: Op) -> bool:
        return bool(op.outputs) and op.outputs[0] in self.space.origin

    def _reach(self, start: set[int]) -> set[int]:
        """Return the tensors that depend on some of ``start``."""
        found = set(start)
        for op in self.graph.ops:
            if op.phase == "forward" and any(t in found for t in op.inputs):
                found.update(op.outputs)
        return found

    def _small_tables(self) -> set[int]:
        """Return the tables that positions look up, not the model's inputs: holding them whole counts as nothing."""
        found: set[int] = set()
        for op in self.graph.ops:
            if op.phase == "forward" and op.role == "embedding":
                tables = {self.space.origin[t][0] for t in op.inputs if t in self.space.origin}
                others = [t for t in op.inputs if t not in self.space.origin]
                found = found - tables if any(t in self.from_input for t in others) else found | tables
        return found

    def _backward(self) -> dict[int, list[Op]]:
        """Return, per forward op that is split along space, the ops that differentiate it."""
        found: dict[int, list[Op]] = {}
        for op in self.graph.ops:
            if op.forward_op is not None and any(split.halos for split in op.splits):
                found.setdefault(op.forward_op, []).append(op)
        return found

    def _roots(self) -> list[int]:
        """Return, per tensor, what it is a view, a cast or rows of: what its gradient is summed at."""
        roots = list(range(len(self.graph.tensors)))
        for op in self.graph.ops:
            if (len(op.inputs) == 1 and follows(op)) or (op.role == "gather" and op.inputs[0] not in self.space.origin):
                for t in op.outputs:
                    roots[t] = roots[op.inputs[0]]
        return roots

    def _last_uses(self) -> list[int]:
        """Return, per tensor, the last forward op that reads it or a view of it."""
        last = [-1] * len(self.graph.tensors)
        for op in self.ops:
            for t in op.inputs:
                weight = self.space.origin[t][0] if t in self.space.origin else t
                last[t] = last[self.root[t]] = last[weight] = op.id
        return last
