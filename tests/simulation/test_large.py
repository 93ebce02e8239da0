"""Large jobs, whole machines: what comes out, not how fast (benchmarks/ has that)."""

import math

import pytest

import rostam_py as rostam

pytestmark = pytest.mark.slow

FABRICS = {
    "electrical_flat": {},
    "electrical_cluster": {"server_size": 8, "server_bandwidth": "1600 Gb/s"},
    "fat_tree": {"radix": 64},
}


def build(name, count):
    return rostam.fabric(name, num_accelerators=count, accelerator_bandwidth="400 Gb/s", **FABRICS[name])


@pytest.fixture(scope="module")
def transformer_plan():
    graph = rostam.trace("transformer_350m")
    machine = rostam.Machine(fabric=build("electrical_flat", 1024))
    strategy = rostam.Strategy(dp=128, tp=8, precision="bf16_mixed")
    return rostam.place(graph, machine, global_batch=1024, strategy=strategy, software="ideal")


def expected_bytes(plan):
    """Bytes by axis from the plan's message list: rings of 2 (p-1) chunks of ceil(S/p)."""
    num_dp, _, num_tp = plan.accelerators.shape
    totals = {"tp": 0, "dp": 0, "pp": 0, "tied": 0, "mp": 0}
    for message in plan.messages():
        axis = message.group.rstrip("0123456789")
        p = {"tp": num_tp, "dp": num_dp}.get(axis, len(message.stages))
        one = message.num_bytes if message.kind == "send" else 2 * (p - 1) * math.ceil(message.num_bytes / p)
        totals[axis] += 0 if message.kind == "recv" else message.count * one * num_dp * num_tp
    return totals


@pytest.mark.parametrize("name", list(FABRICS))
def test_transformer_350m_on_1024_accelerators_is_the_whole_machine(name, transformer_plan):
    machine = rostam.Machine(fabric=build(name, 1024))
    plan = transformer_plan.on(machine)
    result = rostam.simulate(plan)
    assert result.is_steady
    assert result.bytes_sent == result.bytes_received == expected_bytes(plan)
    assert result.breakdown_by_device.shape[0] == 1024
    assert result.breakdown_by_device.sum(axis=1) == pytest.approx([result.iteration_time_s] * 1024, rel=1e-12)
    work = sum(t.duration_s for name, _ in plan.stages[0].program for t in plan.stages[0].templates[name])
    # An iteration ends for all at once: a device that runs ahead has a little of the next one in its window.
    assert result.breakdown["compute"] == pytest.approx(work, rel=1e-4)
    # never faster than the bytes of its busiest port
    links = machine.fabric.links
    assert result.iteration_time_s >= (result.link_bytes / links["bandwidth_bytes_per_s"]).max() * (1 - 1e-9)
    # a device of replica 37 at half speed holds everybody up by at least its extra work
    slow = plan.on(machine.with_slow_accelerators({37 * 8 + 3: 0.5}))
    moved = rostam.simulate(slow)
    assert moved.iteration_time_s >= 2 * work
    assert moved.iteration_time_s > result.iteration_time_s
    assert moved.bytes_sent == result.bytes_sent


def test_electrical_flat_bounds_the_cluster_and_the_tree_for_the_transformers_gradients():
    # One all-reduce of the whole gradient over one rank of each server, at equal latency (MODEL F20).
    times = {}
    for name in FABRICS:
        parameters = {"link_latency": 0.0, "switch_latency": 0.0} if name == "fat_tree" else {}
        fabric = rostam.fabric(
            name, num_accelerators=1024, accelerator_bandwidth="400 Gb/s", **(FABRICS[name] | parameters)
        )
        latency = {} if name == "fat_tree" else {"num_bytes": 714_000_000}
        result = rostam.run_collective(
            fabric, "all_reduce", **({"num_bytes": 714_000_000} | latency), ranks=list(range(0, 1024, 8))
        )
        times[name] = result.time_s - (0 if name == "fat_tree" else 2 * 127 * 1e-6)
    assert times["electrical_flat"] <= min(times.values()) * (1 + 1e-9)


def gpt3(num_layers, pp, global_batch, **options):
    graph = rostam.trace("gpt3_175b", num_layers=num_layers)
    fabric = rostam.fabric("fat_tree", num_accelerators=4 * pp, accelerator_bandwidth="800 Gb/s")
    strategy = rostam.Strategy.of(
        pp=pp, tp=4, micro_batch=1, recompute="full", precision="bf16_mixed", schedule="1f1b", **options
    )
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    return rostam.place(graph, machine, global_batch=global_batch, strategy=strategy, software="ideal")


def test_gpt3_on_96_stages_runs_its_1536_micro_batches():
    plan = gpt3(96, 96, 1536)
    result = rostam.simulate(plan)
    assert result.is_steady
    assert result.bytes_sent == result.bytes_received == expected_bytes(plan)
    # 1,536 micro-batches on the slowest stage, and the pipeline has to fill and drain: at least
    # (m + pp - 1) of the mean stage's work, at least m of the slowest one's.
    work = [sum(t.duration_s for name, _ in stage.program for t in stage.templates[name]) for stage in plan.stages]
    assert result.iteration_time_s >= max(work)
    assert result.iteration_time_s >= sum(work) / 96 * (1 + 95 / 1536) * 0.98
    assert result.breakdown_by_device.sum(axis=1) == pytest.approx([result.iteration_time_s] * 384, rel=1e-12)
    assert sum(s.duration_s for s in result.critical_path()) == pytest.approx(result.iteration_time_s, rel=1e-12)
    # 3 x 734.8 TFLOP a sample (and a replay): between a third and all of the peak of 384 x 312 TFLOP/s
    assert 0.2 < result.mfu < result.hfu < 1
    assert result.mfu == pytest.approx(3 * 734.8e12 * 1536 / (384 * 312e12 * result.iteration_time_s), rel=0.03)


def test_gpt3_fused_and_op_level_times_agree_on_four_layers_and_eight_micro_batches():
    plan = gpt3(4, 4, 8)
    fused, op_level = rostam.simulate(plan), rostam.simulate(plan, fuse=False)
    assert op_level.iteration_time_s == pytest.approx(fused.iteration_time_s, rel=1e-3)
    assert op_level.iteration_time_s == pytest.approx(fused.iteration_time_s, rel=1e-9)


def test_a_model_parallel_group_of_256_devices_sends_every_message_its_own_way():
    # A device has 518 slots then, more than the 8 bits that once named them in a route's key: 31.467 ms.
    fabric = rostam.fabric("torus", dims=(16, 16), accelerator_bandwidth="400 Gb/s")
    strategy = rostam.Strategy(dp=1, mp=256, placer="sip_ml", check_memory=False)
    plan = rostam.place(
        rostam.trace("resnet50"), rostam.Machine(fabric=fabric), global_batch=256, strategy=strategy, software="ideal"
    )
    result = rostam.simulate(plan, max_iterations=1)
    assert "routes join the ends of their messages" in result.checks
