import pytest

from rostam_py.costs import KernelCall, make_cost_model, optimizer_call
from rostam_py.errors import ConfigError


def calls(graph, phase, batch, degree=1):
    return [
        KernelCall((op,), op.flops.at(batch) / degree, 0, 0, batch, degree=degree)
        for op in graph.ops
        if op.phase == phase
    ]


def test_phase_time_is_the_published_one_and_scales_with_the_batch(linear_graph):
    graph = linear_graph()
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=0.3, backward_s=0.6, reference_batch=2)
    assert sum(map(cost.duration_s, calls(graph, "forward", 2))) == pytest.approx(0.3)
    assert sum(map(cost.duration_s, calls(graph, "backward", 2))) == pytest.approx(0.6)
    assert sum(map(cost.duration_s, calls(graph, "forward", 6))) == pytest.approx(0.9)
    assert sum(map(cost.duration_s, calls(graph, "forward", 2, degree=4))) == pytest.approx(0.075)


def test_module_time_takes_precedence_and_the_rest_shares_the_phase_time(linear_graph):
    graph = linear_graph()
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=0.1, modules={"layer": [1.0, 2.0]})
    mm, relu = calls(graph, "forward", 1)
    assert (cost.duration_s(mm), cost.duration_s(relu)) == (pytest.approx(1.0), pytest.approx(0.1))


def test_op_type_time_is_per_call(linear_graph):
    graph = linear_graph()
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=1.0, op_types={"aten.relu.default": 0.2})
    mm, relu = calls(graph, "forward", 3)
    assert (cost.duration_s(mm), cost.duration_s(relu)) == (pytest.approx(3.0), pytest.approx(0.6))


def test_optimizer_time_is_shared_by_parameters(linear_graph):
    graph = linear_graph(64, 32)
    cost = make_cost_model("constant", "a100_80gb", graph=graph, optimizer_s=0.5)
    assert cost.duration_s(optimizer_call("adam", 1024, "fp32")) == pytest.approx(0.25)


def test_uncovered_phase_is_noted(linear_graph):
    graph = linear_graph()
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=1.0)
    assert sum(map(cost.duration_s, calls(graph, "backward", 1))) == 0
    assert cost.notes() == ["constant costs: no published time for the backward pass"]


@pytest.mark.parametrize(
    "config", [{"forward_s": -1.0}, {"modules": {"layer": [1.0]}}, {"modules": {"nowhere": [1, 2]}}]
)
def test_bad_times_are_refused(linear_graph, config):
    with pytest.raises(ConfigError):
        make_cost_model("constant", "a100_80gb", graph=linear_graph(), **config)


def test_constant_without_a_graph_is_refused():
    with pytest.raises(ConfigError, match="needs the graph"):
        make_cost_model("constant", "a100_80gb", forward_s=1.0)
