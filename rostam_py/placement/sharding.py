"""Tensor-parallel sharding: how every op and tensor of a graph is spread over the tp group (MODEL D13).

States of a tensor, in the words of ``Split.input_dims``: WHOLE (every member holds it), d >= 0 (split
along dimension d), PARTIAL (every member holds a summand). Only weights introduce a split: a matrix
product or convolution whose input is whole takes the column split of its weight, one whose input is
split takes the row split; all other ops follow their inputs. A partial sum stays one through ops that
are linear in it and is all-reduced before any other use; a split that no consumer's split accepts is
gathered. For a GPT the outcome is Megatron's (Shoeybi et al. 2019, section 3).
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from rostam_py.graph import PARTIAL, WHOLE, Affine, Op, OperatorGraph, Split, passes_partial

FREE = -2  # state of a parameter (or a view of one) whose split nobody has asked for yet
State = int | None
MAX_PADDING = 0.01  # share of an axis that padding may add, e.g. vocabulary 50,257 to 50,264 for 8
_LOOKAHEAD_OPS = 64
_SUMMING = ("aten.add.Tensor", "aten.sub.Tensor", "aten.add_.Tensor")
_MOVING = ("aten._to_copy.default", "aten.clone.default", "aten.cat.default", "aten.neg.default", "aten.div.Scalar")


@dataclass(frozen=True, slots=True)
class TensorComm:
    """A collective that makes a tensor whole: all_reduce of a partial sum, all_gather of a split one."""

    tensor: int
    kind: str


@dataclass(slots=True)
class Sharding:
    """The outcome of propagation for one degree.

    states: per tensor, as its producer leaves it. op_splits: per op the split it runs with, None
    if replicated. comms: tensor -> the collective after its producer. uses_whole: per op, for each
    input, whether it reads the version after the collective. replicated: op type -> count of ops
    with work to share that no split fits. padded: axis extent -> extent of one member's part.
    """

    degree: int
    states: list[State]
    op_splits: list[Split | None]
    comms: dict[int, TensorComm] = field(default_factory=dict)
    uses_whole: list[tuple[bool, ...]] = field(default_factory=list)
    replicated: Counter[str] = field(default_factory=Counter)
    padded: dict[int, int] = field(default_factory=dict)

    def op_fraction(self, op: Op, batch: float) -> float:
        """Return the share of the op's work that one member does."""
        split = self.op_splits[op.id]
        return 1.0 if split is None else local_extent(split.size.at(batch), self.degree) / split.size.at(batch)

    def tensor_fraction(self, graph: OperatorGraph, tensor: int, batch: float, whole: bool = False) -> float:
        """Return the share of a tensor that one member holds (the collective's result if ``whole``)."""
        state = self.states[tensor]
        if whole or state is WHOLE or state < 0:
            return 1.0
        extent = graph.tensors[tensor].shape[state].at(batch)
        return local_extent(extent, self.degree) / extent if extent else 1.0


def local_extent(extent: float, degree: int) -> int:
    """Return one member's part of an axis, padding included."""
    return math.ceil(round(extent) / degree)


def is_divisible(extent: float, degree: int) -> bool:
    """Tell whether an axis can be split ``degree`` ways, with at most MAX_PADDING of padding."""
    size = round(extent)
    return size >= degree and local_extent(size, degree) * degree <= size * (1 + MAX_PADDING)


def propagate(graph: OperatorGraph, degree: int, batch: float) -> Sharding:
    """Return how the graph's ops and tensors are spread over ``degree`` members.

    Args: batch: samples of one micro-batch. Cost: linear in ops.
    Source: own; tests/placement compares the messages with Megatron's.
    """
    num_tensors, num_ops = len(graph.tensors), len(graph.ops)
    if degree == 1:
        whole = [tuple(False for _ in op.inputs) for op in graph.ops]
        return Sharding(1, [WHOLE] * num_tensors, [None] * num_ops, uses_whole=whole)
    return _Propagation(graph, degree, batch).run()


