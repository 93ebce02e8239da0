"""The operator graph: rostam's own picture of a traced model, usable without torch."""

from rostam_py.graph.cleanup import (
    Fusion,
    KernelTraffic,
    behind_barrier,
    fuse,
    gathered_bytes,
    kernel_bytes,
    kernel_traffic,
)
from rostam_py.graph.derived import Derived, derived_tensors
from rostam_py.graph.fusion import fuse_neighbours, in_order
from rostam_py.graph.operator_graph import OperatorGraph
from rostam_py.graph.ops import Affine, Halo, Op, Part, Split, Tensor, passes_partial
from rostam_py.graph.vocabulary import PARTIAL, WEIGHT_KINDS, WHOLE

__all__ = [
    "PARTIAL",
    "WEIGHT_KINDS",
    "WHOLE",
    "Affine",
    "Derived",
    "Fusion",
    "Halo",
    "KernelTraffic",
    "Op",
    "OperatorGraph",
    "Part",
    "Split",
    "Tensor",
    "behind_barrier",
    "derived_tensors",
    "fuse",
    "fuse_neighbours",
    "gathered_bytes",
    "in_order",
    "kernel_bytes",
    "kernel_traffic",
    "passes_partial",
]
