"""Programs that route tokens to experts: every one computes k rows a token, spread evenly, however it is written.

Legend: N experts of two matrices (D, H) and (H, D), K of them for each of T tokens a sample, a router (D, N).
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.errors import ConfigError, TracingError
from rostam_py.graph import Affine, OperatorGraph
from rostam_py.tracing import trace

N, K, T, D, H = 4, 2, 8, 16, 32
ROUTER = 2 * T * D * N
EXPERTS = 2 * T * K * 2 * D * H


class Experts(nn.Module):
    """Routes, and leaves it to subclasses how rows reach their experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, N, bias=False)
        layers = (nn.Sequential(nn.Linear(D, H, bias=False), nn.ReLU(), nn.Linear(H, D, bias=False)) for _ in range(N))
        self.experts = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, D)
        weights, chosen = torch.topk(functional.softmax(self.router(rows), -1), K, -1)
        return self.run(rows, weights, chosen).view(x.shape)

    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        raise NotImplementedError


class ByWhere(Experts):
    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, place = torch.where(chosen == index)
            y[token] += weights[token, place, None] * expert(x[token])
        return y


class ByOneHot(Experts):
    """As Mixtral was first published: only experts that are hit run, found by their index in a tensor."""

    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        mask = functional.one_hot(chosen, N).permute(2, 1, 0)
        for index in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, token = torch.where(mask[index].squeeze(0))
            y.index_add_(0, token, self.experts[index](x[None, token].reshape(-1, D)) * weights[token, place, None])
        return y


class ByPaddedOneHot(Experts):
    """As DBRX and others: a class more than there are experts, for rows that none computes; nobody chooses it."""

    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        mask = functional.one_hot(chosen, N + 1).permute(2, 1, 0)
        for index in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, token = torch.where(mask[index[0]])
            y.index_add_(0, token, self.experts[index[0]](x[token]) * weights[token, place, None])
        return y


