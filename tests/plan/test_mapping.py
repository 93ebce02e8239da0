"""mapping=auto: groups of tp, then cp, on compact blocks where these are faster than consecutive accelerators."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.plan import Machine, Strategy
from rostam_py.plan.ranks import assign_accelerators, mapping_notes

TORUS = {"dims": (8, 8)}


def machine(name="torus", failed=(), **parameters):
    fabric = rostam.fabric(name, **(parameters or TORUS), accelerator_bandwidth="1600 Gb/s")
    return Machine(fabric=fabric.with_failures(accelerators=list(failed)) if failed else fabric)


def tp_groups(strategy, where):
    return assign_accelerators(strategy, where).reshape(-1, strategy.tp)


def test_tp_4_lies_on_the_squares_that_boards_of_two_by_two_would_number():
    """Accelerators of dims (8, 8) and of boards (2, 2) differ in their numbers: places are compared."""
    squares = machine(dims=(8, 8), board=(2, 2)).fabric.config.grid()
    place = {a: cell for cell, a in np.ndenumerate(squares)}
    by_board = {frozenset(place[a] for a in range(first, first + 4)) for first in range(0, 64, 4)}
    groups = tp_groups(Strategy(dp=16, tp=4), machine())
    assert {frozenset((a // 8, a % 8) for a in group) for group in groups.tolist()} == by_board


def test_the_time_is_that_of_boards_and_less_than_on_lines(gpt):
    def iteration_s(where, mapping="auto"):
        strategy = Strategy(dp=16, tp=4, precision="bf16_mixed", mapping=mapping)
        return rostam.simulate(
            rostam.place(gpt, where, global_batch=256, strategy=strategy, software="ideal")
        ).iteration_time_s

    auto, on_lines = iteration_s(machine()), iteration_s(machine(), "linear")
    on_boards = iteration_s(machine(dims=(8, 8), board=(2, 2)), "linear")
    assert auto == pytest.approx(on_boards, rel=0.01)
    assert auto < 0.9 * on_lines


def test_the_note_says_what_was_chosen_and_follows_the_plan_to_other_machines(gpt):
    strategy = Strategy(dp=16, tp=4, precision="bf16_mixed")
    plan = rostam.place(gpt, machine(), global_batch=64, strategy=strategy, software="ideal")
    notes = [note for note in plan.notes if note.startswith("mapping: ")]
    assert notes == ["mapping: tp groups on blocks of 2 x 2 (strategy.mapping=auto)"]
    flat = plan.on(machine("electrical_flat", num_accelerators=64))
    assert not any(note.startswith("mapping: ") for note in flat.notes)
    assert flat.devices.tolist() == list(range(64))
    assert flat.on(machine()).devices.tolist() == plan.devices.tolist()
    assert [note for note in flat.on(machine()).notes if note.startswith("mapping: ")] == notes


@pytest.mark.parametrize(
    ("name", "parameters", "degrees"),
    [
        ("torus", {"dims": (6, 6)}, {"dp": 4, "tp": 8, "allow_idle": True}),  # no boxes of 8 tile it
        ("torus", TORUS, {"dp": 64}),
        ("torus", TORUS, {"dp": 8, "tp": 2, "pp": 4}),  # two neighbours either way
        ("torus", TORUS, {"dp": 16, "tp": 4, "rank_order": "dp,tp,cp,pp"}),  # the order that was asked for
        ("torus", TORUS, {"dp": 16, "tp": 4, "accelerators": list(range(64))}),  # used in their order
        ("hammingmesh", {"board": (2, 2), "boards": (4, 4)}, {"dp": 16, "tp": 4}),  # a board
        ("hyperx", {"dims": (4, 4), "terminals": 4}, {"dp": 16, "tp": 4}),  # the accelerators of a switch
        ("electrical_flat", {"num_accelerators": 64}, {"dp": 16, "tp": 4}),
        ("fat_tree", {"num_accelerators": 64}, {"dp": 16, "tp": 4}),
    ],
)
def test_elsewhere_ranks_are_on_consecutive_accelerators(name, parameters, degrees):
    where, strategy = machine(name, **parameters), Strategy.of(**degrees)
    ranks = assign_accelerators(strategy, where)
    linear = assign_accelerators(Strategy.of(**degrees, mapping="linear"), where)
    assert np.array_equal(ranks, linear)


@pytest.mark.parametrize(
    ("name", "parameters", "degrees", "sides"),
    [
        ("torus", {"dims": (6, 6, 6)}, {"dp": 27, "tp": 8}, (2, 2, 2)),
        ("hammingmesh", {"board": (4, 4), "boards": (2, 2)}, {"dp": 16, "tp": 4}, (2, 2)),  # boards larger than tp
        ("hammingmesh", {"board": (2, 2), "boards": (4, 4)}, {"dp": 4, "tp": 16}, (4, 4)),  # and smaller
    ],
)
def test_blocks_lie_within_boards_and_across_them(name, parameters, degrees, sides):
    where = machine(name, **parameters)
    place = {a: cell for cell, a in np.ndenumerate(where.fabric.config.grid())}
    for group in tp_groups(Strategy.of(**degrees, mapping="blocks"), where).tolist():
        cells = np.array([place[a] for a in group])
        assert tuple(np.ptp(cells, axis=0) + 1) == sides


def test_groups_of_cp_lie_around_those_of_tp():
    strategy = Strategy(dp=4, tp=4, cp=4)
    ids = assign_accelerators(strategy, machine())  # (dp x cp, pp, tp)
    for group in ids.reshape(-1, 4).tolist():
        assert np.ptp([a // 8 for a in group]) == np.ptp([a % 8 for a in group]) == 1
    for replica in ids.reshape(4, 16).tolist():
        cells = np.array([(a // 8, a % 8) for a in replica])
        assert np.prod(np.ptp(cells, axis=0) + 1) == 16
    assert mapping_notes(strategy, machine())[0].startswith("mapping: tp groups on blocks of 2 x 2, cp groups on ")


def test_a_ring_of_cp_alone_goes_from_neighbour_to_neighbour():
    """Four of cp in a square on a torus: by rows its ring has diagonals, by neighbours it has none."""
    ranks = assign_accelerators(Strategy(dp=16, cp=4, mapping="blocks"), machine())
    for ring in ranks.reshape(16, 4).tolist():
        hops = [abs(a // 8 - b // 8) + abs(a % 8 - b % 8) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
        assert hops == [1, 1, 1, 1]


def test_blocks_with_failed_accelerators_are_left_out_where_others_suffice():
    where = machine(failed=[9, 30])
    groups = tp_groups(Strategy(dp=14, tp=4, allow_idle=True), where)
    assert not {9, 30} & set(groups.ravel().tolist())
    for group in groups.tolist():
        assert max(a % 8 for a in group) - min(a % 8 for a in group) == 1
        assert max(a // 8 for a in group) - min(a // 8 for a in group) == 1


def test_what_failures_leave_of_blocks_fills_the_last_groups():
    where = machine(failed=[9, 30])
    groups = tp_groups(Strategy(dp=15, tp=4, allow_idle=True, mapping="blocks"), where)
    assert len(set(groups.ravel().tolist())) == 60
    is_square = [np.ptp([a % 8 for a in g]) == np.ptp([a // 8 for a in g]) == 1 for g in groups.tolist()]
    assert is_square == [True] * 14 + [False]


def test_blocks_that_do_not_tile_serve_where_enough_fit():
    groups = tp_groups(Strategy(dp=4, tp=4, allow_idle=True, mapping="blocks"), machine(dims=(5, 5)))
    assert groups.tolist()[0] == [0, 1, 5, 6]
    assert all(np.ptp([a % 5 for a in g]) == np.ptp([a // 5 for a in g]) == 1 for g in groups.tolist())


def test_a_search_takes_the_mapping_of_least_estimate(gpt):
    where = machine()
    found, lines = (
        rostam.search(
            gpt, where, batches=[256], placers=["megatron"], axes={"tp": [4]}, num_simulated=1,
            base=Strategy(precision="bf16_mixed", mapping=mapping), software="ideal",
        )
        for mapping in ("auto", "linear")
    )  # fmt: skip
    assert found.best.estimate_s < lines.best.estimate_s
    assert found.best.simulated_s < lines.best.simulated_s
    again = rostam.place(gpt, where, global_batch=256, strategy=found.best.strategy, software="ideal")
    assert rostam.simulate(again).iteration_time_s == found.best.simulated_s
