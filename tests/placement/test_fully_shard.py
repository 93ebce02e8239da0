"""FSDP2: messages, copies and memory of units whose parameters are cut one by one, by hand.

S sequence, H width, V vocabulary, L layers of the GPT; P its parameters; d ranks. In bf16_mixed a weight has 2 bytes, a
gradient 4 where it is reduced and 2 where it is made. All that blocks do not read is the root's.
"""

from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import gpt as models
from rostam_py.placement.megatron.memory.reserved import reserved_in_turn
from rostam_py.plan import Strategy
from rostam_py.plan.unread import unread_keys
from rostam_py.tracing import trace

S, H, V, L = 2048, 768, 50257, 4
WORDS, POSITIONS, LAYER, NORM = V * H, S * H, 12 * H * H + 13 * H, 2 * H
ROOT = WORDS + POSITIONS + NORM
P = ROOT + L * LAYER
FSDP2 = {"shard": 3, "shard_layout": "parameters", "micro_batch": 1, "precision": "bf16_mixed", "optimizer": "adam"}
PYTORCH_PIPELINE = {"reshard_after_forward": False, "reduce_every_microbatch": False}


def messages(plan):
    """Return {(kind, bytes): count} of gathers of weights and reductions of gradients."""
    found = Counter()
    for m in plan.messages():
        if m.group in ("dp", "zero"):
            found[m.kind, m.num_bytes] += m.count
    return dict(found)


def copies(plan, stage=0):
    """Return {(what, bytes read, bytes written): count} of an iteration of a stage."""
    found, counts = Counter(), plan.stages[stage].program.counts()
    for name, tasks in plan.stages[stage].templates.items():
        for kernel in (k for task in tasks for k in task.kernels if "copied" in k.name):
            what = "out" if "copied out" in kernel.name else "in"
            found[what, kernel.call.bytes_read, kernel.call.bytes_written] += counts.get(name, 0)
    return dict(found)


@pytest.mark.parametrize("m", [1, 3])
def test_the_root_is_gathered_for_forward_alone_and_every_unit_is_copied_out_and_in(m, gpt, placed):
    plan = placed(gpt, Strategy.of(dp=8, **FSDP2), 8 * m)
    assert messages(plan) == {
        ("all_gather", 2 * ROOT): m, ("all_gather", 2 * LAYER): 2 * L * m,
        ("reduce_scatter", 4 * ROOT): m, ("reduce_scatter", 4 * LAYER): L * m,
    }  # fmt: skip
    assert copies(plan) == {
        ("out", 2 * ROOT, 2 * ROOT): m, ("out", 2 * LAYER, 2 * LAYER): 2 * L * m,
        ("in", 2 * ROOT, 4 * ROOT): m, ("in", 2 * LAYER, 4 * LAYER): L * m,
    }  # fmt: skip


def test_pipelines_of_pytorch_gather_once_and_reduce_summed_gradients_once(gpt, placed):
    plan = placed(gpt, Strategy.of(dp=8, **FSDP2, **PYTORCH_PIPELINE), 32)
    assert messages(plan) == {
        ("all_gather", 2 * ROOT): 1, ("all_gather", 2 * LAYER): L,
        ("reduce_scatter", 4 * ROOT): 1, ("reduce_scatter", 4 * LAYER): L,
    }  # fmt: skip
    assert copies(plan) == {
        ("out", 2 * ROOT, 2 * ROOT): 1, ("out", 2 * LAYER, 2 * LAYER): L,
        ("in", 4 * ROOT, 4 * ROOT): 1, ("in", 4 * LAYER, 4 * LAYER): L,
    }  # fmt: skip


def test_buffers_need_no_copies(gpt, placed):
    for settings in ({"shard_layout": "buffers"}, {"shard": 2}, {"shard": 0}):
        assert copies(placed(gpt, Strategy.of(dp=8, **FSDP2 | settings), 8)) == {}


