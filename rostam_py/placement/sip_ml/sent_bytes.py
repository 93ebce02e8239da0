"""SentBytes: what a share of an op would make its group send, by which one of several is taken.

Example:
    sent = SentBytes(tensors)
    min(shares, key=lambda share: sent.total(op, share))
"""

import math

from rostam_py.graph import PARTIAL, WHOLE, Halo, Op, Split
from rostam_py.placement.sharding import is_divisible
from rostam_py.placement.sip_ml.layouts import ALIGNED, ALL, SAME_PART, SLICES, Layout, Share, plain_splits, relation_of
from rostam_py.placement.sip_ml.tensor_layouts import TensorLayouts


class SentBytes:
    """Count bytes by what has been decided of other ops so far."""

    def __init__(self, tensors: TensorLayouts) -> None:
        self.tensors, self.result = tensors, tensors.result
        self.graph, self.batch, self.sizes = tensors.graph, tensors.batch, tensors.sizes
        self.roots, self.parameter_of = tensors.roots, tensors.parameter_of

    def total(self, op: Op, share: Share) -> float:
        """Return the bytes a share makes the group send, those of all ops of parameters decided here included."""
        total = self._bytes(op, share)
        for name, layout in self._decided_by(op, share).items():
            if share.parts > 1:
                others = [o for o in self.tensors.touching[name] if o.id != op.id]
                total += sum(self._expected_bytes(o, name, layout, op, share) for o in others)
        return total

    def _decided_by(self, op: Op, share: Share) -> dict[str, Layout]:
        found = {}
        for i, t in enumerate(op.inputs):
            name = self.parameter_of.get(self.roots[t])
            if name is not None and name not in self.result.parameters:
                want = share.split.input_dims[i] if share.split is not None else WHOLE
                found[name] = Layout(
                    WHOLE if want is WHOLE else self.tensors.root_dim(t, want, share.parts), share.parts
                )
        return found

    def _bytes(self, op: Op, share: Share) -> float:
        dims = share.split.input_dims if share.split is not None else (WHOLE,) * len(op.inputs)
        total = sum(
            self._moved(t, self.tensors.held(t), want, share.parts) for t, want in zip(op.inputs, dims, strict=True)
        )
        return total + self._leaving(op, share, None)

    def _expected_bytes(self, op: Op, name: str, layout: Layout, first: Op, chosen: Share) -> float:
        """Return the least bytes of a later op on a parameter laid out as ``layout``; unknown inputs count as split."""
        best = math.inf
        read_whole = {
            self.roots[t] for t, d in zip(first.inputs, chosen.split.input_dims, strict=True) if d is WHOLE
        } if chosen.split is not None else set()  # fmt: skip
        for split in plain_splits(op):
            if not is_divisible(split.size.at(self.batch), layout.parts):
                continue
            total, is_legal = 0.0, True
            for t, want in zip(op.inputs, split.input_dims, strict=True):
                root = self.roots[t]
                if self.parameter_of.get(root) == name:
                    is_legal &= self.tensors.through_views(t, layout).dim == want
                elif root not in self.parameter_of and want is WHOLE and root not in read_whole:
                    producer = self.graph.tensors[root].producer
                    total += self.sizes[t] * (layout.parts - 1) if producer is not None else 0.0
            if is_legal:
                best = min(best, total + self._leaving(op, Share(layout.parts, split), (name, layout)))
        if best == math.inf:
            best = (layout.parts - 1) * sum(self.sizes[t] for t in op.outputs)
        return best

    def _moved(self, tensor: int, held: Layout | None, want: int | None, parts: int) -> float:
        """Return the bytes sent so that ``parts`` sub-ops have what they want of a tensor."""
        root = self.roots[tensor]
        if held is None and self.graph.tensors[root].kind == "input" and parts > 1 and want != 0:
            return (parts - 1) * self.sizes[root]  # as if the data loader split it by sample
        if held is None or (root in self.parameter_of and held.parts == parts):
            return 0.0
        size = min(self.sizes[tensor], self.sizes[root])
        reduced = 0.0
        if held.dim == PARTIAL:
            reduced = (held.parts - 1) * size
            held = Layout(want if want is not WHOLE and held.parts == parts else SLICES, held.parts)
        relation = relation_of(held, want, parts)
        if relation == ALL:
            is_there = self.tensors.gathered.get(root, 1) >= parts > 1 or (held.dim is WHOLE and held.parts >= parts)
            return reduced + (0.0 if is_there else (parts - parts / max(parts, held.parts)) * size)
        if relation == SAME_PART:
            return reduced
        if relation == ALIGNED:
            return reduced + (0.0 if held.parts == parts else size * (1 - 1 / max(held.parts, parts)))
        return reduced + size * (1 - 1 / max(held.parts, parts))

    def _leaving(self, op: Op, share: Share, assumed: tuple[str, Layout] | None) -> float:
        """Return the bytes for partial outputs, gradients and what an op exchanges while it runs."""
        split, parts = share.split, share.parts
        if split is None or parts == 1:
            return 0.0
        total = 0.0
        if split.comm_kind:
            total += max(0.0, split.comm_bytes.at(self.batch)) * 2 * (parts - 1)
        total += sum(self._halo_bytes(op, split, halo) for halo in split.exchanged_halos) * parts
        for t, dim in zip(op.outputs, split.output_dims, strict=True):
            for gradient in self.tensors.gradients_of.get(t, ()):
                layout = assumed[1] if assumed is not None and assumed[0] == gradient.name else None
                layout = layout or self.result.parameters.get(gradient.name, Layout(WHOLE, parts))
                total += self._gradient_bytes(t, gradient.id, dim, layout, parts)
            if dim == PARTIAL and t not in self.tensors.gradients_of:
                total += 2 * (parts - 1) * self.sizes[t]
        return total

    def _halo_bytes(self, op: Op, split: Split, halo: Halo) -> float:
        tensor = op.inputs[halo.place]
        extent = self.graph.tensors[tensor].shape[split.input_dims[halo.place]].at(self.batch)  # type: ignore[index]
        return self.sizes[tensor] / extent * (halo.before + halo.after)

    def _gradient_bytes(self, output: int, gradient: int, dim: int | None, layout: Layout, parts: int) -> float:
        size = self.sizes[output]
        made = self.tensors.through_views(gradient, Layout(dim, parts))
        if layout.dim is WHOLE:
            rounds = (2 if dim == PARTIAL else 1) * (parts - 1)
            return rounds * size
        if made.dim == PARTIAL:
            return (parts - 1) * size
        return 0.0 if made.dim == layout.dim else size