class _Propagation:
    """One walk over the graph; the Sharding it fills is complete after ``run``."""

    def __init__(self, graph: OperatorGraph, degree: int, batch: float) -> None:
        self.graph, self.degree, self.batch = graph, degree, batch
        states: list[State] = [WHOLE] * len(graph.tensors)
        whole = [tuple(False for _ in op.inputs) for op in graph.ops]
        self.result = Sharding(degree, states, [None] * len(graph.ops), uses_whole=whole)
        self.views: dict[int, list[int]] = {}  # parameter -> ops that only re-shape it, in order
        self.origin: dict[int, tuple[int, dict[int, int]]] = {}  # view -> (parameter, its dim by the view's dim)
        for t in graph.weights:
            states[t.id] = FREE
            self.origin[t.id] = (t.id, {d: d for d in range(len(t.shape))})
        self.from_input = _reachable_from_inputs(graph)

    def run(self) -> Sharding:
        for op in self.graph.ops:
            self._visit(op)
        for op in self.graph.ops:
            for t in op.inputs:
                if self.result.states[t] == FREE:
                    self._settle(t, WHOLE)
        self._match_gradients()
        return self.result

    def _visit(self, op: Op) -> None:
        states = self.result.states
        held = [self._held(t) for t in op.inputs]
        if held and all(h == FREE for h in held) and len(held) == 1 and _follows(op):
            self._extend_view(op)
            return
        if PARTIAL in held and self._stays_partial(op, held):
            for t in op.outputs:
                states[t] = PARTIAL
            return
        split = self._choose(op, [WHOLE if h == PARTIAL else h for h in held])
        self._apply(op, held, split)

    def _held(self, tensor: int) -> State:
        """Return the state the next consumer finds: whole once an all_reduce has run."""
        comm = self.result.comms.get(tensor)
        return WHOLE if comm is not None and comm.kind == "all_reduce" else self.result.states[tensor]

    def _apply(self, op: Op, held: list[State], split: Split | None) -> None:
        result = self.result
        result.op_splits[op.id] = split
        wanted = split.input_dims if split is not None else (WHOLE,) * len(held)
        whole = []
        for t, have, want in zip(op.inputs, held, wanted, strict=True):
            if self._held(t) == FREE:
                self._settle(t, want)
            have = self._held(t)
            is_mismatch = have is not WHOLE and have != want
            if is_mismatch and t not in result.comms:
                self._make_whole(t, have)
            whole.append(is_mismatch or (t in result.comms and have is WHOLE))
        result.uses_whole[op.id] = tuple(whole)
        for t, out in zip(op.outputs, split.output_dims if split is not None else (), strict=False):
            result.states[t] = out
        if split is not None:
            size = round(split.size.at(self.batch))
            if size % self.degree:
                result.padded[size] = local_extent(size, self.degree)
        elif op.flops.at(self.batch) > 0 and not op.is_elementwise:
            result.replicated[op.op_type] += 1

    def _make_whole(self, tensor: int, have: State) -> None:
        """Collect a tensor; a partial sum where it is computed, before any view of it, to start early."""
        states, graph = self.result.states, self.graph
        while have == PARTIAL and (producer := graph.tensors[tensor].producer) is not None:
            op = graph.ops[producer]
            if not op.is_metadata or len(op.inputs) != 1 or len(graph.consumers[op.inputs[0]]) != 1:
                break
            states[tensor] = WHOLE
            tensor = op.inputs[0]
        self.result.comms[tensor] = TensorComm(tensor, "all_reduce" if have == PARTIAL else "all_gather")

    # Choosing a split

    def _choose(self, op: Op, held: list[State]) -> Split | None:
        """Return the legal split with the least collective bytes, then the most work shared."""
        if all(h is WHOLE for h in held):
            return self._row_gradient_split(op)
        best, best_key = None, (self._mismatch_bytes(op, held, (WHOLE,) * len(held)), 1)
        for split in op.splits:
            if not is_divisible(split.size.at(self.batch), self.degree):
                continue
            if not self._is_driven(op, held, split):
                continue
            if any(not self._can_settle(t, h, w) for t, h, w in zip(op.inputs, held, split.input_dims, strict=True)):
                continue
            key = (self._mismatch_bytes(op, held, split.input_dims), 0)
            if key < best_key:
                best, best_key = split, key
        return best

    def _row_gradient_split(self, op: Op) -> Split | None:
        """Return the split of a vocabulary-parallel embedding's backward: each member its own rows."""
        forward = None if op.forward_op is None else self.result.op_splits[op.forward_op]
        if op.phase != "backward" or forward is None or forward.kind != "embedding_row":
            return None
        mine = [s for s in op.splits if s.kind == "embedding_row" and all(d is WHOLE for d in s.input_dims)]
        return mine[0] if mine else None

    def _is_driven(self, op: Op, held: list[State], split: Split) -> bool:
        """Tell whether a split input, or a weight's column, asks for this split."""
        fixed = [(h, w) for h, w in zip(held, split.input_dims, strict=True) if h != FREE]
        if any(h is not WHOLE and h == w for h, w in fixed):
            return True
        is_column = any(h == FREE and w is not WHOLE for h, w in zip(held, split.input_dims, strict=True))
        if not is_column or any(w is not WHOLE for _, w in fixed):
            return False
        if "embedding" in op.op_type:
            return self._is_vocabulary(op, split)
        return op.flops.at(self.batch) > 0 and not op.is_elementwise and self._is_column_worthwhile(op, split)

    def _is_vocabulary(self, op: Op, split: Split) -> bool:
        """Tell whether an embedding is split by rows: looked up with the model's inputs, not positions."""
        indices = [t for t in op.inputs if self._held(t) != FREE]
        return all(d == PARTIAL for d in split.output_dims[:1]) and any(self.from_input[t] for t in indices)

    def _mismatch_bytes(self, op: Op, held: list[State], wanted: tuple[State, ...]) -> float:
        total = 0.0
        for t, have, want in zip(op.inputs, held, wanted, strict=True):
            if have not in (WHOLE, FREE) and have != want and t not in self.result.comms:
                total += self.graph.tensors[t].num_bytes(self.batch)
        return total

    def _can_settle(self, tensor: int, have: State, want: State) -> bool:
        """Tell whether a free weight view can be split as wanted (the view keeps that dimension)."""
        return have != FREE or want is WHOLE or want in self.origin[tensor][1]

    def _is_column_worthwhile(self, op: Op, split: Split) -> bool:
        """Tell whether the split output will be used as it is, or is worth a gather.

        Model: a notional 100 TFLOP/s and 100 GB/s, three times the forward work (forward and two
            backward products), a gather forward and an all-reduce backward.
        """
        output, dim = op.outputs[0], split.output_dims[0]
        if dim is None or dim == PARTIAL or self._is_consumable(output, dim):
            return True
        saved_s = 3 * op.flops.at(self.batch) * (1 - 1 / self.degree) / 100e12
        moved = self.graph.tensors[output].num_bytes(self.batch) + 2 * sum(
            self.graph.tensors[t].num_bytes(self.batch) for t in op.inputs if self._held(t) != FREE
        )
        return saved_s > moved / 100e9

    def _is_consumable(self, tensor: int, dim: int) -> bool:
        """Tell whether every forward use of a tensor split along ``dim`` takes it split."""
        frontier = [(tensor, dim)]
        for _ in range(_LOOKAHEAD_OPS):
            if not frontier:
                return True
            tensor, dim = frontier.pop(0)
            for user in self.graph.consumers[tensor]:
                op = self.graph.ops[user]
                if op.phase != "forward":
                    continue
                split = self._split_taking(op, tensor, dim)
                if split is None:
                    return False
                is_weight_op = op.flops.at(self.batch) > 0 and any(t in self.origin for t in op.inputs)
                if not is_weight_op:
                    outs = zip(op.outputs, split.output_dims, strict=True)
                    frontier += [(t, d) for t, d in outs if d is not None and d != PARTIAL]
        return True

    def _split_taking(self, op: Op, tensor: int, dim: int) -> Split | None:
        for split in op.splits:
            takes = any(t == tensor and d == dim for t, d in zip(op.inputs, split.input_dims, strict=True))
            if takes and is_divisible(split.size.at(self.batch), self.degree):
                return split
        return None

    # Parameters and their views

    def _extend_view(self, op: Op) -> None:
        """Remember a view of a parameter; its split follows the parameter's."""
        parameter, dims = self.origin[op.inputs[0]]
        self.views.setdefault(parameter, []).append(op.id)
        for k, t in enumerate(op.outputs):
            mapped: dict[int, int] = {}
            for split in op.splits:
                source, target = split.input_dims[0], split.output_dims[k]
                if target is not None and target >= 0 and source in dims:
                    mapped.setdefault(target, dims[source])
            self.origin[t] = (parameter, mapped)
            self.result.states[t] = FREE

    def _settle(self, tensor: int, want: State) -> None:
        """Fix the split of a parameter, and with it of all its views so far."""
        parameter, dims = self.origin[tensor]
        state = WHOLE if want is WHOLE else dims[want]
        self.result.states[parameter] = state
        for index in self.views.get(parameter, ()):
            op = self.graph.ops[index]
            self._apply(op, [self._held(t) for t in op.inputs], self._choose(op, [self._held(t) for t in op.inputs]))
            if self.result.op_splits[index] is None:
                for t in op.outputs:
                    self.result.states[t] = WHOLE

    # Partial sums and gradients

    def _stays_partial(self, op: Op, held: list[State]) -> bool:
        """Tell whether a collective may wait until behind this op: a sum within one block, a view or a copy."""
        places = frozenset(i for i, h in enumerate(held) if h == PARTIAL)
        if not passes_partial(op, places):
            return False
        if op.op_type in _SUMMING or op.is_accumulation:
            return len({self._block(t) for t in op.inputs}) == 1
        return op.is_metadata or op.op_type in _MOVING

    def _block(self, tensor: int) -> int:
        producer = self.graph.tensors[tensor].producer
        return -1 if producer is None else self.graph.ops[producer].block

    def _match_gradients(self) -> None:
        """Make every final gradient spread like its parameter, and the loss whole."""
        states = {t.name: self.result.states[t.id] for t in self.graph.parameters}
        for t in self.graph.tensors:
            state = self.result.states[t.id]
            if t.kind == "loss" and state == PARTIAL and t.id not in self.result.comms:
                self._make_whole(t.id, state)
            if t.kind != "gradient" or t.name not in states or t.id in self.result.comms:
                continue
            if state == PARTIAL or (state is not WHOLE and state != states[t.name]):
                self._make_whole(t.id, state)


def _follows(op: Op) -> bool:
    """Tell whether an op of one tensor only re-shapes or casts it."""
    return op.is_metadata or op.op_type in ("aten._to_copy.default", "aten.clone.default")


def _reachable_from_inputs(graph: OperatorGraph) -> list[bool]:
    """Return per tensor whether it depends on a model input."""
    reached = [t.kind == "input" for t in graph.tensors]
    for op in graph.ops:
        if any(reached[t] for t in op.inputs):
            for t in op.outputs:
                reached[t] = True
    return reached


def inner_all_reduce_bytes(split: Split | None, batch: float) -> int:
    """Return the bytes an op all-reduces inside the tp group while it runs, e.g. softmax statistics."""
    if split is None or split.comm_kind != "all_reduce":
        return 0
    return math.ceil(_at_least_zero(split.comm_bytes, batch))


def _at_least_zero(quantity: Affine, batch: float) -> float:
    return max(0.0, quantity.at(batch))
