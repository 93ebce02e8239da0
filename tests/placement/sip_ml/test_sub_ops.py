"""Sub-ops: bytes of every relation, sums and gradients, memory, and what a graph becomes."""

import pytest

from rostam_py.costs import make_cost_model
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.costs.numerics import Numerics
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.sharding import propagate
from rostam_py.placement.sip_ml.algorithm1 import parts_read
from rostam_py.placement.sip_ml.layouts import ALL, EXCHANGE
from rostam_py.placement.sip_ml.partition import partition
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, KERNEL, SUM, Flow, build_sub_ops
from rostam_py.software.rules import Rules


def built(graph, batch, max_parts, quantum_s=1e-7, precision="fp32", optimizer="sgd"):
    """Return (partition, sub-ops) of a graph on a V100, without a floor under kernel times."""
    device = get_accelerator("v100_32gb")
    cost = make_cost_model("roofline", device, graph=graph, min_kernel_time=0.0)
    numerics = Numerics(precision, optimizer)
    rules = Rules(precision=precision, gradient_bytes=numerics.gradient_bytes)
    builder = KernelBuilder(graph, propagate(graph, 1, batch), cost, rules, batch)
    seconds = builder.op_seconds()
    parts = partition(graph, batch, max_parts, seconds, quantum_s)
    return parts, build_sub_ops(graph, parts, cost, batch, numerics)


# Bytes


@pytest.mark.parametrize(("m", "n"), [(1, 4), (4, 1), (4, 4), (2, 8), (8, 2), (3, 4), (4, 3)])
@pytest.mark.parametrize(
    ("relation", "total"),
    [
        ("aligned", lambda m, n: 1200),  # every byte goes to the one reader that needs it
        ("all", lambda m, n: 1200 * n),  # to all of them
        ("exchange", lambda m, n: 1200),  # 1 / n of every part to each
    ],
)
def test_pair_bytes_sum_to_what_all_sub_ops_read(relation, total, m, n):
    flow = Flow(0, "t", relation, 1200)
    pairs = [(j, i) for j in range(n) for i in parts_read(relation, j, n, m)]
    assert sum(flow.pair_bytes(j, n, i, m) for j, i in pairs) == pytest.approx(total(m, n))
    assert all(flow.pair_bytes(j, n, i, m) > 0 for j, i in pairs)


def test_a_halo_goes_half_to_either_neighbour_and_a_summand_stays_whole():
    halo = Flow(0, "h", "halo", 100)
    assert [halo.pair_bytes(1, 4, i, 4) for i in parts_read("halo", 1, 4, 4)] == [50, 0, 50]
    strided = Flow(0, "h", "halo", 100, before=0.75)
    assert [strided.pair_bytes(1, 4, i, 4) for i in parts_read("halo", 1, 4, 4)] == [75, 0, 25]
    assert Flow(0, "s", "same_part", 100).pair_bytes(2, 4, 2, 4) == 100


def test_convolutions_split_in_space_read_their_neighbours_rows(conv_net):
    # One image in four strips. The second convolution's input (16 x 32 x 32 floats) comes from channels, so it is
    # exchanged, and every strip takes 16 x 32 floats more, 2,048 bytes, from above alone: its stride is 2. In backward
    # rows lie in the same strips already, and the one below sends a row of 32 x 16 floats of the output's gradient.
    _, sub_ops = built(conv_net, 1, 4, quantum_s=5e-8)
    halos = {flow.key: flow for node in sub_ops.nodes for flow in node.flows if flow.key.startswith("halo")}
    forward = next(flow for key, flow in halos.items() if "backward" not in key)
    assert (forward.relation, forward.num_bytes) == ("exchange", 4 * 2048)
    backward = next(flow for key, flow in halos.items() if "backward" in key)
    assert (backward.relation, backward.num_bytes, backward.before) == ("halo", 2048, 0.0)


# What a graph becomes


def test_perceptron_in_columns_and_rows_has_one_sum_and_aligned_gradients(perceptron):
    # x -> column split (0) -> ReLU fused -> row split (1) -> sum; backward: both weights' gradients where they lie.
    _, sub_ops = built(perceptron, 4, 4)
    nodes = sub_ops.nodes
    (total,) = [node for node in nodes if node.kind == SUM]
    # Partial sums of y: 4 x 64 floats from each of four.
    assert (total.num_parts, total.flows[0].relation, total.flows[0].num_bytes) == (4, "exchange", 4 * 1024)
    gradients = {node.name: node for node in nodes if node.kind == GRADIENT}
    assert sorted(gradients) == ["layers.0.weight", "layers.1.weight"]
    for node in gradients.values():
        assert (node.flows[0].relation, node.flows[0].num_bytes, node.part_bytes) == ("aligned", 65536, 16384)
        assert not node.is_replicated
    assert sub_ops.num_fused > 0