class ByPaddedCounts(Experts):
    """Rows are sorted by class and counted, one class more than there are experts."""

    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        order = chosen.view(-1).argsort()
        *counts, dropped = chosen.view(-1).bincount(minlength=N + 1).tolist()
        parts = x[order // K][: len(order) - dropped].split(counts)
        y = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return torch.zeros_like(x).index_add(0, order // K, y * weights.view(-1)[order, None])


class ByMask(Experts):
    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        gates = torch.zeros(x.shape[0], N).scatter(1, chosen, weights)
        for index, expert in enumerate(self.experts):
            mask = (chosen == index).any(-1)
            if mask.any():
                y[mask] = y[mask] + gates[mask, index, None] * expert(x[mask])
        return y


class BySort(Experts):
    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        order = chosen.view(-1).argsort()
        counts = chosen.view(-1).bincount(minlength=N)
        parts = x[order // K].split(counts.tolist())
        y = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return torch.zeros_like(x).index_add(0, order // K, y * weights.view(-1)[order, None])


class ByGroup(Experts):
    """All experts' weights in one tensor, multiplied by one grouped product."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList()
        self.up, self.down = nn.Parameter(torch.zeros(N, D, H)), nn.Parameter(torch.zeros(N, H, D))

    def run(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        order = chosen.view(-1).argsort()
        counts = torch.histc(chosen.float(), bins=N, min=0, max=N - 1)
        offsets = counts.cumsum(0, dtype=torch.int32)
        y = torch._grouped_mm(x[order // K], self.up, offs=offsets).relu()
        y = torch._grouped_mm(y, self.down, offs=offsets) * weights.view(-1)[order, None]
        return torch.zeros_like(x).index_add(0, order // K, y)


def _products(graph: OperatorGraph, phase: str) -> float:
    return sum(op.flops.at(1) for op in graph.ops if op.phase == phase and "mm" in op.op_type)


@pytest.mark.parametrize("route", ["joint", "dispatch"])
@pytest.mark.parametrize("kind", [ByWhere, ByOneHot, ByPaddedOneHot, ByPaddedCounts, ByMask, BySort, ByGroup])
def test_experts_compute_k_rows_a_token(kind: type[Experts], route: str) -> None:
    graph = trace(nn.Sequential(nn.Linear(D, D, bias=False), kind()), torch.zeros(2, T, D), route=route)
    assert graph.route == route
    first = 2 * T * D * D
    assert _products(graph, "forward") == first + ROUTER + EXPERTS
    assert _products(graph, "backward") == first + 2 * (ROUTER + EXPERTS)  # the first layer's input needs no gradient
    assert graph.num_parameters == D * D + D * N + N * 2 * D * H
    assert not any("no FLOP formula" in note or "failed" in note for note in graph.notes)


def test_each_expert_of_a_loop_gets_its_even_share() -> None:
    graph = trace(ByWhere(), torch.zeros(2, T, D))
    ups = [op for op in graph.ops if op.module.startswith("experts.") and op.module.endswith(".0") and "mm" in op.name]
    forward = [op.flops for op in ups if op.phase == "forward"]
    assert forward == [Affine(0, 2 * (T * K // N) * D * H)] * N


def test_batches_grow_until_tokens_divide_evenly() -> None:
    # 3 tokens a sample, 2 of 4 experts each: 1.5 rows an expert and sample.
    graph = trace(ByWhere(), torch.zeros(1, 3, D))
    assert _products(graph, "forward") == 3 * (2 * D * N + 2 * K * 2 * D * H)


@pytest.mark.parametrize("factor", [0.5, 1.25, 2.0])
def test_capacity_pads_or_drops_rows(factor: float) -> None:
    graph = trace(ByWhere(), torch.zeros(2, T, D), capacity_factor=factor)
    assert _products(graph, "forward") == ROUTER + factor * EXPERTS
    assert graph.metadata["experts"] == {"capacity_factor": factor, "imbalance": 1.0}


def test_loads_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="capacity_factor is 0; it must be a number > 0, or None"):
        trace(ByWhere(), torch.zeros(2, T, D), capacity_factor=0)
    with pytest.raises(ConfigError, match=r"imbalance is 0\.5; it must be a number >= 1"):
        trace(ByWhere(), torch.zeros(2, T, D), imbalance=0.5)


def test_a_capacity_that_no_expert_takes_is_refused() -> None:
    with pytest.raises(TracingError, match=r"capacity_factor is 1\.25, which Linear has no use for: .* leave it out"):
        trace(nn.Linear(D, D), torch.zeros(2, D), capacity_factor=1.25)
    trace(nn.Linear(D, D), torch.zeros(2, D), capacity_factor=1)


def test_an_imbalance_says_where_it_counts() -> None:
    def notes(**load: float) -> list[str]:
        return [note for note in trace(ByWhere(), torch.zeros(2, T, D), **load).notes if "imbalance" in note]

    assert notes() == []
    assert len(notes(imbalance=1.5)) == 1
    assert "ep > 1" in notes(imbalance=1.5)[0]
    assert notes(imbalance=1.5, capacity_factor=2) == [
        "imbalance 1.5 changes nothing: capacity_factor gives every expert as many rows"
    ]


def test_shapes_of_unknown_values_are_an_error_with_a_remedy() -> None:
    class Sparse(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y[y > 0]

    with pytest.raises(TracingError, match=r"aten\.(index|nonzero).*register_module\(Class, stand_in\)"):
        trace(Sparse(8, 8), torch.zeros(2, 8))


def test_masks_made_of_constants_are_known_and_writes_forget_them() -> None:
    class Banded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            steps = torch.arange(8)
            if (steps.diff() == 1).all():  # true of an arange
                return super().forward(x)
            return x

    class Written(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            flags = torch.ones(8, dtype=torch.int64)
            flags.mul_(super().forward(x)[0].long())
            return super().forward(x) if flags.all() else x

    assert _products(trace(Banded(8, 8, bias=False), torch.zeros(2, 8)), "forward") == 2 * 8 * 8
    for route in ("joint", "dispatch"):
        with pytest.raises(TracingError, match="_local_scalar_dense"):
            trace(Written(8, 8), torch.zeros(2, 8), route=route)
