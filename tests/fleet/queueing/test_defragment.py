"""Jobs that move: by hand in two servers, against all ways to place jobs, and with every second counted."""

import random

import pytest

from rostam_py.fleet.goodput import FaultTrace, ServerFault
from rostam_py.fleet.queueing.defragment import find_moves, restart_s
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.names import ORDERS
from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.run import CAUSES, Run, Upkeep
from rostam_py.fleet.queueing.simulate import Setting, simulate_queue
from tests.fleet.queueing.cases import drawn, job, queued, servers, starts
from tests.fleet.queueing.test_places import MAKERS


def test_a_small_job_moves_aside_and_pauses():
    """a and b fill server 0, c and d server 1; b and c leave at 10: 4 and 4 are free, but no server is."""
    jobs = [
        job("a", 0, 4, 100), job("b", 0, 4, 10), job("c", 0, 4, 10), job("d", 0, 4, 100), job("e", 20, 8, 5),
    ]  # fmt: skip
    found = simulate_queue(jobs, servers(16), FirstCome(), Setting(move_s=3.0))
    assert starts(found)["e"] == 20
    assert [run.left_s for run in found.runs] == [103, 10, 10, 100, 25]
    assert found.runs[0].spent["moved"] == 3
    assert [run.num_moves for run in found.runs] == [1, 0, 0, 0, 0]
    stays = simulate_queue(jobs, servers(16), FirstCome())
    assert starts(stays)["e"] == 100
    assert stays.fragmentation > 0 == found.fragmentation


def test_work_before_a_move_is_saved():
    jobs = [job("a", 0, 4, 100), job("b", 0, 4, 10), job("c", 0, 4, 10), job("d", 0, 4, 100), job("e", 20, 8, 50)]
    faults = FaultFeed(FaultTrace((ServerFault(60.0, 61.0, 0), ServerFault(60.0, 61.0, 1)), 2, 1e6))
    found = simulate_queue(jobs, servers(16), FirstCome(), Setting(move_s=3.0, faults=faults))
    spent = found.runs[0].spent  # moved at 20, works from 23 on, cut at 60
    assert (spent["redone"], spent["moved"]) == (37, 3)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", range(5))
def test_moves_free_what_they_say_and_touch_no_other_job(name, seed):
    draw, places = random.Random(seed), MAKERS[name]()
    runs = []
    while (place := places.take(draw.choice([1, 2, 4, 4, 8]))) is not None:
        runs.append(Run(number=len(runs), job=job(len(runs), 0, place.size), place=place))
    for run in draw.sample(runs, len(runs) // 2):
        places.give_back(run.place)
        runs.remove(run)
    free, size = places.num_free, 16
    found = find_moves(places, runs, size) if places.copy().take(size) is None else None
    assert places.num_free == free
    if found is None:
        return
    for run, _ in found.moved:
        places.give_back(run.place)
    for run, place in found.moved:
        places.take_again(place)
        run.place = place
    places.take_again(found.head)
    given = [one for place in (*(run.place for run in runs), found.head) for one in place.accelerators()]
    assert len(given) == len(set(given))
    for place in (*(run.place for run in runs), found.head):
        places.give_back(place)
    assert places.num_free == 64


@pytest.mark.parametrize("order", ORDERS.names())
def test_random_weeks_with_moves_and_faults_lose_nothing(order):
    num_moves = 0
    for seed in range(12):
        draw = random.Random(seed)
        cuts = sorted(float(draw.randrange(2_000)) for _ in range(30))
        faults = FaultTrace(tuple(ServerFault(at, at + 40, draw.randrange(4)) for at in cuts), 4, 1e6)
        setting = Setting(
            move_s=2.0, faults=FaultFeed(faults), upkeep=Upkeep(between_s=25.0, detection_s=3.0, restart_s=4.0)
        )  # fmt: skip
        found = simulate_queue(queued(drawn(seed)), servers(), ORDERS.get(order)(), setting)
        num_moves += sum(run.num_moves for run in found.runs)
        for run in found.runs:
            assert sum(run.spent[cause] for cause in CAUSES) == pytest.approx(run.left_s - run.job.submit_s)
    assert num_moves > 0


def test_a_restart_writes_and_reads_memory_once():
    assert restart_s(64 * 2**30, 800e9) == pytest.approx(2 * 85.9e-3, rel=1e-3)
