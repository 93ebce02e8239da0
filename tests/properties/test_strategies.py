"""Random strategies over all axes: placed and simulated, or refused with a reason that names a key.

Every run: bytes sent = bytes received; the same times and breakdown folded and unfolded; the breakdown sums to the
iteration, and no device is exposed to a kind of communication for longer than it is in it; gradients are reduced
exactly once over the ranks that hold a parameter; every micro-batch's activations are freed.
"""

from collections import Counter

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import deepseek, dlrm, gpt, llama, mixtral
from rostam_py.plan import Strategy
from rostam_py.plan.fusion import BLOCKS, EVERYWHERE, FUSED_PARTS
from rostam_py.plan.phases import chunk_of, phase_of
from rostam_py.plan.program_rules import (
    ACCUMULATIONS,
    ALLOCATORS,
    BALANCED,
    CAST_KERNELS,
    CP_ALGORITHMS,
    PIPELINE_BUFFERS,
    STAGE_BLOCKS,
    TP_STYLES,
)
from rostam_py.plan.state_sharding import SHARD_LAYOUTS
from rostam_py.plan.strategy_names import RECOMPUTE, SCHEDULES
from rostam_py.plan.table_groups import TABLE_PLACES
from rostam_py.simulation.phase_spans import phase_spans

TOKENS, WIDTH, WORDS, EXPERTS = 64, 256, 64, 8
MOST_RANKS = 32
BYTES = {  # of a gradient
    "fp32": 4, "tf32": 4, "bf16_mixed": 4, "fp16_mixed": 2, "fp8_mixed": 4, "fp8_row_mixed": 4, "nvfp4_mixed": 4,
}  # fmt: skip
SIZE = {"width": WIDTH, "vocabulary": WORDS, "sequence_length": TOKENS}
TABLE_ROWS, DIMENSION = (1000, 300, 7, 50_000, 64, 20), 32
PADDING = 1.02  # uneven shares are rounded up to the largest
LAUNCH_PS = 10**6


