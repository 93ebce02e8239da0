"""All-reduces by tree pay their depth: the chain inside a server and the levels between servers, up and down."""

import math

import pytest

import rostam_py as rostam
from rostam_py.collectives.predicted_time import predict_collective_time

TINY = 4  # bytes of which nothing but latencies is left


def seconds(fabric, algorithm="tree", num_bytes=TINY):
    return rostam.run_collective(fabric, "all_reduce", num_bytes=num_bytes, algorithm=algorithm).time_s


@pytest.mark.parametrize("ranks", [2, 3, 8, 64, 100])
def test_levels_of_ideal_links_are_paid_up_and_down(ranks):
    # Ranks alone on their servers are ceil(log2 p) levels.
    fabric = rostam.fabric("electrical_flat", num_accelerators=ranks, accelerator_bandwidth="400 Gb/s")
    one_s = rostam.run_collective(fabric, "send_recv", num_bytes=TINY, ranks=[0, 1]).time_s
    assert seconds(fabric) == pytest.approx(2 * math.ceil(math.log2(ranks)) * one_s, rel=1e-3)


def test_a_tree_is_no_faster_than_halving_and_doubling_where_latency_decides():
    # log2 p steps down and as many up: the least that any two of them can take.
    fabric = rostam.fabric(
        "electrical_flat", num_accelerators=64, accelerator_bandwidth="400 Gb/s", link_latency="100 us"
    )
    assert seconds(fabric) == pytest.approx(seconds(fabric, "halving_doubling"), rel=1e-3)


@pytest.mark.parametrize("latency", ["1 us", "100 us"])
def test_chains_and_levels_of_servers_pay_the_latency_of_their_routes(latency):
    fabric = rostam.fabric(
        "electrical_cluster", num_accelerators=128, accelerator_bandwidth="3.2 Tb/s", link_latency=latency
    )
    inside, between = (
        rostam.run_collective(fabric, "send_recv", num_bytes=TINY, ranks=[0, other]).time_s for other in (1, 8)
    )
    assert inside < between
    # 8 ranks in a chain through their server, and 4 levels between 16 servers.
    assert seconds(fabric) == pytest.approx(2 * (7 * inside + 4 * between), rel=1e-3)


def test_predicted_and_simulated_trees_agree():
    fabric = rostam.machine("dgx_h100", servers=4).fabric
    for num_bytes in (1024, 2**26):
        simulated = seconds(fabric, num_bytes=num_bytes)
        assert predict_collective_time(fabric, "all_reduce", "tree", num_bytes) == pytest.approx(simulated, rel=1e-3)
