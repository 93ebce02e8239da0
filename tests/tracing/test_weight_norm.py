"""Weights that are made of a direction and a length before they are used: torch's weight_norm, old and new.

Legend: a convolution of C channels to C, kernel K, over T steps; a layer of D features to H.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from rostam_py.fabrics import build_fabric
from rostam_py.graph import WHOLE, OperatorGraph
from rostam_py.placement import place
from rostam_py.plan import Machine, Strategy
from rostam_py.tracing import trace
from rostam_py.tracing.step import default_loss

sys.path.insert(0, str(Path(__file__).parent))

from real_runs import count, materialised

BATCH, C, K, T, D, H = 2, 8, 3, 16, 16, 32


def _old(module: nn.Module, dim: int | None = 0) -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(module, dim=dim)


STYLES: dict[str, Callable[..., nn.Module]] = {"old": _old, "new": parametrizations.weight_norm}


class Positions(nn.Module):
    """As wav2vec 2.0: what a grouped convolution makes of the neighbours is added, its weight normalised by place."""

    def __init__(self, normed: Callable[..., nn.Module], groups: int = 4) -> None:
        super().__init__()
        self.conv = normed(nn.Conv1d(D, D, 4, padding=2, groups=groups, bias=False), dim=2)
        self.up, self.down = nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x: Tensor) -> Tensor:
        near = self.conv(x.transpose(1, 2))[:, :, :-1].transpose(1, 2)
        x = x + nn.functional.gelu(near)
        return x + self.down(nn.functional.gelu(self.up(x)))


def _meta(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return make()


def _products(graph: OperatorGraph, phase: str) -> float:
    names = ("mm", "convolution")
    return sum(op.flops.at(1) for op in graph.ops if op.phase == phase and any(n in op.op_type for n in names))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("route", ["joint", "dispatch"])
@pytest.mark.parametrize("dim", [0, 2, None])
def test_a_normed_convolution_is_one_and_the_work_of_its_weight(style: str, route: str, dim: int | None) -> None:
    made = nn.Sequential(_meta(lambda: STYLES[style](nn.Conv1d(C, C, K, bias=False), dim=dim)))
    graph = trace(made, torch.zeros(BATCH, C, T), route=route)
    assert graph.route == route
    assert graph.num_parameters == sum(p.numel() for p in made.parameters())
    assert _products(graph, "forward") == 2 * C * C * K * (T - K + 1)
    assert _products(graph, "backward") == _products(graph, "forward")  # the input needs no gradient
    norms = [op for op in graph.ops if "norm" in op.op_type]
    assert norms
    assert all(op.module.startswith("0") for op in norms)
    assert all(op.flops.per_sample == 0 for op in norms)
    if dim is not None:
        assert [op.flops.constant / (C * C * K) for op in norms] == [3, 6]
    assert not any("no FLOP formula" in note for note in graph.notes)


@pytest.mark.parametrize("style", STYLES)
def test_saved_bytes_are_those_of_a_real_run(style: str) -> None:
    module, x = _meta(lambda: Positions(STYLES[style], groups=1)), torch.zeros(BATCH, T, D)
    graph = trace(module, x)  # torch's counter knows no groups in backward
    forward, backward, saved = count(materialised(module), x, default_loss)
    assert _products(graph, "forward") * BATCH == pytest.approx(forward, rel=1e-9)
    assert _products(graph, "backward") * BATCH == pytest.approx(backward, rel=1e-9)
    assert graph.saved_bytes(BATCH) == pytest.approx(saved, rel=0.02)


@pytest.mark.parametrize("strategy", [Strategy(tp=2), Strategy(dp=2, shard=3), Strategy(pp=2)])
def test_a_model_with_one_is_placed(strategy: Strategy) -> None:
    module = _meta(lambda: nn.Sequential(*(Positions(parametrizations.weight_norm) for _ in range(2))))
    machine = Machine(fabric=build_fabric("electrical_flat", num_accelerators=2), accelerator="a100_80gb")
    plan = place(trace(module, torch.zeros(BATCH, T, D)), machine, global_batch=8, strategy=strategy, software="ideal")
    assert plan.memory_bytes > 0


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_of_a_weight_are_normed_apart(dim: int) -> None:
    graph = trace(_meta(lambda: parametrizations.weight_norm(nn.Linear(D, H), dim=dim)), torch.zeros(BATCH, D))
    forward, backward = (op for op in graph.ops if "_weight_norm" in op.op_type)
    torch.manual_seed(0)
    v, gradient = torch.randn(H, D, dtype=torch.float64), torch.randn(H, D, dtype=torch.float64)
    g = torch.rand((H, 1) if dim == 0 else (1, D), dtype=torch.float64)
    w, norms = torch._weight_norm_interface(v, g, dim)
    inputs: dict[int, list[Any]] = {0: [v, g], 1: [gradient, v, g, norms]}
    expected = [(w, norms), torch.ops.aten._weight_norm_interface_backward(gradient, v, g, norms, dim)]
    for case, op in enumerate((forward, backward)):
        along = {split.input_dims[0]: split for split in op.splits}
        assert set(along) == {0, 1}
        assert along[1 - dim].comm_kind == "all_reduce"
        assert along[1 - dim].comm_bytes.constant == 4 * g.numel()
        split = along[dim]
        assert split.comm_kind == ""
        halves = [
            t.chunk(2, d)[1].contiguous() for t, d in zip(inputs[case], split.input_dims, strict=True) if d is not WHOLE
        ]
        run = torch._weight_norm_interface if case == 0 else torch.ops.aten._weight_norm_interface_backward
        for made, whole, d in zip(run(*halves, dim), expected[case], split.output_dims, strict=True):
            assert d == dim
            torch.testing.assert_close(made, whole.chunk(2, dim)[1])