def test_sample_splits_replicate_parameters_and_sum_their_gradients(perceptron):
    _, sub_ops = built(perceptron, 4096, 4)
    gradients = [node for node in sub_ops.nodes if node.kind == GRADIENT]
    assert len(gradients) == 2
    for node in gradients:
        # Each of four has a summand of all 65,536 bytes and ends with the sum of a quarter.
        assert (node.flows[0].relation, node.flows[0].num_bytes) == ("exchange", 4 * 65536)
        assert (node.num_parts, node.part_bytes, node.is_replicated) == (4, 16384, True)
    assert [count for count, _ in sub_ops.parameters.values()] == [256 * 64] * 2


def test_every_parameter_has_its_gradient_and_its_place(small_graphs):
    for graph in small_graphs.values():
        for batch, max_parts in ((2, 1), (4, 4), (64, 3)):
            parts, sub_ops = built(graph, batch, max_parts)
            made = [node.name for node in sub_ops.nodes if node.kind == GRADIENT]
            names = [t.name for t in graph.tensors if t.kind == "gradient" and t.producer is not None]
            assert sorted(made) == sorted(names), (graph.name, batch)
            assert len(set(made)) == len(made)
            assert set(sub_ops.parameters) == {t.name for t in graph.parameters}
            for t in graph.parameters:
                layout, (count, _) = parts.parameters[t.name], sub_ops.parameters[t.name]
                whole = t.num_elements(1)
                assert count * (1 if layout.dim is None else layout.parts) >= whole, t.name


def test_nodes_read_earlier_nodes_only_and_share_devices_with_those_of_their_shard(small_graphs):
    for graph in small_graphs.values():
        _, sub_ops = built(graph, 8, 4)
        parts_of = {}
        for index, node in enumerate(sub_ops.nodes):
            assert all(flow.source < index for flow in node.flows)
            assert node.beside < index
            if node.shard >= 0:
                parts_of.setdefault(node.shard, set()).add(node.num_parts)
        assert all(len(counts) == 1 for counts in parts_of.values())


def test_what_every_sub_op_gathers_or_exchanges_is_a_flow(small_graphs):
    # Ops fuse over aligned tensors only, so every other reading must appear between two nodes.
    for graph in small_graphs.values():
        parts, sub_ops = built(graph, 8, 4)
        flows = {(flow.key, flow.relation) for node in sub_ops.nodes for flow in node.flows}
        wanted = {(r.key, r.relation) for readings in parts.readings for r in readings if r.relation in (ALL, EXCHANGE)}
        assert wanted <= flows, graph.name


def test_model_flops_do_not_depend_on_the_split(small_graphs):
    for graph in small_graphs.values():
        whole = sum(node.work.model for node in built(graph, 8, 1)[1].nodes)
        for max_parts in (2, 3, 8):
            assert sum(node.work.model for node in built(graph, 8, max_parts)[1].nodes) == pytest.approx(whole)
        again = sum(op.repeated_flops.at(8) for op in graph.ops)
        assert whole == pytest.approx(graph.forward_flops(batch=8) + graph.backward_flops(batch=8) - again)


def test_sub_ops_of_an_op_share_its_time(wide_perceptron):
    # 2,048 x 2,048 x 2,048: far above the ramp of 5 us, so a quarter takes about a quarter.
    whole = max(n.time.duration_s for n in built(wide_perceptron, 2048, 1)[1].nodes if n.kind == KERNEL)
    quarter = max(n.time.duration_s for n in built(wide_perceptron, 2048, 4)[1].nodes if n.kind == KERNEL)
    assert 0.25 * whole < quarter < 0.35 * whole


# Memory


def test_memory_of_a_perceptron_matches_a_count_by_hand(perceptron):
    # Per sub-op of 4, momentum in fp32: each weight has 16,384 elements, 4,096 here, times 4 + 4 + 4 bytes.
    # Kept for backward: the ReLU's output (4 x 256 floats) in columns, 1,024 bytes here; y (4 x 64 floats) in the
    # slices its sum was made in, 256 bytes here; all of x (4 x 64 floats), 1,024 bytes.
    _, sub_ops = built(perceptron, 4, 4, optimizer="momentum")
    weights = 2 * 4096 * 12
    assert sum(node.memory_bytes for node in sub_ops.nodes) == weights + 1024 + 256 + 1024


def test_sums_and_gradients_take_no_time_and_no_memory(small_graphs):
    for graph in small_graphs.values():
        for node in built(graph, 8, 4)[1].nodes:
            if node.kind != KERNEL:
                assert node.time is None
                assert node.memory_bytes == 0
                assert node.node().duration_s == 0
