"""What matrix products of 8 or 4 bits make of the bytes that are kept, and sent, for them, and of their inputs' casts.

Model: a product of a repeated block casts its inputs, and keeps the casts for backward; products outside the blocks are
as wide as other ops where there are blocks. A tensor that only products read in backward is kept in their width alone,
one that other ops read too as it is and in their width. Products that read the same tensor in a phase share its cast
(costs/precision.py: Casts), which makes what both phases read of what forward reads: rows for its products, columns for
weights' gradients. Of what backward alone reads, gradients of results, inputs' gradients take rows, weights' columns.
Weights are cast once an iteration (Transformer Engine's is_first_microbatch), and where ranks share them whenever they
have been gathered.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rostam_py.costs.precision import Casts, Precision, get_precision
from rostam_py.graph import Op, OperatorGraph

# How many times as long as streams kernels take that PyTorch's compiler makes where they write a copy by columns. In
# tiles: "the maximum bandwidth I can achieve with the cast to float8 + transpose of grad_output ... is ~1.4 [TB/s] on
# an H100, while other float8 overhead kernels top out at ~2.2" (pytorch/pytorch, issue 133242; 1.5 and 2 in 130015).
# Where a kernel works through rows, to find their largest values, and writes columns byte by byte: "0.6 to 0.7 TB/s on
# NVIDIA H100 ... across dim0 instead of dim1, I see 2.0-2.2", "due to uncoalesced" accesses (issue 149982, torch 2.8).
_TILED = 2.2 / 1.4
_SCATTERED = 2.1 / 0.65


def narrow_weights(graph: OperatorGraph) -> frozenset[int]:
    """Return the trained and frozen weights that matrix products alone read, which may lie in their width.

    Cost: linear in ops.
    """
    weights = {t.id for t in graph.weights if t.kind in ("parameter", "frozen")}
    roots, read, wide = graph.view_roots, set[int](), set[int]()
    for op in graph.ops:
        if not op.is_metadata and op.phase in ("forward", "backward"):
            found = weights.intersection(roots[t] for t in op.inputs)
            read |= found
            wide |= set() if is_narrow(graph, op) else found
    return frozenset(read - wide)


def is_narrow(graph: OperatorGraph, op: Op) -> bool:
    """Return whether an op is a product that a precision of narrow products computes in them."""
    return op.role == "product" and (op.block >= 0 or not graph.block_names)


def product_width(precision: str) -> float:
    """Return the bytes of an element that a narrow product reads over those of an activation."""
    chosen = get_precision(precision)
    return chosen.product_bytes / chosen.tensor_bytes


def sent_width(precision: str) -> float:
    """Return the bytes of an element that is sent for products over those of an activation."""
    chosen = get_precision(precision)
    return chosen.sent_bytes / chosen.tensor_bytes


def gathered_width(graph: OperatorGraph, precision: str, readers: Iterable[int]) -> float:
    """Return the bytes of an element that is gathered for some ops over those of an activation.

    Model: those that hold its parts cast them, where narrow products alone read it.
    """
    chosen = get_precision(precision)
    is_cast = chosen.casts is not None and not chosen.casts.by_product
    is_cast = is_cast and all(is_narrow(graph, graph.ops[op]) for op in readers)
    return product_width(precision) if is_cast else 1.0


@dataclass(frozen=True, slots=True)
class CastTraffic:
    """What a cast reads of the input, how many copies it writes, and how often such a copy is transposed apart.

    narrow_reads: of such a copy. narrow_copies: written of it. pace: how many times as long as a stream's its kernel
    takes for its bytes.
    """

    wide_reads: int
    copies: int
    narrow_reads: int = 0
    narrow_copies: int = 0
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class CastInput:
    """What narrow products of a phase read.

    by_rows, by_columns: which copies of it they read. is_weight; is_gradient: of results, which backward alone reads.
    num_columns: products that read it by columns.
    """

    by_rows: bool
    by_columns: bool
    is_weight: bool = False
    is_gradient: bool = False
    num_columns: int = 1

    def traffic(
        self, precision: Precision, transposes: bool, *, is_of_norm: bool = False, is_gathered: bool = False
    ) -> CastTraffic:
        """Return what the cast moves beyond the products.

        Args:
            transposes: the device's products of 8 bits need transposed copies.
            is_of_norm: a norm makes the input, which may know its largest value, or cast it.
            is_gathered: it is gathered as it is cast, and transposed behind.
        """
        casts = precision.casts or Casts(0, 0, 0)
        if casts.by_product:
            return CastTraffic(self.by_rows + 2 * self.by_columns, self.by_rows + self.by_columns)
        reads = casts.num_weight_reads if self.is_weight else casts.num_reads_of_norm if is_of_norm else casts.num_reads
        has_columns = self.by_columns and casts.has_columns(transposes)
        if not (casts.writes_rows or self.is_weight):
            return CastTraffic(reads, int(has_columns and not self.is_gradient))
        if not (self.by_rows and has_columns):
            return CastTraffic(reads, 1 if reads else 0)
        if casts.writes_columns or (reads and not is_gathered):
            return CastTraffic(reads, 2)
        return CastTraffic(reads, 1 if reads else 0, narrow_reads=1, narrow_copies=1)

    def compiled(
        self, precision: Precision, transposes: bool, *, is_of_norm: bool = False, is_gathered: bool = False
    ) -> tuple[CastTraffic, ...]:
        """Return what each kernel of such a cast moves as PyTorch's compiler makes them of torchao's code.

        Model: largest values are found first, except of rows, whose kernel casts as well. Copies by columns, one for
            each product that reads one, are written by the kernel that writes the one by rows.
        Args: as of ``traffic``.
        Source: code that PyTorch 2.13 generates of a block of torchtitan's with torchao 0.11, for an H100.
        """
        whole = self.traffic(precision, transposes, is_of_norm=is_of_norm, is_gathered=is_gathered)
        casts, columns = precision.casts or Casts(0, 0, 0), self.num_columns
        if casts.by_product:
            if not self.by_columns:
                return (whole,)
            pace = _SCATTERED if self.by_rows else _TILED
            return CastTraffic(1, 0), CastTraffic(1, self.by_rows + columns, pace=pace)
        if not (self.by_columns and casts.has_columns(transposes)):
            return (whole,)
        if whole.narrow_reads:
            return replace(whole, narrow_reads=0, narrow_copies=0), CastTraffic(0, 0, 1, columns, _TILED)
        return CastTraffic(whole.wide_reads - 1, 0), CastTraffic(1, self.by_rows + columns, pace=_TILED)


def cast_inputs(
    graph: OperatorGraph, *, with_weights: bool = False, by_product: bool = False
) -> dict[tuple[str, int], CastInput]:
    """Return what is cast for narrow products, by phase and memory.

    Args:
        with_weights: trained weights too, by rows in forward and by columns in backward.
        by_product: in each phase what its own products read; else forward's casts serve backward.
    Cost: linear in ops.
    """
    rows, columns, weights = set[tuple[str, int]](), set[tuple[str, int]](), set[int]()
    counts = Counter[int]()  # memory -> products of weights' gradients that read it
    kinds = {memory_of(graph, t.id): t.kind for t in graph.weights}
    for op in graph.ops:
        if not is_narrow(graph, op) or op.is_metadata:
            continue
        makes_gradient = not graph.gradient_tensors.isdisjoint(op.outputs)
        for memory in {memory_of(graph, t) for t in op.inputs}:
            if memory not in kinds:
                (columns if makes_gradient else rows).add((op.phase, memory))
                counts[memory] += makes_gradient
            elif with_weights and kinds[memory] == "parameter":
                weights.add(memory)
                (rows if op.phase == "forward" else columns).add((op.phase, memory))
    found = {}
    for phase, memory in rows | columns:
        if by_product:
            key = phase, memory
            found[key] = CastInput(key in rows, key in columns, memory in weights, num_columns=counts[memory] or 1)
        elif phase == "forward":
            in_backward = ("backward", memory) in rows | columns and memory not in weights
            found[phase, memory] = CastInput(True, in_backward, memory in weights, num_columns=counts[memory] or 1)
        elif memory in weights or ("forward", memory) not in rows:
            is_weight, key = memory in weights, (phase, memory)
            found[key] = CastInput(
                key in rows, key in columns, is_weight, is_gradient=not is_weight, num_columns=counts[memory] or 1
            )
    return found


def memory_of(graph: OperatorGraph, tensor: int) -> int:
    """Return what tells tensors that lie in the same memory."""
    storage = graph.tensors[tensor].storage
    return storage if storage >= 0 else -2 - graph.view_roots[tensor]


def kept_widths(graph: OperatorGraph, precision: str) -> dict[int, float]:
    """Return, for tensors kept for backward that products read there, the bytes kept over those of an activation.

    Cost: linear in ops.
    """
    chosen, width = get_precision(precision), product_width(precision)
    if width == 1 or (chosen.casts is not None and chosen.casts.by_product):
        return {}
    readers: dict[int, set[bool]] = {}  # memory -> whether products, and whether other ops, read it in backward
    memory = [memory_of(graph, t.id) for t in graph.tensors]
    for op in graph.ops:
        if op.phase == "backward" and not op.is_metadata:
            for t in op.inputs:
                readers.setdefault(memory[t], set()).add(is_narrow(graph, op))
    kept = {t.id: readers.get(memory[t.id], set()) for t in graph.tensors if t.is_saved}
    return {t: (width if True in kinds else 0) + (False in kinds) for t, kinds in kept.items() if kinds}
