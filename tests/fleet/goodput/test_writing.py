"""Checkpoints written beside training: closed forms, bounds that links set, and sizes counted from the model."""

import math
from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import writing
from rostam_py.fleet.goodput.writing import BOUND, SIMULATED, checkpoint_bytes, writing_of
from rostam_py.simulation.task_graph import TaskGraph

NIC = 50e9  # bytes/s


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m", num_layers=2)


def placed(graph, size=8, fabric="electrical_flat", bandwidth="50 GB/s", **degrees):
    network = rostam.fabric(fabric, num_accelerators=size, accelerator_bandwidth=bandwidth)
    strategy = rostam.Strategy(micro_batch=1, precision="bf16_mixed", **degrees)
    machine = rostam.Machine(fabric=network, accelerator="a100_80gb")
    return rostam.place(graph, machine, global_batch=size, strategy=strategy, software="ideal")


def test_a_job_that_sends_nothing_is_not_slowed_while_its_links_suffice(graph):
    plan = placed(graph, size=1, dp=1)
    alone_s = rostam.simulate(plan).iteration_time_s
    found = writing_of(plan, num_bytes=10**9, bytes_per_s=NIC / 4)
    each = math.floor(NIC / 4 * alone_s)
    assert found.basis == SIMULATED
    assert found.iterations == math.ceil(10**9 / each)
    assert found.stretch == pytest.approx(1)


def test_storage_faster_than_a_link_makes_iterations_as_long_as_the_link_takes(graph):
    """4 bytes leave for each that the link carries in an iteration."""
    plan = placed(graph, size=1, dp=1)
    found = writing_of(plan, num_bytes=10**11, bytes_per_s=4 * NIC)
    assert found.stretch == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("fabric", ["electrical_flat", "fat_tree"])
@pytest.mark.parametrize("bandwidth", ["50 GB/s", "2 GB/s", "500 MB/s"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_iterations_take_at_least_what_their_bytes_do_and_at_most_both_in_turn(graph, fabric, bandwidth, share):
    plan = placed(graph, fabric=fabric, bandwidth=bandwidth, dp=8)
    nic = plan.machine.fabric.injection_bandwidth_bytes_per_s
    alone = rostam.simulate(plan)
    found = writing_of(plan, num_bytes=10**13, bytes_per_s=8 * nic * share)
    each = math.floor(share * nic * alone.iteration_time_s)
    own = sum(alone.bytes_sent.values()) / 8 if isinstance(alone.bytes_sent, dict) else alone.bytes_sent / 8
    beside_s = found.stretch * alone.iteration_time_s
    assert beside_s >= (own + each) / nic * (1 - 1e-6)
    assert beside_s <= (alone.iteration_time_s + each / nic) * (1 + 1e-3)
    assert found.iterations == math.ceil(math.ceil(10**13 / 8) / each)


def test_a_job_bound_by_its_links_waits_for_what_it_writes(graph):
    """All-reduces take nearly all of the time: what is written comes on top, but for the compute that hides some."""
    plan = placed(graph, bandwidth="100 MB/s", dp=8)
    found = writing_of(plan, num_bytes=10**12, bytes_per_s=8 * 0.5 * 100e6)
    assert 1.4 < found.stretch <= 1.5 + 1e-3


def test_the_worst_place_in_an_iteration_is_taken(graph):
    """What is sent while links are idle delays less than what shares them with gradients: where it is sent matters."""
    plan = placed(graph, size=16, bandwidth="2 GB/s", dp=8, accelerators=list(range(8)))
    each, alone_s = 10**7, rostam.simulate(plan).iteration_time_s
    found_s = []
    for place in writing._places(plan):
        job = writing._beside(plan, each, place)
        job = replace(job, devices=np.arange(16))  # storage at the ports that the job leaves free
        found_s.append(rostam.simulate(TaskGraph(plan.machine, (job,))).iteration_time_s)
    assert len({round(one, 9) for one in found_s}) > 1
    assert all(alone_s <= one <= alone_s + each / 2e9 * (1 + 1e-3) for one in found_s)
    taken = writing_of(plan, num_bytes=8 * each, bytes_per_s=1e12)
    assert taken.iterations == 1
    assert taken.stretch == pytest.approx(max(found_s) / alone_s, rel=1e-3)


def test_fabrics_without_further_ports_give_an_upper_bound(graph):
    failed = rostam.fabric("fat_tree", num_accelerators=16, accelerator_bandwidth="5 GB/s")
    machine = rostam.Machine(fabric=failed.with_failures(accelerators=[9]), accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=8, micro_batch=1, accelerators=list(range(8)))
    plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, software="ideal")
    alone_s = rostam.simulate(plan).iteration_time_s
    found = writing_of(plan, num_bytes=10**11, bytes_per_s=8e9)
    assert found.basis == BOUND
    assert found.stretch == pytest.approx(2)  # nothing overlaps: as long again
    assert found.iterations == math.ceil(10**11 / 8 / math.floor(1e9 * alone_s))
    whole = rostam.place(
        graph,
        rostam.Machine(fabric=failed, accelerator="a100_80gb"),
        global_batch=8,
        strategy=strategy,
        software="ideal",
    )
    assert writing_of(whole, num_bytes=10**11, bytes_per_s=8e9).stretch < found.stretch


@pytest.mark.parametrize(
    "degrees", [{"dp": 8}, {"dp": 8, "shard": 1}, {"dp": 8, "shard": 3}, {"dp": 4, "tp": 2}, {"dp": 2, "tp": 4}]
)
def test_a_checkpoint_holds_weights_and_state_once(graph, degrees):
    """bf16 with Adam: 2 bytes of weights, and 12 of fp32 weights and two moments, for each parameter."""
    found = checkpoint_bytes(placed(graph, **degrees))
    assert found == pytest.approx(14 * graph.num_parameters, rel=0.12)  # padding, and what tp does not split


@pytest.mark.parametrize(("key", "value"), [("num_bytes", 0), ("bytes_per_s", 0.0), ("bytes_per_s", math.inf)])
def test_sizes_and_rates_are_positive(graph, key, value):
    with pytest.raises(ConfigError, match=rf"{key} is {value}; it must be a number > 0"):
        writing_of(placed(graph, dp=8), **{"num_bytes": 1, "bytes_per_s": 1.0, key: value})
