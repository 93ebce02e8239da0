"""Tiny hand-written graphs for the cost tests."""

import pytest

from rostam_py.graph import Affine, Op, OperatorGraph, Tensor

F32 = "float32"


def build_linear_graph(width: int = 64, out: int = 32) -> OperatorGraph:
    """x (B, width) -> mm with w (width, out) -> relu; backward: threshold, w gradient."""
    batch, wide, narrow = Affine(0, 1), Affine(width), Affine(out)
    tensors = (
        Tensor(0, (batch, wide), F32, "input", "x"),
        Tensor(1, (wide, narrow), F32, "parameter", "layer.weight"),
        Tensor(2, (batch, narrow), F32, "activation", producer=0),
        Tensor(3, (batch, narrow), F32, "activation", producer=1, is_saved=True),
        Tensor(4, (batch, narrow), F32, "activation", producer=2),
        Tensor(5, (wide, narrow), F32, "gradient", "layer.weight", producer=4),
        Tensor(6, (wide, batch), F32, "activation", producer=3),
    )
    out_bytes = Affine(0, 4.0 * out)
    flops = Affine(0, 2.0 * width * out)
    ops = (
        Op(0, "mm", "layer", "forward", "aten.mm.default", (0, 1), (2,), _args({"tensor": 0}, {"tensor": 1}),
           flops, Affine(4.0 * width * out, 4.0 * width), out_bytes),
        Op(1, "relu", "act", "forward", "aten.relu.default", (2,), (3,), _args({"tensor": 0}),
           Affine(0, out), out_bytes, out_bytes, is_elementwise=True),
        Op(2, "threshold_backward", "act", "backward", "aten.threshold_backward.default", (3, 3), (4,),
           _args({"tensor": 0}, {"tensor": 1}, 0), Affine(0, out), out_bytes.scaled(2), out_bytes, is_elementwise=True),
        Op(3, "t", "layer", "backward", "aten.t.default", (0,), (6,), _args({"tensor": 0}), is_metadata=True),
        Op(4, "mm_1", "layer", "backward", "aten.mm.default", (6, 4), (5,), _args({"tensor": 0}, {"tensor": 1}),
           flops, Affine(0, 4.0 * (width + out)), Affine(4.0 * width * out)),
    )  # fmt: skip
    return OperatorGraph("linear", ops, tensors)


def _args(*args: object) -> dict:
    return {"args": list(args), "kwargs": {}}


@pytest.fixture
def linear_graph():
    """Return the builder of the two-layer graph."""
    return build_linear_graph
