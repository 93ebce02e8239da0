"""Spanning trees over direct links: times against a linear program, schedules on real integers."""

import itertools
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.direct_links import spanning_trees
from rostam_py.collectives.predicted_time import predict_collective_time
from rostam_py.collectives.rank_groups import arrange
from rostam_py.errors import ConfigError, NoRouteError

sys.path.insert(0, str(Path(__file__).parent))
from schedule_runs import (
    check_distinct_steps,
    check_receives_and_totals,
    execute,
    expected_chunks,
    inputs_of,
    messages,
)

SIZE = 2**30
COLLECTIVES = ["all_gather", "reduce_scatter", "all_reduce"]


def custom(links, **others):
    """links: {(a, b): bytes/s}, cables."""
    rows = [(f"a{a}", f"a{b}", rate) for (a, b), rate in links.items()]
    return rostam.fabric("custom", links=rows, **others)


def complete(count, rate=48e9):
    return dict.fromkeys(itertools.combinations(range(count), 2), rate)


def cube(sides, rate=48e9):
    return {(a, a | 1 << d): rate for a in range(2**sides) for d in range(sides) if not a >> d & 1}


def drawn(number):
    """A connected graph of 3 to 12: cables of one speed or of several."""
    rng = random.Random(number)
    count = rng.randint(3, 12)
    order = rng.sample(range(count), count)
    pairs = {tuple(sorted((order[k], order[rng.randrange(k)]))) for k in range(1, count)}
    share = rng.uniform(0.1, 1)
    pairs |= {pair for pair in itertools.combinations(range(count), 2) if rng.random() < share}
    rates = [48e9] if number % 2 else [12.5e9, 25e9, 48e9, 50e9, 100e9]
    return {pair: rng.choice(rates) for pair in sorted(pairs)}


def least_gather_s(count, arcs, num_bytes=SIZE):
    """The linear program of all_gather: every rank sends out x, of which each rank gets all.

    Flows from a source, that has x for every rank, to each rank: by Edmonds trees that carry as much exist.
    """
    from scipy.optimize import linprog
    from scipy.sparse import lil_matrix

    edges = list(arcs)
    width = len(edges) + count  # of one rank's flow: over arcs, and out of the source to each rank
    columns = 1 + count * width
    above, equal = lil_matrix((count * width, columns)), lil_matrix((count * count, columns))
    limits, values = np.zeros(count * width), np.zeros(count * count)
    for sink in range(count):
        first = 1 + sink * width
        for k, edge in enumerate(edges):
            above[sink * width + k, first + k] = 1
            limits[sink * width + k] = arcs[edge] / 1e9
            equal[sink * count + edge[0], first + k] -= 1
            equal[sink * count + edge[1], first + k] += 1
        for rank in range(count):
            row = sink * width + len(edges) + rank
            above[row, first + len(edges) + rank] = 1
            above[row, 0] = -1
            equal[sink * count + rank, first + len(edges) + rank] += 1
        equal[sink * count + sink, 0] -= count
    cost = np.zeros(columns)
    cost[0] = -1
    found = linprog(cost, A_ub=above.tocsr(), b_ub=limits, A_eq=equal.tocsr(), b_eq=values, method="highs")
    return num_bytes / count / (-found.fun * 1e9)


def both_ways(links):
    return {arc: rate for (a, b), rate in links.items() for arc in ((a, b), (b, a))}


def test_the_linear_program_knows_what_hands_count():
    assert least_gather_s(4, both_ways(complete(4))) == pytest.approx(SIZE / 4 / 48e9)
    assert least_gather_s(8, both_ways(cube(3))) == pytest.approx(SIZE / 8 * 7 / (3 * 48e9))
    # A path of three: all of two parts enter either end.
    assert least_gather_s(3, both_ways({(0, 1): 1e9, (1, 2): 1e9})) == pytest.approx(SIZE / 3 * 2 / 1e9)


