"""What every cost model answers: how long one kernel takes on one accelerator."""

from dataclasses import dataclass
from typing import Protocol

from rostam_py.graph import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """One kernel as one device runs it: a main op and the element-wise ops fused into it.

    ops: main op first, then the fused ones; never empty. Optimizer kernels hold one op of phase
        "optimizer" (op_type "optimizer.sgd", "optimizer.momentum", "optimizer.adagrad", "optimizer.adam").
    flops, bytes_read, bytes_written: local amounts, after the split and in ``precision``'s dtypes, what a product of 8
        or 4 bits multiplies in its own, with scales; tensors that pass between fused ops are not counted.
    batch: samples of the micro-batch. degree: members that share the main op (1 = not split).
    split_kind: one of graph.SPLIT_KINDS, or "" where degree is 1.
    pieces: of the degree, the equal parts of a sequence's attention that ranks and blocks of context parallelism make.
    spread: ranks that the experts are spread over: of a grouped product's groups each has one ``spread``-th, with the
        rows of all ranks.
    columns: it computes one of so many equal parts of a product's columns, on all of its rows.
    beside: of bytes_read, those that ops of another kind inside it read, as a norm in a convolution (its main op).
    """

    ops: tuple[Op, ...]
    flops: float
    bytes_read: float
    bytes_written: float
    batch: float
    precision: str = "fp32"
    degree: int = 1
    split_kind: str = ""
    pieces: int = 1
    spread: int = 1
    columns: int = 1
    beside: float = 0.0


class CostModel(Protocol):
    """A cost model; implementations are registered in ``COST_MODELS``."""

    def duration_s(self, call: KernelCall) -> float:
        """Return the kernel's duration [s], never below the model's minimum kernel time."""
        ...

    def notes(self) -> list[str]:
        """Return what a reader of the result should know (fallbacks used, unverified figures)."""
        ...
