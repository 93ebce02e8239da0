"""Simulated iterations of a traced GPT: folding, fusion, accounting, bytes, equality, timeline."""

import gzip
import json
import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

FABRICS = {
    "electrical_flat": {"num_accelerators": 8},
    "electrical_cluster": {"num_accelerators": 8, "server_size": 4, "server_bandwidth": "400 Gb/s"},
    "fat_tree": {"num_accelerators": 8, "radix": 4, "leaf_down": 2, "leaf_up": 1, "levels": 2},
    "torus": {"dims": (2, 4)},
}
STRATEGIES = {
    "dp8": {"dp": 8, "algorithms": {"all_reduce": "ring"}},
    "tp8": {"tp": 8}, "dp4_tp2": {"dp": 4, "tp": 2}, "dp2_tp2_pp2": {"dp": 2, "tp": 2, "pp": 2},
    "pp4_dp2_gpipe": {"pp": 4, "dp": 2, "schedule": "gpipe"},
    "tp4_hierarchical": {"dp": 2, "tp": 4, "algorithms": {"all_reduce": "hierarchical"}},
    "random": {"dp": 2, "tp": 2, "pp": 2, "mapping": "random(3)"},
}  # fmt: skip


def build(name):
    return rostam.fabric(name, accelerator_bandwidth="800 Gb/s", **FABRICS[name])


@pytest.fixture(scope="module")
def plans(gpt):
    """plans(strategy, fabric): placed once a strategy, moved to the fabric."""
    made = {}

    def get(strategy, fabric="electrical_flat"):
        if (strategy, fabric) not in made:
            machine = rostam.Machine(fabric=build(fabric))
            options = {"precision": "bf16_mixed"} | STRATEGIES[strategy]
            made[strategy, fabric] = rostam.place(
                gpt, machine, global_batch=32, strategy=rostam.Strategy.of(**options), software="ideal"
            )
        return made[strategy, fabric]

    return get


def dependency_steps(plan):
    """Steps of the longest chain an iteration can have, at 1 ps each: a collective counts its ring steps."""
    steps = 0
    for stage in plan.stages:
        for name, _ in stage.program:
            for task in stage.templates[name]:
                steps += 2 * plan.strategy.num_ranks if task.kind == "collective" else 1
    return steps


@pytest.mark.parametrize("fabric", list(FABRICS))
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_folded_and_unfolded_runs_agree(strategy, fabric, plans):
    plan = plans(strategy, fabric)
    folded, whole = (rostam.simulate(plan, fold=fold) for fold in (True, False))
    assert whole.num_simulated_devices == 8
    assert folded.num_simulated_devices <= 8
    tolerance = dependency_steps(plan) * 1e-12
    assert folded.iteration_times_s == pytest.approx(whole.iteration_times_s, abs=tolerance)
    assert folded.breakdown_by_device == pytest.approx(whole.breakdown_by_device, abs=tolerance)
    assert (folded.bytes_sent, folded.num_messages) == (whole.bytes_sent, whole.num_messages)


