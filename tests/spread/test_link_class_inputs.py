"""What link classes achieve and take to start as inputs of a run, against times derived by hand."""

import json
import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fabrics.levels import link_levels
from rostam_py.fabrics.link_classes import LINKS as CONSTANTS
from rostam_py.plan import Task
from rostam_py.spread.changes import Change, links_of_classes
from rostam_py.spread.inputs import CLASS_LATENCIES, CLASS_RATES
from tests.spread.hand import all_reduce, compute, copy, plan

RATE = 450e9  # bytes/s, NVLink 4's data sheet
NVLINK4 = json.loads((CONSTANTS / "nvlink4.json").read_text())
# NCCL's table (src/graph/tuning.cc) of rings: once per collective, per step over NVLink [s].
TUNED = {"LL": (6.6e-6, 0.6e-6), "LL128": (14.0e-6, 1.9e-6), "Simple": (8.4e-6, 3.4e-6)}
WIRE = {"LL": 2.0, "LL128": 128 / 120, "Simple": 1.0}


def server(num_accelerators=4, network_links="ideal"):
    """Servers of up to eight whose links and switches have no latency of their own."""
    return rostam.fabric(
        "fat_tree", num_accelerators=num_accelerators, server_size=min(8, num_accelerators), server_bandwidth=RATE,
        link_bandwidth=50e9, server_links="nvlink4", network_links=network_links, link_latency=0.0, switch_latency=0.0,
    )  # fmt: skip


def ring_parts(num_ranks, num_bytes, protocol):
    """Return what starting and what bytes take of an all_reduce by a ring [s].

    2 (n - 1) steps of a hop and a chunk; the end of a chunk c is end x (1 MiB / rate) x (c / 1 MiB)^0.75.
    """
    base_s, hop_s = TUNED[protocol]
    steps, chunk, rate = 2 * (num_ranks - 1), math.ceil(num_bytes / num_ranks), NVLINK4["share"] * RATE
    starting_s = base_s + NVLINK4["launch_us"] * 1e-6 + steps * NVLINK4["hop_factor"] * hop_s
    end_s = NVLINK4["all_reduce_end"] * 2**20 / rate * (chunk / 2**20) ** 0.75
    return starting_s, steps * chunk * WIRE[protocol] / rate + end_s


def rows_of(source):
    found = rostam.sensitivity(source)
    return found.iteration_time_s, {(row.kind, row.key): row for row in found.rows}


@pytest.mark.parametrize("num_bytes", [2**16, 2**24, 2**30])
def test_an_all_reduce_bound_run_has_its_bytes_over_11_and_its_start_up_times_11(num_bytes):
    tasks = [compute(copy(1e-3)), all_reduce(num_bytes, 0), compute(copy(1e-3), deps=(1,))]
    bound = plan(tasks, 4, server())
    (key,) = bound.schedules.values()
    starting_s, bytes_s = ring_parts(4, num_bytes, key.protocol)
    total_s, rows = rows_of(bound)
    assert total_s == pytest.approx(2e-3 + starting_s + bytes_s, abs=1e-10)
    rates, latencies = rows[CLASS_RATES, "nvlink4"], rows[CLASS_LATENCIES, "nvlink4"]
    assert rates.better_s == pytest.approx(bytes_s / 1.1 - bytes_s, abs=1e-10)
    assert rates.worse_s == pytest.approx(0.1 * bytes_s, abs=1e-10)
    assert latencies.better_s == pytest.approx(starting_s / 1.1 - starting_s, abs=1e-10)
    assert latencies.worse_s == pytest.approx(0.1 * starting_s, abs=1e-10)
    assert {kind for kind, _ in rows if "class" in kind} == {CLASS_RATES, CLASS_LATENCIES}


def test_an_all_to_all_that_channels_limit_goes_at_their_faster_rate():
    # Two ranks, each with a chunk for the other over 32 / 2 channels of 30.02 GB/s, of which 64.65% are left both ways:
    # 310.5 GB/s, less than the 369.3 that links achieve.
    chunk = 2**27
    task = Task(kind="collective", name="exchange", deps=(0,), group="dp", collective="all_to_all", num_bytes=2 * chunk)
    tasks = [compute(copy(1e-3)), task, compute(copy(1e-3), deps=(1,))]
    total_s, rows = rows_of(plan(tasks, 2, server(2)))
    rate = 16 * NVLINK4["channel_gb_per_s"] * 1e9 * NVLINK4["both_ways"]
    end_s = NVLINK4["own_end"] * 2**20 / (NVLINK4["share"] * RATE) * (chunk / 2**20) ** 0.75
    launch_s, bytes_s = NVLINK4["exchange_launch_us"] * 1e-6, chunk / rate + end_s
    assert total_s == pytest.approx(2e-3 + launch_s + bytes_s, rel=1e-6)
    row = rows[CLASS_RATES, "nvlink4"]
    assert row.better_s == pytest.approx(bytes_s / 1.1 - bytes_s, rel=1e-6)
    assert rows[CLASS_LATENCIES, "nvlink4"].worse_s == pytest.approx(0.1 * launch_s, rel=1e-5)


def test_a_class_that_carries_nothing_has_no_row_and_equal_runs_have_equal_bytes():
    bound = plan([all_reduce(2**24)], 4, server(16, "infiniband"))
    documents = [json.dumps(rostam.sensitivity(bound).to_dict()) for _ in range(2)]
    assert documents[0] == documents[1]
    keys = {row["key"] for row in json.loads(documents[0])["rows"]}
    assert "nvlink4" in keys
    assert "infiniband" not in keys


def test_ideal_links_have_no_rows_of_classes():
    _, rows = rows_of(plan([all_reduce(2**24)], 2))
    assert not {kind for kind, _ in rows} & {CLASS_RATES, CLASS_LATENCIES}


@pytest.mark.parametrize("name", ["dgx_h100", "dgx_a100", "dgx1_v100", "gb200_nvl72"])
def test_every_link_of_a_class_and_no_other_is_faster_by_its_factor(name):
    fabric = rostam.machine(name, servers=2).fabric
    failed = fabric.with_failures(accelerators=[3])
    for one, own in links_of_classes(failed).items():
        machine = rostam.Machine(fabric=failed, accelerator="h100_80gb")
        changed = Change(class_bandwidth={one: 1.1}).of_machine(machine).fabric
        ratio = changed.links["bandwidth_bytes_per_s"] / failed.links["bandwidth_bytes_per_s"]
        assert own.any()
        assert ratio == pytest.approx(np.where(own, 1.1, 1.0), rel=1e-12)
        assert list(changed.healthy_accelerators) == list(failed.healthy_accelerators)
        slower = Change(class_latency={one: 1 / 1.1}).of_machine(machine).fabric
        assert slower.links.tobytes() == failed.links.tobytes()


def test_links_of_a_named_class_are_not_multiplied_by_their_level_again():
    machine = rostam.machine("dgx1_v100", servers=2)
    fabric = machine.fabric
    classes, levels = dict.fromkeys(links_of_classes(fabric), 1.1), dict.fromkeys(link_levels(fabric)[0], 1.1)
    changed = Change(links=levels, class_bandwidth=classes).of_machine(machine).fabric
    ratio = changed.links["bandwidth_bytes_per_s"] / fabric.links["bandwidth_bytes_per_s"]
    assert ratio == pytest.approx(1.1, rel=1e-12)  # PCI Express, of no class, by its level