@pytest.fixture(scope="module")
def specs():
    """Five small models: one with biases, grouped queries, experts, shared experts behind a dense layer, tables."""
    routed = {"num_experts": EXPERTS, "per_token": 2}
    return [
        gpt.build("dense", gpt.Config(num_layers=8, num_heads=4, **SIZE)),
        llama.build("grouped", llama.Config(num_layers=4, num_heads=8, num_key_heads=2, hidden=512, **SIZE)),
        mixtral.build(
            "routed",
            mixtral.Config(num_layers=4, num_heads=4, num_key_heads=2, head_size=64, hidden=512, **routed, **SIZE),
        ),
        deepseek.build(
            "shared",
            deepseek.Config(
                dense_layers=1, num_layers=3, num_heads=4, query_latent=32, key_latent=16, head_size=16, rotary_size=8,
                value_size=16, dense_hidden=512, hidden=256, num_groups=4, groups_per_token=2, **routed, **SIZE,
            ),
        ),
        dlrm.build(
            "tables",
            dlrm.Config(
                table_rows=TABLE_ROWS, hotness=(1, 3, 1, 10, 2, 1), dimension=DIMENSION, bottom=(64, DIMENSION),
                top=(64, 1), cross_rank=16,
            ),
        ),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def graphs(specs):
    """All of them, traced."""
    return [rostam.trace(spec) for spec in specs]


@pytest.fixture(scope="module")
def few_graphs(specs):
    """The ones with biases, shared experts behind a dense layer, and tables: most kinds of ops in three traces."""
    return [rostam.trace(spec) for spec in specs if spec.name in ("dense", "shared", "tables")]


SPLIT = ("zb_h1", "zb_v", "dual_pipe_v")  # backward into those of inputs and of weights
IN_A_V = ("zb_v", "dual_pipe_v")


def random_strategy(rng, has_tables):
    """Return keyword arguments of a strategy; some exclude each other."""

    def one_of(*values):
        return values[rng.integers(len(values))]

    keys = {
        "dp": one_of(1, 2, 4, 8), "tp": one_of(1, 1, 2, 4), "cp": one_of(1, 1, 1, 2, 4), "pp": one_of(1, 1, 2, 4),
        "ep": one_of(1, 1, 2, 4), "micro_batch": one_of(1, 2), "sequence_parallel": bool(rng.integers(2)),
        "cp_algorithm": one_of(*CP_ALGORITHMS), "shard": one_of(0, 0, 1, 2, 3), "shard_group": one_of(None, None, 2),
        "prefetch": one_of(0, 1, 2), "reshard_after_forward": bool(rng.integers(2)),
        "overlap_param_gather": bool(rng.integers(4) == 0), "recompute": one_of(*RECOMPUTE),
        "schedule": one_of(*SCHEDULES), "asynchronous_tp": bool(rng.integers(2)), "precision": one_of(*BYTES),
        "bucket_size": one_of("1 kB", "100 kB", "1 GB"), "virtual_stages": one_of(1, 1, 2, 3),
        "tp_overlap": bool(rng.integers(4) == 0), "reduce_every_microbatch": bool(rng.integers(4)),
        "tp_style": one_of(*TP_STYLES), "shard_layout": one_of(*SHARD_LAYOUTS),
        "recompute_stops_early": bool(rng.integers(2)), "optimizer_kernels": one_of("fused", "foreach"),
        "fused_part": one_of(EVERYWHERE, *FUSED_PARTS), "eager_loss": one_of("torch", "loss_parallel"),
        "allocator": one_of(*ALLOCATORS), "pipeline_buffers": one_of(*PIPELINE_BUFFERS),
        "overlap_p2p": bool(rng.integers(2)), "split_p2p": bool(rng.integers(2)),
        "overlap_grad_reduce": bool(rng.integers(4)), "cast_kernels": one_of(*CAST_KERNELS),
        "stage_blocks": one_of(BALANCED, *STAGE_BLOCKS), "accumulation": one_of(*ACCUMULATIONS),
    }  # fmt: skip
    if has_tables:  # they take dp alone; other axes are left in now and then
        keys |= {"tables": one_of(*TABLE_PLACES), "schedule": "1f1b"}
        for key in ("tp", "cp", "pp", "ep", "shard", "virtual_stages"):
            if rng.integers(16):
                keys[key] = 0 if key == "shard" else 1
    # Most of what excludes each other is drawn again, so that most strategies run.
    keys["sequence_parallel"] &= keys["tp"] > 1 and keys["schedule"] not in SPLIT
    keys["tp_overlap"] &= keys["sequence_parallel"] and keys["asynchronous_tp"]
    keys["recompute_stops_early"] &= keys["recompute"] == "full"
    if keys["fused_part"] != BLOCKS or has_tables:
        del keys["eager_loss"]
    keys["overlap_grad_reduce"] |= keys["shard"] > 1
    if keys["schedule"] in IN_A_V:
        keys["virtual_stages"] = 2
    elif keys["pp"] == 1 or keys["schedule"] != "1f1b":
        del keys["virtual_stages"]
    for key, least in (
        ("shard_group", 1), ("prefetch", 3), ("reshard_after_forward", 3), ("overlap_param_gather", 1),
        ("reduce_every_microbatch", 2),
    ):  # fmt: skip
        if keys["shard"] < least:
            del keys[key]
    return keys


def random_machine(rng, num_accelerators, precision):
    """Return accelerators that know the precision, on one of three small fabrics."""
    name = ("electrical_flat", "electrical_cluster", "fat_tree")[rng.integers(3)]
    own = {"electrical_flat": {}, "electrical_cluster": {"server_size": 4}, "fat_tree": {"levels": 2, "radix": 16}}
    fabric = rostam.fabric(name, num_accelerators=num_accelerators, accelerator_bandwidth="400 Gb/s", **own[name])
    accelerator = {"fp8_mixed": "h100_80gb", "fp8_row_mixed": "h100_80gb", "nvfp4_mixed": "b200_180gb"}.get(
        precision, "a100_80gb"
    )
    return rostam.Machine(fabric=fabric, accelerator=accelerator, launch_latency=LAUNCH_PS * 1e-12)


def place(graph, machine, keys, num_microbatches):
    """Return the plan, or None and why it is refused."""
    batch = keys["dp"] * keys["micro_batch"] * num_microbatches
    try:
        return rostam.place(graph, machine, global_batch=batch, strategy=Strategy.of(**keys), software="ideal"), ""
    except ConfigError as error:
        return None, str(error)


def check(seed, graphs):
    """Return the axes that the strategy of a seed uses, none if it was refused."""
    rng = np.random.default_rng(seed)
    graph = graphs[rng.integers(len(graphs))]
    keys = random_strategy(rng, graph is graphs[-1])
    num_ranks = keys["dp"] * keys["tp"] * keys["cp"] * keys["pp"]
    num_microbatches = int(2 ** rng.integers(4))
    if num_ranks > MOST_RANKS:
        return set()
    machine = random_machine(rng, num_ranks, keys["precision"])
    plan, refusal = place(graph, machine, keys, num_microbatches)
    if plan is None:
        assert any(f"strategy.{key}" in refusal for key in keys), (keys, refusal)
        return set()
    folded = rostam.simulate(plan)
    unfolded = rostam.simulate(plan, fold=False, shortcuts=False, timeline=plan.devices.tolist())
    assert folded.iteration_time_s == pytest.approx(unfolded.iteration_time_s, rel=1e-6), (seed, keys)
    for result in (folded, unfolded):
        assert result.bytes_sent == result.bytes_received, (seed, keys)
        assert sum(result.breakdown.values()) == pytest.approx(result.iteration_time_s, abs=1e-9), (seed, keys)
    assert folded.bytes_sent == unfolded.bytes_sent, (seed, keys)
    check_breakdown(folded, unfolded, (seed, keys))
    check_exposed(unfolded, (seed, keys))
    check_freed(plan, unfolded, (seed, keys))
    check_gradients(graph, plan, keys, (seed, keys))
    used = {key for key in ("dp", "tp", "cp", "pp", "ep", "virtual_stages") if keys.get(key, 1) > 1}
    used |= {key for key in ("sequence_parallel", "tp_overlap", "shard") if keys[key]}
    return used | {keys["schedule"], keys["recompute"], keys["precision"], keys.get("tables", "no tables")}


def check_breakdown(folded, unfolded, said):
    """Devices spend their time alike, folded or not."""
    assert folded.breakdown.keys() == unfolded.breakdown.keys(), said
    for kind, seconds in folded.breakdown.items():
        assert seconds == pytest.approx(unfolded.breakdown[kind], abs=1e-6 * folded.iteration_time_s), (kind, said)


def check_exposed(result, said):
    """A device is exposed to a kind for no longer than it is in its communication, launches included."""
    timeline, names = result._timeline, result._names
    begin, end = (int(time) for time in result._ends_ps[-2:])
    spans = {}
    columns = [timeline[key].tolist() for key in ("device", "template", "task", "start_ps", "end_ps")]
    for device, template, task, start, stop in zip(*columns, strict=True):
        kind = names.kind(template, names.templates[template].tasks[task])
        if kind != "compute" and stop > begin:
            spans.setdefault((device, kind), []).append((max(start - LAUNCH_PS, begin), min(stop, end)))
    exposed = list(result.breakdown)[3:]
    for device, row in enumerate(np.rint(result.breakdown_by_device[:, 3:] * 1e12).astype(np.int64).tolist()):
        for kind, time in zip(exposed, row, strict=True):
            if time:
                assert time <= covered(spans.get((device, kind), [])), (device, kind, said)


def covered(spans):
    """Return the length of the union of spans."""
    total, cursor = 0, -1
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, cursor))
        cursor = max(cursor, stop)
    return total


