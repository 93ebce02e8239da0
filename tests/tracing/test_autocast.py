"""Autocast regions cast as on a GPU, whatever device they name, and only while a trace runs."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.tracing import trace
from rostam_py.tracing.autocast import AS_THEY_COME, IN_FLOAT, IN_HALF, WITH_FLOAT_RESULT

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
CPU_HALF = {"_convolution", "_convolution.deprecated", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
            "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "addmm", "matmul", "mm", "linalg_vecdot",
            "linear", "addbmm", "baddbmm", "bmm", "scaled_dot_product_attention"}  # fmt: skip
OF_PRODUCTS = {"einsum", "chain_matmul", "linalg_multi_dot", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
GPU_ONLY = {"_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention"}


def listed(macro: str) -> set[str]:
    """Return the ops that a macro of the header names."""
    body = re.search(rf"#define {macro}\(_\)((?:.*\\\n)*.*)", HEADER.read_text())
    assert body is not None
    return {".".join(re.split(r",\s*", names)) for names in re.findall(r"_\(([\w, ]+)\)", body[1])}


def test_the_lists_are_the_headers() -> None:
    assert listed("AT_FORALL_FP32") == IN_FLOAT
    assert listed("AT_FORALL_FP32_SET_OPT_DTYPE") == WITH_FLOAT_RESULT
    assert listed("AT_FORALL_LOWER_PRECISION_FP") == IN_HALF | CPU_HALF | OF_PRODUCTS | GPU_ONLY
    assert not AS_THEY_COME & (IN_FLOAT | WITH_FLOAT_RESULT)


class Block(nn.Module):
    """One op of each list; ``device``: what the region names."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.linear, self.norm = device, nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16):
            y = self.linear(x)
            kept = functional.softmax(y, -1, dtype=torch.bfloat16)
            with torch.autocast(self.device, enabled=False):
                plain = y.exp()
            parts = (functional.softmax(y, -1), self.norm(y), y.log(), y.sum(-1), functional.mse_loss(y, x))
            return sum((part.float().mean() for part in (kept, plain, *parts)), start=x.new_zeros(()))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("route", ["joint", "dispatch"])
def test_norms_softmaxes_and_losses_run_in_float32(device: str, route: str) -> None:
    graph = trace(Block(device), torch.zeros(4, 16), route=route)
    found: dict[str, list[str]] = {}
    for op in graph.ops:
        if op.phase == "forward":
            found.setdefault(op.op_type.split(".")[1], []).append(graph.tensors[op.outputs[0]].dtype)
    assert found["addmm"] == ["bfloat16"]
    assert found["_softmax"] == ["bfloat16", "float32"]  # the dtype that the caller asks for, and the list's
    assert found["exp"] == ["bfloat16"]  # in a region that casts nothing
    for name in ("native_layer_norm", "log", "mse_loss"):
        assert found[name] == ["float32"], name
    assert "float32" in found["sum"]


def test_a_trace_leaves_the_cpus_lists_as_they_were() -> None:
    trace(Block("cuda"), torch.zeros(4, 16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.softmax(torch.zeros(2, 2, dtype=torch.bfloat16), -1).dtype is torch.bfloat16