def test_folding_finds_the_symmetry_of_a_data_parallel_job(plans):
    assert rostam.simulate(plans("dp8")).num_simulated_devices == 1
    assert rostam.simulate(plans("dp4_tp2")).num_simulated_devices == 1
    assert rostam.simulate(plans("dp2_tp2_pp2")).num_simulated_devices == 2


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("fabric", ["electrical_flat", "torus"])
def test_fused_and_op_level_times_are_equal(strategy, fabric, plans):
    plan = plans(strategy, fabric)
    fused, op_level = rostam.simulate(plan), rostam.simulate(plan, fuse=False)
    assert op_level.iteration_times_s == pytest.approx(fused.iteration_times_s, rel=1e-9)
    assert op_level.breakdown == pytest.approx(fused.breakdown, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("strategy", ["dp8", "dp4_tp2", "dp2_tp2_pp2"])
def test_slowing_one_device_moves_the_result_and_one_that_is_idle_does_not(strategy, plans):
    plan = plans(strategy)
    base = rostam.simulate(plan).iteration_time_s
    slow = plan.on(plan.machine.with_slow_accelerators({5: 0.5}))
    folded, whole = (rostam.simulate(slow, fold=fold) for fold in (True, False))
    assert folded.iteration_time_s > 1.2 * base
    assert folded.iteration_times_s == pytest.approx(whole.iteration_times_s, abs=dependency_steps(plan) * 1e-12)
    # A device of full speed and one that is absent from the table are the same.
    same = plan.on(plan.machine.with_slow_accelerators({5: 1.0}))
    assert rostam.simulate(same).iteration_time_s == base


def ring_bytes(num_ranks, num_bytes):
    """Bytes that one rank sends in a ring all-reduce."""
    return 2 * (num_ranks - 1) * math.ceil(num_bytes / num_ranks)


@pytest.mark.parametrize("strategy", ["dp8", "tp8", "dp4_tp2", "dp2_tp2_pp2", "pp4_dp2_gpipe"])
@pytest.mark.parametrize("fold", [True, False])
def test_bytes_sent_are_the_closed_forms_of_the_plans_messages(strategy, fold, plans):
    plan = plans(strategy)
    num_dp, _, num_tp = plan.accelerators.shape
    expected = {"tp": 0, "dp": 0, "pp": 0, "tied": 0, "mp": 0}
    ranks = {one.label: one.num_ranks for one in plan.groups}
    for message in plan.messages():
        if message.kind == "recv":
            continue
        axis = message.group.rstrip("0123456789")
        one = message.num_bytes
        if message.kind != "send":
            members = ranks[message.group]
            one = ring_bytes(members, message.num_bytes)
            if message.kind == "all_gather":  # each rank sends its part n - 1 times: half an all-reduce
                one //= 2
            else:
                assert message.kind == "all_reduce"
        # messages() lists a tied all-reduce once for every stage of its group, and each stage sends its part
        expected[axis] += message.count * one * num_dp * num_tp

    result = rostam.simulate(plan, fold=fold)
    assert result.bytes_sent == expected
    assert result.bytes_received == expected


def test_gradients_sent_are_four_bytes_a_parameter_times_the_ring_factor(plans, gpt):
    # dp 8, fp32 gradients of bf16 weights: every rank sends 2 (7/8) of 4 bytes a parameter, but for rounded chunks.
    sent = rostam.simulate(plans("dp8")).bytes_sent["dp"]
    assert sent == pytest.approx(8 * 2 * 7 / 8 * 4 * gpt.num_parameters, rel=1e-5)


@pytest.mark.parametrize("fabric", list(FABRICS))
@pytest.mark.parametrize("strategy", ["dp4_tp2", "dp2_tp2_pp2", "pp4_dp2_gpipe"])
def test_breakdown_and_critical_path_sum_to_the_iteration(strategy, fabric, plans):
    result = rostam.simulate(plans(strategy, fabric))
    assert result.is_steady
    assert result.breakdown_by_device.sum(axis=1) == pytest.approx([result.iteration_time_s] * 8, rel=1e-12)
    assert (result.breakdown_by_device >= 0).all()
    assert sum(result.breakdown.values()) == pytest.approx(result.iteration_time_s, rel=1e-12)
    path = result.critical_path()
    assert sum(s.duration_s for s in path) == pytest.approx(result.iteration_time_s, rel=1e-12)
    assert all(s.duration_s > 0 for s in path)
    ends = [s.start_s + s.duration_s for s in path]
    assert [s.start_s for s in path[1:]] == pytest.approx(ends[:-1], abs=1e-12)
    assert sum(result.critical_path_by_kind().values()) == pytest.approx(result.iteration_time_s, rel=1e-12)


def test_a_long_critical_path_shows_its_ends_and_how_to_see_the_rest(plans):
    path = rostam.simulate(plans("pp4_dp2_gpipe")).critical_path()
    assert len(path) > 40
    lines = repr(path).splitlines()
    assert len(lines) == 1 + 8 + 1 + 8
    assert lines[0].startswith(f"critical path: {len(path)} segments, ")
    assert lines[9].startswith(f"  ... {len(path) - 16} segments left out; all: print(*path, sep=")
    assert path[7].name in lines[8]
    assert path[-1].name in lines[-1]
    shown = path._repr_html_()
    assert shown.count("<tr") == 1 + 8 + 1 + 8
    assert f"{len(path) - 16} segments left out" in shown
    short = type(path)(path[:17])
    assert len(repr(short).splitlines()) == 18
    assert short._repr_html_().count("<tr") == 18
    assert repr(type(path)()) == "critical path: 0 segments, 0 s"


def test_compute_in_the_breakdown_is_what_the_plan_holds(plans):
    plan = plans("dp2_tp2_pp2")
    result = rostam.simulate(plan)
    for stage in plan.stages:
        work = sum(task.duration_s for name, _ in stage.program for task in stage.templates[name])
        mine = np.isin(result.devices, plan.accelerators[:, stage.index].reshape(-1))
        compute = result.breakdown_by_device[mine, list(result.breakdown).index("compute")]
        # durations are rounded up to 1 ps a kernel
        assert compute == pytest.approx([work] * int(mine.sum()), rel=1e-6)


def test_equal_configurations_give_equal_bytes(gpt, tmp_path):
    def run(fold=True):
        strategy = rostam.Strategy(dp=2, tp=2, pp=2, precision="bf16_mixed")
        plan = rostam.place(
            gpt, rostam.Machine(fabric=build("fat_tree")), global_batch=16, strategy=strategy, software="ideal"
        )
        return rostam.simulate(plan, seed=1, fold=fold, timeline=True)

    one, other = run(), run()
    assert one.to_json() == other.to_json(str(tmp_path / "r.json")) == (tmp_path / "r.json").read_text()
    for k, result in enumerate((one, other)):
        result.save_timeline(str(tmp_path / f"{k}.json"))
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    assert run(fold=False).to_json() == run(fold=False).to_json()


def test_hash_routing_depends_on_the_seed_alone(plans):
    plan = plans("random", "torus")
    times = {seed: rostam.simulate(plan, routing="hash", seed=seed).to_json() for seed in range(4)}
    assert rostam.simulate(plan, routing="hash", seed=2).to_json() == times[2]
    assert len({text.replace(f'"seed": {seed}', "") for seed, text in times.items()}) > 1


def test_busiest_links_are_sorted_and_within_their_bandwidth(plans):
    result = rostam.simulate(plans("dp4_tp2", "electrical_cluster"))
    loads = result.busiest_links()
    assert 0 < len(loads) <= 10
    assert [load.utilization for load in loads] == sorted((load.utilization for load in loads), reverse=True)
    assert loads[0].utilization <= 1 + 1e-9
    assert all(load.utilization <= load.busy_fraction * (1 + 1e-9) for load in loads)
    # dp crosses the two servers of four: the servers' uplinks are the busiest
    assert "switch" in loads[0].name


@pytest.mark.parametrize("strategy", ["dp4_tp2", "dp2_tp2_pp2", "pp4_dp2_gpipe"])
@pytest.mark.parametrize("fold", [True, False])
def test_timeline_is_valid_and_slices_of_a_thread_nest_without_overlap(strategy, fold, plans, tmp_path):
    result = rostam.simulate(plans(strategy, "fat_tree"), timeline=list(range(8)), fold=fold)
    path = tmp_path / "timeline.json.gz"
    result.save_timeline(str(path))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    threads = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"], event["name"]))
    assert {pid for pid, _ in threads} == set(range(8))
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert named == set(threads)
    for thread, slices in threads.items():
        open_ends = []
        for start, minus_length, name in sorted(slices):
            end = start - minus_length
            while open_ends and open_ends[-1] <= start + 2e-6:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 2e-6, (thread, name, start, end)
            open_ends.append(end)


def test_timeline_covers_the_compute_of_the_iteration(plans, tmp_path):
    result = rostam.simulate(plans("dp4_tp2"), timeline=[3])
    path = tmp_path / "timeline.json"
    result.save_timeline(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    tasks = [e for e in events if e["ph"] == "X" and e["tid"] == 0 and "template" in e["args"]]
    assert sum(e["dur"] for e in tasks) == pytest.approx(result.breakdown["compute"] * 1e6, rel=1e-9)


@pytest.mark.parametrize(("strategy", "fabric"), [("dp8", "electrical_cluster"), ("random", "torus")])
def test_a_timeline_starts_at_0_and_ends_with_the_iteration(strategy, fabric, plans, tmp_path):
    """Some devices begin the next iteration while the last one still ends this one: their tasks are cut there."""
    result = rostam.simulate(plans(strategy, fabric), timeline=list(range(8)))
    path = tmp_path / "timeline.json"
    result.save_timeline(str(path))
    slices = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    cut = [e for e in slices if "whole_us" in e["args"]]
    assert min(e["ts"] for e in slices) == 0
    assert max(e["ts"] + e["dur"] for e in slices) <= result.iteration_time_s * 1e6 * (1 + 1e-12)
    assert cut
    assert all(0 < e["dur"] < e["args"]["whole_us"] for e in cut)


def test_a_run_without_a_timeline_says_how_to_get_one(plans, tmp_path):
    with pytest.raises(ConfigError, match="timeline=True"):
        rostam.simulate(plans("dp8")).save_timeline(str(tmp_path / "x.json"))


def test_utilization_is_work_over_peak_and_recomputation_counts_for_hfu_alone(gpt):
    def run(recompute):
        strategy = rostam.Strategy(dp=8, precision="bf16_mixed", recompute=recompute)
        machine = rostam.Machine(fabric=build("electrical_flat"))
        plan = rostam.place(gpt, machine, global_batch=16, strategy=strategy, software="ideal")
        return rostam.simulate(plan)

    none, full = run("none"), run("full")
    flops = gpt.forward_flops(batch=16) + gpt.backward_flops(batch=16)
    masked = 3.5 * 16 * 4 * 2 * 2048**2 * 768  # half of attention's 4 s^2 h forward and 10 s^2 h backward in 4 layers
    assert none.hfu == pytest.approx((flops - masked) / (8 * 312e12 * none.iteration_time_s), rel=1e-3)
    # Narayanan et al. 2021, equation 3, without its replay
    layers, width, tokens, words = 4, 768, 2048, 50257
    flops = 72 * 16 * tokens * layers * width**2 * (1 + tokens / (6 * width) + words / (12 * layers * width))
    assert none.mfu == pytest.approx(flops / (8 * 312e12 * none.iteration_time_s), rel=0.01)
    assert none.hfu > 1.01 * none.mfu_causal  # attention's backward makes scores again: s h of 72 h^2 + 6 s h + ...
    assert 0.2 < full.mfu < none.mfu < 1
    # The four blocks run forward again, the head does not. Forward FLOPs of a token, two a weight: 12 h^2 weights a
    # block, V h in the head; attention scores and values 4 s h a block.
    blocks, head = 4 * (24 * 768**2 + 4 * 2048 * 768), 2 * 50257 * 768
    masked = 4 * 2 * 2048 * 768  # half of the scores' two products
    run = (4 * (blocks - masked) + 3 * head + masked / 2) / (3 * (blocks + head))  # backward makes half a product again
    assert full.hfu / full.mfu == pytest.approx(run, rel=0.01)
