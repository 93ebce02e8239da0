"""Stacks grown from four traced blocks equal the whole trace, tensor by tensor and op by op."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from rostam_py.graph import OperatorGraph
from rostam_py.models.spec import InputSpec, ModelSpec
from rostam_py.tracing import trace, tracer


@pytest.mark.parametrize(
    ("family", "depth"),
    [
        ("gpt", 6),
        ("transformer", {"encoder": 1, "decoder": 5}),
        pytest.param("llama", 6, marks=pytest.mark.slow),
        pytest.param("t5", {"encoder": 6, "decoder": 5}, marks=pytest.mark.slow),
        pytest.param("mixtral", 5, marks=pytest.mark.slow),
        pytest.param("lora", 5, marks=pytest.mark.slow),
        pytest.param("gpt_oss", 10, marks=pytest.mark.slow),  # 18 s; alternating blocks are tested below, too
        pytest.param("deepseek", {"dense_blocks": 2, "blocks": 5}, marks=pytest.mark.slow),
    ],
)
def test_grown_graph_equals_the_whole_trace(
    family: str, depth: int | dict[str, int], small_specs: dict[str, ModelSpec]
) -> None:
    grown = trace(small_specs[family], num_layers=depth)
    whole = trace(small_specs[family], num_layers=depth, replicate_blocks=False)
    assert grown.ops == whole.ops
    assert grown.tensors == whole.tensors
    assert grown == whole


def test_grown_dispatch_graph_equals_the_whole_trace(small_specs: dict[str, ModelSpec]) -> None:
    grown = trace(small_specs["gpt"], num_layers=6, route="dispatch")
    whole = trace(small_specs["gpt"], num_layers=6, route="dispatch", replicate_blocks=False)
    assert grown == whole


def _scores(graph: OperatorGraph) -> list[int]:
    """Return the FLOPs of each block's attention."""
    return [op.flops.at(1) for op in graph.ops if op.role == "attention" and op.phase == "forward"]


# 2 products of 4 heads of 16 for each score: of 128 positions windows of 16 see 16 x 128 - 16 x 15 / 2
ALTERNATING = [2 * 4 * 2 * 16 * n for n in (16 * 128 - 120, 128 * 128)]


@pytest.mark.slow  # 5 s; test_blocks_of_two_kinds_grow_by_one_of_each is the quick one
def test_alternating_blocks_grow_by_one_of_each(small_specs: dict[str, ModelSpec]) -> None:
    assert _scores(trace(small_specs["gpt_oss"], num_layers=10)) == ALTERNATING * 5


@pytest.mark.slow  # nine blocks of experts traced whole; test_uneven_stack_is_traced_whole is the quick one
def test_no_whole_number_of_periods_is_traced_whole(
    small_specs: dict[str, ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One block more than the eight from which whole periods grow.
    grown = []
    monkeypatch.setattr(tracer, "replicate", lambda *arguments: grown.append(arguments))
    graph = trace(small_specs["gpt_oss"], num_layers=9)
    assert not grown
    assert _scores(graph) == [*ALTERNATING * 4, ALTERNATING[0]]


class Block(nn.Module):
    """A linear layer; each so many blocks, the last of them doubles its result."""

    def __init__(self, index: int, period: int) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.factor = 2.0 if index % period == period - 1 else 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.factor if self.factor > 1 else self.linear(x)


class Net(nn.Module):
    """Blocks in a row."""

    def __init__(self, count: int, period: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(i, period) for i in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def _of_two_kinds(small_specs: dict[str, ModelSpec], period: int, **changed: Any) -> ModelSpec:
    return replace(
        small_specs["gpt"],
        name="two kinds",
        make=lambda num_layers: Net(num_layers["blocks"], period),
        inputs=(InputSpec("x", (64,)),),
        targets=(),
        loss=lambda output: output.sum(),
        **changed,
    )


def test_blocks_of_two_kinds_grow_by_one_of_each(
    small_specs: dict[str, ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown, original = [], tracer.replicate
    monkeypatch.setattr(tracer, "replicate", lambda *given: grown.append(given[1:]) or original(*given))
    spec = _of_two_kinds(small_specs, 2, stacks={"blocks": 10}, periods={"blocks": 2})
    graph = trace(spec)
    assert grown == [("blocks", 10, 2)]
    assert graph == trace(spec, replicate_blocks=False)
    doubled = [op.block for op in graph.ops if op.op_type.startswith("aten.mul") and op.phase == "forward"]
    assert doubled == [1, 3, 5, 7, 9]


def test_uneven_stack_is_traced_whole(small_specs: dict[str, ModelSpec]) -> None:
    # Every third block doubles its result: blocks 1 and 2 are not a shift of each other.
    spec = _of_two_kinds(small_specs, 3, stacks={"blocks": 8})
    graph = trace(spec)
    assert graph == trace(spec, replicate_blocks=False)
    assert graph.num_parameters == 8 * (64 * 64 + 64)
