import pytest

from rostam_py.costs import KernelCall, get_accelerator, make_cost_model
from rostam_py.costs.profiled import ProfiledCost
from rostam_py.costs.table import CostTable, Entry, op_key
from rostam_py.errors import ConfigError

CPU = get_accelerator("cpu_local")


def table_for(graph, seconds):
    """A table with the given {op name: {batch: seconds}}."""
    table = CostTable({"accelerator": "cpu_local", "precision": "fp32", "device": "test", "batches": [2, 8]})
    for op in graph.ops:
        if op.name in seconds:
            num_bytes = op.bytes_read + op.bytes_written
            table.entries[op_key(op, graph)] = Entry(
                op.op_type,
                seconds[op.name],
                [op.flops.constant, op.flops.per_sample],
                [num_bytes.constant, num_bytes.per_sample],
            )
    return table


def call(op, batch, **extra):
    return KernelCall(ops=(op,), flops=0, bytes_read=0, bytes_written=0, batch=batch, **extra)


@pytest.mark.parametrize(("batch", "seconds"), [(2, 1.0), (4, 2.0), (8, 4.0), (5, 2.5)])
def test_duration_is_linear_between_measured_batches(linear_graph, batch, seconds):
    graph = linear_graph()
    cost = ProfiledCost(table_for(graph, {"mm": {2: 1.0, 8: 4.0}}), CPU, graph)
    assert cost.duration_s(call(graph.ops[0], batch)) == pytest.approx(seconds)
    assert len(cost.notes()) == 1


@pytest.mark.parametrize(
    ("measured", "batch", "seconds"),
    [
        ({2: 1.0, 8: 2.5}, 16, 4.5),  # slope 0.25 goes on
        ({2: 1.0, 8: 7.0}, 1, 0.5),  # the line would give 0: never below proportional
        ({2: 3.0, 8: 2.0}, 16, 2.0),  # a falling line: never below the nearest measurement
        ({4: 2.0}, 6, 3.0),  # one batch: proportional
    ],
)
def test_extrapolation_is_bounded_and_noted(linear_graph, measured, batch, seconds):
    graph = linear_graph()
    cost = ProfiledCost(table_for(graph, {"mm": measured}), CPU, graph)
    assert cost.duration_s(call(graph.ops[0], batch)) == pytest.approx(seconds)
    assert any("extrapolated" in note for note in cost.notes())


def test_fused_ops_add_up_and_metadata_ops_take_nothing(linear_graph):
    graph = linear_graph()
    cost = ProfiledCost(table_for(graph, {"mm": {2: 1.0}, "relu": {2: 0.25}}), CPU, graph)
    mm, relu, _, transpose, _ = graph.ops
    assert cost.duration_s(
        KernelCall(ops=(mm, relu, transpose), flops=0, bytes_read=0, bytes_written=0, batch=2)
    ) == pytest.approx(1.25)


def test_unprofiled_split_divides_by_the_degree_and_sample_split_uses_the_smaller_batch(linear_graph):
    graph = linear_graph()
    cost = ProfiledCost(table_for(graph, {"mm": {2: 1.0, 8: 2.5}}), CPU, graph)
    assert cost.duration_s(call(graph.ops[0], 8, degree=4, split_kind="sample")) == pytest.approx(1.0)
    assert len(cost.notes()) == 1
    assert cost.duration_s(call(graph.ops[0], 8, degree=4, split_kind="column")) == pytest.approx(0.625)
    assert any("split by column" in note for note in cost.notes())


def test_unmeasured_op_takes_its_roofline_time_at_the_familys_measured_ratio(linear_graph):
    # Both mm have equal FLOPs; where FLOPs bound both, the same ratio gives the same time.
    graph = linear_graph(4096, 4096)
    cost = ProfiledCost(table_for(graph, {"mm": {4096: 2.0}}), CPU, graph)
    assert cost.duration_s(call(graph.ops[4], 4096)) == pytest.approx(2.0)
    assert any("aten.mm.default is not in the table" in note for note in cost.notes())


def test_table_serves_another_graph_with_the_same_layer(linear_graph):
    table = table_for(linear_graph(), {"mm": {2: 1.0}})
    assert ProfiledCost(table, CPU, linear_graph()).duration_s(call(linear_graph().ops[0], 2)) == 1.0


def test_table_of_another_device_is_refused_unless_allowed(linear_graph, tmp_path):
    graph, path = linear_graph(), str(tmp_path / "t.json")
    table_for(graph, {"mm": {2: 1.0}}).save(path)
    with pytest.raises(ConfigError, match=r"measured on cpu_local, the machine has a100_80gb; .*cost\.allow_other_acc"):
        make_cost_model("profiled", "a100_80gb", graph=graph, table=path)
    assert make_cost_model("profiled", "a100_80gb", graph=graph, table=path, allow_other_accelerator=True)


def test_profiled_without_table_or_graph_is_refused(linear_graph):
    with pytest.raises(ConfigError, match=r"needs cost\.table=PATH"):
        make_cost_model("profiled", CPU, graph=linear_graph())
    with pytest.raises(ConfigError, match="needs the traced graph"):
        ProfiledCost(table_for(linear_graph(), {}), CPU, None)


def test_other_precision_than_the_tables_is_noted(linear_graph):
    graph = linear_graph()
    cost = ProfiledCost(table_for(graph, {"mm": {2: 1.0}}), CPU, graph)
    cost.duration_s(call(graph.ops[0], 2, precision="bf16_mixed"))
    assert any("bf16_mixed timed as the table's fp32" in note for note in cost.notes())
