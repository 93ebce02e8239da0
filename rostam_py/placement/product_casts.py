"""ProductCasts: the kernels that cast what products read in narrow formats, and scale what they make."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rostam_py.costs.families import CAST, MAP
from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.costs.precision import get_precision
from rostam_py.costs.row_scales import row_scaled_seconds
from rostam_py.graph import Op
from rostam_py.graph.fusion import APART, REDUCTION, ROWS
from rostam_py.graph.vocabulary import DTYPE_BYTES
from rostam_py.placement.experts import SpreadExperts
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.sharding import Sharding
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.local_ops import LocalOps
from rostam_py.software.product_inputs import CastInput, cast_inputs, is_narrow, memory_of, product_width

_WIDE_SCALE = 8  # bytes of a largest value as torchao has it: float64


class ProductCasts:
    """The casts of one sharded graph. Args: transposes_fp8: the device's products of 8 bits need transposed copies."""

    def __init__(self, local: LocalOps, sharding: Sharding, experts: SpreadExperts, transposes_fp8: bool) -> None:
        self.local, self.sharding, self.experts, self.transposes_fp8 = local, sharding, experts, transposes_fp8
        self.graph, self.rules = local.graph, local.rules

    def added_to(self, kernels: list[Kernel]) -> list[Kernel]:
        """Return kernels, the first reader of what is cast for products with its cast."""
        chosen = get_precision(self.rules.precision).casts
        if chosen is None:
            return kernels
        left = cast_inputs(self.graph, with_weights=self.rules.casts_weights, by_product=chosen.by_product)
        found, of_norms = [], set[int]()
        narrow = [not kernel.is_view and is_narrow(self.graph, self.graph.ops[kernel.ops[0]]) for kernel in kernels]
        of_inputs = self._read_for_inputs(one for one, is_one in zip(kernels, narrow, strict=True) if is_one)
        for kernel, is_one in zip(kernels, narrow, strict=True):
            op = self.graph.ops[kernel.ops[0]]
            casts: list[KernelTime] = []
            largest: list[int] = []
            if is_one:
                later = of_inputs if makes_weight_gradient(op, self.graph) else frozenset[int]()
                casts, largest = self._casts_of(kernel, left, of_norms, later)
                if chosen.scales_gradients and op.phase == "backward":
                    casts.append(self._scaled(kernel))
            found.append(
                replace(kernel, casts=(*kernel.casts, *casts), largest=tuple(largest)) if casts or largest else kernel
            )
            if self._is_norm(kernel):
                of_norms.update(memory_of(self.graph, t) for t in kernel.outputs)
        return found

    def _read_for_inputs(self, products: Iterable[Kernel]) -> frozenset[int]:
        """Return memory that products for inputs' gradients read, which run in front of those for weights'."""
        ops = (self.graph.ops[index] for kernel in products for index in kernel.ops)
        backward = (op for op in ops if op.phase == "backward" and op.role == "product")
        return frozenset(
            memory_of(self.graph, t) for op in backward if not makes_weight_gradient(op, self.graph) for t in op.inputs
        )

    def _casts_of(
        self, kernel: Kernel, left: dict[tuple[str, int], CastInput], of_norms: Collection[int], later: Collection[int]
    ) -> tuple[list[KernelTime], list[int]]:
        """Return the casts of what a product is the first to read; several that are one read one input of each kind.

        Args: later: memory that others read first.
        Returns: the casts; bytes of the largest values that members agree on before them.
        """
        found: dict[tuple[CastInput, bool, int], list[tuple[Op, int]]] = {}
        for index in kernel.ops:
            op = self.graph.ops[index]
            for place, t in enumerate(op.inputs) if is_narrow(self.graph, op) else ():
                memory = memory_of(self.graph, t)
                one = None if memory in later else left.pop((op.phase, memory), None)
                if one is not None:
                    found.setdefault((one, memory in of_norms, place), []).append((op, t))
        casts = [cast for (one, is_of_norm, _), read in found.items() for cast in self._cast(read, one, is_of_norm)]
        sizes = [self._largest_bytes(*read[0]) for read in found.values()] if self.rules.compiles_casts else []
        return casts, [size for size in sizes if size]

    def _largest_bytes(self, product: Op, tensor: int) -> int:
        """Return the bytes of largest values that members agree on to cast a product's input, 0 if each has its own.

        Model: one for each tensor of which they hold parts; for each row where the product sums over parts of rows.
        Source: amax_to_scale and tensor_to_amax in torchao/float8 of pytorch/ao, which compute with DTensors in
            float64: code that PyTorch 2.13 generates of a block of torchtitan's all-reduces 29 scalars, or 14 columns.
        """
        casts = get_precision(self.rules.precision).casts
        if casts is None or self.sharding.tensor_fraction(tensor) == 1:
            return 0
        if not casts.by_product:
            return _WIDE_SCALE
        if self.sharding.op_split(product.id)[0] != "row":
            return 0
        entries, made = (
            self.graph.tensors[t].num_bytes(self.local.batch) / DTYPE_BYTES[self.graph.tensors[t].dtype]
            for t in (tensor, product.outputs[0])
        )
        return math.ceil(_WIDE_SCALE * entries / (product.flops.at(self.local.batch) / (2 * made)))

    def _is_norm(self, kernel: Kernel) -> bool:
        """Tell whether a kernel of forward is a norm by rows, written out or not, so that it may know what it makes."""
        ops = [self.graph.ops[i] for i in kernel.ops]
        kinds = {self.local.fused_kinds[op.id] for op in ops}
        return ops[0].phase == "forward" and not kinds.isdisjoint((ROWS, REDUCTION)) and APART not in kinds

    def _cast(self, inputs: Sequence[tuple[Op, int]], one: CastInput, is_of_norm: bool) -> list[KernelTime]:
        """Return what the cast of a product's input takes beyond it, nothing where a norm has made all.

        Model: what is gathered for the product is cast by those that hold it, before; each transposes all of it then.
        Args: inputs: products and what they read of it; several products that are one read parts of it.
        """
        precision, width, op = (
            get_precision(self.rules.precision),
            product_width(self.rules.precision),
            inputs[0][0],
        )
        if precision.casts is None:
            return []
        moved: dict[int, list[float]] = {}  # number of the kernel -> bytes read, bytes written, pace, elements scaled
        for product, tensor in inputs:
            held = whole = self.local.wide_read_bytes((product,), tensor)
            if not precision.casts.by_product:
                held *= min(1.0, self.sharding.tensor_fraction(tensor) / (self._read_share(product, tensor) or 1.0))
            kind = {"is_of_norm": is_of_norm, "is_gathered": held < whole}
            kernels = (
                one.compiled(precision, self.transposes_fp8, **kind) if self.rules.compiles_casts
                else (one.traffic(precision, self.transposes_fp8, **kind),)
            )  # fmt: skip
            for number, traffic in enumerate(kernels):
                sums = moved.setdefault(number, [0.0, 0.0, traffic.pace, 0.0])
                sums[0] += traffic.wide_reads * held + traffic.narrow_reads * whole * width
                sums[1] += (traffic.copies * held + traffic.narrow_copies * whole) * width
                if precision.casts.by_product and one.by_rows and traffic.copies:
                    sums[3] += held / precision.tensor_bytes
        launches = precision.casts.launches * (1 if precision.casts.takes_all else self.local.num_products(op))
        return [
            self._compiled(self.local.apart(op, "cast", CAST, read, written, launches), pace, elements)
            for read, written, pace, elements in moved.values() if read
        ]  # fmt: skip

    def _compiled(self, stream: KernelTime, pace: float, row_scaled: float) -> KernelTime:
        """Return a kernel of casts as PyTorch's compiler makes it, as it is where others do.

        Args: pace: how many times as long as a stream it takes. row_scaled: elements that it computes a scale for.
        """
        if not self.rules.compiles_casts:
            return stream
        longest = max(stream.duration_s * pace, row_scaled_seconds(row_scaled, self.local.multiprocessors))
        # Busy with accesses or arithmetic, not idle: it draws what the stream does for as long.
        return replace(stream.stretched(max(1.0, longest / stream.duration_s)), watts=stream.watts)

    def _scaled(self, kernel: Kernel) -> KernelTime:
        """Return the kernel that multiplies what a product of gradients has made, in the width of activations."""
        ops = [self.graph.ops[i] for i in kernel.ops if self.graph.ops[i].role == "product"]
        made, op = 0.0, ops[0]
        joint = ops if makes_weight_gradient(op, self.graph) else ops[:1]  # one sum of inputs' gradients
        for t in (t for one in joint for t in one.outputs):
            tensor, share = self.graph.tensors[t], self.sharding.tensor_fraction(t, t in self.sharding.comms)
            made += tensor.num_bytes(self.local.batch) / DTYPE_BYTES[tensor.dtype] * share * self.experts.share(t)
        moved = made * get_precision(self.rules.precision).tensor_bytes
        return self._compiled(self.local.apart(op, "scaled", MAP, moved, moved), 1.0, made)

    def _read_share(self, op: Op, tensor: int) -> float:
        """Return the part of a tensor that one member's share of an op reads."""
        return self.sharding.read_fraction(op, op.inputs.index(tensor)) if tensor in op.inputs else 1.0
