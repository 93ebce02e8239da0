"""Memory over time of simulated runs: its highest is the plan's, and its steps are those of the schedule."""

import dataclasses
import functools
import json

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.errors import InternalError
from rostam_py.simulation.memory_detail import MAX_POINTS, memory_detail


class Layers(nn.Module):
    """Eight equal layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(8))

    def forward(self, x):
        """Chain them."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


@functools.cache
def traced():
    return rostam.trace(Layers(), torch.empty(1, 256), name="layers")


def simulated(batch=16, **strategy):
    graph = traced()
    chosen = rostam.Strategy.of(**strategy)
    fabric = rostam.fabric("electrical_flat", num_accelerators=chosen.num_ranks)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=batch, strategy=chosen, software="ideal")
    return rostam.simulate(plan, timeline=True)


@pytest.mark.parametrize(
    "strategy",
    [
        {"dp": 1, "pp": 4},
        {"dp": 2, "pp": 2, "schedule": "gpipe"},
        {"dp": 1, "pp": 4, "virtual_stages": 2},
        {"dp": 1, "pp": 4, "schedule": "zb_h1"},
        {"dp": 2, "pp": 2, "recompute": "full"},
        {"dp": 4, "shard": 3, "micro_batch": 1},
        {"dp": 4, "shard": 3, "micro_batch": 1, "reshard_after_forward": False},
        {"dp": 4, "shard": 3, "prefetch": 0},
        {"dp": 4, "shard": 3, "prefetch": 3, "recompute": "full"},
        {"dp": 4, "shard": 3, "shard_group": 2},
        {"dp": 2, "pp": 2, "shard": 3, "micro_batch": 1},
        {"dp": 2, "pp": 2, "shard": 3, "micro_batch": 1, "virtual_stages": 2},
        {"dp": 2, "pp": 2, "shard": 3, "micro_batch": 1, "virtual_stages": 2, "reshard_after_forward": False},
        {
            "dp": 2,
            "pp": 2,
            "shard": 3,
            "micro_batch": 1,
            "reshard_after_forward": False,
            "reduce_every_microbatch": False,
        },
        {"dp": 2, "tp": 2, "shard": 3, "micro_batch": 2},
        {"dp": 1, "tp": 2, "pp": 2, "optimizer": "adam"},
        {"dp": 1, "pp": 2, "virtual_stages": 2, "micro_batch": 1, "schedule": "zb_v", "overlap_p2p": False},
        {"dp": 1, "pp": 2, "virtual_stages": 2, "micro_batch": 1, "schedule": "dual_pipe_v"},
        {"dp": 1, "pp": 2, "virtual_stages": 2, "micro_batch": 1, "schedule": "dual_pipe_v", "overlap_p2p": False},
        {"dp": 2, "pp": 2, "virtual_stages": 2, "micro_batch": 1, "schedule": "dual_pipe_v", "shard": 3},
    ],
)
def test_the_highest_is_the_memory_that_the_plan_reports(strategy):
    result = simulated(**strategy)
    found = result.memory_over_time()
    assert [one.stage for one in found] == [stage.index for stage in result.plan.stages]
    for one, stage in zip(found, result.plan.stages, strict=True):
        assert max(one.num_bytes) == stage.memory.total
        assert one.num_bytes[-1] == one.constant_bytes
        assert one.constant_bytes == stage.memory.total - stage.memory.activations - stage.memory.gathered
        assert one.time_s == sorted(one.time_s)
        assert max(one.time_s) <= result.iteration_time_s


def test_1f1b_rises_to_the_micro_batches_in_flight_and_gpipe_to_all_of_them():
    for schedule, in_flight in (("1f1b", [4, 3, 2, 1]), ("gpipe", [8, 8, 8, 8])):
        result = simulated(batch=8, dp=1, pp=4, micro_batch=1, schedule=schedule)
        for one, stage, count in zip(result.memory_over_time(), result.plan.stages, in_flight, strict=True):
            each = stage.activation_changes["forward"][0]
            levels = [round((size - one.constant_bytes) / each) for size in one.num_bytes]
            assert max(levels) == count
            assert levels[:count] == list(range(1, count + 1)) or levels[0] == 1


def test_a_highest_that_is_not_the_plans_is_an_error():
    result = simulated(dp=1, pp=2)
    stages = list(result.plan.stages)
    changes = {name: (2 * begin, 2 * end) for name, (begin, end) in stages[0].activation_changes.items()}
    stages[0] = dataclasses.replace(stages[0], activation_changes=changes)
    wrong = dataclasses.replace(result, plan=dataclasses.replace(result.plan, stages=tuple(stages)))
    with pytest.raises(InternalError, match="stage 0 holds at most"):
        wrong.memory_over_time()


def test_a_run_without_recorded_times_has_none():
    result = simulated(dp=1, pp=2)
    bare = rostam.simulate(result.plan)
    assert bare.memory_over_time() == []
    assert memory_detail(bare) is None


def test_a_document_has_few_points_and_the_same_highest():
    result = simulated(batch=512, dp=1, pp=2, micro_batch=1)
    whole, kept = result.memory_over_time(), memory_detail(result)["stages"]
    for one, thin in zip(whole, kept, strict=True):
        assert len(thin["time_s"]) <= MAX_POINTS < len(one.time_s)
        assert max(thin["num_bytes"]) == max(one.num_bytes)


