"""Partition: how many parts an op has, which split it takes, and how tensors then lie."""

import pytest
import torch
from torch import nn

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.placement.sip_ml.layouts import ALIGNED, ALL, EXCHANGE, SLICES, Layout
from rostam_py.placement.sip_ml.partition import partition
from rostam_py.tracing import trace


def products(graph, phase=None):
    """Return the matrix products and convolutions of a graph."""
    names = ("aten.mm.", "aten.addmm.", "aten.convolution")
    return [op for op in graph.ops if op.op_type.startswith(names) and phase in (None, op.phase)]


def split_products(graph, batch, max_parts, num_quanta, **options):
    """Partition with every product num_quanta quanta long and all other ops below one."""
    long = {op.id for op in products(graph)}
    seconds = [num_quanta * 1.0 if op.id in long else 0.01 for op in graph.ops]
    return partition(graph, batch, max_parts, seconds, quantum_s=1.0, **options)


# How many


@pytest.mark.parametrize(
    ("num_quanta", "parts"),
    [
        (0.3, 1),
        (1.0, 1),
        (1.001, 2),
        (4.0, 4),
        (5.0, 4),  # 5 x 52 = 260 would pad 256 columns by 1.6%, more than the 1% allowed
        (7.0, 6),  # 7 x 37 = 259, 1.2%; 6 x 43 = 258, 0.8%
        (100.0, 8),  # k
    ],
)
def test_an_op_becomes_as_many_parts_as_it_has_quanta_or_the_next_lower_legal_number(perceptron, num_quanta, parts):
    # A batch of 1 leaves columns (256) and rows (64) of the first product to be split.
    result = split_products(perceptron, 1, 8, num_quanta)
    assert result.shares[products(perceptron)[0].id].parts == parts


def test_short_ops_stay_whole_and_views_have_no_share(perceptron):
    result = split_products(perceptron, 4, 8, 0.5)
    assert {share.parts for share in result.shares if share is not None} == {1}
    assert all((share is None) == op.is_metadata for share, op in zip(result.shares, perceptron.ops, strict=True))


def test_ops_that_no_split_fits_stay_whole_and_are_counted():
    # One sample, one row, one column: nothing to split, in forward or in the weight's gradient.
    graph = trace(nn.Linear(1, 1, bias=False), torch.randn(4, 1), loss_fn=lambda y: y.mean(), name="point")
    result = split_products(graph, 1, 8, 5.0)
    assert {result.shares[op.id].parts for op in products(graph)} == {1}
    assert result.num_unsplit == len(products(graph)) == 2


# Which split


def test_small_batches_pair_columns_with_rows(perceptron):
    # Batch 4, k = 4. Columns then rows: y (4 x 64 floats, 1,024 bytes) is summed and its gradient gathered, about
    # 3 x 1,024 bytes each. By sample both weights' gradients (65,536 bytes each) would have to be summed.
    result = split_products(perceptron, 4, 4, 4.0)
    assert result.parameters == {"layers.0.weight": Layout(0, 4), "layers.1.weight": Layout(1, 4)}
    first, second = products(perceptron, "forward")
    assert result.layouts[first.outputs[0]] == Layout(1, 4)
    assert result.layouts[second.outputs[0]] == Layout(PARTIAL, 4)
    assert second.outputs[0] in result.sums


def test_large_batches_are_split_by_sample(perceptron):
    # Batch 4,096: y alone has 1 MiB, each weight 64 KiB.
    result = split_products(perceptron, 4096, 4, 4.0)
    assert result.parameters == {"layers.0.weight": Layout(WHOLE, 4), "layers.1.weight": Layout(WHOLE, 4)}
    assert {result.shares[op.id].split.kind for op in products(perceptron, "forward")} == {"sample"}
    assert not any(r.relation in (ALL, EXCHANGE) for op in products(perceptron) for r in result.readings[op.id])


@pytest.mark.parametrize("batch", [4, 4096])
def test_sliced_weights_have_no_copies_whatever_is_sent(perceptron, batch):
    result = split_products(perceptron, batch, 4, 4.0, is_sliced=True)
    assert set(result.parameters) == {"layers.0.weight", "layers.1.weight"}
    assert all(layout.dim in (0, 1) and layout.parts == 4 for layout in result.parameters.values())
    if batch == 4:  # what sends least has no copies either
        assert result.shares == split_products(perceptron, batch, 4, 4.0).shares


def test_the_split_turns_once_as_the_batch_grows(perceptron):
    batches = [4, 16, 64, 256, 1024, 4096]
    by_sample = [split_products(perceptron, b, 4, 4.0).parameters["layers.0.weight"].dim is WHOLE for b in batches]
    assert by_sample == sorted(by_sample)
    assert by_sample[0] is False
    assert by_sample[-1] is True


