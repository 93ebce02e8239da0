"""Rings over neighbours."""

import math

import numpy as np
import pytest

from rostam_py.collectives.closed_forms import collective_time_ps
from rostam_py.fabrics import build_fabric
from rostam_py.simulation.collective import run_collective


@pytest.mark.parametrize(
    ("dims", "board"),
    [
        ((2,), None),
        ((7,), None),
        ((4, 6), (2, 3)),
        ((3, 5), None),
        ((5, 3), None),
        ((3, 4), None),
        ((2, 2, 3), None),
        ((3, 1, 3, 3), None),
        ((5, 3, 7), None),
    ],
)
def test_a_torus_ring_visits_all_accelerators_over_single_links(dims, board):
    fabric = build_fabric("torus", dims=dims, board=board)
    ring = fabric.ring_order()
    assert sorted(ring) == list(range(math.prod(dims)))
    hops = [fabric.core.closed_form_distance(int(a), int(b)) for a, b in zip(ring, np.roll(ring, -1), strict=True)]
    assert set(hops) == {1}


def test_a_torus_ring_loads_every_directed_link_at_most_once():
    fabric = build_fabric("torus", dims=(4, 6))
    router = fabric.router()
    ring = fabric.ring_order().tolist()
    used = [int(router.route(a, b)[0][0]) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
    assert len(set(used)) == len(used)


def test_failed_accelerators_leave_the_ring():
    torus = build_fabric("torus", dims=(3, 3)).with_failures(accelerators=[4])
    assert sorted(torus.ring_order()) == [0, 1, 2, 3, 5, 6, 7, 8]
    tree = build_fabric("fat_tree", num_accelerators=4).with_failures(accelerators=[1])
    assert tree.ring_order().tolist() == [0, 2, 3]


@pytest.mark.parametrize("dims", [(8,), (4, 6), (5, 3)])
def test_a_simulated_ring_on_torus_neighbours_meets_its_closed_form(dims):
    fabric = build_fabric("torus", dims=dims, link_latency="20 ns", link_bandwidth="400 Gb/s")
    count = fabric.num_accelerators
    given = {"num_bytes": 1000 * count, "algorithm": "ring"}
    result = run_collective(fabric, "all_reduce", ranks=fabric.ring_order().tolist(), **given)
    expected = collective_time_ps(
        "all_reduce", "ring", num_bytes=1000 * count, num_ranks=count, latency="20 ns", bandwidth="400 Gb/s"
    )
    assert result.time_ps == expected == 2 * (count - 1) * (20_000 + 20_000)
