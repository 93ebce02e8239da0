"""The operator graph: rostam's own picture of a traced model, usable without torch."""

from rostam_py.graph.operator_graph import PARTIAL, WHOLE, Affine, Op, OperatorGraph, Split, Tensor

__all__ = ["PARTIAL", "WHOLE", "Affine", "Op", "OperatorGraph", "Split", "Tensor"]