@pytest.mark.parametrize("number", range(30))
def test_gathers_scatters_and_all_reduces_of_drawn_graphs_are_near_the_linear_program(number):
    links = drawn(number)
    fabric, least = custom(links), least_gather_s(len({end for pair in links for end in pair}), both_ways(links))
    for collective, passes in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        trees = predict_collective_time(fabric, collective, "spanning_trees", SIZE)
        # Sums that go up leave links idle that results go down: all_reduces may take less than twice a gather.
        assert least * (1 - 1e-9) <= trees <= 1.06 * passes * least
        if number % 5 == 0:
            result = rostam.run_collective(fabric, collective, num_bytes=SIZE)
            assert least * (1 - 1e-9) <= result.time_s <= 1.06 * passes * least
            assert result.bytes_sent == result.bytes_received


@pytest.mark.parametrize("number", [2, 8, 14, 20])
def test_links_of_one_way_gather_and_scatter_as_fast_as_their_own_programs(number):
    rng = random.Random(number)
    arcs = both_ways(drawn(number))
    count = len({end for arc in arcs for end in arc})
    for arc in rng.sample(sorted(arcs), len(arcs) // 4):
        left = {one: rate for one, rate in arcs.items() if one != arc}
        reached = {k: {b for a, b in left if a == k} for k in range(count)}
        if all(_reaches_all(reached, k, count) for k in range(count)):
            arcs = left
    fabric = custom(arcs, duplex=False)
    least = least_gather_s(count, arcs)
    back = least_gather_s(count, {(b, a): rate for (a, b), rate in arcs.items()})
    for collective, bound in (("all_gather", least), ("reduce_scatter", back), ("all_reduce", least + back)):
        assert predict_collective_time(fabric, collective, "spanning_trees", SIZE) <= 1.06 * bound
        result = rostam.run_collective(fabric, collective, num_bytes=2**24)
        assert result.bytes_sent == result.bytes_received > 0


def _reaches_all(reached, start, count):
    seen, left = {start}, [start]
    while left:
        new = reached[left.pop()] - seen
        seen |= new
        left += new
    return len(seen) == count


@pytest.mark.parametrize(("count", "bus"), [(3, 96e9), (4, 144e9), (5, 192e9), (6, 240e9), (8, 336e9), (12, 528e9)])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_complete_graphs_use_all_their_links(count, bus, collective):
    result = rostam.run_collective(custom(complete(count)), collective, num_bytes=SIZE)
    assert result.bus_bandwidth_bytes_per_s == pytest.approx(bus, rel=1e-6)
    assert result.notes == ()


def test_four_accelerators_at_48_gb_per_s_take_what_hands_count():
    fabric = custom(complete(4))
    # Each rank has its quarter go out over, and come in by, three links: S / 4 / 48 GB/s.
    for collective, ps in (
        ("all_gather", 5_592_405_334),
        ("reduce_scatter", 5_592_405_334),
        ("all_reduce", 11_184_810_668),
    ):
        assert rostam.run_collective(fabric, collective, num_bytes=SIZE).time_ps == ps


@pytest.mark.parametrize("sides", [2, 3, 4])
@pytest.mark.parametrize("forwarding", [False, True])
def test_cubes_are_as_fast_as_their_links(sides, forwarding):
    fabric = custom(cube(sides), forwarding=forwarding)
    for collective in COLLECTIVES:
        result = rostam.run_collective(fabric, collective, num_bytes=SIZE)
        assert result.bus_bandwidth_bytes_per_s == pytest.approx(sides * 48e9, rel=1e-6)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("number", [0, 3, 4, 7, 10])
def test_trees_of_drawn_graphs_leave_every_rank_with_what_the_collective_promises(number, pieces, collective):
    fabric = custom(drawn(number))
    _, key = arrange(fabric, collective, "spanning_trees")
    schedule = key._replace(num_pieces=pieces).schedule()
    rng = random.Random(number)
    inputs = inputs_of(schedule, rng)
    outputs = execute(schedule, [list(row) for row in inputs], rng)
    for rank in range(schedule.num_ranks):
        wanted = expected_chunks(collective, "spanning_trees", inputs, rank)
        assert {c: outputs[rank][c] for c in wanted} == wanted
    sent = [
        [messages(schedule, rank, step) for rank in range(schedule.num_ranks)] for step in range(schedule.num_steps)
    ]
    check_receives_and_totals(schedule, sent)
    check_distinct_steps(schedule, sent)
    # Every chunk of every rank goes once to each other one, and back up for sums.
    passes = 2 if collective == "all_reduce" else 1
    assert schedule.total_chunks_sent == passes * schedule.num_chunks * (schedule.num_ranks - 1)


@pytest.mark.parametrize("latency", [0, 700e-9])
@pytest.mark.parametrize("size", [4096, 10**6, 3 * 10**8])
@pytest.mark.parametrize("number", [1, 6, 12, 19])
def test_predictions_are_what_simulations_take(number, size, latency):
    fabric = custom(drawn(number), link_latency=latency)
    for collective, algorithm in itertools.product(COLLECTIVES, ["spanning_trees", "auto"]):
        result = rostam.run_collective(fabric, collective, num_bytes=size, algorithm=algorithm)
        predicted = predict_collective_time(fabric, collective, result.algorithm, size)
        assert result.time_s == pytest.approx(predicted, rel=0.03)
        if size == 10**6:
            again = rostam.run_collective(fabric, collective, num_bytes=size, algorithm=algorithm, fold=False)
            assert again.time_ps == result.time_ps


def test_trees_that_are_none_are_refused():
    good = ((0, 0, 0, 0, 0, 1), (1, 1, 1, 0, 0, 0), (2, 2, 2, 0, 0, 0))
    assert _core.Schedule("all_gather", "spanning_trees", 3, trees=good).num_steps == 2
    for row, words in (
        ((0, 0), "another number of entries"),
        ((1, 0, 0, 0, 0, 0), "no tree"),
        ((0, 2, 1, 0, 0, 1), "stages out of order"),
        ((0, 0, 1, 0, 1, 1), "stages out of order"),
        ((0, 5, 0, 0, 0, 0), "no tree"),
    ):
        with pytest.raises(ConfigError, match=words):
            _core.Schedule("all_gather", "spanning_trees", 3, trees=(row, *good[1:]))
    with pytest.raises(ConfigError, match="4 spanning trees over 3 ranks"):
        _core.Schedule("all_gather", "spanning_trees", 3, trees=(*good, good[0]))
    with pytest.raises(ConfigError, match="every rank must have as many up, and as many down"):
        _core.Schedule("all_reduce", "spanning_trees", 3, trees=good)


def test_too_many_ranks_and_ranks_apart_are_refused_by_name():
    flat = rostam.fabric("electrical_flat", num_accelerators=33)
    with pytest.raises(ConfigError, match="over 33 ranks; trees are searched for up to 32"):
        rostam.run_collective(flat, "all_gather", num_bytes=1000, algorithm="spanning_trees")
    apart = custom({(0, 1): 1e9, (2, 3): 1e9})
    with pytest.raises(NoRouteError, match="no tree of routes joins accelerators 0, 1, 2, 3"):
        rostam.run_collective(apart, "all_gather", num_bytes=1000, algorithm="spanning_trees")
    assert rostam.run_collective(apart, "all_gather", num_bytes=1000, ranks=[2, 3]).time_s == 500e-9


def test_equal_graphs_have_equal_trees_and_one_packing():
    first, second = (custom(cube(3), link_latency=1e-6) for _ in range(2))
    found = [spanning_trees(one, "all_reduce", np.arange(8)[None, :]) for one in (first, second)]
    assert found[0] == found[1]
    assert len(found[0]) == 2 * 8 * 3
