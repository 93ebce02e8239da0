import pytest

from rostam_py.costs import KernelCall, make_cost_model, optimizer_call
from rostam_py.errors import ConfigError


def calls(graph, phase, batch, degree=1):
    return [
        KernelCall(
            ops=(op,), flops=op.flops.at(batch) / degree, bytes_read=0, bytes_written=0, batch=batch, degree=degree
        )
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


def test_times_shorter_than_the_peak_allows_are_said_to_be_of_another_precision(linear_graph):
    graph = linear_graph()
    (product, _) = calls(graph, "forward", 1)
    peak = 19.5e12  # fp32 of an A100
    for share, is_said in ((0.5, False), (2.0, True)):
        total_s = sum(call.flops for call in calls(graph, "forward", 1)) / (share * peak)
        cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=total_s, backward_s=1.0)
        cost.duration_s(product)
        assert any("39 TFLOP/s, 200% of the peak of a100_80gb in fp32" in note for note in cost.notes()) == is_said


def test_op_type_time_is_per_call(linear_graph):
    graph = linear_graph()
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=1.0, op_types={"aten.relu.default": 0.2})
    mm, relu = calls(graph, "forward", 3)
    assert (cost.duration_s(mm), cost.duration_s(relu)) == (pytest.approx(3.0), pytest.approx(0.6))


def test_optimizer_time_is_shared_by_parameters(linear_graph):
    graph = linear_graph(64, 32)
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=1.0, optimizer_s=0.5)
    assert cost.duration_s(optimizer_call("adam", 1024, "fp32")) == pytest.approx(0.25)


def test_uncovered_phase_is_noted(linear_graph):
    graph = linear_graph()
    cost = make_cost_model("constant", "a100_80gb", graph=graph, forward_s=1.0)
    assert sum(map(cost.duration_s, calls(graph, "backward", 1))) == 0
    assert cost.duration_s(optimizer_call("sgd", 64, "fp32")) == 0
    said = "constant costs: no published time for ops of the"
    assert cost.notes() == [
        f"{said} backward pass, which take no time (cost.backward_s)",
        f"{said} optimizer step, which take no time (cost.optimizer_s)",
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"forward_s": -1.0}, "cost.forward_s is -1.0"),
        ({"forward_s": "10"}, "cost.forward_s is '10', a number without a unit"),
        ({"forward_s": None}, "cost.forward_s is None"),
        ({"modules": {"layer": [1.0]}}, "cost.modules.layer"),
        ({"modules": {"layer": [1.0, "soon"]}}, r"cost.modules.layer\[1\] is 'soon'"),
        ({"modules": {"nowhere": [1, 2]}}, "cost.modules.nowhere"),
        ({"op_types": 3}, "cost.op_types is 3"),
        ({}, "give cost.forward_s and cost.backward_s"),
        ({"optimizer_s": 1.0}, "give cost.forward_s and cost.backward_s"),
        ({"modules": {"layer": [0, 0]}}, "cost=constant has no times"),
    ],
)
def test_bad_times_are_refused(linear_graph, config, said):
    with pytest.raises(ConfigError, match=said):
        make_cost_model("constant", "a100_80gb", graph=linear_graph(), **config)


def test_constant_without_a_graph_is_refused():
    with pytest.raises(ConfigError, match="needs the graph"):
        make_cost_model("constant", "a100_80gb", forward_s=1.0)


def test_times_are_seconds_or_text_with_a_unit(linear_graph):
    graph = linear_graph()
    texts = {"forward_s": "10 ms", "modules": {"layer": ["1 us", "2 us"]}, "op_types": {"aten.mm.default": "3 ms"}}
    numbers = {"forward_s": 0.01, "modules": {"layer": [1e-6, 2e-6]}, "op_types": {"aten.mm.default": 0.003}}
    costs = [make_cost_model("constant", "a100_80gb", graph=graph, **times) for times in (texts, numbers)]
    for call in (*calls(graph, "forward", 1), *calls(graph, "backward", 1)):
        assert costs[0].duration_s(call) == pytest.approx(costs[1].duration_s(call))
