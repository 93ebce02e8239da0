"""How an op's output will be of use split: as the views, cuts and heads behind it want it.

Example: columns of a product that is viewed as 3 x 16 heads x 64: by heads within each third, Stretches(3, (1024,)).
"""

import itertools
import math
from collections.abc import Iterator

from rostam_py.graph import Op
from rostam_py.placement.sharding.layouts import Place, Shard, SplitAxis, Stretches, is_divisible, joined, plain
from rostam_py.placement.sharding.space import Space, follows

_MOST_VIEWS = 8  # ops that an output is followed through to learn how it will be split


class Readers:
    """What the forward ops behind an output ask of its split.

    narrow: smaller degrees, found on the way, that divide axes which the level's degree does not.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.narrow: set[int] = set()
        self._candidates: dict[tuple[int, int], list[Stretches]] = {}

    def ask_pieces(self) -> None:
        """Note what readers ask of each piece of a weight that is cut: splitting one piece splits all of them."""
        space = self.space
        for op in space.graph.ops:
            for axis in space.axes(op) if len(op.outputs) > 1 and op.outputs[0] in space.origin else ():
                for t, where in zip(op.outputs, axis.outputs, strict=True):
                    is_piece = isinstance(where, Place) and where.length != axis.size
                    if is_piece and (asked := self._asked(t, where.dim, _MOST_VIEWS)):  # type: ignore[union-attr]
                        space.pieces[t] = asked[0]

    def ask(self, op: Op, place: int, axis: SplitAxis) -> list[Stretches]:
        """Return the ways in which a split output will be of use: as views and cuts behind it want it, else plain.

        A dimension that is viewed as heads of several entries is split by heads: where they do not suffice they are
        held by several members each, not cut and gathered.
        """
        key = (op.id, place)
        if key not in self._candidates:
            found: list[Stretches] = []
            for t, where in zip(op.outputs, axis.outputs, strict=True):
                if isinstance(where, Place) and where.length == axis.size:
                    asked = self._asked(t, where.dim, _MOST_VIEWS)
                    found += [plain(axis.size)] if asked is None else asked
            self._candidates[key] = list(dict.fromkeys(found))
        return self._candidates[key]

    def _asked(self, tensor: int, dim: int, depth: int) -> list[Stretches] | None:
        """Return the stretches of a dimension that reshaping readers of a tensor go on with; None if any will do."""
        found: list[Stretches] = []
        cuts: set[int] = set()
        extent = self._extent(tensor, dim)
        is_any = True
        for user in self.space.graph.consumers[tensor]:
            op = self.space.graph.ops[user]
            is_weight = tensor in self.space.origin
            if op.phase != "forward" or not (len(op.inputs) == 1 or is_weight or self._keeps_features(op, tensor)):
                continue
            at = op.inputs.index(tensor)
            factors: list[tuple[int, SplitAxis]] = []
            for axis in self.space.axes(op):
                where = axis.inputs[at]
                if where is None or where.dim != dim:
                    continue
                if any(isinstance(p, Place) and p.length != axis.size for p in axis.outputs):
                    cuts.update(edge for edges in self._piece_edges(op, axis, depth) for edge in edges)
                else:
                    factors.append((where.outer, axis))
            if self._is_factored(op, dim, factors):
                is_any = False
                found += self._outermost(op, extent, factors, depth)
            elif depth and (follows(op) or is_weight or self._keeps_features(op, tensor)):
                for _, axis in factors:
                    beyond = self._beyond(op, at, axis, depth)
                    is_any = is_any and beyond is None
                    found += beyond or []
        if cuts:
            edges = sorted(cuts | {0, extent})
            return [*found, joined([b - a for a, b in itertools.pairwise(edges)])]
        return None if is_any else found

    def _is_factored(self, op: Op, dim: int, factors: list[tuple[int, SplitAxis]]) -> bool:
        """Tell whether a view makes several dimensions of one, an only head among them."""
        return len(factors) > 1 or (bool(factors) and self._has_one_head(op, factors[0][1]))

    def _has_one_head(self, op: Op, axis: SplitAxis) -> bool:
        """Tell whether a view makes the rows of a dimension one head's; one row per sample is nothing to attend to."""
        out = axis.outputs[0]
        rows, shape = self.space.shapes[op.inputs[0]], self.space.shapes[op.outputs[0]]
        if not op.is_metadata or not isinstance(out, Place) or out.dim == 0 or len(shape) <= len(rows):
            return False
        is_sample = self.space.graph.tensors[op.outputs[0]].shape[out.dim - 1].per_sample  # of which there may be one
        own = axis.inputs[0]
        if own is None:
            return False
        return shape[out.dim - 1] == 1 and not is_sample and math.prod(rows) > rows[own.dim] * self.space.batch

    def _outermost(self, op: Op, extent: int, factors: list[tuple[int, SplitAxis]], depth: int) -> list[Stretches]:
        """Return the outermost factor that divides, unless one that nearly does, too few heads, comes first.

        A factor whose entries are taken one by one, a query, a key and a value, is none to split. Where one other is
        left, all features of each, it is split as their readers ask, by heads.
        """
        kept = [(outer, axis) for outer, axis in factors if not self._is_taken_apart(op.outputs[0], axis.outputs[0])]
        for outer, axis in sorted(kept or factors, key=lambda f: (f[0], f[1].size)):
            if is_divisible(axis.size, self.space.degree):
                if outer == 1 and self._has_one_head(op, axis):
                    return []
                is_only = depth > 0 and len(op.inputs) == 1 and len(kept) == 1 < len(factors)
                asked = self._beyond(op, 0, axis, depth) if is_only else None
                return [Stretches(outer, (extent // outer,))] if asked is None else asked
            ways = math.gcd(axis.size, self.space.degree)
            if ways > 1:
                self.narrow.add(ways)
            if ways > 1 or axis.size == 1:
                return []
        return []

    def _is_taken_apart(self, tensor: int, where: Place | int | None, depth: int = _MOST_VIEWS) -> bool:
        """Tell whether a view behind a tensor selects entries of a dimension one by one."""
        graph = self.space.graph
        for op in (graph.ops[user] for user in graph.consumers[tensor] if isinstance(where, Place)):
            if op.phase != "forward" or not follows(op) or len(op.inputs) != 1:
                continue
            axes = self.space.axes(op)
            along = [axis for axis in axes if axis.inputs[0] and axis.inputs[0].dim == where.dim]  # type: ignore[union-attr]
            pieces = [p.length for axis in along for p in axis.outputs if isinstance(p, Place) and p.length < axis.size]
            if (axes and not along) or 1 in pieces:
                return True
            if depth and any(
                self._is_taken_apart(t, place, depth - 1)
                for axis in along
                for t, place in zip(op.outputs, axis.outputs, strict=True)
            ):
                return True
        return False

    def _extent(self, tensor: int, dim: int) -> int:
        extent = self.space.shapes[tensor][dim]
        for level in self.space.above:
            state = level.states[tensor]
            extent //= level.degree if isinstance(state, Shard) and state.dim == dim else 1
        return extent

    def _keeps_features(self, op: Op, tensor: int) -> bool:
        """Tell whether an op works on a tensor and weights alone, channel by channel, or adds another tensor to it."""
        others = [t for t in op.inputs if t != tensor and t not in self.space.origin]
        return not others or (op.is_elementwise and op.role == "sum")

    def _piece_edges(self, op: Op, axis: SplitAxis, depth: int) -> Iterator[list[int]]:
        """Return where the pieces of a cut begin and end, and the stretches in them that their readers ask."""
        where = axis.inputs[0]
        is_plain = where is not None and (where.outer, where.inner) == (1, 1)
        for t, piece in zip(op.outputs, axis.outputs, strict=True):
            if not isinstance(piece, Place):
                continue
            is_cut = depth > 0 and is_plain and self._is_viewed_as_heads(t, piece.dim, depth - 1)
            asked = self._asked(t, piece.dim, depth - 1) if is_cut else None
            inside = piece.axis(Shard(piece.dim, *asked[0])) if asked else None
            sizes = (piece.length,) if inside is None else inside.sizes * inside.repeat
            yield list(itertools.accumulate(sizes, initial=piece.start))

    def _is_viewed_as_heads(self, tensor: int, dim: int, depth: int) -> bool:
        """Tell whether a view behind a tensor, or behind what it is cut into, makes several dimensions of one.

        Halves that are only turned into each other, as rotary positions are, need no even parts of their own.
        """
        for op in (self.space.graph.ops[user] for user in self.space.graph.consumers[tensor]):
            if op.phase != "forward" or not (len(op.inputs) == 1 or self._keeps_features(op, tensor)):
                continue
            at = op.inputs.index(tensor)
            along = [a for a in self.space.axes(op) if (where := a.inputs[at]) is not None and where.dim == dim]
            if len(op.outputs) == 1 and self._is_factored(op, dim, [(1, axis) for axis in along]):
                return True
            places = [
                (t, p.dim) for a in along for t, p in zip(op.outputs, a.outputs, strict=True) if isinstance(p, Place)
            ]
            if depth and any(self._is_viewed_as_heads(t, below, depth - 1) for t, below in places):
                return True
        return False

    def _beyond(self, op: Op, at: int, axis: SplitAxis, depth: int) -> list[Stretches] | None:
        """Return what readers of an op's outputs ask, in terms of the op's input ``at``."""
        found = []
        where = axis.inputs[at]
        is_any = True
        for t, out in zip(op.outputs, axis.outputs, strict=True):
            if not isinstance(out, Place) or where is None:
                continue
            asked = self._asked(t, out.dim, depth - 1)
            is_any = is_any and asked is None
            for one in asked or ():
                own = out.axis(Shard(out.dim, *one))
                state = None if own is None else where.state(own, axis.size)
                if isinstance(state, Shard):
                    found.append(state.stretches)
        return None if is_any else found
