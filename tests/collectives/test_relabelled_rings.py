"""Rings on tori of unequal sides: the same however the dimensions are listed."""

import itertools

import pytest

import rostam_py as rostam
from rostam_py.collectives.predicted_time import predict_collective_time
from rostam_py.collectives.rank_groups import arrange

SIZE = 160_000_000


def torus(dims, **others):
    return rostam.fabric("torus", dims=dims, link_bandwidth=25e9, link_latency=0, switch_latency=0, **others)


@pytest.mark.parametrize(
    ("dims", "ms"),
    # 2 x 8: 16 chunks of 10 MB in 30 steps; across the side of 2 go two cables, so that a mean hop takes 2/3 of 0.4 ms.
    [
        ((2, 8), 8.0),
        ((2, 2, 4), 6.4),
        ((4, 4), None),
        ((2, 3, 4), None),
        ((3, 5), None),
        ((1, 6), None),
        ((2, 4, 6), None),
    ],
)
@pytest.mark.parametrize("algorithm", ["ring", "bidirectional_ring"])
def test_a_ring_is_the_same_on_relabelled_dimensions(dims, ms, algorithm):
    times = set()
    for order in sorted(set(itertools.permutations(dims))):
        fabric = torus(order)
        result = rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, algorithm=algorithm)
        assert result.bytes_sent == result.bytes_received
        times.add(result.time_ps)
        predicted = predict_collective_time(fabric, "all_reduce", algorithm, SIZE)
        assert result.time_s == pytest.approx(predicted, rel=0.02)
    assert max(times) - min(times) <= 100  # a picosecond a step
    if ms is not None and algorithm == "ring":
        assert max(times) == pytest.approx(ms * 1e9, rel=1e-6)


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "broadcast", "reduce"])
def test_so_are_the_other_collectives_by_ring(collective):
    times = [
        rostam.run_collective(torus(dims), collective, num_bytes=SIZE, algorithm="ring").time_s
        for dims in ((2, 8), (8, 2))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_boards_and_groups_are_relabelled_too():
    whole = [
        rostam.run_collective(torus(dims, board=board), "all_reduce", num_bytes=SIZE, algorithm="ring").time_s
        for dims, board in (((4, 8), (2, 4)), ((8, 4), (4, 2)))
    ]
    assert whole[0] == pytest.approx(whole[1], rel=1e-9)
    # The first two rows of eight, and the first two columns of the transposed torus.
    wide, tall = torus((4, 8)), torus((8, 4))
    groups = list(range(16)), [4 * x + y for x in range(8) for y in range(2)]
    times = [
        rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, algorithm="ring", ranks=sorted(ranks)).time_s
        for fabric, ranks in zip((wide, tall), groups, strict=True)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_equal_sides_and_orders_of_the_user_stay_as_they_are():
    assert arrange(torus((4, 4)), "all_reduce", "ring")[1].rings == ()
    order = [0, 8, 1, 9, 2, 10, 3, 11]
    members, key = arrange(torus((2, 8)), "all_reduce", "ring", order)
    assert (members.tolist(), key.rings) == (order, ())
    assert len(arrange(torus((2, 8)), "all_reduce", "ring")[1].rings) == 1
