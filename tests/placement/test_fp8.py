"""Matrix products of 8 and 4 bits: their peak, what is kept of their inputs, what may be sent for them."""

from collections import Counter

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
    assert casts
    assert all("cast" in name for name in casts)


SIZE = 64 * 8192  # elements of any input of deep's products at 64 rows, and of any gradient of their results
H100_80, B200 = "h100_80gb", "b200_180gb"


def casts_of(plan):
    """Return bytes read and written by each cast of a micro-batch, in order."""
    tasks = [task for t in ("forward", "backward") for task in plan.stages[0].templates[t]]
    found = [k for task in tasks for k in task.kernels if k.op_type == "rostam.cast" and not task.is_optimizer]
    assert {k.family for k in found} <= {"elementwise"}
    return [(k.call.bytes_read, k.call.bytes_written) for k in found]


# Four inputs of forward, then four gradients of results; behind the last, of the first block, no input has a gradient.
# A scale of the present values takes two reads, others one; Hopper's products of 8 bits read transposed copies for
# weights' gradients, blocks with scales are others by columns than by rows; products cast their rows to nvfp4.
CASTS = [
    ("fp8_mixed", H100_80, 4, [2] * 7 + [1]),
    ("fp8_mixed", B200, 4, [1] * 8),
    ("fp8_delayed_mixed", H100_80, 2, [2] * 7 + [1]),
    ("fp8_delayed_mixed", B200, 2, [1] * 8),
    ("fp8_block_mixed", H100_80, 2, [2 * 33 / 32] * 7 + [33 / 32]),
    ("mxfp8_mixed", B200, 2, [2 * 33 / 32] * 7 + [33 / 32]),
    ("nvfp4_mixed", B200, 2, [9 / 16] * 4 + [0] * 4),
]


@pytest.mark.parametrize(("precision", "accelerator", "read", "written"), CASTS)
def test_casts_read_and_write_what_transformer_engines_do(precision, accelerator, read, written, deep, placed):
    strategy = Strategy(precision=precision, micro_batch=64, check_memory=False)
    plan = placed(deep, strategy, 64, cost="roofline", accelerator=accelerator)
    assert casts_of(plan) == [(read * SIZE, out * SIZE) for out in written]


