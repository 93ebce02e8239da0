"""Partition, step 1 of SiP-ML's Algorithm 1: every op as sub-ops of about one quantum, split where least is sent.

Legend: a ``Layout`` says how a tensor lies over the parts of the op that made it; a ``Reading`` what every
sub-op needs of one input. Parameters are laid out once, for all ops that touch them; sub-ops of one
parameter shard are co-located later (MODEL D14). Views take no part: they are seen through.
"""

import math

from rostam_py.graph import PARTIAL, WHOLE, Op, OperatorGraph, Split, passes_partial
from rostam_py.placement.sharding import is_divisible
from rostam_py.placement.sip_ml.layouts import (
    ALL,
    SAME_PART,
    SLICES,
    Layout,
    Partition,
    Reading,
    Share,
    plain_splits,
    relation_of,
)
from rostam_py.placement.sip_ml.sent_bytes import SentBytes
from rostam_py.placement.sip_ml.tensor_layouts import TensorLayouts

_PASSING = ("sum", "copy", "scale")  # roles of ops that are cheap enough to be run on every summand


def partition(
    graph: OperatorGraph, batch: float, max_parts: int, seconds: list[float], quantum_s: float, *,
    is_sliced: bool = False,
) -> Partition:  # fmt: skip
    """Split every op into at most ``max_parts`` sub-ops of about ``quantum_s``.

    Model: an op of t seconds becomes ceil(t / quantum) sub-ops, the next lower number that divides the split
        dimension (padding as for tp), or as many as its inputs have already if that is more. Of all legal
        splits the one that makes the group send least is taken; for an op that meets a parameter first, all
        ops that touch the parameter count, forward and backward.
    Args:
        seconds: per op, unsplit [s].
        is_sliced: splits that give every part a copy of a weight matrix are left out where an op has others.
    Cost: linear in ops and splits.
    Source: Khani et al. 2021, section 3.2; the byte counts are own, see tests/placement/sip_ml/test_partition.py.
    """
    return _Partitioner(graph, batch, max_parts, seconds, quantum_s, is_sliced).run()


