"""Transformer Engine's user buffers, counted by hand.

A block of 4,096 features and 16,384 hidden ones on 4,096 tokens, tp = 4: its down projection multiplies
4,096 x 4,096 by 4,096 x 4,096, of which each member has 4,096 of the contraction, and A = 32 MiB in 16 bits.
"""

from collections import Counter
from dataclasses import replace

import pytest

import rostam_py as rostam
from rostam_py.costs.kernel_kinds import LAYOUTS
from rostam_py.costs.kernel_shapes import LAYOUT_OF, KernelQuestion
from rostam_py.costs.limits import Speeds
from rostam_py.errors import ConfigError
from rostam_py.models import llama
from rostam_py.plan import Strategy
from rostam_py.spread.changes import kernel_limits

TP, TOKENS, WIDTH, LAYERS = 4, 4096, 4096, 2
A = TOKENS * WIDTH * 2
STRATEGY = Strategy.of(
    dp=1, tp=TP, sequence_parallel=True, tp_overlap=True, precision="bf16_mixed", micro_batch=1, fusion="modules"
)
ACCELERATORS = {"bf16_mixed": "dgx_h100", "fp8_mixed": "dgx_h100", "mxfp8_mixed": "dgx_b200"}


@pytest.fixture(scope="module")
def graph():
    config = llama.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=32, num_key_heads=32, hidden=4 * WIDTH, vocabulary=32000,
        sequence_length=TOKENS,
    )  # fmt: skip
    return rostam.trace(llama.build("llama", config))


@pytest.fixture(scope="module")
def stages(graph):
    """Precision -> the only stage, on four accelerators of a server."""
    found = {}
    for precision, name in ACCELERATORS.items():
        machine = replace(rostam.machine(name, servers=1), min_kernel_time=0.0)
        strategy = replace(STRATEGY, precision=precision, allow_idle=True, check_memory=False)
        found[precision] = rostam.place(
            graph, machine, global_batch=1, strategy=strategy, cost="calibrated", software="ideal"
        ).stages[0]
    return found


def of_down(tasks):
    """Tasks of the first block's down projection and its reduce-scatter: parts, copies, and the task behind."""
    parts = [k for t in tasks for k in t.kernels if k.module == "blocks.0.mlp.down" and "(part " in k.name]
    copies = [i for i, t in enumerate(tasks) if t.name.startswith("reduce_scatter blocks.0.mlp.down")]
    behind = next(i for i in range(copies[-1] + 1, len(tasks)) if copies[-1] in tasks[i].deps)
    return parts, copies, behind


def moved(tasks, what):
    """Bytes read and written of kernels that move something."""
    return [(k.call.bytes_read, k.call.bytes_written) for t in tasks for k in t.kernels if f"({what})" in k.name]


def seconds(cost, m, n, k, precision):
    width = {"bf16": 2, "fp8": 1}[precision]
    sizes = (1.0, float(m), float(n), float(k), float(LAYOUTS.index(LAYOUT_OF["forward"])), 2.0)
    moved = width * (m * k + k * n) + 2 * m * n
    return cost.seconds(
        KernelQuestion(kind="product", sizes=sizes, precision=precision, flops=2.0 * m * n * k, traffic=moved)
    )


