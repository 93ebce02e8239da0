"""sip_ml plans of more devices than circuits: how much slower, what a device may hold, and who does the work."""

import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

import rostam_py as rostam
from rostam_py.errors import DegreeError
from rostam_py.plan import Machine, Strategy

place = partial(rostam.place, software="ideal", cost="roofline")  # quanta and windows here are set for data-sheet times


def optical(count, fabric="sip_ocs", **params):
    """Return V100s on an optical fabric at 8 Tb/s each."""
    built = rostam.fabric(fabric, num_accelerators=count, **({"accelerator_bandwidth": "8 Tb/s"} | params))
    return Machine(fabric=built, accelerator="v100_32gb")


def sip(**options):
    """Return a strategy of Algorithm 1."""
    return Strategy.of(**({"placer": "sip_ml"} | options))


def peers_of(result, plan):
    """Return the most peers that an accelerator sent to, or received from, by the links that carried bytes."""
    links = plan.fabric_with_circuits().links
    used = result.link_bytes > 0
    pairs = set(zip(links["src"][used].tolist(), links["dst"][used].tolist(), strict=True))
    return max(Counter(a for a, _ in pairs).most_common(1)[0][1], Counter(b for _, b in pairs).most_common(1)[0][1])


@pytest.mark.slow  # five placements of a whole ResNet-50; of a small network below
def test_resnet_50_on_sixteen_devices_slows_little_with_fewer_circuits(cached_traces):
    # Sixteen switches: every device of sixteen holds a circuit to each other and one for its data-parallel ring.
    graph = rostam.trace("resnet50")
    limits = {(16, "symmetric"): 1.0}
    limits |= {(num_ocs, window): most for num_ocs, most in ((15, 1.25), (8, 1.8)) for window in ("symmetric", "paper")}
    unlimited_s = 0.0
    for (num_ocs, window), most in limits.items():
        strategy = sip(dp=4, mp=16, window=window)
        plan = place(graph, optical(64, num_ocs=num_ocs), global_batch=1024, strategy=strategy)
        result = rostam.simulate(plan)
        unlimited_s = unlimited_s or result.iteration_time_s
        assert result.iteration_time_s <= most * unlimited_s, (num_ocs, window)
        assert peers_of(result, plan) <= num_ocs
        # Ops have sixteen parts, on sixteen devices, and no device has far more to do than the others.
        assert max(node.num_parts for node in plan.details.sub_ops.nodes) == 16
        assert (plan.work_spread.num_devices, plan.work_spread.num_idle) == (64, 0)
        assert plan.work_spread.imbalance < 1.3


def test_a_small_network_slows_little_with_fewer_circuits(conv_net):
    # As ResNet-50 above: eight devices, which hold seven circuits to each other and one for the data-parallel ring.
    times = []
    for num_ocs in (8, 4):
        machine = replace(optical(16, num_ocs=num_ocs), min_kernel_time="0 s")
        plan = place(conv_net, machine, global_batch=1024, strategy=sip(dp=2, mp=8, quantum="1 us", check_memory=False))
        result = rostam.simulate(plan)
        assert peers_of(result, plan) <= num_ocs
        assert max(node.num_parts for node in plan.details.sub_ops.nodes) == 8
        assert (plan.work_spread.num_devices, plan.work_spread.num_idle) == (16, 0)
        assert plan.work_spread.imbalance < 1.3
        times.append(result.iteration_time_s)
    assert times[1] <= 1.8 * times[0]


def test_a_ring_of_neighbours_sums_gradients_of_sample_splits(conv_net):
    # 64 samples on 8 devices, three circuits: one to either neighbour and one for the data-parallel ring. Sums of small
    # statistics are passed on; gradients go round: k - 1 steps to sum, as many to hand the sums round, of 1 / k each.
    strategy = sip(dp=2, mp=8, quantum="1 us", max_circuit_degree=3, check_memory=False)
    machine = replace(optical(16), min_kernel_time="0 s")
    plan = place(conv_net, machine, global_batch=128, strategy=strategy)
    size = sum(4 * t.num_elements(1) for t in conv_net.parameters)
    for stage in plan.stages:
        tasks = stage.templates["iteration"]
        assert {task.peer % 8 for task in tasks if task.kind == "send"} <= {1, 7}
        round_trip = [t for t in tasks if t.kind == "send" and t.group == "mp_gradient" and "ring" in t.channel]
        assert {task.peer % 8 for task in round_trip} == {1}
        sent = sum(task.num_bytes for task in round_trip)
        assert sent == pytest.approx(2 * 7 / 8 * size, rel=0.02)  # the head's bias has fewer elements than parts
    assert rostam.simulate(plan).iteration_time_s > 0


