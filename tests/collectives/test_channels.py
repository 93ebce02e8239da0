"""Channels of NCCL's collectives, counted by hand from its source, and what they take of an accelerator."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.channels import num_channels, taken_share
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.costs.accelerators import get_accelerator

MB = 10**6


def channels(name, servers, accelerators, collective="all_reduce", algorithm="ring", num_bytes=100 * MB, protocol=""):
    fabric = rostam.machine(name, servers=servers).fabric
    ranks = np.array(list(accelerators))
    key = ScheduleKey(collective, algorithm, len(ranks), protocol=protocol)
    return num_channels(fabric, key, num_bytes, ranks)


@pytest.mark.parametrize(
    ("name", "servers", "accelerators", "expected"),
    [
        ("dgx_h100", 1, range(8), 24),
        ("dgx_h100", 1, range(2), 24),
        ("dgx_a100", 1, range(8), 24),
        ("dgx1_v100", 1, range(8), 12),
        ("dgx_b200", 1, range(8), 24),
        ("gb200_nvl72", 1, range(72), 24),
        ("dgx_h100", 2, range(16), 16),  # two for each of 8 NICs
        ("dgx_h100", 2, range(0, 16, 8), 4),  # two for one NIC, and as many again
        ("dgx_h100", 2, range(0, 16, 2), 16),  # 8, doubled
        ("dgx_a100", 2, range(0, 16, 8), 2),  # not doubled before Hopper
        ("dgx_a100", 2, range(16), 16),
        ("gb200_nvl72", 2, range(144), 32),  # at most
    ],
)
def test_rings_have_channels_by_links_and_nics(name, servers, accelerators, expected):
    assert channels(name, servers, accelerators) == expected
    assert channels(name, servers, accelerators, "all_gather") == expected


def test_few_bytes_take_few_channels():
    # 512 threads of a channel with at least 64 bytes each, by Simple: 32 KiB; 8 by LL and LL128.
    assert channels("dgx_h100", 1, range(8), num_bytes=1) == 1
    assert channels("dgx_h100", 1, range(8), num_bytes=10 * 2**15) == 10
    assert channels("dgx_h100", 1, range(8), num_bytes=10 * 2**12, protocol="LL") == 10


def test_other_algorithms_and_exchanges():
    assert channels("dgx_h100", 1, range(8), algorithm="nvls") == 16
    assert channels("dgx_b200", 1, range(8), algorithm="nvls") == 24
    assert channels("dgx_h100", 1, range(8), "all_to_all", "direct") == 32  # 24, rounded up
    assert channels("dgx_h100", 2, range(16), "all_to_all", "direct") == 16
    assert channels("dgx_h100", 2, range(0, 16, 8), "all_to_all", "direct") == 2  # one peer
    assert channels("dgx_h100", 1, range(8), "copy", "direct") == 0  # copy engines
    assert channels("dgx_h100", 2, range(0, 16, 8), "shift", "direct") == 2
    assert channels("dgx_h100", 1, range(1)) == 0


def test_ideal_links_take_nothing_and_shares_are_of_multiprocessors():
    flat = rostam.fabric("electrical_flat", num_accelerators=8, link_bandwidth="400 Gb/s")
    key, ranks = ScheduleKey("all_reduce", "ring", 8), np.arange(8)
    assert num_channels(flat, key, 100 * MB, ranks) == 0
    fabric = rostam.machine("dgx_h100").fabric
    assert taken_share(fabric, key, 100 * MB, ranks, get_accelerator("h100_80gb")) == 24 / 132
    assert taken_share(fabric, key, 100 * MB, ranks, get_accelerator("tpu_v4_32gb")) == 0  # none are known


def test_kernels_beside_a_gradient_all_reduce_are_slower_unless_told_otherwise():
    graph = rostam.trace("gpt_125m")
    machine = rostam.machine("dgx_h100", servers=2)
    strategy = rostam.Strategy(dp=16, precision="bf16_mixed")
    plan = rostam.place(graph, machine, global_batch=64, strategy=strategy, software="ideal")
    by_channels, none, given = (
        rostam.simulate(
            plan.on(rostam.Machine(fabric=machine.fabric, accelerator=machine.device, comm_compute_fraction=f))
        )
        for f in (None, 0.0, 16 / 132)
    )
    assert by_channels.breakdown["compute"] > none.breakdown["compute"]
    assert by_channels.breakdown["compute"] == pytest.approx(given.breakdown["compute"], rel=1e-3)
    unfolded = rostam.simulate(plan.on(machine), fold=False)
    assert unfolded.iteration_times_s == rostam.simulate(plan.on(machine)).iteration_times_s
