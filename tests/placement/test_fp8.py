"""Matrix products of 8 and 4 bits: their peak, what is kept of their inputs, what is sent for them."""

import pytest
import torch
from torch import nn

from rostam_py.costs import optimizer_state_bytes
from rostam_py.costs.precision import gradient_bytes, op_precision, parameter_bytes
from rostam_py.costs.profile import profile
from rostam_py.errors import ConfigError
from rostam_py.models import mixtral
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

H100 = {"accelerator": "h100_80gb"}


class TwoProducts(nn.Module):
    """64 -> 256 -> GELU -> 64 without biases."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256, bias=False), nn.Linear(256, 64, bias=False)

    def forward(self, x):
        """Apply the layers."""
        return self.down(nn.functional.gelu(self.up(x)))


def kernels(plan):
    return {k.name: k for t in ("forward", "backward") for task in plan.stages[0].templates[t] for k in task.kernels}


class Deep(nn.Module):
    """Four blocks of a product of 8,192 x 8,192 and a sum, and a head."""

    class Block(nn.Module):
        """x + x W."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8192, 8192, bias=False)

        def forward(self, x):
            """Add the product."""
            return x + self.linear(x)

    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Deep.Block() for _ in range(4)), nn.Linear(8192, 8192, bias=False)

    def forward(self, x):
        """Apply the layers."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture(scope="module")
def deep():
    with torch.device("meta"):
        model, x = Deep(), torch.empty(2, 8192)
    return trace(model, x, loss_fn=lambda y: (y * y).mean(), name="deep")


@pytest.mark.parametrize(
    ("precision", "accelerator", "bf16", "narrow", "best"),
    [("fp8_mixed", "h100_80gb", 989.4e12, 1978.9e12, 0.8), ("nvfp4_mixed", "b200_180gb", 2250e12, 9000e12, 0.75)],
)
def test_products_of_blocks_run_at_the_narrow_peak_and_nothing_else_changes(
    precision, accelerator, bf16, narrow, best, deep, placed
):
    strategies = (Strategy(precision=name, micro_batch=8192, check_memory=False) for name in ("bf16_mixed", precision))
    wide, less = (kernels(placed(deep, one, 8192, cost="roofline", accelerator=accelerator)) for one in strategies)
    ramp, products = 5e-6, 0
    for name, kernel in wide.items():
        if "mm" in kernel.op_type:
            products += 1
            # t / (peak e) with e = best t / (t + ramp), t the time at the peak
            assert kernel.duration_s == pytest.approx((kernel.flops / bf16 + ramp) / best, rel=1e-6)
            peak = narrow if kernel.module.startswith("blocks") else bf16
            assert less[name].duration_s == pytest.approx((kernel.flops / peak + ramp) / best, rel=1e-6)
        else:
            assert less[name] == kernel
    assert products == 5 * 3 - 1  # nobody asks for the gradient of the input
    casts = {name for name in less if name not in wide}
    assert all("cast" in name for name in casts)
    assert bool(casts) == (precision == "nvfp4_mixed")


def test_casts_to_nvfp4_read_once_more_and_write_what_backward_reads_by_columns(deep, placed):
    plan = placed(deep, Strategy(precision="nvfp4_mixed", micro_batch=64, check_memory=False), 64, cost="roofline",
                  accelerator="b200_180gb")  # fmt: skip
    found = [k for t in ("forward", "backward") for task in plan.stages[0].templates[t] for k in task.kernels]
    casts = [k for k in found if k.op_type == "rostam.cast"]
    size = 64 * 8192  # elements of any input, and of any gradient
    # products cast their rows; what is left is each tensor's scale: of four inputs, and of four gradients of results
    assert [k.call.bytes_read for k in casts] == [2 * size] * 8
    # and by columns, for the weights' gradients, the inputs
    assert [k.call.bytes_written for k in casts] == [size * 9 / 16] * 4 + [0] * 4
    assert {k.family for k in casts} == {"elementwise"}


def test_what_products_alone_read_is_kept_in_one_byte(placed):
    # backward: x and the GELU's result are read by products, its argument by the GELU, y by the loss
    graph = trace(TwoProducts(), torch.randn(4, 64), loss_fn=lambda y: (y * y).mean(), name="two_products")
    stages = {
        precision: placed(graph, Strategy(precision=precision), 10, **H100).stages[0]
        for precision in ("bf16_mixed", "fp8_mixed")
    }
    memory = {precision: stage.memory for precision, stage in stages.items()}
    kept = {precision: stage.activation_changes["forward"][0] for precision, stage in stages.items()}
    assert kept["bf16_mixed"] - kept["fp8_mixed"] == 10 * 256
    assert memory["bf16_mixed"].parameters == memory["fp8_mixed"].parameters == 2 * 2 * 64 * 256
    assert (parameter_bytes("fp8_mixed"), gradient_bytes("fp8_mixed"), optimizer_state_bytes("adam", "fp8_mixed")) == (
        2, 4, 12,
    )  # fmt: skip


def test_a_tensor_that_another_op_reads_too_is_kept_in_both_widths(wide_perceptron, placed):
    # ReLU's results, 2,048 twice, are read by its own backward and by the next product
    memory = [
        placed(wide_perceptron, Strategy(precision=precision), 8, **H100).stages[0].memory.activations
        for precision in ("bf16_mixed", "fp8_mixed")
    ]
    assert memory[1] - memory[0] == 8 * 2 * 2048


def test_rows_are_dispatched_in_one_byte_and_combined_in_two(placed):
    config = mixtral.Config(
        num_layers=2, width=512, num_heads=8, num_key_heads=4, head_size=64, hidden=256, num_experts=4, per_token=2,
        vocabulary=512, sequence_length=128,
    )  # fmt: skip
    plan = placed(trace(mixtral.build("tiny", config)), Strategy(dp=2, ep=2, precision="fp8_mixed"), 2, **H100)
    rows, weights = 128 * 2 * 512, 2 * 128 * 2  # no product reads the weights: 2 bytes there and back
    assert {m.num_bytes: m.count for m in plan.messages() if m.group == "ep"} == {rows: 4, 2 * rows: 4, weights: 4}


def test_results_say_what_is_ignored(gpt, placed):
    plan = placed(gpt, Strategy(precision="fp8_mixed"), 1, **H100)
    assert any("scales and casts take no time" in note for note in plan.notes)


def test_where_it_cannot_be_the_error_names_what_can(gpt, placed):
    with pytest.raises(ConfigError, match=r"a100_80gb has no fp8 peak.*with one: h100_80gb, .*h200_141gb, b200_180gb"):
        placed(gpt, Strategy(precision="fp8_mixed"), 1)
    with pytest.raises(
        ConfigError, match=r"h100_80gb has no nvfp4 peak.*with one: b200_180gb, b300_288gb, gb200_186gb"
    ):
        placed(gpt, Strategy(precision="nvfp4_mixed"), 1, **H100)
    with pytest.raises(ConfigError, match=r"'fp8_mixed'; strategy\.placer=sip_ml .* bf16_mixed, or .*megatron"):
        placed(gpt, Strategy(precision="fp8_mixed", dp=2, mp=2, placer="sip_ml"), 2, **H100)
    with pytest.raises(ConfigError, match=r"precision is 'fp8_mixed', which cannot be timed; take fp32, tf32"):
        profile(gpt, (1,), precision="fp8_mixed")


def test_other_ops_run_as_in_bf16():
    assert op_precision("fp8_mixed", ("float32",), "attention") == "bf16_mixed"
    assert op_precision("fp8_mixed", ("float32",), "product") == "fp8_mixed"
    assert op_precision("fp8_mixed", ("float32",), "product", is_wide=True) == "bf16_mixed"
    assert op_precision("bf16_mixed", ("float32",), "attention") == "bf16_mixed"


class Embedded(nn.Module):
    """A table of 100 rows, a product of 64 x 64, a norm."""

    def __init__(self, is_frozen=False):
        super().__init__()
        self.words, self.mix, self.norm = nn.Embedding(100, 64), nn.Linear(64, 64, bias=False), nn.LayerNorm(64)
        self.mix.weight.requires_grad_(not is_frozen)

    def forward(self, x):
        """Look up, multiply, normalise."""
        return self.norm(self.mix(self.words(x)))


def embedded(**options):
    ids = torch.zeros(4, 8, dtype=torch.int64)
    return trace(Embedded(**options), ids, loss_fn=lambda y: (y * y).mean(), name="embedded")


TABLE, MIX, NORM = 100 * 64, 64 * 64, 2 * 64


@pytest.mark.parametrize("is_frozen", [False, True])
def test_narrow_weights_are_those_that_products_alone_read(is_frozen, placed):
    stages = [
        placed(embedded(is_frozen=is_frozen), Strategy(precision="fp8_mixed", narrow_weights=narrow), 8, **H100).stages
        for narrow in (False, True)
    ]
    wide, narrow = (stage.memory for (stage,) in stages)
    assert wide.parameters == 2 * (TABLE + MIX + NORM)
    assert narrow.parameters == 2 * (TABLE + NORM) + MIX
    assert (wide.optimizer_state, wide.gradients) == (narrow.optimizer_state, narrow.gradients)


def test_frozen_weights_in_nvfp4_lie_in_both_ways_of_4_bits(placed):
    strategy = Strategy(precision="nvfp4_mixed", narrow_weights=True)
    memory = placed(embedded(is_frozen=True), strategy, 8, accelerator="b200_180gb").stages[0].memory
    assert memory.parameters == 2 * (TABLE + NORM) + 2 * MIX * 9 / 16


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_narrow_weights_are_gathered_in_one_byte(shard, placed):
    strategy = Strategy(dp=4, shard=shard, precision="fp8_mixed", narrow_weights=True, bucket_size="1 GB")
    plan = placed(embedded(), strategy, 8, **H100)
    gathered = {(m.num_bytes, m.count) for m in plan.messages() if m.group == "zero"}
    assert gathered == {(2 * (TABLE + NORM) + MIX, 2 if shard == 3 else 1)}
    if shard == 3:
        assert plan.stages[0].memory.parameters == 2 * ((TABLE + NORM + MIX) // 4) - MIX // 4


def test_narrow_weights_need_narrow_products():
    for precision in ("bf16_mixed", None):
        with pytest.raises(
            ConfigError, match=rf"narrow_weights is True, .*one of: fp8_mixed, nvfp4_mixed; it is '?{precision}'?"
        ):
            Strategy(precision=precision, narrow_weights=True)
