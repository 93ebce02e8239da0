"""What a product or attention does itself in Transformer Engine's modules that the traced graph has as ops of its own.

Model: with ``fusion=modules``,
    a bias picked for each row of a grouped product and added to it is added by the product (GroupedLinear), and in 16
        bits the product of its weights' gradient makes the bias's gradient, as it does of a dense layer (Linear,
        LayerNormLinear: ``bias`` of general_gemm with grad=True). In 8 bits such a gradient is a sum of its own;
    a bias that is multiplied by its rows' weights first runs as kernels that ``KernelBuilder`` counts by the code of
        Megatron-Core's _apply_bias: its ops here cost nothing, and no row of it is kept for backward;
    a gated unit that reads two parts of rows, and weights them, is one kernel backward as well (fused_bias_geglu.py);
    what scales attention's result by a function of its log-sum-exp (a learned sink) is in attention's kernel, both
        ways, and backward needs the scaled result alone (softmax_type=learnable of DotProductAttention).
Source: transformer_engine 2.9, pytorch/module/grouped_linear.py, linear.py and layernorm_linear.py; megatron-core 0.15,
core/transformer/moe/experts.py (TEGroupedMLP: linear_fc1 adds its bias, linear_fc2 hands it out).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rostam_py.costs.families import is_grouped_product, is_put, op_family
from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.graph import WEIGHT_KINDS, Derived, Op, OperatorGraph, behind_barrier


@dataclass(slots=True)
class Epilogues:
    """What is one kernel.

    groups: the op whose kernel it is -> all of its ops, ascending.
    units: the ops of each gated unit's backward, which is one kernel.
    weighted: what picks a weighted bias, and what puts its gradient -> the product whose rows it is added to.
    instead: tensors that backward does not need, and what its kernels read instead.
    """

    groups: dict[int, tuple[int, ...]]
    units: list[tuple[int, ...]]
    weighted: dict[int, Op]
    instead: Derived


def module_epilogues(graph: OperatorGraph, *, is_narrow: bool) -> Epilogues:
    """Return what products and attention do themselves. Args: is_narrow: products are of 8 bits or fewer."""
    return _Finder(graph, is_narrow).find()


def within(graph: OperatorGraph, groups: Iterable[tuple[int, ...]], barriers: frozenset[int]) -> list[tuple[int, ...]]:
    """Return the groups of which no op waits for communication of what another one makes."""
    crossing = behind_barrier(graph, barriers)
    found = []
    for ops in groups:
        made = {t for op in ops for t in graph.ops[op].outputs}
        read = (t for op in ops for t in graph.ops[op].inputs)
        if not any(t in crossing and graph.view_roots[t] in made for t in read):
            found.append(ops)
    return found


class _Finder:
    def __init__(self, graph: OperatorGraph, is_narrow: bool) -> None:
        self.graph, self.is_narrow = graph, is_narrow
        self.found = Epilogues({}, [], {}, {})
        self.backward: dict[int, list[Op]] = {}  # forward op -> backward ops
        for op in graph.ops:
            if op.phase == "backward" and op.forward_op is not None and not op.is_metadata:
                self.backward.setdefault(op.forward_op, []).append(op)

    def find(self) -> Epilogues:
        for op in self.graph.ops:
            if op.phase != "forward":
                continue
            if op_family(op.op_type, op.role) == "attention":
                self._sink(op)
            elif op.role == "product" and is_grouped_product(op.op_type):
                self._grouped_bias(op)
                self._gated_unit(op)
            elif op.role == "product" and not self.is_narrow:
                sums = [one for one in self._backward(op) if one.role != "product" and self._is_vector(one)]
                self._with_weight_gradient(op, sums)
        return self.found

    def _grouped_bias(self, product: Op) -> None:
        add = self._only_reader(product.outputs[0])
        if add is None or add.role != "sum" or len(add.inputs) != 2:
            return
        other = next((one for t in add.inputs if (one := self._maker(t)) is not product), None)
        if other is None:
            return
        picks = [other] if other.role == "gather" else [self._maker(t) for t in other.inputs if other.is_elementwise]
        pick = next((one for one in picks if one is not None and one.role == "gather" and self._is_weights(one)), None)
        if pick is None or self._forward_readers(pick) != [add if other is pick else other]:
            return
        gradient = self._backward(pick)
        if other is pick:
            self._join(product, [pick, add])
            if not self.is_narrow:
                self._with_weight_gradient(product, gradient)
            return
        put = next((one for one in gradient if is_put(one.op_type)), None)
        if put is not None:
            self._join(put, [*gradient, *self._backward(other)])
            self.found.weighted[put.id] = product
        self._join(pick, [other, add])
        self.found.weighted[pick.id] = product
        self.found.instead[self.graph.view_roots[pick.outputs[0]]] = pick.inputs[1:]

    def _gated_unit(self, product: Op) -> None:
        """Make one kernel of the backward of what a grouped product reads, if it joins gradients of parts of rows."""
        inside, pending = dict[int, Op](), [self._maker(product.inputs[0])]
        while pending:
            op = pending.pop()
            if op is None or op.id in inside or not op.is_elementwise or op.block != product.block or not op.inputs:
                continue
            inside[op.id] = op
            for t in op.inputs:
                views = self._views(t)
                inside.update((one.id, one) for one in views)
                pending.append(self._maker(t))
        found = {one.id for op in inside.values() for one in self._backward(op) if one.inputs}
        if not any(self.graph.ops[op].role == "join" for op in found):
            return
        for op in self.graph.ops[min(found) : max(found)]:
            made = [self._maker(t) for t in op.inputs]
            if op.is_accumulation and all(one is not None and one.id in found for one in made):
                found.add(op.id)
        self.found.units.append(tuple(sorted(found)))

    def _views(self, tensor: int) -> list[Op]:
        """Return the views by which a tensor is a part of another."""
        found = []
        while (made := self.graph.tensors[tensor].producer) is not None and self.graph.ops[made].is_metadata:
            found.append(self.graph.ops[made])
            tensor = self.graph.ops[made].inputs[0]
        return found

    def _sink(self, attention: Op) -> None:
        """Take in the element-wise ops from a log-sum-exp to the attention's result, and their backward."""
        if len(attention.outputs) < 2:
            return
        readers, roots = self._forward_readers(attention), self.graph.view_roots
        scaled = readers[0] if len(readers) == 1 else None
        if scaled is None or scaled.linear_in != ((0,), (1,)):  # a product of two tensors
            return
        factor = next((t for t in scaled.inputs if self._maker(t) is not attention), None)
        if factor is None:
            return
        chain: list[Op] = []
        pending = [self._maker(factor)]
        while pending:
            op = pending.pop()
            if op is attention or op in chain:
                continue
            if op is None or not op.is_elementwise or op.block != attention.block:
                return
            chain.append(op)
            makers = (self._maker(t) for t in op.inputs)
            pending += [one for one in makers if one is not None]
        read = {roots[t] for op in chain for t in op.inputs if self._maker(t) is attention}
        if read != {roots[attention.outputs[1]]}:  # its log-sum-exp, not its result
            return
        self._join(attention, [*chain, scaled])
        self.found.instead[self.graph.view_roots[attention.outputs[0]]] = scaled.outputs
        main = next((one for one in self._backward(attention) if op_family(one.op_type, one.role) == "attention"), None)
        if main is not None:
            self._join(main, [one for op in (*chain, scaled) for one in self._backward(op)])

    def _with_weight_gradient(self, product: Op, ops: Collection[Op]) -> None:
        made = (one for one in self._backward(product) if one.role == "product")
        main = next((one for one in made if makes_weight_gradient(one, self.graph)), None)
        if main is not None and ops:
            self._join(main, ops)

    def _join(self, main: Op, others: Collection[Op]) -> None:
        if all(one.block == main.block for one in others):
            self.found.groups[main.id] = tuple(sorted({main.id, *(one.id for one in others)}))

    def _backward(self, op: Op) -> list[Op]:
        return [one for one in self.backward.get(op.id, ()) if not one.is_recomputed]

    def _maker(self, tensor: int) -> Op | None:
        made = self.graph.tensors[self.graph.view_roots[tensor]].producer
        return None if made is None else self.graph.ops[made]

    def _readers(self, tensor: int) -> list[Op]:
        """Return the ops that read a tensor or views of it, views apart."""
        found = []
        for reader in self.graph.readers.get(tensor, ()):
            op = self.graph.ops[reader]
            found += [one for t in op.outputs for one in self._readers(t)] if op.is_metadata else [op]
        return found

    def _forward_readers(self, op: Op) -> list[Op]:
        """Return the forward ops that read an op's first result, each once."""
        found = {one.id: one for one in self._readers(op.outputs[0]) if one.phase == "forward"}
        return list(found.values())

    def _only_reader(self, tensor: int) -> Op | None:
        found = self._readers(tensor)
        return found[0] if len(found) == 1 and found[0].phase == "forward" else None

    def _is_weights(self, pick: Op) -> bool:
        root = self.graph.tensors[self.graph.view_roots[pick.inputs[0]]]
        return root.kind in WEIGHT_KINDS

    def _is_vector(self, op: Op) -> bool:
        is_small = len(op.outputs) == 1 and len(self.graph.tensors[op.outputs[0]].shape) <= 2
        return is_small and makes_weight_gradient(op, self.graph)