def test_without_a_data_parallel_ring_no_circuit_is_kept_for_one(small_graphs):
    # Eight devices and seven circuits: enough for one group, not for several.
    for dp, is_limited in ((1, False), (2, True)):
        plan = place(
            small_graphs["transformer_350m"], optical(8 * dp, num_ocs=7), global_batch=16 * dp,
            strategy=sip(dp=dp, mp=8),
        )  # fmt: skip
        assert plan.circuit_degree <= 7
        assert any("window applies" in note for note in plan.notes) == is_limited
    ring = place(small_graphs["transformer_350m"], optical(8, "sip_ring"), global_batch=16, strategy=sip(mp=8))
    assert not any("window applies" in note for note in ring.notes)


# What the fabric reaches


@pytest.mark.parametrize(("count", "mp", "works"), [(64, 32, 16), (48, 24, 16), (96, 32, 16), (100, 50, 10)])
def test_groups_beyond_the_reach_of_a_ring_are_refused_before_any_work(count, mp, works):
    begin = time.process_time()
    machine, strategy = optical(count, "sip_ring"), sip(dp=count // mp, mp=mp)
    with pytest.raises(DegreeError, match=rf"strategy\.mp is {mp}.* out of each other's reach.* as many is {works}$"):
        place(None, machine, global_batch=count, strategy=strategy)  # the graph is not looked at
    assert time.process_time() - begin < 1


def test_one_group_all_round_the_ring_keeps_to_its_reach(small_graphs):
    machine = optical(32, "sip_ring")
    plan = place(small_graphs["transformer_350m"], machine, global_batch=64, strategy=sip(mp=32, quantum="1 us"))
    result = rostam.simulate(plan)
    assert result.iteration_time_s > 0
    assert peers_of(result, plan) <= 16
    steps = {task.peer % 32 for stage in plan.stages for task in stage.templates["iteration"] if task.kind == "send"}
    assert steps <= {*range(1, 9), *range(24, 32)}  # 16 circuits: eight to either side


# Who does the work


def test_plans_say_how_work_is_spread_and_which_devices_idle(small_graphs, perceptron):
    flat = Machine(
        fabric=rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth="1 Tb/s"),
        accelerator="v100_32gb",
    )
    # A quantum above every op: one device does everything.
    alone = place(perceptron, flat, global_batch=8, strategy=sip(mp=8, quantum="1 s"))
    spread = alone.work_spread
    assert (spread.num_devices, spread.num_idle, spread.imbalance) == (8, 7, pytest.approx(8))
    assert any("7 of them compute nothing" in note for note in alone.notes)
    # Megatron's pipelines and replicas are counted device by device.
    pipeline = place(small_graphs["gpt_125m"], flat, global_batch=8, strategy=Strategy(dp=2, pp=2, tp=2, micro_batch=1))
    seconds = [sum(count * sum(t.duration_s for t in stage.templates[name])
                   for name, count in stage.program.counts().items()) for stage in pipeline.stages]  # fmt: skip
    spread = pipeline.work_spread
    assert (spread.num_devices, spread.num_idle) == (8, 0)
    assert spread.busiest_s == pytest.approx(max(seconds))
    assert spread.mean_s == pytest.approx(sum(seconds) / 2)
    assert any("work on 8 devices: busiest" in note and "x the mean" in note for note in pipeline.notes)
    assert not any("compute nothing" in note for note in pipeline.notes)
    assert rostam.simulate(pipeline).notes == pipeline.notes
