"""Groups on direct links: parts of a fabric, servers with NICs, failed and unequal links, plans, and what notes say."""

import itertools

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.direct_links import are_joined, direct_rings, joined_size
from rostam_py.collectives.predicted_time import predict_collective_time
from rostam_py.plan.traffic import plan_volumes, schedules_of

SIZE = 2**30
LINK, NIC = 48e9, 50e9
COLLECTIVES = ["all_gather", "reduce_scatter", "all_reduce"]


def nodes(count, size=8, **others):
    """Servers of accelerators that are all joined, with a NIC each on one switch."""
    rows = []
    for first in range(0, count * size, size):
        own = range(first, first + size)
        rows += [(f"a{a}", f"a{b}", LINK) for a, b in itertools.combinations(own, 2)]
        rows += [(f"a{a}", "s0", NIC) for a in own] if count > 1 else []
    return rostam.fabric("custom", links=rows, **others)


def run(fabric, collective, **options):
    result = rostam.run_collective(fabric, collective, num_bytes=SIZE, **options)
    assert result.bytes_sent == result.bytes_received
    return result


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_parts_of_a_fabric_use_the_links_between_them(collective):
    for fabric, ranks in ((nodes(1), [1, 4, 5, 7]), (nodes(3), [9, 12, 13, 15])):
        result = run(fabric, collective, ranks=ranks)
        assert result.bus_bandwidth_bytes_per_s == pytest.approx(3 * LINK, rel=1e-6)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("count", "algorithm"), [(2, "spanning_trees"), (8, "hierarchical_direct")])
def test_servers_use_their_nics_and_direct_links_at_once(collective, count, algorithm):
    # Into every rank come (p-1)/p S, over seven links and a NIC: bus bandwidth is theirs at most.
    result = run(nodes(count), collective)
    assert result.algorithm == algorithm
    assert 0.9 * 7 * LINK <= result.bus_bandwidth_bytes_per_s <= 1.0001 * (7 * LINK + NIC)
    assert result.notes == ()


def test_servers_in_pieces_take_the_sum_of_their_steps_by_hand():
    # Eight servers of 8, in one piece: links carry 8 chunks of S/64 each, NICs one in each of 7 steps.
    fabric = nodes(8)
    chunk = 8 * 10**6
    result = rostam.run_collective(fabric, "all_gather", num_bytes=64 * chunk, algorithm="hierarchical_direct")
    whole = 7 * chunk / NIC + 8 * chunk / LINK
    assert 8 * chunk / LINK < result.time_s < whole
    predicted = predict_collective_time(fabric, "all_gather", "hierarchical_direct", 64 * chunk)
    assert result.time_s == pytest.approx(predicted, rel=1e-6)
    assert rostam.run_collective(
        fabric, "all_gather", num_bytes=64, algorithm="hierarchical_direct"
    ).time_s == pytest.approx(7 / NIC + 8 / LINK, rel=0.02)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_failed_links_and_accelerators_are_gone_round(collective):
    passes = 2 if collective == "all_reduce" else 1
    # Accelerator 0 loses three of seven links; the other four bring it (p-1)/p S.
    cut = run(nodes(1).with_failures(links=[0, 1, 2]), collective)
    assert cut.time_s <= 1.03 * passes * SIZE * 7 / 8 / (4 * LINK)
    fewer = run(nodes(1).with_failures(accelerators=[3]), collective)
    assert fewer.bus_bandwidth_bytes_per_s == pytest.approx(6 * LINK, rel=1e-6)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_links_of_unequal_speed_carry_shares_of_their_own(collective):
    # A square of 100 and 50 GB/s with two slow diagonals: 125 GB/s into each.
    rates = {(0, 1): 100e9, (2, 3): 100e9, (1, 2): 50e9, (0, 3): 50e9, (0, 2): 25e9, (1, 3): 25e9}
    fabric = rostam.fabric("custom", links=[(f"a{a}", f"a{b}", rate) for (a, b), rate in rates.items()])
    result = run(fabric, collective)
    # Out of 0 and 1 together go two parts over 50 + 50 + 25 + 25: no more than the 175 into each.
    passes = 2 if collective == "all_reduce" else 1
    assert result.time_s <= 1.02 * passes * max(SIZE * 3 / 4 / 175e9, SIZE / 2 / 150e9)


def test_a_cube_whose_accelerators_forward_nothing_has_rings_of_direct_links():
    rows = [(f"a{a}", f"a{a | 1 << d}", LINK) for a in range(8) for d in range(3) if not a >> d & 1]
    fabric = rostam.fabric("custom", links=rows)
    for collective in [*COLLECTIVES, "broadcast", "reduce"]:
        result = run(fabric, collective, algorithm="ring")
        used = {(int(row["src"]), int(row["dst"])) for row in fabric.links[result.link_bytes > 0]}
        assert len(used) >= 7
    assert run(fabric, "broadcast").time_s < 1.01 * SIZE / (2 * LINK)
    # Two edge-disjoint rings are all that a cube has: 16 of 24 directed links.
    assert result.num_channels == 2
    assert len(direct_rings(fabric, np.arange(8)[None, :])) == 2