def test_figures_of_a_result_and_of_a_saved_plan_show_pipeline_and_memory(tmp_path):
    result = simulated(dp=1, pp=4)
    result.plan.save(tmp_path / "plan.json")
    again = rostam.simulate(rostam.Plan.load(tmp_path / "plan.json"), timeline=True)
    assert again.memory_over_time() == result.memory_over_time()
    figures = rostam.figures(result)
    assert {"pipeline", "memory-over-time"} <= figures.keys()
    assert len(figures["memory-over-time"].plotly.data) == 4


@pytest.mark.parametrize(
    "strategy", [{"dp": 1, "pp": 4}, {"dp": 1, "pp": 4, "virtual_stages": 2}, {"dp": 4, "shard": 3, "micro_batch": 1}]
)
def test_the_timeline_counts_the_same_memory(strategy, tmp_path):
    result = simulated(**strategy)
    result.save_timeline(str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "memory"]
    processes = {event["pid"] for event in events if event["ph"] == "M"}
    found = result.memory_over_time()
    assert {event["pid"] for event in counters} == {one.accelerator for one in found}
    assert processes > {one.accelerator for one in found}  # and that of the links' load
    for one in found:
        drawn = [(event["ts"], event["args"]["bytes"]) for event in counters if event["pid"] == one.accelerator]
        assert drawn[0][0] == 0.0
        assert [time for time, _ in drawn] == sorted({time for time, _ in drawn})
        assert max(size for _, size in drawn) == result.plan.stages[one.stage].memory.total
        steps = list(zip(one.time_s, one.num_bytes, strict=True))
        for time, size in drawn:  # the last step that is not later
            assert size == next((s for t, s in reversed(steps) if t * 1e6 <= time), one.constant_bytes)
        assert {max(t * 1e6, 0.0) for t, _ in steps} <= {time for time, _ in drawn}


def test_each_of_two_jobs_has_its_own_memory():
    graph = rostam.trace(Layers(), torch.empty(1, 256), name="layers")
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=6), accelerator="a100_80gb")
    strategies = [
        rostam.Strategy(dp=1, pp=2, accelerators=[0, 1]), rostam.Strategy(dp=1, pp=4, accelerators=[2, 3, 4, 5])
    ]  # fmt: skip
    jobs = [rostam.place(graph, machine, global_batch=16, strategy=one, software="ideal") for one in strategies]
    first, second = rostam.simulate(jobs, timeline=True)
    assert [one.accelerator for one in first.memory_over_time()] == [0, 1]
    assert [one.accelerator for one in second.memory_over_time()] == [2, 3, 4, 5]


class Block(nn.Module):
    """A product: 256 x 256 and 256 parameters."""

    def __init__(self):
        super().__init__()
        self.product = nn.Linear(256, 256)

    def forward(self, x):
        """Multiply."""
        return torch.relu(self.product(x))


class Blocks(nn.Module):
    """Four of them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        """Chain them."""
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("strategy", [{}, {"reshard_after_forward": False}], ids=["resharded", "kept"])
def test_gathered_weights_come_and_go(strategy):
    """One micro-batch on each of four ranks, the next block gathered ahead (prefetch 1).

    Resharded: blocks 0 and 1, 1 and 2, 2 and 3, then 3 alone are whole, and none between forward and backward; backward
    the same from behind, and the gradients of a block, which come when the gradient of the last relu's output (256 x 4
    bytes, counted with activations) is gone. Kept: 2, 3, then 4 blocks, to the end of backward.
    """
    graph = rostam.trace(Blocks(), torch.empty(1, 256), name="blocks")
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4), accelerator="a100_80gb")
    chosen = rostam.Strategy.of(dp=4, shard=3, micro_batch=1, precision="fp32", **strategy)
    result = rostam.simulate(
        rostam.place(graph, machine, global_batch=4, strategy=chosen, software="ideal"), timeline=True
    )
    (stage,), block = result.plan.stages, (256 * 256 + 256) * 4
    (one,) = result.memory_over_time()
    whole = {round((size - one.constant_bytes) / block) for size in one.num_bytes}
    forward, backward = (
        [round(size / block) for _, size in stage.gathered_changes[name]] for name in ("forward", "backward_last")
    )
    assert stage.gathered_changes["backward_last"][0] == (0, block - 256 * 4)
    if strategy:
        assert forward == [1, 1, 1, 1]
        assert backward == [1, -5]
        assert whole == {0, 1, 2, 3, 4, 5}
    else:
        assert forward == [1, 1, -1, 1, -1, 1, -1, -1]
        assert backward == [1, 1, 1, -1, 1, -1, 1, -1, -1, -1]
        assert whole == {0, 1, 2, 3}
    assert stage.memory.gathered == max(whole) * block - 256 * 4
    assert max(one.num_bytes) == stage.memory.total


def test_kernels_apart_or_fused_have_the_same_memory_over_time():
    result = simulated(dp=4, shard=3, micro_batch=1)
    apart = rostam.simulate(result.plan, timeline=True, fuse=False)
    for one, other in zip(result.memory_over_time(), apart.memory_over_time(), strict=True):
        assert one.num_bytes == other.num_bytes
        assert one.time_s == pytest.approx(other.time_s, abs=1e-10)


def test_a_forward_next_to_a_backward_keeps_its_activations_first_unless_they_take_turns():
    chosen = rostam.Strategy.of(dp=4, pp=2, virtual_stages=2, micro_batch=1, schedule="dual_pipe_v", shard=3)
    machine = rostam.machine("dgx_h100", servers=1)
    plan = rostam.place(rostam.trace("gpt_125m"), machine, global_batch=32, strategy=chosen, software="pytorch")
    found = rostam.simulate(plan, timeline=True).memory_over_time()
    assert [max(one.num_bytes) for one in found] == [stage.memory.total for stage in plan.stages]
