"""Partition, step 1 of SiP-ML's Algorithm 1: every op as sub-ops of about one quantum, split where least is sent.

Legend: a ``Layout`` says how a tensor lies over the parts of the op that made it; a ``Reading`` what every
sub-op needs of one input. Parameters are laid out once, for all ops that touch them; sub-ops of one
parameter shard are co-located later (MODEL D14). Views take no part: they are seen through.
"""

import math
from dataclasses import dataclass, field

from rostam_py.errors import InternalError
from rostam_py.graph import PARTIAL, WHOLE, Halo, Op, OperatorGraph, Split, Tensor, passes_partial
from rostam_py.placement.sharding import is_divisible

SLICES = -3  # parts hold disjoint slices along no dimension that a split can name
ALIGNED, ALL, EXCHANGE, SAME_PART = "aligned", "all", "exchange", "same_part"
_PASSING = ("sum", "copy", "scale")  # roles of ops that are cheap enough to be run on every summand


@dataclass(frozen=True, slots=True)
class Layout:
    """dim: WHOLE (every part has a copy), PARTIAL (a summand), SLICES or a dimension. parts: how many."""

    dim: int | None
    parts: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sub-ops of one op need of one tensor.

    source: the tensor a computing op made, seen through views. relation: ALIGNED (sub-op j of n the parts
        that overlap [j/n, (j+1)/n)), ALL (every sub-op the whole tensor), EXCHANGE (every sub-op 1/n of each
        part), SAME_PART (sub-op j part j). is_summed: the parts read are those of the tensor's sum.
    num_bytes: of what is read, at the batch, in the traced dtype.
    key: names what is read: readings with one key, relation and number of sub-ops read the same bytes.
    """

    source: int
    relation: str
    num_bytes: float
    is_summed: bool
    key: str


@dataclass(frozen=True, slots=True)
class Share:
    """How one op is shared: among ``parts`` sub-ops by ``split``, or (``is_partial``) summand by summand."""

    parts: int
    split: Split | None = None
    is_partial: bool = False


@dataclass(slots=True)
class Partition:
    """The outcome for one graph, batch and group size.

    shares: per op, None for views. layouts: computed tensor -> as its producer leaves it. sums: tensor with
        partial parts -> its layout once added up. parameters: name -> layout. gradients: name -> how the gradient
        is made, in the parameter's dimensions. readings: per op.
    """

    shares: list[Share | None]
    layouts: dict[int, Layout] = field(default_factory=dict)
    sums: dict[int, Layout] = field(default_factory=dict)
    parameters: dict[str, Layout] = field(default_factory=dict)
    gradients: dict[str, Layout] = field(default_factory=dict)
    readings: list[tuple[Reading, ...]] = field(default_factory=list)
    num_unsplit: int = 0

    def share(self, op: int) -> Share:
        """Return how a computing op is shared."""
        share = self.shares[op]
        if share is None:
            raise InternalError(f"op {op} only changes how a tensor is seen; it has no share")
        return share


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
    Source: Khani et al. 2021, section 3.2; the byte counts are own, see tests/placement/test_partition.py.
    """
    return _Partitioner(graph, batch, max_parts, seconds, quantum_s, is_sliced).run()