def check_freed(plan, result, said):
    """Each micro-batch goes forward once through each chunk, then backward once, and what W waits for is dropped."""
    is_split = plan.strategy.schedule in SPLIT and plan.strategy.pp > 1  # without a pipeline it is 1f1b
    phases = ["forward", "backward", "weight"] if is_split else ["forward", "backward"]
    for stage in plan.stages:
        runs = {phase: Counter() for phase in phases}
        for name, microbatch in stage.program:
            is_whole = phase_of(name) == "full_backward"
            for phase in phases[1:] if is_whole else (phase_of(name),):
                runs[phase][chunk_of(name), microbatch] += 1
        chunks = {chunk for chunk, _ in runs["forward"]}
        once = {(chunk, m): 1 for chunk in chunks for m in range(plan.num_microbatches)}
        assert len(chunks) == plan.strategy.virtual_stages, said
        assert all(count == once for count in runs.values()), (stage.index, said)
    begun = {}
    for span in phase_spans(result._names, result._timeline, iteration=0):
        phase = "backward" if span.phase == "full_backward" else span.phase
        if phase in phases:
            times = begun.setdefault((span.device, span.chunk, span.microbatch), {})
            times[phase] = min(span.start_ps, times.get(phase, span.start_ps))
    assert len(begun) == plan.num_devices * plan.strategy.virtual_stages * plan.num_microbatches, said
    for times in begun.values():  # a backward in one piece, and that of a chunk without weights, has no third
        steps = phases if "weight" in times else phases[:2]
        assert [phase for phase, _ in sorted(times.items(), key=lambda one: one[1])] == steps, said