def test_a_pipeline_runs_four_parts_of_the_columns_and_leaves_sixteen_multiprocessors_out(stages):
    tasks = stages["bf16_mixed"].templates["forward"]
    parts, copies, behind = of_down(tasks)
    assert [k.name.split(" (")[1] for k in parts] == [f"part {i} of 4)" for i in (1, 2, 3, 4)]
    part = parts[0]
    whole_s = seconds(part.cost, TOKENS, WIDTH, WIDTH, "bf16")
    alone_s = seconds(part.cost, TOKENS, WIDTH / 4, WIDTH, "bf16")
    assert part.call.bytes_read == 2 * (TOKENS * WIDTH + WIDTH * WIDTH / 4)
    assert part.call.bytes_written == A / 4
    assert {k.duration_s for k in parts} == {part.duration_s}
    assert part.duration_s == pytest.approx(max(alone_s, whole_s / 4) * 132 / 116)
    # Each part's reduce-scatter begins behind it, and receives (t-1)/t of a quarter; the next kernel needs the last.
    assert [tasks[i].num_bytes for i in copies] == [A // 4 * 3 // 4] * 4
    assert [tasks[i].multiprocessors for i in copies] == [0] * 4
    for number, i in enumerate(copies):
        (maker,) = tasks[i].deps
        assert tasks[maker].kernels[-1].name == parts[number].name
    assert set(tasks[behind].deps) & set(copies) == {copies[-1]}
    assert not moved(tasks, "parts added")


def test_a_ring_exchange_sends_parts_of_16_bits_that_one_kernel_adds_up(stages):
    tasks = stages["fp8_mixed"].templates["forward"]
    parts, copies, behind = of_down(tasks)
    part = parts[0]
    assert [k.name.split(" (")[1] for k in parts] == [f"part {i} of {TP})" for i in range(1, TP + 1)]
    whole_s = seconds(part.cost, TOKENS, WIDTH, WIDTH, "fp8")
    alone_s = seconds(part.cost, TOKENS / TP, WIDTH, WIDTH, "fp8")
    assert part.duration_s == pytest.approx(max(alone_s, whole_s / TP) * 132 / 131)
    assert [tasks[i].num_bytes for i in copies] == [A // TP] * (TP - 1)
    assert tasks[behind].kernels[0].name.endswith("(parts added)")
    assert moved(tasks, "parts added") == [(A, A / TP)] * 2 * LAYERS
    # The last part is the member's own; nothing waits for a copy before the kernel that adds them up.
    (last,) = tasks[copies[-1]].deps
    assert parts[-1].name in [k.name for t in tasks[last + 1 : behind] for k in t.kernels]


@pytest.mark.parametrize(("precision", "width"), [("bf16_mixed", 2), ("fp8_mixed", 1)])
def test_gathers_begin_with_a_copy_of_the_own_part(stages, precision, width):
    own = TOKENS * WIDTH * width / TP
    templates = stages[precision].templates
    forward, backward = (moved(templates[name], "copied into its buffer") for name in ("forward", "backward"))
    assert forward == [(own, own)] * 2 * LAYERS  # the head's input is gathered by NCCL
    assert backward == [(own, own)] * 4 * LAYERS  # output gradients, and inputs again
    held = {name: Counter((t.collective, t.multiprocessors) for t in templates[name]) for name in templates}
    assert held["backward"]["all_gather", 3] == held["backward"]["reduce_scatter", 14] == 2 * LAYERS
    # NCCL gathers the head's input, again in backward, and the embedding's output gradient, and scatters likewise.
    assert (held["forward"]["all_gather", 0], held["forward"]["reduce_scatter", 0]) == (1, 1)
    assert (held["backward"]["all_gather", 0], held["backward"]["reduce_scatter", 0]) == (2, 1)


def test_parts_of_a_gathered_input_leave_no_multiprocessor_out(stages):
    part = next(
        k for t in stages["fp8_mixed"].templates["forward"] for k in t.kernels
        if k.module == "blocks.0.mlp.gate" and "(part 1 of" in k.name
    )  # fmt: skip
    whole_s = seconds(part.cost, TOKENS, 2 * WIDTH, WIDTH, "fp8")  # gate and up are one
    alone_s = seconds(part.cost, TOKENS / TP, 2 * WIDTH, WIDTH, "fp8")
    assert part.duration_s == pytest.approx(max(alone_s, whole_s / TP))
    assert kernel_limits(part).duration_s(Speeds()) == pytest.approx(part.duration_s)


def test_scales_of_blocks_are_gathered_by_nccl_and_gradients_twice(stages):
    data, scales = TOKENS * WIDTH, TOKENS * WIDTH // 32
    for name, rings, again in (("forward", 2 * LAYERS, 0), ("backward", 2 * LAYERS, 2 * LAYERS)):
        tasks = stages["mxfp8_mixed"].templates[name]
        found = [i for i, t in enumerate(tasks) if t.name.endswith("(scales)")]
        assert [(tasks[i].num_bytes, tasks[i].multiprocessors) for i in found] == [(scales, 0)] * (rings + again)
        for i in found:  # what is computed next waits
            assert i in next(t for t in tasks[i:] if t.kind == "compute").deps
        copies = [t for t in tasks if t.collective == "copy" and t.name.startswith("all_gather")]
        by_columns = [t.num_bytes for t in copies if " by columns" in t.name]
        assert [t.num_bytes for t in copies if " by columns" not in t.name] == [data // TP] * rings * (TP - 1)
        expected = 0 if name == "forward" else rings * (TP - 1)
        assert by_columns == [(data + scales) // TP] * expected


def test_ideal_links_leave_no_multiprocessor_out(graph):
    fabric = rostam.fabric("electrical_cluster", num_accelerators=4, accelerator_bandwidth="3600 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb", min_kernel_time=0.0)
    plan = rostam.place(
        graph, machine, global_batch=1, strategy=replace(STRATEGY, check_memory=False), software="ideal"
    )
    parts, _, _ = of_down(plan.stages[0].templates["forward"])
    whole_s = parts[0].cost.duration_s(replace(parts[0].call, columns=1, flops=4 * parts[0].flops))
    alone_s = parts[0].cost.duration_s(parts[0].call)
    assert parts[0].duration_s == pytest.approx(max(alone_s, whole_s / 4), rel=1e-3)


def test_of_few_multiprocessors_a_tenth_stays(graph):
    machine = rostam.machine("dgx_h100", servers=1)
    small = replace(machine.accelerator, multiprocessors=16)  # as many as a pipeline leaves out
    plan = rostam.place(
        graph,
        replace(machine, accelerator=small),
        global_batch=2,
        strategy=replace(STRATEGY, dp=2, check_memory=False),
        software="ideal",
    )
    parts, _, _ = of_down(plan.stages[0].templates["forward"])
    whole_s = parts[0].cost.duration_s(replace(parts[0].call, columns=1, flops=4 * parts[0].flops))
    alone_s = parts[0].cost.duration_s(parts[0].call)
    assert parts[0].duration_s == pytest.approx(10 * max(alone_s, whole_s / 4), rel=1e-3)


@pytest.mark.parametrize("precision", ACCELERATORS)
def test_backward_cuts_inputs_gradients_and_weights_gradients_come_whole_behind(stages, precision):
    # dgrad beside the ring of output gradients, then wgrad of all rows; of what reads gathered inputs dgrad beside the
    # bulk gather, wgrad beside the bulk reduce-scatter: _Linear and _LayerNormLinear of Transformer Engine.
    tasks = stages[precision].templates["backward"]
    kernels = [k for t in tasks for k in t.kernels if k.role == "product" and k.module.startswith("blocks.1.")]
    parts, whole = ([k for k in kernels if ("(part " in k.name) == is_part] for is_part in (True, False))
    one = 2 * TOKENS * WIDTH * WIDTH / TP  # FLOPs of proj; of gate and up 8 times, of queries, keys and values 3 times
    assert [(k.module, k.flops * TP) for k in parts] == (
        [("blocks.1.mlp.down", 4 * one)] * TP + [("blocks.1.attention.proj", one)] * TP
    )
    assert [(k.module.split(".")[-1], k.flops / one, k.call.bytes_written) for k in whole] == [
        ("down", 4, 4 * 4 * WIDTH * WIDTH / TP), ("up", 8, A), ("up", 8, 8 * 4 * WIDTH * WIDTH / TP),
        ("proj", 1, 4 * WIDTH * WIDTH / TP), ("value", 3, A), ("value", 3, 3 * 4 * WIDTH * WIDTH / TP),
    ]  # fmt: skip
    place = {id(k): i for i, t in enumerate(tasks) for k in t.kernels}
    again, scattered = (
        [i for i, t in enumerate(tasks) if (t.collective, t.multiprocessors) == held and "blocks.1" in t.name]
        for held in (("all_gather", 3), ("reduce_scatter", 14))
    )
    for number, (of_input, of_weight) in enumerate(((1, 2), (4, 5))):
        assert again[number] < place[id(whole[of_input])] < scattered[number] < place[id(whole[of_weight])]
        assert again[number] not in tasks[place[id(whole[of_input])]].deps
        assert again[number] in tasks[place[id(whole[of_weight])]].deps


def test_key_heads_that_members_share_stay_products_of_their_own():
    # One key head for four members: each has all of it, queries are split.
    config = llama.Config(
        num_layers=1, width=1024, num_heads=8, num_key_heads=1, hidden=4096, vocabulary=32000, sequence_length=1024
    )  # fmt: skip
    strategy = STRATEGY.with_keys(tp_overlap=False, allow_idle=True, check_memory=False)
    plan = rostam.place(
        rostam.trace(llama.build("llama", config)), rostam.machine("dgx_h100", servers=1), global_batch=1,
        strategy=strategy, software="ideal",
    )  # fmt: skip
    kernels = [k for t in plan.stages[0].templates["forward"] for k in t.kernels if k.role == "product"]
    found = {k.module.split(".")[-1]: len(k.call.ops) for k in kernels}
    assert found == {"query": 1, "key": 1, "value": 1, "proj": 1, "gate": 2, "down": 1, "head": 1}


@pytest.mark.parametrize(("style", "program"), [("mcore", "user buffers"), ("dtensor", "symmetric memory")])
def test_groups_that_span_servers_are_refused(graph, style, program):
    # Transformer Engine's issue 1071: one node; its pull request 1470: an NVLink domain of several, as racks of 72 are.
    machine = rostam.machine("dgx_h100", servers=2)
    strategy = STRATEGY.with_keys(tp=16, tp_style=style, check_memory=False)
    with pytest.raises(ConfigError, match=rf"strategy.tp = 16 lies in 2 servers of 8 accelerators.*{program}"):
        rostam.place(graph, machine, global_batch=1, strategy=strategy, software="ideal")
    rostam.place(graph, machine, global_batch=1, strategy=strategy.with_keys(tp_overlap=False), software="ideal")
    rostam.place(graph, machine, global_batch=2, strategy=replace(strategy, dp=2, tp=8), software="ideal")
    with pytest.raises(ConfigError, match=r"strategy.tp = 8 lies in 2 servers"):  # every other accelerator
        rostam.place(
            graph,
            machine,
            global_batch=2,
            strategy=replace(strategy, dp=2, tp=8, rank_order="dp,tp,pp"),
            software="ideal",
        )
    rack = rostam.machine("gb200_nvl72", servers=1)
    rostam.place(graph, rack, global_batch=1, strategy=replace(strategy, allow_idle=True), software="ideal")


@pytest.mark.parametrize("precision", ACCELERATORS)
def test_memory_has_a_buffer_for_each_overlapped_product(stages, graph, precision):
    # initialize_ub: six are gathered into, of bytes with products of 8 bits; qkv_wgrad and fc1_wgrad are scattered from
    # whole, proj_fprop and fc2_fprop whole in a pipeline, in 2 t - 1 of t parts in a ring exchange.
    elements, is_wide = TOKENS * WIDTH, precision.startswith("bf16")
    expected = 10 * 2 * elements if is_wide else elements * (6 + 2 * 2 + 2 * 2 * (2 * TP - 1) / TP)
    memory = stages[precision].memory
    assert memory.user_buffers == expected
    machine = rostam.machine(ACCELERATORS[precision], servers=1)
    strategy = STRATEGY.with_keys(precision=precision, allow_idle=True, check_memory=False, tp_overlap=False)
    without = rostam.place(graph, machine, global_batch=1, strategy=strategy, software="ideal").stages[0].memory
    assert (without.user_buffers, memory.total - without.total) == (0, expected)


@pytest.mark.parametrize("precision", ["nvfp4_mixed", "fp8_block_mixed", "fp8_row_mixed"])
def test_precisions_that_user_buffers_do_not_take_are_refused(precision):
    with pytest.raises(ConfigError, match=rf"strategy.precision is '{precision}'.*software.rules.tp_overlap=false"):
        replace(STRATEGY, precision=precision)
    STRATEGY.with_keys(precision=precision, tp_style="dtensor")