class _Partitioner:
    def __init__(
        self, graph: OperatorGraph, batch: float, max_parts: int, seconds: list[float], quantum_s: float,
        is_sliced: bool,
    ) -> None:  # fmt: skip
        self.graph, self.batch, self.max_parts, self.is_sliced = graph, batch, max_parts, is_sliced
        self.seconds, self.quantum_s = seconds, quantum_s
        self.roots = graph.view_roots
        self.chains = _view_chains(graph)
        self.result = Partition([None] * len(graph.ops), readings=[()] * len(graph.ops))
        self.parameter_of = {t.id: t.name for t in graph.weights}
        self.regions = _regions(graph, batch)
        self.gradients_of = gradients_by_root(graph, self.roots)
        self.touching = self._touching()
        self.gathered: dict[int, int] = {}  # tensor -> parts that hold all of it
        self.sizes = [t.num_bytes(batch) for t in graph.tensors]

    def run(self) -> Partition:
        for op in self.graph.ops:
            if not op.is_metadata:
                self._visit(op)
        for root, gradients in self.gradients_of.items():
            made = self.result.sums.get(root, self.result.layouts.get(root))
            if made is not None:
                self.result.gradients.update((t.name, self._through_views(t.id, made)) for t in gradients)
        return self.result

    def _touching(self) -> dict[str, list[Op]]:
        """Return the ops that read each parameter or make its gradient, in order."""
        found: dict[str, list[Op]] = {name: [] for name in self.parameter_of.values()}
        for op in self.graph.ops:
            if op.is_metadata:
                continue
            names = [self.parameter_of[r] for r in (self.roots[t] for t in op.inputs) if r in self.parameter_of]
            names += [g.name for t in op.outputs for g in self.gradients_of.get(t, ())]
            for name in dict.fromkeys(names):
                if name in found:
                    found[name].append(op)
        return found

    # Layouts

    def _held(self, tensor: int) -> Layout | None:
        """Return how a tensor lies now, sums done; None if every device has it or a parameter is undecided."""
        root = self.roots[tensor]
        if root in self.parameter_of:
            base = self.result.parameters.get(self.parameter_of[root])
        else:
            base = self.result.sums.get(root, self.result.layouts.get(root))
        return None if base is None else self._through_views(tensor, base)

    def _through_views(self, tensor: int, base: Layout) -> Layout:
        if base.dim is WHOLE or base.dim in (PARTIAL, SLICES):
            return base
        dim: int = base.dim
        for op, output in self.chains.get(tensor, ()):
            mapped = _mapped(op, output, dim, base.parts, self.batch)
            if mapped is None:
                return Layout(SLICES, base.parts)
            dim = mapped
        return Layout(dim, base.parts)

    def _root_dim(self, tensor: int, dim: int, parts: int) -> int | None:
        """Return the dimension of the computed tensor that ``dim`` of its view is, None if there is none."""
        root = self.roots[tensor]
        for d in range(len(self.graph.tensors[root].shape)):
            if self._through_views(tensor, Layout(d, parts)).dim == dim:
                return d
        return None

    # Choosing

    def _visit(self, op: Op) -> None:
        share = self._partial_share(op)
        if share is None:
            share = min(self._candidates(op), key=lambda s: (self._total_bytes(op, s), -s.parts))
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
        held = [self._held(t) for t in op.inputs]
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
        held = [h for t in op.inputs if (h := self._held(t)) is not None]
        wanted = max([self._wanted_parts(o) for o in self._sharing_new_parameters(op)], default=self._wanted_parts(op))
        from_inputs = {h.parts for h in held if h.parts > 1}
        if fixed is not None:
            counts = {fixed}
        elif op.is_elementwise and from_inputs:
            counts = from_inputs
        else:
            counts = {wanted} | {p for p in from_inputs if p > wanted}
        shares = []
        for split in _plain_splits(op):
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
        return [o for name in names if name not in self.result.parameters for o in self.touching[name]]

    def _fixed_parts(self, op: Op) -> int | None:
        """Return the number of parts of the parameters that an op touches, None if none is decided."""
        names = [self.parameter_of[r] for r in (self.roots[t] for t in op.inputs) if r in self.parameter_of]
        names += [g.name for t in op.outputs for g in self.gradients_of.get(t, ())]
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
            held = self._held(t)
            if held is None:
                if want is not WHOLE and self._root_dim(t, want, parts) is None:
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
            dim = WHOLE if want is WHOLE else self._root_dim(t, want, share.parts)
            self.result.parameters[name] = Layout(dim, share.parts)

    def _reading(self, op: Op, place: int, share: Share) -> Reading | None:
        """Return what an op's sub-ops need of an input, None if they have it; decide sums that it asks for."""
        t = op.inputs[place]
        root = self.roots[t]
        held = self._held(t)
        if held is None or (root in self.parameter_of and held.parts == share.parts):
            return None
        want = share.split.input_dims[place] if share.split is not None else WHOLE
        if held.dim == PARTIAL and not (share.is_partial and held.parts == share.parts):
            dim = self._root_dim(t, want, held.parts) if want is not WHOLE and want >= 0 else None
            if want is WHOLE or dim is None or share.parts != held.parts or not self._divides(root, dim, held.parts):
                dim = SLICES
            self.result.sums[root] = Layout(dim, held.parts)
            held = self._through_views(t, self.result.sums[root])
        passes = share.is_partial and held.dim == PARTIAL
        relation = SAME_PART if passes else _relation(held, want, share.parts)
        if relation == ALL:
            self.gathered[root] = max(share.parts, self.gathered.get(root, 1))
        key = self._slice_key(t, held, want, relation)
        return Reading(root, relation, min(self.sizes[t], self.sizes[root]), root in self.result.sums, key)

    def _slice_key(self, tensor: int, held: Layout, want: int | None, relation: str) -> str:
        """Return what tells readings of other regions of a tensor, or of slices along other dimensions, apart."""
        key = f"t{self.regions[tensor]}"
        if relation == EXCHANGE or (relation == ALIGNED and held.dim is WHOLE):
            dim = None if want is None else self._root_dim(tensor, want, held.parts)
            return f"{key} along {dim}" if dim is not None else f"{key} along {want} of t{tensor}"
        return key

    def _divides(self, root: int, dim: int, parts: int) -> bool:
        return is_divisible(self.graph.tensors[root].shape[dim].at(self.batch), parts)

    # Bytes

    def _total_bytes(self, op: Op, share: Share) -> float:
        """Return the bytes a share makes the group send, those of all ops of parameters decided here included."""
        total = self._bytes(op, share)
        for name, layout in self._decided_by(op, share).items():
            if share.parts > 1:
                others = [o for o in self.touching[name] if o.id != op.id]
                total += sum(self._expected_bytes(o, name, layout, op, share) for o in others)
        return total

    def _decided_by(self, op: Op, share: Share) -> dict[str, Layout]:
        found = {}
        for i, t in enumerate(op.inputs):
            name = self.parameter_of.get(self.roots[t])
            if name is not None and name not in self.result.parameters:
                want = share.split.input_dims[i] if share.split is not None else WHOLE
                found[name] = Layout(WHOLE if want is WHOLE else self._root_dim(t, want, share.parts), share.parts)
        return found

    def _bytes(self, op: Op, share: Share) -> float:
        dims = share.split.input_dims if share.split is not None else (WHOLE,) * len(op.inputs)
        total = sum(self._moved(t, self._held(t), want, share.parts) for t, want in zip(op.inputs, dims, strict=True))
        return total + self._leaving(op, share, None)

    def _expected_bytes(self, op: Op, name: str, layout: Layout, first: Op, chosen: Share) -> float:
        """Return the least bytes of a later op on a parameter laid out as ``layout``; unknown inputs count as split."""
        best = math.inf
        read_whole = {
            self.roots[t] for t, d in zip(first.inputs, chosen.split.input_dims, strict=True) if d is WHOLE
        } if chosen.split is not None else set()  # fmt: skip
        for split in _plain_splits(op):
            if not is_divisible(split.size.at(self.batch), layout.parts):
                continue
            total, is_legal = 0.0, True
            for t, want in zip(op.inputs, split.input_dims, strict=True):
                root = self.roots[t]
                if self.parameter_of.get(root) == name:
                    is_legal &= self._through_views(t, layout).dim == want
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
        relation = _relation(held, want, parts)
        if relation == ALL:
            is_there = self.gathered.get(root, 1) >= parts > 1 or (held.dim is WHOLE and held.parts >= parts)
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
            for gradient in self.gradients_of.get(t, ()):
                layout = assumed[1] if assumed is not None and assumed[0] == gradient.name else None
                layout = layout or self.result.parameters.get(gradient.name, Layout(WHOLE, parts))
                total += self._gradient_bytes(t, gradient.id, dim, layout, parts)
            if dim == PARTIAL and t not in self.gradients_of:
                total += 2 * (parts - 1) * self.sizes[t]
        return total

    def _halo_bytes(self, op: Op, split: Split, halo: Halo) -> float:
        tensor = op.inputs[halo.place]
        extent = self.graph.tensors[tensor].shape[split.input_dims[halo.place]].at(self.batch)  # type: ignore[index]
        return self.sizes[tensor] / extent * (halo.before + halo.after)

    def _gradient_bytes(self, output: int, gradient: int, dim: int | None, layout: Layout, parts: int) -> float:
        size = self.sizes[output]
        made = self._through_views(gradient, Layout(dim, parts))
        if layout.dim is WHOLE:
            rounds = (2 if dim == PARTIAL else 1) * (parts - 1)
            return rounds * size
        if made.dim == PARTIAL:
            return (parts - 1) * size
        return 0.0 if made.dim == layout.dim else size


