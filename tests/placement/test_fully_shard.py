"""FSDP2: messages, copies and memory of units whose parameters are cut one by one, by hand.

S sequence, H width, V vocabulary, L layers of the GPT; P its parameters; d ranks. In bf16_mixed a weight has 2 bytes, a
gradient 4 where it is reduced and 2 where it is made. All that blocks do not read is the root's.
"""

from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy
from rostam_py.plan.unread import unread_keys

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
    plan = placed(gpt, Strategy(dp=8, **FSDP2), 8 * m)
    assert messages(plan) == {
        ("all_gather", 2 * ROOT): m, ("all_gather", 2 * LAYER): 2 * L * m,
        ("reduce_scatter", 4 * ROOT): m, ("reduce_scatter", 4 * LAYER): L * m,
    }  # fmt: skip
    assert copies(plan) == {
        ("out", 2 * ROOT, 2 * ROOT): m, ("out", 2 * LAYER, 2 * LAYER): 2 * L * m,
        ("in", 2 * ROOT, 4 * ROOT): m, ("in", 2 * LAYER, 4 * LAYER): L * m,
    }  # fmt: skip


def test_pipelines_of_pytorch_gather_once_and_reduce_summed_gradients_once(gpt, placed):
    plan = placed(gpt, Strategy(dp=8, **FSDP2, **PYTORCH_PIPELINE), 32)
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
        assert copies(placed(gpt, Strategy(dp=8, **FSDP2 | settings), 8)) == {}


def test_ranks_hold_no_16_bit_shares_and_the_root_stays(gpt, placed):
    for d in (8, 64):
        memory = placed(gpt, Strategy(dp=d, **FSDP2), d).stages[0].memory
        shares = -(-ROOT // d) + L * -(-LAYER // d)
        assert (memory.parameters, memory.gradients, memory.optimizer_state) == (0, 4 * shares, 12 * shares)
        assert memory.staying == 2 * ROOT
        assert memory.gathered == 2 * 2 * LAYER + 4 * ROOT  # two layers whole, and the root's gradients
    kept = placed(gpt, Strategy(dp=8, **FSDP2, **PYTORCH_PIPELINE), 16).stages[0].memory
    assert kept.staying == 2 * P
    in_fp32 = placed(gpt, Strategy(dp=8, **FSDP2 | {"precision": "fp32"}), 8).stages[0].memory
    assert in_fp32.parameters == 4 * P // 8  # the only copy


@pytest.mark.parametrize(
    "settings", [{}, PYTORCH_PIPELINE, {"pp": 2, **PYTORCH_PIPELINE}, {"reshard_after_forward": False}]
)
def test_memory_over_time_has_the_peak_of_the_plan(settings, gpt):
    fabric = rostam.fabric("electrical_flat", num_accelerators=4 * settings.get("pp", 1), link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(gpt, machine, global_batch=16, strategy=Strategy(dp=4, **FSDP2, **settings))
    found = rostam.simulate(plan, timeline=True).memory_over_time()
    assert [max(one.num_bytes) for one in found] == [stage.memory.total for stage in plan.stages]


def test_a_copy_waits_for_the_reduction_before_it(gpt, placed):
    tasks = placed(gpt, Strategy(dp=8, **FSDP2), 8).stages[0].templates["backward_last"]
    reductions = [k for k, task in enumerate(tasks) if task.collective == "reduce_scatter"]
    for before, after in zip(reductions, reductions[1:], strict=False):
        (copying,) = tasks[after].deps
        chain = range(before + 1, copying + 1)
        assert any(before in tasks[k].deps for k in chain if tasks[k].kind == "compute")
        assert tasks[copying].kernels[-1].name.endswith("(copied in)")


def test_the_step_writes_no_16_bit_copy(gpt, placed):
    def moved(**settings):
        plan = placed(gpt, Strategy(dp=8, **FSDP2 | settings), 8, cost="roofline")
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
        Strategy(shard=3, shard_layout="flat")
    with pytest.raises(ConfigError, match=r"optimizer_kernels is 'apex'.*fused, foreach"):
        Strategy(optimizer_kernels="apex")
    (note,) = unread_keys(Strategy(shard_layout="parameters"))
    assert "strategy.shard_layout is 'parameters', which nothing reads: it needs strategy.shard=3" in note