class Normed(nn.Module):
    """Two products of 64 x 64, of what a norm and of what a GELU makes."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(64), nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)

    def forward(self, x):
        """Norm, multiply, GELU, multiply."""
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


# of the norm's result, of the GELU's, of the gradients of down's and up's results: bytes for each of 8 x 64 elements
NORMED = [
    ("fp8_mixed", H100_80, [(2, 2), (4, 2), (4, 2), (4, 2)]),
    ("fp8_mixed", B200, [(2, 1), (4, 1), (4, 1), (4, 1)]),
    ("fp8_delayed_mixed", H100_80, [(1, 1), (2, 2), (2, 2), (2, 2)]),  # the norm casts, a kernel transposes its bytes
    ("fp8_delayed_mixed", B200, [(2, 1), (2, 1), (2, 1)]),
    ("fp8_block_mixed", H100_80, [(2, 33 / 16)] * 4),  # a norm knows no block's largest value
    ("mxfp8_mixed", B200, [(2, 33 / 16)] * 4),
]


@pytest.mark.parametrize(("precision", "accelerator", "expected"), NORMED)
def test_norms_know_the_largest_value_of_what_they_make(precision, accelerator, expected, placed):
    graph = trace(Normed(), torch.randn(2, 64), loss_fn=lambda y: (y * y).mean(), name="normed")
    plan = placed(
        graph, Strategy.of(precision=precision, fusion="pointwise"), 8, cost="roofline", accelerator=accelerator
    )
    assert casts_of(plan) == [(read * 8 * 64, written * 8 * 64) for read, written in expected]


@pytest.mark.parametrize(("accelerator", "expected"), [(B200, (1, 1 / 2)), (H100_80, (1 + 1, 1 / 2 + 1))])
def test_what_is_gathered_is_cast_before_and_transposed_behind(accelerator, expected, gpt, placed):
    # The first product reads what a norm makes, half of the sequence on each of two ranks: its 2 bytes are read once,
    # 1 is written; behind the gather Hopper reads and writes a transposed byte of all.
    strategy = Strategy(precision="fp8_mixed", tp=2, sequence_parallel=True, micro_batch=1, check_memory=False)
    plan = placed(gpt, strategy, 1, cost="roofline", accelerator=accelerator)
    assert casts_of(plan)[0] == tuple(share * 2048 * 768 for share in expected)


# bytes read and written for each of the four weights of blocks, which two products read, once an iteration
WEIGHT_CASTS = [
    ("fp8_mixed", H100_80, False, (4, 2)),
    ("fp8_mixed", H100_80, True, (1, 1)),
    ("fp8_mixed", B200, False, (4, 1)),
    ("fp8_mixed", B200, True, None),
    ("fp8_delayed_mixed", B200, False, (2, 1)),
    ("mxfp8_mixed", B200, True, (2, 33 / 16)),
    ("nvfp4_mixed", B200, False, (4, 9 / 8)),
    ("nvfp4_mixed", B200, True, None),
]


@pytest.mark.parametrize(("precision", "accelerator", "is_narrow", "expected"), WEIGHT_CASTS)
def test_weights_are_cast_once_an_iteration(precision, accelerator, is_narrow, expected, deep, placed):
    strategy = Strategy.of(precision=precision, micro_batch=8, narrow_weights=is_narrow, check_memory=False)
    plan = placed(deep, strategy, 32, cost="roofline", accelerator=accelerator)
    tasks = [task for tasks in plan.stages[0].templates.values() for task in tasks if task.is_optimizer]
    found = [k for task in tasks for k in task.kernels if k.op_type == "rostam.cast"]
    weights = 4 * 8192 * 8192
    told = [(k.call.bytes_read, k.call.bytes_written) for k in found]
    assert told == ([] if expected is None else [(expected[0] * weights, expected[1] * weights)])


def test_weights_that_ranks_share_are_cast_as_often_as_they_are_gathered(deep, placed):
    strategy = Strategy(dp=2, shard=3, precision="fp8_mixed", micro_batch=64, check_memory=False)
    plan = placed(deep, strategy, 128, cost="roofline", accelerator=H100_80)
    weight = 8192 * 8192
    found = casts_of(plan)
    # forward: each of four by rows; backward: by columns, for all but the first block, whose input has no gradient
    assert [one for one in found if one == (4 * weight, weight)] == [(4 * weight, weight)] * (4 + 3)
    assert len(found) == 8 + 7


def test_rows_and_columns_with_scales_are_cast_in_front_of_each_product(deep, placed):
    # torchao's rowwise, by hand: a cast by rows reads 2 bytes and writes 1, one by columns reads them twice. Forward
    # casts each of four inputs and weights by rows; backward each gradient of a result by both, where its input has a
    # gradient as well, and each input and weight by columns.
    strategy = Strategy(precision="fp8_row_mixed", micro_batch=64, check_memory=False)
    plan = placed(deep, strategy, 64, cost="roofline", accelerator=H100_80)
    weight = 8192 * 8192
    by_rows, by_columns = [(2 * size, size) for size in (SIZE, weight)], [(4 * size, size) for size in (SIZE, weight)]
    expected = 4 * by_rows + 3 * [(6 * SIZE, 2 * SIZE), *by_columns] + [by_columns[0]] * 2
    assert sorted(casts_of(plan)) == sorted(expected)
    scaled = [
        (k.call.bytes_read, k.call.bytes_written)
        for task in plan.stages[0].templates["backward"]
        for k in task.kernels
        if k.name.endswith("(scaled)")
    ]
    assert sorted(scaled) == [(2 * SIZE, 2 * SIZE)] * 3 + [(2 * weight, 2 * weight)] * 4


def test_rows_with_scales_are_kept_and_gathered_in_16_bits(gpt, placed):
    plans = {
        precision: placed(gpt, Strategy(precision=precision, tp=2, sequence_parallel=True, micro_batch=1), 1, **H100)
        for precision in ("bf16_mixed", "fp8_row_mixed", "fp8_mixed")
    }
    gathered, kept = {}, {}
    for precision, plan in plans.items():
        tasks = [t for name in ("forward", "backward") for t in plan.stages[0].templates[name]]
        gathered[precision] = sum(t.num_bytes for t in tasks if t.collective == "all_gather")
        kept[precision] = plan.stages[0].memory.activations
    assert gathered["fp8_row_mixed"] == gathered["bf16_mixed"] > gathered["fp8_mixed"]
    assert kept["fp8_row_mixed"] == kept["bf16_mixed"] > kept["fp8_mixed"]


def test_products_that_cast_what_they_read_begin_behind_the_whole_gather(gpt, placed):
    strategy = {"tp": 2, "sequence_parallel": True, "tp_overlap": True, "tp_style": "dtensor", "micro_batch": 1}
    parts = {}
    for precision in ("fp8_mixed", "fp8_row_mixed"):
        plan = placed(gpt, Strategy.of(precision=precision, **strategy), 1, **H100)
        tasks = plan.stages[0].templates["forward"]
        parts[precision] = [t.name.split(" ")[0] for t in tasks if t.collective == "copy"]
    assert set(parts["fp8_mixed"]) == {"all_gather", "reduce_scatter"}
    assert set(parts["fp8_row_mixed"]) == {"reduce_scatter"}


def test_blocks_with_scales_need_an_accelerator_that_applies_them(gpt, placed):
    with pytest.raises(ConfigError, match=r"h100_80gb has no mxfp8 peak.*with one: b200_180gb, b300_288gb"):
        placed(gpt, Strategy(precision="mxfp8_mixed"), 1, **H100)


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
    # beside weights of 2 bytes lie their casts, and their transposed copies
    assert memory["bf16_mixed"].parameters == 2 * 2 * 64 * 256
    assert memory["fp8_mixed"].parameters == (2 + 1 + 1) * 2 * 64 * 256
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


@pytest.mark.parametrize(("is_narrow", "dispatched"), [(False, 2), (True, 1)])
def test_rows_are_dispatched_in_two_bytes_or_narrow_and_combined_in_two(is_narrow, dispatched, placed):
    config = mixtral.Config(
        num_layers=2, width=512, num_heads=8, num_key_heads=4, head_size=64, hidden=256, num_experts=4, per_token=2,
        vocabulary=512, sequence_length=128,
    )  # fmt: skip
    strategy = Strategy.of(dp=2, ep=2, precision="fp8_mixed", narrow_dispatch=is_narrow)
    plan = placed(trace(mixtral.build("tiny", config)), strategy, 2, **H100)
    rows, weights = 128 * 2 * 512, 2 * 128 * 2  # no product reads the weights: 2 bytes there and back
    sent = Counter(m.num_bytes for m in plan.messages() if m.group == "ep" for _ in range(m.count))
    assert sent == Counter([dispatched * rows] * 4) + Counter([2 * rows] * 4 + [weights] * 4)


def test_results_say_what_is_cast(gpt, placed):
    plan = placed(gpt, Strategy(precision="fp8_mixed"), 1, **H100)
    assert any("finds the largest value of each input, another casts it" in note for note in plan.notes)


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
@pytest.mark.parametrize(
    ("precision", "accelerator", "copies"),
    [("fp8_mixed", H100_80, 2), ("fp8_mixed", B200, 1), ("mxfp8_mixed", B200, 2 * 33 / 32)],
)
def test_narrow_weights_are_those_that_products_alone_read(precision, accelerator, copies, is_frozen, placed):
    graph = embedded(is_frozen=is_frozen)
    stages = [
        placed(graph, Strategy.of(precision=precision, narrow_weights=narrow), 8, accelerator=accelerator).stages
        for narrow in (False, True)
    ]
    wide, narrow = (stage.memory for (stage,) in stages)
    assert wide.parameters == 2 * (TABLE + MIX + NORM) + copies * MIX
    assert narrow.parameters == 2 * (TABLE + NORM) + copies * MIX
    assert (wide.optimizer_state, wide.gradients) == (narrow.optimizer_state, narrow.gradients)


def test_frozen_weights_in_nvfp4_lie_in_both_ways_of_4_bits(placed):
    strategy = Strategy.of(precision="nvfp4_mixed", narrow_weights=True)
    memory = placed(embedded(is_frozen=True), strategy, 8, accelerator="b200_180gb").stages[0].memory
    assert memory.parameters == 2 * (TABLE + NORM) + 2 * MIX * 9 / 16


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_narrow_weights_are_gathered_in_one_byte(shard, placed):
    strategy = Strategy.of(dp=4, shard=shard, precision="fp8_mixed", narrow_weights=True, bucket_size="1 GB")
    plan = placed(embedded(), strategy, 8, **H100)
    gathered = {(m.num_bytes, m.count) for m in plan.messages() if m.group == "zero"}
    assert gathered == {(2 * (TABLE + NORM) + MIX, 2 if shard == 3 else 1)}
    if shard == 3:
        assert plan.stages[0].memory.parameters == 2 * ((TABLE + NORM + MIX) // 4) - MIX // 4


def test_narrow_weights_need_narrow_products():
    for precision in ("bf16_mixed", None):
        with pytest.raises(
            ConfigError, match=rf"narrow_weights is True, .*one of: fp8_mixed, .*nvfp4_mixed; it is '?{precision}'?"
        ):
            Strategy.of(precision=precision, narrow_weights=True)


@pytest.mark.parametrize("precision", ["bf16_mixed", "fp8_row_mixed", "nvfp4_mixed", None])
def test_narrow_rows_need_products_that_read_them_so(precision):
    match = rf"narrow_dispatch is True, .*one of: fp8_mixed, .*mxfp8_mixed; it is '?{precision}'?"
    with pytest.raises(ConfigError, match=match):
        Strategy.of(precision=precision, narrow_dispatch=True)
