"""What Transformer Engine's products and attention do themselves: kernels, bytes and kept memory by hand."""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.models.gpt_oss import Config, build

EXPERTS, CHOSEN, WIDTH, HIDDEN, TOKENS, HEADS = 16, 4, 2880, 2880, 4096, 64
ROWS = TOKENS * CHOSEN


@pytest.fixture(scope="module")
def graph():
    return rostam.trace(build("small_gpt_oss", Config(num_layers=2, num_experts=EXPERTS, vocabulary=1024)))


@pytest.fixture(scope="module")
def gpt():
    return rostam.trace("gpt_125m", num_layers=2, cache=False)


def placed(graph, fusion="modules", precision="bf16_mixed", **more):
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy.of(fusion=fusion, precision=precision, micro_batch=1, check_memory=False, **more)
    return rostam.place(graph, machine, global_batch=1, strategy=strategy, cost="calibrated", software="ideal").stages[
        0
    ]


def kernels(stage, template, module):
    return [k for t in stage.templates[template] for k in t.kernels if k.module == module]


def of_type(found, op_type):
    return [k for k in found if op_type in k.op_type]


def test_a_first_products_bias_is_added_and_its_gradient_made_by_the_product(graph):
    stage = placed(graph)
    forward = kernels(stage, "forward", "blocks.1.mlp")
    first, last = of_type(forward, "_grouped_mm")
    weights, bias = EXPERTS * WIDTH * 2 * HIDDEN, EXPERTS * 2 * HIDDEN
    ids = ROWS * 8
    assert first.call.bytes_written == 2 * ROWS * 2 * HIDDEN
    assert first.call.bytes_read == pytest.approx(2 * (ROWS * WIDTH + weights) + ids, rel=0.001)
    assert last.call.bytes_written == 2 * ROWS * WIDTH
    # Nothing else moves rows as wide as the first product's but the gated unit and its clamps.
    wide = [k for k in forward if k.call.bytes_written >= 2 * ROWS * 2 * HIDDEN and k is not first]
    others = ("joined)", "(weighted)", "(biased)")
    assert all("clamp" in k.name or k.name.endswith(others) for k in wide)
    backward = kernels(stage, "backward_last", "blocks.1.mlp")
    made = of_type(backward, "_grouped_mm")
    sizes = sorted(k.call.bytes_written for k in made)
    assert sizes[-1] == 4 * (weights + bias)  # in fp32, a bias's gradient next to its weight's
    assert not [k for k in backward if "index_put" in k.op_type and k.call.bytes_read >= 2 * ROWS * 2 * HIDDEN]


def test_in_8_bits_a_biass_gradient_is_a_sum_of_its_own(graph):
    backward = kernels(placed(graph, precision="fp8_mixed"), "backward_last", "blocks.1.mlp")
    assert [k for k in backward if "index_put" in k.op_type and k.call.bytes_read >= 2 * ROWS * 2 * HIDDEN]


def test_biases_of_dense_layers_have_gradients_for_nothing_in_16_bits(gpt):
    def sums(**keys):
        stage = placed(gpt, **keys)
        found = [k for t in stage.templates["backward_last"] for k in t.kernels if k.module.startswith("blocks.1.")]
        return len([k for k in found if "sum.dim" in k.op_type and "norm" not in k.module])

    assert sums() == 0
    assert sums(precision="fp8_mixed") > 0


def test_a_sink_is_in_attentions_kernel_both_ways(graph):
    stage = placed(graph)
    for template in ("forward", "backward_last"):
        found = kernels(stage, template, "blocks.1.attention")
        rotations = [k for k in found if k.op_type.startswith("aten.") and "(" not in k.name]
        assert len(of_type(found, "scaled_dot_product_attention")) == 1
        assert len(rotations) == 2  # of queries and of keys
    pointwise = kernels(placed(graph, "pointwise"), "forward", "blocks.1.attention")
    assert len([k for k in pointwise if "attention" not in k.op_type]) == 3


def test_backward_keeps_one_result_of_attention_and_none_of_weighted_products(graph):
    kept = {fusion: placed(graph, fusion).memory.activations for fusion in ("modules", "pointwise")}
    # pointwise keeps attention's result in front of the sink, too; rows of weighted biases in neither of both blocks.
    attended, biases = 2 * TOKENS * HEADS * 64, 2 * ROWS * WIDTH
    assert kept["pointwise"] - kept["modules"] == pytest.approx(2 * (attended + biases), rel=0.2)


def test_zeros_read_nothing(graph):
    found = kernels(placed(graph), "forward", "blocks.1.mlp")
    (zeros,) = of_type(found, "zeros_like")
    assert (zeros.call.bytes_read, zeros.call.bytes_written) == (0, 2 * TOKENS * WIDTH)


class Squared(nn.Module):
    """Attention whose result is multiplied by a function of itself, or by itself: no sink, and no crash."""

    def __init__(self, gates: bool) -> None:
        super().__init__()
        self.gates, self.query, self.proj = gates, nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        heads = self.query(x).unflatten(-1, (4, 16)).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        y = y * (torch.sigmoid(y) if self.gates else y)
        return self.proj(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("gates", [True, False])
def test_a_function_of_attentions_result_is_no_sink(gates):
    graph = rostam.trace(Squared(gates), torch.randn(2, 128, 64), loss_fn=lambda out: out.square().mean(), name="x")
    forward = [k for t in placed(graph).templates["forward"] for k in t.kernels]
    assert len(of_type(forward, "aten.sigmoid" if gates else "aten.mul")) == 1