def _plain_splits(op: Op) -> list[Split]:
    """Return the splits after which parts are slices, which is all that a Layout can say."""
    return [split for split in op.splits if not split.has_parts]


def _relation(held: Layout, want: int | None, parts: int) -> str:
    """Return how ``parts`` sub-ops that want ``want`` (WHOLE or a dimension) read a tensor that lies as ``held``."""
    if held.dim is WHOLE and held.parts == parts:
        return SAME_PART if want is WHOLE else ALIGNED
    if want is WHOLE:
        return ALL
    return ALIGNED if held.dim == want else EXCHANGE


def _output_dim(share: Share, place: int) -> int | None:
    return WHOLE if share.split is None else share.split.output_dims[place]


def _mapped(op: Op, output: int, dim: int, parts: int, batch: float) -> int | None:
    """Return the dimension of a view that ``dim`` of its source becomes, None if none is split alike."""
    for split in _plain_splits(op):
        if split.input_dims[0] == dim and is_divisible(split.size.at(batch), parts):
            target = split.output_dims[output]
            if target is not None and target >= 0:
                return target
    return None


def gradients_by_root(graph: OperatorGraph, roots: tuple[int, ...]) -> dict[int, list[Tensor]]:
    """Return computed tensor -> the parameters' gradients that are views of it; two parameters may share one."""
    found: dict[int, list[Tensor]] = {}
    for t in graph.tensors:
        if t.kind == "gradient" and t.producer is not None:
            found.setdefault(roots[t.id], []).append(t)
    return found


def _regions(graph: OperatorGraph, batch: float) -> list[int]:
    """Return, per tensor, the last view before it that is smaller than what it views; else what was computed."""
    regions = list(range(len(graph.tensors)))
    for op in graph.ops:
        if op.is_metadata and op.inputs:
            whole = graph.tensors[op.inputs[0]].num_bytes(batch)
            for t in op.outputs:
                if graph.tensors[t].num_bytes(batch) >= whole:
                    regions[t] = regions[op.inputs[0]]
    return regions


def _view_chains(graph: OperatorGraph) -> dict[int, tuple[tuple[Op, int], ...]]:
    """Return, for every view, the ops between the computed tensor and it, each with its output's place."""
    chains: dict[int, tuple[tuple[Op, int], ...]] = {}
    for op in graph.ops:
        if op.is_metadata and op.inputs:
            before = chains.get(op.inputs[0], ())
            for place, t in enumerate(op.outputs):
                chains[t] = (*before, (op, place))
    return chains
