"""The graph as one level of a tensor-parallel group sees it: shapes, splits and views of weights at one batch.

A group of t = w x r members may split in two levels: first w ways, then each part r ways (grouped-query attention with
w key heads). The second level sees the shapes that the first has left it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rostam_py.graph import WHOLE, Halo, Op, OperatorGraph, Split
from rostam_py.placement.sharding.layouts import FREE, Place, Shard, SplitAxis, State, Stretches, resolve


@dataclass(slots=True)
class Level:
    """What one level of a group does.

    states: per tensor, as its producer leaves it. axes: per op the split it runs with and its axis' stretches, None if
    every member runs it whole. comms: tensor -> the collective after its producer ("all_reduce", "all_gather",
    "reduce_scatter" along the sequence). uses_whole: per op, for each input, whether it reads the version after the
    collective. summed: names of whole parameters whose gradients the members hold summands of. gathers: op -> tensors,
    split along the sequence, that it or views read whole: gathered before it, once for each template, and not kept.
    """

    degree: int
    states: list[State]
    axes: list[tuple[SplitAxis, Stretches] | None]
    uses_whole: list[tuple[bool, ...]]
    comms: dict[int, str] = field(default_factory=dict)
    summed: set[str] = field(default_factory=set)
    gathers: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def input_state(self, op: Op, place: int) -> State:
        """Return how an op finds an input: as its split wants it, else whole, or the summand that it passes on."""
        chosen = self.axes[op.id]
        if chosen is None:
            return WHOLE
        where = chosen[0].inputs[place]
        return WHOLE if where is None else where.state(chosen[1], chosen[0].size)


class Space:
    """Splits resolved at a batch behind the levels above, and the views through which ops read weights.

    pieces: of what weights are cut into, how readers ask the cut dimension to be split where not evenly (readers.py).
    """

    def __init__(self, graph: OperatorGraph, degree: int, batch: float, above: Sequence[Level] = ()) -> None:
        self.graph, self.degree, self.batch, self.above = graph, degree, batch, tuple(above)
        self._shape_ids: dict[tuple[int, ...], int] = {}
        self.shapes: list[tuple[int, ...]] = []
        self.shape_ids: list[int] = []
        known: dict[int, tuple[int, ...]] = {}  # identity of a traced shape, which tensors share -> its sizes
        for t in graph.tensors:
            shape = known.get(id(t.shape))
            if shape is None:
                shape = known[id(t.shape)] = tuple(round(dim.at(batch)) for dim in t.shape)
            self.shapes.append(shape)
            self.shape_ids.append(self._shape_ids.setdefault(shape, len(self._shape_ids)))
        self._known: dict[tuple[object, ...], tuple[SplitAxis, ...]] = {}
        self.bytes = [t.num_bytes(batch) * self._share(t.id) for t in graph.tensors]
        self.origin = self._weight_views()
        self.pieces: dict[int, Stretches] = {}

    def _share(self, tensor: int) -> float:
        share = 1.0
        for level in self.above:
            if isinstance(level.states[tensor], Shard):
                share /= level.degree
        return share

    def axes(self, op: Op) -> tuple[SplitAxis, ...]:
        """Return the op's splits at the batch, as this level sees them."""
        tensors = (*op.inputs, *op.outputs)
        above = tuple(level.axes[op.id] for level in self.above)
        key = (id(op.splits), above, *(self.shape_ids[t] for t in tensors))
        if key not in self._known:
            shapes = [self.shapes[t] for t in tensors]
            found = [resolve(split, shapes, len(op.inputs), self.batch) for split in op.splits]
            for level, chosen in zip(self.above, above, strict=True):
                if chosen is not None:
                    found = [a for axis in found if (a := _within(axis, *chosen, level.degree)) is not None]
            self._known[key] = tuple(found)
        return self._known[key]

    def halo_bytes(self, tensor: int, split: Split, halo: Halo) -> float:
        """Return the bytes of a halo at the batch, traced, behind the levels above that split other dimensions."""
        dim = split.input_dims[halo.place]
        size = self.graph.tensors[tensor].num_bytes(self.batch)
        for level in self.above:
            state = level.states[tensor]
            size /= level.degree if isinstance(state, Shard) and state.dim != dim else 1
        return size / self.shapes[tensor][dim] * (halo.before + halo.after)  # type: ignore[index]

    def work_share(self, op: Op) -> float:
        """Return the share of an op's work that the levels above leave."""
        share = 1.0
        for level in self.above:
            share /= 1 if level.axes[op.id] is None else level.degree
        return share

    def properties(self, block: int) -> list[object]:
        """Return how the levels above have spread a block's ops and tensors; equal ones compare equal."""
        ops, tensors = self.graph.likeness.ops[block], self.graph.likeness.tensors[block]
        axes = [[level.axes[op] for op in ops] for level in self.above]
        return [axes, [[level.states[t] for t in tensors] for level in self.above]]

    # Weights

    def _weight_views(self) -> dict[int, tuple[int, tuple[tuple[Op, int], ...]]]:
        """Return, for weights, their views and functions, the weight and the ops in between with the output's place."""
        origin: dict[int, tuple[int, tuple[tuple[Op, int], ...]]] = {t.id: (t.id, ()) for t in self.graph.weights}
        for op in self.graph.ops:
            is_function = op.phase == "forward" and op.is_elementwise and len(op.outputs) == 1
            if len(op.inputs) == 1 and op.inputs[0] in origin and (follows(op) or is_function):
                weight, chain = origin[op.inputs[0]]
                for place, t in enumerate(op.outputs):
                    origin[t] = (weight, (*chain, (op, place)))
        return origin

    def pulled(self, tensor: int, state: State) -> State:
        """Return the state of a weight that gives its view this one; FREE if none does."""
        for op, place in reversed(self.origin[tensor][1]):
            if not isinstance(state, Shard):
                return state
            state = self.before(op, place, state) or FREE
        return state

    def before(self, op: Op, place: int, state: Shard) -> State:
        """Return the state of an op's only input that leaves output ``place`` in ``state``; WHOLE if none does."""
        asked = tuple(self.pieces.get(t) for t in op.outputs)
        found = (_before(axis, place, state, self.degree, asked) for axis in self.axes(op))
        return next((s for s in found if s), WHOLE)

    def pushed(self, tensor: int, state: State) -> State:
        """Return the state of a weight's view: whole if no split carries the weight's that far."""
        for op, place in self.origin[tensor][1]:
            if not isinstance(state, Shard):
                return state
            chosen = self.following(op, state)
            state = WHOLE if chosen is None else chosen[0].made(chosen[1])[place]  # type: ignore[index]
        return state

    def following(self, op: Op, state: State) -> tuple[SplitAxis, Stretches] | None:
        """Return the split with which an op of one input follows it."""
        for axis in self.axes(op):
            for stretches in axis.driven([state]):
                if axis.is_legal(stretches, self.degree) and axis.made(stretches) is not None:
                    return axis, stretches
        return None


