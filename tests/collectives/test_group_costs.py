"""Costs of groups that run collectives at once, against closed forms and simulations."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.group_costs import group_costs, link_seconds, message_costs
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.errors import ConfigError

ALPHA_S = 1e-6  # electrical_flat, end to end
BANDWIDTH = 1e9


@pytest.fixture(scope="module")
def flat():
    """Eight accelerators at 1 GB/s each."""
    return rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth=BANDWIDTH)


@pytest.fixture(scope="module")
def cluster():
    """Two servers of four; 1 GB/s inside, 0.5 GB/s a server between them."""
    return rostam.fabric(
        "electrical_cluster", num_accelerators=8, server_size=4, accelerator_bandwidth=BANDWIDTH, server_bandwidth=5e8
    )


def test_groups_that_share_no_link_cost_what_one_costs(flat):
    # 2 (p - 1) (alpha + S / p / B) for p = 4, S = 4 MB: 6 (1 us + 1 ms)
    groups = np.arange(8).reshape(2, 4)
    assert group_costs(flat, "all_reduce", "ring", groups).time_s(4e6) == pytest.approx(6 * (ALPHA_S + 1e-3))


def test_groups_across_servers_share_the_uplink(cluster):
    # Four rings of two ranks, one in each server: 2 (p - 1) steps of S / 2 bytes; a server sends four of them at
    # 0.5 GB/s. For S = 1 MB: 2 x 4 x 0.5 MB / 0.5 GB/s = 8 ms.
    alone = group_costs(cluster, "all_reduce", "ring", np.array([[0, 4]]))
    together = group_costs(cluster, "all_reduce", "ring", np.array([[0, 4], [1, 5], [2, 6], [3, 7]]))
    assert alone.time_s(1e6) == pytest.approx(2e-3, rel=1e-2)
    assert together.time_s(1e6) == pytest.approx(8e-3, rel=1e-2)


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional_ring", "halving_doubling", "binomial_tree"])
@pytest.mark.parametrize("name", ["flat", "cluster"])
def test_one_group_costs_what_a_simulation_takes(algorithm, name, request):
    fabric = request.getfixturevalue(name)
    ran = rostam.run_collective(fabric, "all_reduce", num_bytes=8_000_000, algorithm=algorithm)
    cost = group_costs(fabric, "all_reduce", algorithm, np.arange(8)[None, :]).time_s(8e6)
    assert cost == pytest.approx(ran.time_s, rel=0.15 if name == "cluster" else 1e-4)


def test_a_group_of_one_costs_nothing(flat):
    assert group_costs(flat, "all_reduce", "ring", np.arange(8)[:, None]).time_s(1e6) == 0.0


def test_planes_carry_equal_parts():
    groups = np.arange(8)[None, :]
    times = []
    for planes in (1, 4):
        fabric = rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth=BANDWIDTH, planes=planes)
        times.append(group_costs(fabric, "all_reduce", "ring", groups).time_s(8e6))
    assert times[0] == pytest.approx(times[1])


def test_links_are_busy_for_what_the_ring_sends_over_them(flat):
    # Every rank sends 2 (p - 1) / p bytes for each byte of the buffer: 2 x 7 / 8 / 1 GB/s.
    busy = link_seconds(flat, ScheduleKey("all_reduce", "ring", 8), np.arange(8)[None, :])
    assert busy.max() == pytest.approx(1.75e-9)


def test_messages_sent_at_once_share_an_uplink(cluster):
    alpha, beta = message_costs(cluster, np.array([0, 1]), np.array([4, 5]))
    assert beta == pytest.approx(2 / 5e8)
    assert alpha > 0
    assert message_costs(cluster, np.array([], int), np.array([], int)) == (0.0, 0.0)


def test_an_unknown_algorithm_is_refused(flat):
    with pytest.raises(ConfigError, match="ring"):
        group_costs(flat, "all_reduce", "rung", np.arange(8)[None, :])