class _Partitioner:
    """Decide the ops of a graph one after another, each with the layouts that those before have left."""

    def __init__(
        self, graph: OperatorGraph, batch: float, max_parts: int, seconds: list[float], quantum_s: float,
        is_sliced: bool,
    ) -> None:  # fmt: skip
        self.max_parts, self.is_sliced = max_parts, is_sliced
        self.seconds, self.quantum_s = seconds, quantum_s
        self.graph, self.batch, self.tensors = graph, batch, TensorLayouts(graph, batch)
        self.result, self.sizes = self.tensors.result, self.tensors.sizes
        self.roots, self.parameter_of = self.tensors.roots, self.tensors.parameter_of
        self.sent = SentBytes(self.tensors)

    def run(self) -> Partition:
        """Return the partition of all ops."""
        for op in self.graph.ops:
            if not op.is_metadata:
                self._visit(op)
        for root, gradients in self.tensors.gradients_of.items():
            made = self.result.sums.get(root, self.result.layouts.get(root))
            if made is not None:
                self.result.gradients.update((t.name, self.tensors.through_views(t.id, made)) for t in gradients)
        return self.result

    def _visit(self, op: Op) -> None:
        share = self._partial_share(op)
        if share is None:
            share = min(self._candidates(op), key=lambda s: (self.sent.total(op, s), -s.parts))
        self.result.shares[op.id] = share
        if share.parts == 1 and self._wanted_parts(op) > 1:
            self.result.num_unsplit += 1
        self._settle_parameters(op, share)
        self.result.readings[op.id] = tuple(r for i in range(len(op.inputs)) if (r := self._reading(op, i, share)))
        for place, t in enumerate(op.outputs):
            self.result.layouts[t] = Layout(PARTIAL if share.is_partial else _output_dim(share, place), share.parts)

    def _wanted_parts(self, op: Op) -> int:
        return max(1, min(self.max_parts, math.ceil(self.seconds[op.id] / self.quantum_s - 1e-9)))

    def _partial_share(self, op: Op) -> Share | None:
        """Return the share of an op that passes partial sums on, None if it does not or makes them larger."""
        held = [self.tensors.held(t) for t in op.inputs]
        partial = frozenset(i for i, h in enumerate(held) if h is not None and h.dim == PARTIAL)
        if not partial or not (op.role in _PASSING or op.is_accumulation):
            return None
        counts = {held[i].parts for i in partial}  # type: ignore[union-attr]
        if len(counts) != 1 or not passes_partial(op, partial):
            return None
        read = {self.roots[op.inputs[i]] for i in partial}
        if sum(self.sizes[t] for t in op.outputs) > sum(self.sizes[t] for t in read):
            return None  # an expanded view: its root is summed with less
        return Share(counts.pop(), None, is_partial=True)

    def _candidates(self, op: Op) -> list[Share]:
        fixed = self._fixed_parts(op)
        held = [h for t in op.inputs if (h := self.tensors.held(t)) is not None]
        wanted = max([self._wanted_parts(o) for o in self._sharing_new_parameters(op)], default=self._wanted_parts(op))
        from_inputs = {h.parts for h in held if h.parts > 1}
        if fixed is not None:
            counts = {fixed}
        elif op.is_elementwise and from_inputs:
            counts = from_inputs
        else:
            counts = {wanted} | {p for p in from_inputs if p > wanted}
        shares = []
        for split in plain_splits(op):
            legal = {
                self._legal_parts(split, count, exact=fixed is not None or op.is_elementwise or count != wanted)
                for count in counts
            }
            shares += [Share(p, split) for p in sorted(legal) if p > 1 and self._suits_parameters(op, split, p)]
        if self.is_sliced:
            shares = [share for share in shares if not self._copies_matrix(op, share)] or shares
        is_small = wanted == 1 and fixed in (None, 1)
        return [*shares, Share(1)] if not shares or is_small else shares

    def _sharing_new_parameters(self, op: Op) -> list[Op]:
        """Return the ops, this one among them, that touch a parameter which this op meets first: one layout for all."""
        names = {self.parameter_of[r] for r in (self.roots[t] for t in op.inputs) if r in self.parameter_of}
        return [o for name in names if name not in self.result.parameters for o in self.tensors.touching[name]]

    def _fixed_parts(self, op: Op) -> int | None:
        """Return the number of parts of the parameters that an op touches, None if none is decided."""
        names = [self.parameter_of[r] for r in (self.roots[t] for t in op.inputs) if r in self.parameter_of]
        names += [g.name for t in op.outputs for g in self.tensors.gradients_of.get(t, ())]
        known = [self.result.parameters[n].parts for n in names if n in self.result.parameters]
        return max(known) if known else None

    def _legal_parts(self, split: Split, count: int, exact: bool) -> int:
        """Return the largest number <= count that divides the split's axis; 1 if ``exact`` and count does not."""
        size = split.size.at(self.batch)
        if exact:
            return count if is_divisible(size, count) else 1
        return next((p for p in range(min(count, round(size)), 1, -1) if is_divisible(size, p)), 1)

    def _suits_parameters(self, op: Op, split: Split, parts: int) -> bool:
        """Tell whether the split takes decided parameters as they lie and undecided ones along a real dimension."""
        for t, want in zip(op.inputs, split.input_dims, strict=True):
            if self.roots[t] not in self.parameter_of:
                continue
            held = self.tensors.held(t)
            if held is None:
                if want is not WHOLE and self.tensors.root_dim(t, want, parts) is None:
                    return False
            elif held.parts > 1 and held.dim != want:
                return False
        return True

    def _copies_matrix(self, op: Op, share: Share) -> bool:
        """Tell whether every part would hold all of an undecided parameter of two dimensions or more."""
        dims = share.split.input_dims if share.split is not None else ()
        roots = [self.roots[t] for t, want in zip(op.inputs, dims, strict=True) if want is WHOLE]
        return any(
            root in self.parameter_of and self.parameter_of[root] not in self.result.parameters
            and len(self.graph.tensors[root].shape) > 1
            for root in roots
        )  # fmt: skip

    def _settle_parameters(self, op: Op, share: Share) -> None:
        for i, t in enumerate(op.inputs):
            name = self.parameter_of.get(self.roots[t])
            if name is None or name in self.result.parameters:
                continue
            want = share.split.input_dims[i] if share.split is not None else WHOLE
            dim = WHOLE if want is WHOLE else self.tensors.root_dim(t, want, share.parts)
            self.result.parameters[name] = Layout(dim, share.parts)

    def _reading(self, op: Op, place: int, share: Share) -> Reading | None:
        """Return what an op's sub-ops need of an input, None if they have it; decide sums that it asks for."""
        t = op.inputs[place]
        root = self.roots[t]
        held = self.tensors.held(t)
        if held is None or (root in self.parameter_of and held.parts == share.parts):
            return None
        want = share.split.input_dims[place] if share.split is not None else WHOLE
        if held.dim == PARTIAL and not (share.is_partial and held.parts == share.parts):
            dim = self.tensors.root_dim(t, want, held.parts) if want is not WHOLE and want >= 0 else None
            if dim is None or share.parts != held.parts or not self.tensors.divides(root, dim, held.parts):
                dim = SLICES
            self.result.sums[root] = Layout(dim, held.parts)
            held = self.tensors.through_views(t, self.result.sums[root])
        passes = share.is_partial and held.dim == PARTIAL
        relation = SAME_PART if passes else relation_of(held, want, share.parts)
        if relation == ALL:
            self.tensors.gathered[root] = max(share.parts, self.tensors.gathered.get(root, 1))
        key = self.tensors.slice_key(t, held, want, relation)
        return Reading(root, relation, min(self.sizes[t], self.sizes[root]), root in self.result.sums, key)


def _output_dim(share: Share, place: int) -> int | None:
    return WHOLE if share.split is None else share.split.output_dims[place]
