"""ZB-H1: which backward ops are weight gradients, when they run, what they hold."""

import pytest

from rostam_py.placement.accumulation import regroup_gradient_sums
from rostam_py.placement.megatron.backward_split import weight_gradient_ops
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

W_ROLES = ("aten.mm.default", "aten.embedding_dense_backward.default", "aten.sum.dim_IntList")


def split(graph):
    """Return FLOPs of forward, input gradients and weight gradients of one sample."""
    weight = sum(graph.ops[index].flops.at(1) for index in weight_gradient_ops(graph))
    return graph.forward_flops(), graph.backward_flops() - weight, weight


def test_half_of_a_perceptrons_backward_is_weight_gradients_but_for_the_first_layer(wide_perceptron):
    # dX and dW of each of three layers take what its forward takes; the first needs no dX.
    forward, inputs, weights = split(wide_perceptron)
    first = 2 * 512 * 2048
    assert weights == pytest.approx(forward, rel=1e-3)
    assert inputs == pytest.approx(forward - first, rel=1e-3)


def test_weight_gradients_of_a_gpt_are_those_of_its_matrices(gpt):
    # F 24 s h^2 + 4 s^2 h a layer (causal attention counted whole), 2 s h V the head: W has no attention.
    _, inputs, weights = split(gpt)
    matrices = 4 * 24 * 2048 * 768**2 + 2 * 2048 * 768 * 50257
    assert weights == pytest.approx(matrices, rel=0.005)
    assert inputs > weights
    types = {gpt.ops[i].op_type for i in weight_gradient_ops(gpt) if not gpt.ops[i].is_metadata}
    assert types <= {*W_ROLES, "aten.add.Tensor"}


def test_no_input_gradient_needs_what_a_weight_gradient_computes(small_graphs):
    for graph in small_graphs.values():
        regrouped = regroup_gradient_sums(graph)
        weights = weight_gradient_ops(regrouped)
        for op in regrouped.ops:
            if op.id not in weights:
                assert not any(regrouped.tensors[t].producer in weights for t in op.inputs), op.name


@pytest.mark.parametrize("options", [{}, {"tp": 2}, {"recompute": "full"}, {"tp": 2, "recompute": "selective"}])
def test_the_split_backward_does_the_same_work_and_sends_the_same_messages(gpt, placed, options):
    base = {"pp": 2, "dp": 2, "precision": "bf16_mixed"} | options
    whole, halves = (placed(gpt, Strategy.of(schedule=schedule, **base), 8) for schedule in ("1f1b", "zb_h1"))
    for one, other in zip(whole.stages, halves.stages, strict=True):
        assert other.flops == pytest.approx(one.flops)
        assert other.hardware_flops == pytest.approx(one.hardware_flops)

    def messages(plan):
        """Gradients go in other buckets."""
        return sorted((m.kind, m.group, m.stages, m.num_bytes, m.count) for m in plan.messages() if m.group != "dp")

    assert messages(halves) == messages(whole)
    sent = [{m.stages: 0 for m in plan.messages() if m.group == "dp"} for plan in (whole, halves)]
    for total, plan in zip(sent, (whole, halves), strict=True):
        for m in plan.messages():
            if m.group == "dp":
                total[m.stages] += m.num_bytes * m.count
    assert sent[0] == sent[1]


def test_buckets_and_the_step_are_in_the_last_weight_gradients(gpt, placed):
    plan = placed(gpt, Strategy(pp=2, dp=2, schedule="zb_h1", precision="bf16_mixed"), 8)
    for stage in plan.stages:
        assert set(stage.templates) == {"forward", "backward", "weight", "weight_last"}
        dp = {name for name, tasks in stage.templates.items() for task in tasks if task.group == "dp"}
        assert dp == {"weight_last"}
        assert [task.is_optimizer for task in stage.templates["weight_last"]][-1]
        assert not any(task.group == "pp" for name in ("weight", "weight_last") for task in stage.templates[name])


def test_memory_of_a_layer_is_one_f_one_bs_on_the_first_stage(placed):
    # Qi et al. 2023, 3: stage r holds p - r micro-batches for B and r for W, which needs no more.
    graph = trace("gpt_125m", num_layers=8)
    one, zero = (
        placed(graph, Strategy(pp=4, schedule=schedule, precision="bf16_mixed"), 12).stages
        for schedule in ("1f1b", "zb_h1")
    )

    def per_layer(stage):
        return stage.memory.activations / sum(name.endswith("norm1") for name in stage.modules)

    assert zero[0].memory.activations == pytest.approx(one[0].memory.activations, rel=0.05)
    for stage in zero[1:3]:
        assert per_layer(stage) < 1.05 * per_layer(one[0])
    assert zero[2].memory.activations > 1.5 * one[2].memory.activations