def test_a_convolutional_network_is_split_by_sample(conv_net):
    # 64 samples: activations of megabytes, 22 KB of weights.
    result = split_products(conv_net, 64, 8, 8.0)
    convolutions = [op for op in products(conv_net, "forward") if "convolution" in op.op_type]
    assert [result.shares[op.id].split.kind for op in convolutions] == ["sample", "sample"]
    assert [result.shares[op.id].parts for op in convolutions] == [8, 8]
    assert result.parameters["body.0.weight"] == Layout(WHOLE, 8)


def test_tied_parameters_are_laid_out_once_for_all_uses(tied_autoencoder):
    for batch in (4, 64, 4096):
        result = split_products(tied_autoencoder, batch, 4, 4.0)
        layout = result.parameters["encode.weight"]
        roots = tied_autoencoder.view_roots
        tied = next(t.id for t in tied_autoencoder.parameters if t.name == "encode.weight")
        users = [op for op in products(tied_autoencoder) if tied in [roots[t] for t in op.inputs]]
        assert len(users) >= 3  # both uses forward, at least one backward
        assert {result.shares[op.id].parts for op in users} == {layout.parts} == {4}
        # Nobody reads it in other slices than it lies in: no reading of a parameter is a message.
        assert not any(r.source == tied for readings in result.readings for r in readings)


# Partial sums, views, gradients


class Branches(nn.Module):
    """Two column-row pairs whose results are added: x (B, 64) -> (B, 64)."""

    def __init__(self):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(64, 256, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(256, 64, bias=False) for _ in range(2))

    def forward(self, x):
        """Add what both branches make."""
        left, right = (down(torch.relu(up(x))) for up, down in zip(self.up, self.down, strict=True))
        return torch.relu(left + right)


def test_partial_sums_are_added_summand_by_summand_and_summed_once():
    graph = trace(Branches(), torch.randn(4, 64), loss_fn=lambda y: y.mean(), name="branches")
    result = split_products(graph, 4, 4, 4.0)
    (add,) = [op for op in graph.ops if op.op_type == "aten.add.Tensor" and op.phase == "forward"]
    assert result.shares[add.id].is_partial
    assert result.layouts[add.outputs[0]] == Layout(PARTIAL, 4)
    assert set(result.sums) & {t for op in graph.ops if op.phase == "forward" for t in op.outputs} == {add.outputs[0]}


def test_a_sum_is_made_before_it_is_spread_out(conv_net):
    # One image: the head is split by row, its input's gradient (32 numbers) is a partial sum, which average pooling
    # spreads over 16 x 16 pixels. 32 numbers are summed, not 8,192.
    result = partition(conv_net, 1, 4, [4.0] * len(conv_net.ops), 1.0)
    summed = [
        conv_net.tensors[t] for t in result.sums if conv_net.ops[conv_net.tensors[t].producer].phase == "backward"
    ]
    (gradient,) = [t for t in summed if len(t.shape) == 2 and t.shape[1].at(1) == 32]
    assert gradient.num_elements(1) == 32
    assert not any(
        t.num_elements(1) == 8192 and conv_net.ops[t.producer].op_type.startswith("aten.div") for t in summed
    )


def test_views_of_different_parts_of_a_tensor_are_read_one_by_one(small_gpt):
    # Query, key and value are a third each of what one product makes.
    graph = small_gpt
    result = split_products(graph, 4, 4, 4.0)
    attention = next(op for op in graph.ops if "scaled_dot_product" in op.op_type and op.phase == "forward")
    readings = result.readings[attention.id]
    (source,) = {r.source for r in readings}
    assert len({r.key for r in readings}) == 3
    assert sum(r.num_bytes for r in readings) == graph.tensors[source].num_bytes(4)


def test_slices_along_different_dimensions_of_one_tensor_are_told_apart(small_gpt):
    # The embeddings' output gradient is summed over samples for the positions, and goes back row by row to the tokens.
    result = partition(small_gpt, 4, 4, [4.0] * len(small_gpt.ops), 1.0)
    keys = {}
    for reading in (r for readings in result.readings for r in readings if r.relation == EXCHANGE):
        keys.setdefault(reading.source, set()).add(reading.key)
    assert all(" along " in key for found in keys.values() for key in found)
    assert max(len(found) for found in keys.values()) > 1


def test_gradients_lie_in_the_dimensions_of_their_parameters(tied_autoencoder):
    # up and down have biases of one dimension; their gradients are sums of shape (1, n), seen as (n).
    result = split_products(tied_autoencoder, 4, 4, 4.0)
    assert result.parameters["up.weight"] == result.gradients["up.weight"]
    assert result.parameters["up.bias"] == result.gradients["up.bias"] == Layout(0, 4)


def test_a_split_that_no_view_carries_on_leaves_slices(conv_net):
    result = split_products(conv_net, 64, 8, 8.0)
    dims = {layout.dim for layout in [*result.layouts.values(), *result.sums.values()]}
    assert dims <= {WHOLE, PARTIAL, SLICES, 0, 1, 2, 3}
    assert ALIGNED in {r.relation for readings in result.readings for r in readings}


def test_partition_is_deterministic(small_graphs):
    for graph in small_graphs.values():
        one, two = (split_products(graph, 6, 4, 3.0) for _ in range(2))
        assert one == two