def test_rings_of_unequal_links_take_the_speed_that_is_most_in_all():
    # A triangle of 30 GB/s round one way, 10 the other: one ring of 30, or four of 10, of which three share a link.
    rows = [("a0", "a1", 30e9), ("a1", "a2", 30e9), ("a2", "a0", 30e9)]
    rows += [(dst, src, 10e9) for src, dst, _ in rows]
    fabric = rostam.fabric("custom", links=rows, duplex=False)
    assert sorted(direct_rings(fabric, np.arange(3)[None, :])) == [(0, 1, 2)] * 3 + [(0, 2, 1)]
    result = rostam.run_collective(fabric, "all_gather", num_bytes=90 * 10**6, algorithm="ring")
    assert result.time_s == pytest.approx(2 * 7.5e6 / 10e9, rel=1e-6)


def test_blocks_of_ranks_are_those_that_links_join():
    fabric = nodes(4)
    assert joined_size(fabric, np.arange(32)) == 8
    assert joined_size(fabric, np.array([0, 1, 8, 9, 24, 25])) == 2
    assert joined_size(fabric, np.array([0, 1, 8, 24, 25])) == 1
    assert joined_size(fabric, np.array([0, 8, 1, 9])) == 1
    assert not are_joined(fabric, np.array([0, 8, 16]))


def test_a_note_says_which_share_of_the_links_is_used_below_a_half():
    fabric = nodes(1)
    chain = rostam.run_collective(fabric, "broadcast", num_bytes=SIZE, algorithm="binomial_tree")
    assert chain.notes == ("broadcast by binomial_tree uses 7 of the 56 direct links between its ranks, 12%",)
    assert run(fabric, "all_gather").notes == ()
    assert run(fabric, "all_gather", ranks=[0, 1]).notes == ()
    ordered = rostam.run_collective(nodes(2), "all_reduce", num_bytes=SIZE, algorithm="halving_doubling")
    assert ordered.notes == ("all_reduce by halving_doubling uses 48 of the 112 direct links between its ranks, 43%",)
    switched = rostam.fabric("electrical_flat", num_accelerators=8)
    assert run(switched, "all_gather", algorithm="ring").notes == ()


def placed(fabric, **strategy):
    graph = rostam.trace("transformer_350m", num_layers=1)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    return rostam.place(
        graph,
        machine,
        global_batch=8,
        strategy=rostam.Strategy.of(micro_batch=1, **strategy),
        cost="roofline",
        software="ideal",
    )


def test_a_sharded_plan_on_direct_links_takes_what_one_switch_of_as_much_takes():
    whole = [
        rostam.simulate(placed(fabric, dp=8, shard=3)).iteration_time_s
        for fabric in (nodes(1), rostam.fabric("electrical_flat", num_accelerators=8, link_bandwidth=7 * LINK))
    ]
    assert whole[0] == pytest.approx(whole[1], rel=0.01)


def test_groups_that_links_join_in_different_ways_run_along_links_that_all_have(tmp_path):
    # 0 to 3 in a line, 4 to 7 in another order: only steps 1 - 2 and 2 - 3 of their ranks are common without more.
    one = [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)]
    other = [(4, 5), (5, 6), (6, 7), (4, 7)]
    rows = [(f"a{a}", f"a{b}", LINK) for a, b in one + other] + [(f"a{a}", f"a{a + 4}", LINK) for a in range(4)]
    plan = placed(rostam.fabric("custom", links=rows), dp=2, tp=4)
    found = schedules_of(plan, plan_volumes(plan))
    trees = [key for (label, _, _), key in found.items() if label == "tp" and key.trees]
    common = {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    for key in trees:
        for tree in key.trees:
            assert {(tree[rank], rank) for rank in range(4) if tree[rank] != rank} <= common
    result = rostam.simulate(plan)
    rostam.TaskGraph.of(plan).save(tmp_path / "tasks.json")
    assert rostam.simulate(rostam.TaskGraph.load(tmp_path / "tasks.json")).iteration_time_s == result.iteration_time_s
    by_ring = placed(rostam.fabric("custom", links=rows), dp=2, tp=4, algorithms={"all_reduce": "spanning_trees"})
    assert any(key.trees for key in schedules_of(by_ring, plan_volumes(by_ring)).values())
    assert rostam.simulate(by_ring).iteration_time_s > 0


def test_a_plan_notes_links_that_its_collectives_leave_idle():
    plan = placed(nodes(1), dp=8, algorithms={"all_reduce": "binomial_tree"})
    notes = [note for note in rostam.simulate(plan).notes if "direct links" in note]
    assert notes == ["dp all_reduce by binomial_tree uses 14 of the 56 direct links between its ranks, 25%"]
