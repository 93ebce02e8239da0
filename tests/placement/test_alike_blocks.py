"""Plans are those of a placement that works every block out by itself: alike blocks are work saved, nothing else."""

from dataclasses import replace

import pytest

from rostam_py.graph import Affine
from rostam_py.graph.likeness import Likeness
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.sharding.propagation import Propagation
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

JOBS = {
    "llama3_8b": {"tp": 2, "pp": 2, "sequence_parallel": True},
    "gpt_125m": {"tp": 2, "recompute": "selective", "precision": "fp16_mixed"},
    "mixtral_8x7b": {"tp": 2, "ep": 2, "sequence_parallel": True},
    "gpt_oss_20b": {"ep": 4, "pp": 2, "virtual_stages": 2},
    "t5_11b": {"tp": 2},
    "resnet50": {"tp": 2},
}


def each_by_itself(monkeypatch):
    """Let no block be like another."""
    monkeypatch.setattr(Likeness, "kinds", lambda self, property_of, reach=0: tuple(range(len(self.ops))))


def plan_of(placed, graph, settings):
    strategy = Strategy(**{"dp": 4, "micro_batch": 1, "check_memory": False, **settings})
    return placed(graph, strategy, 32)


def same(one, other):
    return (one.stages, one.notes, one.groups) == (other.stages, other.notes, other.groups)


@pytest.mark.parametrize(
    "model", [next(iter(JOBS)), *(pytest.param(one, marks=pytest.mark.slow) for one in [*JOBS][1:])]
)
def test_plans_are_those_of_every_block_by_itself(model, placed, monkeypatch):
    graph = trace(model) if model == "resnet50" else trace(model, num_layers=12)
    plan = plan_of(placed, graph, JOBS[model])
    each_by_itself(monkeypatch)
    assert same(plan, plan_of(placed, graph, JOBS[model]))


def test_a_block_that_differs_keeps_its_own_kernels(placed, monkeypatch):
    graph = trace("gpt_125m", num_layers=12)
    slow = next(op for op in graph.ops if op.block == 6 and op.role == "product")
    graph = replace(
        graph, ops=tuple(replace(op, flops=op.flops + Affine(0.0, 1e12)) if op is slow else op for op in graph.ops)
    )
    plan = plan_of(placed, graph, {"tp": 2})
    kernels = [kernel for task in plan.stages[0].templates["forward"] for kernel in task.kernels]
    (own,) = (kernel for kernel in kernels if kernel.name == slow.name)
    others = [kernel for kernel in kernels if kernel.module.endswith(slow.module.rpartition(".6.")[2])]
    assert [one.name for one in others if one.flops == own.flops] == [slow.name]
    assert len(others) == 12
    each_by_itself(monkeypatch)
    assert same(plan, plan_of(placed, graph, {"tp": 2}))


def test_kernels_are_priced_and_ops_visited_once_for_alike_blocks(placed, monkeypatch):
    priced, visited = [], []
    new_kernel, visit = KernelBuilder._new_kernel, Propagation._visit
    monkeypatch.setattr(KernelBuilder, "_new_kernel", lambda self, *a: priced.append(a) or new_kernel(self, *a))
    monkeypatch.setattr(Propagation, "_visit", lambda self, op: visited.append(op) or visit(self, op))
    counts = []
    for num_layers in (12, 24):
        plan_of(placed, trace("gpt_125m", num_layers=num_layers), {"tp": 2})
        counts.append((len(priced), len(visited)))
        priced.clear(), visited.clear()
    assert counts[0] == counts[1]