def check_gradients(graph, plan, keys, said):
    """Every parameter's gradient is reduced once, or once a micro-batch where the strategy says so.

    Its group are the ranks that hold it: all that differ in dp and cp alone, of an expert those that hold the same
    experts; with copies of the state those inside a copy, and then each share over the copies.
    """
    is_often = keys["shard"] >= 2 and keys.get("reduce_every_microbatch", True)
    times = plan.num_microbatches if is_often else 1
    num_replicas, copy = keys["dp"] * keys["cp"], keys.get("shard_group")
    sizes = {"dp": num_replicas, "dp_experts": num_replicas // keys["ep"]}
    if copy is not None:
        sizes |= {"dp_shard": copy, "dp_replicate": num_replicas // copy}
    sent = Counter()
    for message in plan.messages():
        kinds = ("all_reduce", "reduce_scatter")
        if message.kind in kinds and plan.group_set(message.group).kind == "dp":
            assert message.kind == ("reduce_scatter" if keys["shard"] and message.group != "dp_replicate" else kinds[0])
            for stage in message.stages:
                sent[stage, message.group] += message.num_bytes * message.count
    for label in {label for _, label in sent}:
        check_members(plan, label, sizes[label], said)
    for stage in plan.stages:
        count = stage.num_parameters
        if keys.get("tables", "replicated") != "replicated":  # a table's rows are written where they lie
            count = graph.num_parameters - sum(TABLE_ROWS) * DIMENSION
        whole = count * BYTES[keys["precision"]]
        copies = sent.pop((stage.index, "dp_replicate"), 0)
        found = sum(sent[stage.index, label] for label in sizes)
        if num_replicas == 1:
            assert found == copies == 0, said
            continue
        has_experts = keys["ep"] > 1 and sizes["dp_experts"] == 1  # each on one rank: not reduced
        assert found <= PADDING * times * whole, (stage.index, said)
        if not has_experts:
            assert found >= times * whole, (stage.index, said)
        if not keys["shard"] and not has_experts:
            assert found == whole, (stage.index, said)
        if copy is not None and num_replicas > copy:
            assert whole / copy <= copies <= PADDING * whole / copy, (stage.index, said)


def check_members(plan, label, size, said):
    """The groups of a set part the devices into ranks of one stage that stand alike in their tp groups."""
    members = plan.group_set(label).members
    assert members.shape == (plan.num_devices // size, size), (label, said)
    assert sorted(members.ravel().tolist()) == list(range(plan.num_devices)), (label, said)
    place_in_tp = np.zeros(plan.num_devices, int)
    tp = plan.group_set("tp").members
    place_in_tp[tp] = np.arange(tp.shape[1])
    for alike in (plan.stage_of, place_in_tp):
        assert (alike[members] == alike[members[:, :1]]).all(), (label, said)


def test_strategies_over_all_axes_run_or_are_refused_with_a_reason(few_graphs):
    assert sum(bool(check(seed, few_graphs)) for seed in range(24)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_strategies_over_all_axes_run_or_are_refused_with_a_reason(graphs, part):
    used = [check(1000 * (part + 1) + seed, graphs) for seed in range(250)]
    assert sum(map(bool, used)) >= 60
    axes = {"dp", "tp", "cp", "pp", "ep", "sequence_parallel", "shard"}  # few interleave, overlap or spread tables
    assert set().union(*used) >= axes | {*SCHEDULES, *RECOMPUTE, *BYTES}