def test_ranks_hold_no_16_bit_shares_and_the_root_stays(gpt, placed):
    for d in (8, 64):
        memory = placed(gpt, Strategy.of(dp=d, **FSDP2), d).stages[0].memory
        shares = -(-ROOT // d) + L * -(-LAYER // d)
        assert (memory.parameters, memory.gradients, memory.optimizer_state) == (0, 4 * shares, 12 * shares)
        assert memory.staying == 2 * ROOT
        assert memory.gathered == 2 * 2 * LAYER  # two layers whole; the loss takes more than gradients
    kept = placed(gpt, Strategy.of(dp=8, **FSDP2, **PYTORCH_PIPELINE), 16).stages[0].memory
    assert kept.staying == 2 * P
    in_fp32 = placed(gpt, Strategy.of(dp=8, **FSDP2 | {"precision": "fp32"}), 8).stages[0].memory
    assert in_fp32.parameters == 4 * P // 8  # the only copy


SHORT = 128
SHORT_ROOT = ROOT - POSITIONS + SHORT * H


@pytest.fixture(scope="module")
def short():
    """Sequences so short that gradients take more than the loss."""
    return trace(models.build("short", models.Config(num_layers=L, width=H, num_heads=12, sequence_length=SHORT)))


def test_a_layers_gradients_are_there_twice_and_the_roots_as_they_are_made(short, placed):
    # A layer's in 2 bytes as they are made, those of the one before in 4 as they are reduced; the head's in 2 until the
    # embedding has its own. The logits' gradient, 2 bytes for each token and word, comes before all of them.
    memory = placed(short, Strategy.of(dp=8, **FSDP2), 8).stages[0].memory
    assert memory.gathered == 2 * 2 * LAYER + (2 + 4) * LAYER + 2 * SHORT_ROOT - 2 * SHORT * V
    # whole gradients that are added up lie elsewhere: a layer's new ones and what is reduced of the one before
    kept = placed(short, Strategy.of(dp=8, **FSDP2, **PYTORCH_PIPELINE), 16).stages[0].memory
    assert kept.gathered == (2 + 4) * LAYER + 2 * SHORT_ROOT - 2 * SHORT * V
    # the loss's stage has slack, one without a loss none
    first, _ = placed(short, Strategy.of(dp=8, pp=2, **FSDP2, **PYTORCH_PIPELINE), 16).stages
    assert first.memory.gathered == (2 + 4) * LAYER + 2 * (WORDS + SHORT * H)
    full = Strategy.of(dp=8, pp=2, recompute="full", **FSDP2, **PYTORCH_PIPELINE)  # a block's activations are no credit
    assert placed(short, full, 16).stages[0].memory.gathered == first.memory.gathered


def most_in_gathers(units):
    """Return the most bytes that gathers fill at once in a forward, step by step: each unit's are freed when the next
    unit's are there.
    """
    most = live = 0
    for k, size in enumerate(units):
        live += size
        most = max(most, live)
        live -= units[k - 1] if k else 0
    return most


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_an_allocator_holds_the_gathers_of_two_units_beside_the_weights(prefetch, short, placed):
    def memory(**settings):
        strategy = Strategy.of(dp=8, prefetch=prefetch, **FSDP2 | settings)
        return placed(short, strategy, 8).stages[0].memory

    held = most_in_gathers([2 * SHORT_ROOT, *[2 * LAYER] * L])
    assert held == 2 * (SHORT_ROOT + LAYER)
    exact, real = memory(), memory(allocator="torch")
    assert (exact.reserved, real.reserved) == (0, max(0, held - prefetch * 2 * LAYER))  # those ahead count as gathered
    assert real.total - exact.total == real.reserved
    buffers = memory(allocator="torch", shard_layout="buffers")
    assert buffers.reserved == 0  # weights are used where they were gathered
    # shares of summed gradients come on their stream while whole ones go
    kept = memory(allocator="torch", **PYTORCH_PIPELINE)
    assert kept.reserved == held + 4 * (-(-SHORT_ROOT // 8) + L * -(-LAYER // 8))


def test_16_bit_logits_leave_a_place_that_fp32_ones_do_not_fit(gpt, short, placed):
    def reserved(graph, **settings):
        return (
            placed(graph, Strategy.of(dp=8, **FSDP2 | {"allocator": "torch"} | settings), 8).stages[0].memory.reserved
        )

    gathers = 2 * ROOT
    assert reserved(gpt) == gathers
    assert reserved(gpt, fusion="none") == gathers + 2 * S * V
    assert reserved(gpt, fusion="none", precision="fp32") == 2 * gathers  # nothing is widened
    tp = {"tp": 2, "sequence_parallel": True, "shard": 0, "shard_layout": "buffers"}
    assert reserved(gpt, fusion="none", **tp) == pytest.approx(2 * S * V / 2, rel=1e-4)


@pytest.mark.parametrize("before", [0, 3, 10])
@pytest.mark.parametrize("behind", [0, 4, 12])
@pytest.mark.parametrize("gradients", [0, 2, 9])
def test_the_place_of_logits_counts_where_the_loss_takes_most(before, behind, gradients):
    for logits in (0, 1, 7):
        exact = max(before, behind + gradients)
        more = max(before + logits, behind + gradients)  # what follows finds room in the place
        slack = before - behind
        excess = max(0, gradients - max(0, slack))
        assert reserved_in_turn(logits, slack, excess) == more - exact


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"allocator": "torch"}, PYTORCH_PIPELINE, {"pp": 2, **PYTORCH_PIPELINE}, {"reshard_after_forward": False},
    ],
)  # fmt: skip
def test_memory_over_time_has_the_peak_of_the_plan(settings, gpt):
    fabric = rostam.fabric("electrical_flat", num_accelerators=4 * settings.get("pp", 1), link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(
        gpt, machine, global_batch=16, strategy=Strategy.of(dp=4, **FSDP2, **settings), software="ideal"
    )
    found = rostam.simulate(plan, timeline=True).memory_over_time()
    assert [max(one.num_bytes) for one in found] == [stage.memory.total for stage in plan.stages]


def test_a_copy_waits_for_the_reduction_before_it(gpt, placed):
    tasks = placed(gpt, Strategy.of(dp=8, **FSDP2), 8).stages[0].templates["backward_last"]
    reductions = [k for k, task in enumerate(tasks) if task.collective == "reduce_scatter"]
    for before, after in zip(reductions, reductions[1:], strict=False):
        (copying,) = tasks[after].deps
        chain = range(before + 1, copying + 1)
        assert any(before in tasks[k].deps for k in chain if tasks[k].kind == "compute")
        assert tasks[copying].kernels[-1].name.endswith("(copied in)")


def test_the_step_writes_no_16_bit_copy(gpt, placed):
    def moved(**settings):
        plan = placed(gpt, Strategy.of(dp=8, **FSDP2 | settings), 8, cost="roofline")
        (step,) = (t for t in plan.stages[0].templates["backward_last"] if t.is_optimizer)
        return sum(k.call.bytes_read + k.call.bytes_written for k in step.kernels) / (P / 8)

    assert moved() == pytest.approx(28, rel=1e-3)  # gradient, two states and the parameter; these three again
    assert moved(shard_layout="buffers") == pytest.approx(30, rel=1e-3)
    # mul 8, lerp 12, mul 8, addcmul 12, sqrt 8, div 8, add 8, addcdiv 16
    assert moved(optimizer_kernels="foreach") == pytest.approx(80, rel=1e-3)
    assert moved(optimizer_kernels="foreach", clip_gradients=True) == pytest.approx(92, rel=1e-3)
    assert moved(optimizer_kernels="foreach", shard_layout="buffers") == pytest.approx(86, rel=1e-3)  # 4 + 2 to cast
    assert moved(optimizer_kernels="foreach", optimizer="sgd") == pytest.approx(12, rel=1e-3)
    assert moved(optimizer_kernels="foreach", optimizer="momentum") == pytest.approx(32, rel=1e-3)


def test_what_is_unknown_or_unread_is_said():
    with pytest.raises(ConfigError, match=r"shard_layout is 'flat'.*buffers, parameters"):
        Strategy.of(shard=3, shard_layout="flat")
    with pytest.raises(ConfigError, match=r"optimizer_kernels is 'apex'.*fused, foreach"):
        Strategy.of(optimizer_kernels="apex")
    with pytest.raises(ConfigError, match=r"allocator is 'jemalloc'.*exact, torch"):
        Strategy.of(allocator="jemalloc")
    (note,) = unread_keys(Strategy.of(shard_layout="parameters"))
    assert "software.rules.shard_layout is 'parameters', which has no effect: it needs strategy.shard=3" in note