def follows(op: Op) -> bool:
    """Tell whether an op of one tensor only re-shapes or casts it."""
    return op.is_metadata or op.role == "copy"


def _before(axis: SplitAxis, place: int, state: Shard, degree: int, asked: Sequence[Stretches | None]) -> State:
    """Return the state of an op's only input that leaves output ``place`` in ``state``; WHOLE if none does.

    Args: asked: how to split the other outputs, None evenly.
    """
    where = axis.outputs[place]
    if not isinstance(where, Place) or axis.inputs[0] is None:
        return WHOLE
    stretches = where.axis(state)
    if stretches is not None and where.length != axis.size:
        stretches = _filled(axis, place, stretches, asked)
    if stretches is None or not axis.is_legal(stretches, degree):
        return WHOLE
    return axis.inputs[0].state(stretches, axis.size)


def _filled(axis: SplitAxis, place: int, stretches: Stretches, asked: Sequence[Stretches | None]) -> Stretches | None:
    """Return the axis of which one output's cut is split so and all others are as asked, else plain."""
    mirror = SplitAxis(axis.split, axis.size, axis.outputs, ())  # type: ignore[arg-type]
    held: list[State] = []
    for other, where in enumerate(axis.outputs):
        if not isinstance(where, Place):
            return None
        one = stretches if other == place else asked[other] or Stretches(1, (where.length,))
        held.append(Shard(where.dim, where.outer * one.repeat, tuple(n * where.inner for n in one.sizes)))
    found = mirror.driven(held)
    return found[0] if found else None


def _within(axis: SplitAxis, above: SplitAxis, stretches: Stretches, degree: int) -> SplitAxis | None:
    """Return a split as members see it that hold a part of an op each, None where it has no axis left."""
    size = axis.size
    places: list[Place | int | None] = []
    pairs = zip((*axis.inputs, *axis.outputs), (*above.inputs, *above.outputs), strict=True)
    for place, taken in pairs:
        if not isinstance(place, Place) or not isinstance(taken, Place) or place.dim != taken.dim:
            places.append(place)
            continue
        state = taken.state(stretches, above.size)
        if not isinstance(state, Shard):
            return None
        count = state.stretches.num_stretches
        if count < place.outer:
            if place.outer % degree:
                return None
            place = place._replace(outer=place.outer // degree)
        elif count < place.outer * place.length:
            if place.length % degree or place.start % degree:
                return None
            if axis.size % degree == 0:
                size = axis.size // degree
            place = place._replace(start=place.start // degree, length=place.length // degree)
        else:
            place = place._replace(inner=max(1, place.inner // degree))
        places.append(place)
    num = len(axis.inputs)
    if any(isinstance(p, Place) and p.start + p.length > size for p in places):
        return None
    return axis._replace(size=size, inputs=tuple(places[:num]), outputs=tuple(places[num:]))  # type: ignore[arg-type]
