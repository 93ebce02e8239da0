"""What devices of a group receive, counted without messages, against the messages that are written."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.costs import DEFAULT_COST
from rostam_py.placement.sip_ml.receipts import received_bytes
from rostam_py.plan import PLACERS


def machine(num_accelerators, bandwidth="400 Gb/s", accelerator="a100_80gb"):
    fabric = rostam.fabric("electrical_flat", num_accelerators=num_accelerators, accelerator_bandwidth=bandwidth)
    return rostam.Machine(fabric=fabric, accelerator=accelerator)


def placed(graph, mp, dp=1, degree=None, **options):
    strategy = rostam.Strategy.of(
        dp=dp, mp=mp, placer="sip_ml", max_circuit_degree=degree, quantum="1 us", check_memory=False, **options
    )
    return rostam.place(graph, machine(dp * mp), global_batch=16, strategy=strategy, software="ideal")


def counted_and_written(plan):
    group, mp = plan.details, plan.strategy.mp
    counted = received_bytes(group.sub_ops, group.placed, mp, group.window)
    messages = [[t for t in stage.templates["iteration"] if t.kind == "recv"] for stage in plan.stages]
    written = np.array([sum(task.num_bytes for task in tasks) for tasks in messages], dtype=float)
    return counted, written, np.array([len(tasks) for tasks in messages])


@pytest.mark.parametrize("mp", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("options", [{}, {"weight_splits": "sliced"}, {"dp": 2, "bucket_size": "4 KiB"}])
def test_each_device_receives_what_is_written_to_the_byte_of_rounding(small_graphs, mp, options):
    for name, graph in small_graphs.items():
        counted, written, num_messages = counted_and_written(placed(graph, mp, **options))
        assert written.sum() > 0, name
        assert (counted <= written + 1e-6).all(), name
        assert (written - counted <= num_messages).all(), name  # each is rounded up, and no less than a byte


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_in_a_window_devices_receive_no_less(small_graphs, degree):
    for name, graph in small_graphs.items():
        plan = placed(graph, 8, dp=2, degree=degree)
        assert plan.details.window is not None
        counted, written, _ = counted_and_written(plan)
        assert counted.sum() > 0, name
        assert (counted <= written + 1e-6).all(), name


@pytest.mark.parametrize("bandwidth", ["1 Gb/s", "100 Gb/s", "10000 Gb/s"])
def test_no_simulation_beats_what_a_device_receives(small_graphs, bandwidth):
    for name, graph in small_graphs.items():
        strategy = rostam.Strategy.of(dp=2, mp=4, placer="sip_ml", quantum="1 us", check_memory=False)
        target = machine(8, bandwidth)
        bound_s = PLACERS.get("sip_ml")(strategy, DEFAULT_COST, {}).lower_bound_s(graph, target, 16)
        plan = rostam.place(graph, target, global_batch=16, strategy=strategy, software="ideal")
        assert bound_s <= rostam.simulate(plan).iteration_time_s, name
        assert bound_s >= plan.details.most_received_bytes / target.fabric.config.peak_bandwidth_bytes_per_s
