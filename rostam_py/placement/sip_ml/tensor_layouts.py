"""TensorLayouts: how every tensor of a graph lies as far as its partition has been decided, seen through views.

Example:
    tensors = TensorLayouts(graph, batch=8)
    tensors.held(t)                            # None: every device has it, or its parameter is undecided
"""

from rostam_py.graph import PARTIAL, WHOLE, Op, OperatorGraph, Tensor
from rostam_py.placement.sharding import is_divisible
from rostam_py.placement.sip_ml.layouts import ALIGNED, EXCHANGE, SLICES, Layout, Partition, plain_splits


class TensorLayouts:
    """The layouts of one graph at one batch.

    Attributes:
        result: the partition so far.
        roots: tensor -> computed tensor that it is a view of.
        parameter_of: weight -> its name.
        gradients_of: computed tensor -> gradients that are views of it.
        touching: parameter -> ops that read it or make its gradient, in order.
        gathered: tensor -> parts that hold all of it.
        sizes: bytes of every tensor at the batch.
    """

    def __init__(self, graph: OperatorGraph, batch: float) -> None:
        self.graph, self.batch = graph, batch
        self.roots = graph.view_roots
        self.result = Partition([None] * len(graph.ops), readings=[()] * len(graph.ops))
        self.parameter_of = {t.id: t.name for t in graph.weights}
        self.gradients_of = gradients_by_root(graph, self.roots)
        self.touching = self._touching()
        self.gathered: dict[int, int] = {}
        self.sizes = [t.num_bytes(batch) for t in graph.tensors]
        self._chains = _view_chains(graph)
        self._regions = _regions(graph, batch)

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

    def held(self, tensor: int) -> Layout | None:
        """Return how a tensor lies now, sums done; None if every device has it or a parameter is undecided."""
        root = self.roots[tensor]
        if root in self.parameter_of:
            base = self.result.parameters.get(self.parameter_of[root])
        else:
            base = self.result.sums.get(root, self.result.layouts.get(root))
        return None if base is None else self.through_views(tensor, base)

    def through_views(self, tensor: int, base: Layout) -> Layout:
        """Return how a view of a computed tensor lies that lies as ``base``."""
        if base.dim is WHOLE or base.dim in (PARTIAL, SLICES):
            return base
        dim: int = base.dim
        for op, output in self._chains.get(tensor, ()):
            mapped = _mapped(op, output, dim, base.parts, self.batch)
            if mapped is None:
                return Layout(SLICES, base.parts)
            dim = mapped
        return Layout(dim, base.parts)

    def root_dim(self, tensor: int, dim: int, parts: int) -> int | None:
        """Return the dimension of the computed tensor that ``dim`` of its view is, None if there is none."""
        root = self.roots[tensor]
        for d in range(len(self.graph.tensors[root].shape)):
            if self.through_views(tensor, Layout(d, parts)).dim == dim:
                return d
        return None

    def divides(self, root: int, dim: int, parts: int) -> bool:
        """Tell whether so many parts divide a dimension of a computed tensor."""
        return is_divisible(self.graph.tensors[root].shape[dim].at(self.batch), parts)

    def slice_key(self, tensor: int, held: Layout, want: int | None, relation: str) -> str:
        """Return what tells readings of other regions of a tensor, or of slices along other dimensions, apart."""
        key = f"t{self._regions[tensor]}"
        if relation == EXCHANGE or (relation == ALIGNED and held.dim is WHOLE):
            dim = None if want is None else self.root_dim(tensor, want, held.parts)
            return f"{key} along {dim}" if dim is not None else f"{key} along {want} of t{tensor}"
        return key


def _mapped(op: Op, output: int, dim: int, parts: int, batch: float) -> int | None:
    """Return the dimension of a view that ``dim`` of its source becomes, None if none is split alike."""
    for split in plain_splits(op):
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
