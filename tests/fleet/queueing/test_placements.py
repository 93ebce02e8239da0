"""Where jobs were: every accelerator-second that jobs held is in a stay, no two jobs hold one at once."""

import random

import pytest

from rostam_py.fleet.goodput import FaultTrace, ServerFault
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.orders.backfill import Backfill
from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.placements import PlacementLog, ranges, read_ranges
from rostam_py.fleet.queueing.run import Upkeep
from rostam_py.fleet.queueing.simulate import Setting, simulate_queue
from tests.fleet.queueing.cases import drawn, job, queued, servers
from tests.fleet.queueing.test_places import MAKERS


def members(text):
    return [one for first, last in read_ranges(text) for one in range(first, last + 1)]


def test_stays_of_three_jobs_by_hand():
    """b is submitted at 10 and waits until a ends at 100; c takes the rest of b's second server."""
    jobs = [job("a", 0, 16, 100), job("b", 10, 12, 50), job("c", 20, 3, 30)]
    found = simulate_queue(jobs, servers(16), FirstCome()).placements
    assert found.stays == ((0, 0, 100, "0-15"), (1, 100, 150, "0-11"), (2, 100, 130, "12-14"))
    assert (found.down, found.num_left_out) == ((), 0)


def test_a_server_is_down_until_the_last_of_its_faults_is_repaired_and_a_cut_job_holds_until_it_is_known():
    faults = FaultTrace((ServerFault(20.0, 40.0, 1), ServerFault(30.0, 60.0, 1)), 2, 1e6)
    setting = Setting(faults=FaultFeed(faults), upkeep=Upkeep(between_s=1e9, detection_s=5.0))
    found = simulate_queue([job("a", 0, 16, 100)], servers(16), FirstCome(), setting).placements
    assert found.down == ((1, 20, 60),)
    assert found.stays == ((0, 0, 25, "0-15"), (0, 60, 160, "0-15"))


def test_what_lasts_beyond_the_window_ends_with_it():
    faults = FaultTrace((ServerFault(20.0, 900.0, 1),), 2, 1e6)
    setting = Setting(faults=FaultFeed(faults), upkeep=Upkeep(between_s=1e9), window_s=70.0)
    found = simulate_queue([job("a", 0, 8, 100)], servers(16), FirstCome(), setting).placements
    assert found.stays == ((0, 0, 70, "0-7"),)
    assert found.down == ((1, 20, 70),)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", range(4))
def test_stays_are_disjoint_and_hold_what_jobs_held(name, seed):
    draw = random.Random(seed)
    places = MAKERS[name]()
    cuts = sorted(float(draw.randrange(2_000)) for _ in range(20))
    faults = FaultTrace(
        tuple(ServerFault(at, at + 40, draw.randrange(places.num_servers)) for at in cuts), places.num_servers, 1e6
    )
    setting = Setting(
        move_s=2.0, faults=FaultFeed(faults), upkeep=Upkeep(between_s=25.0, detection_s=3.0, restart_s=4.0)
    )
    found = simulate_queue(queued(drawn(seed)), places, Backfill(), setting)
    stays = found.placements.stays
    busy = {}
    for one in stays:
        held = members(one.accelerators)
        assert len(held) == len(set(held)) == found.runs[one.job].job.accelerators
        for member in held:
            busy.setdefault(member, []).append((one.start_s, one.end_s))
    for spans in busy.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert sum(b - a for spans in busy.values() for a, b in spans) == pytest.approx(found.timeline.integral("held"))
    of_jobs = [0.0] * len(found.runs)
    for one in stays:
        of_jobs[one.job] += one.end_s - one.start_s
    for run in found.runs:
        assert of_jobs[run.number] == pytest.approx(sum(run.spent.values()) - run.spent["waiting"], abs=1e-9)


def test_a_log_that_is_full_counts_what_begins_later():
    log, places = PlacementLog(most=50), servers(64)
    for number in range(4):
        log.hold(number, places.take(8), float(number))
    for number in range(4):
        log.let_go(number, 10.0 + number)
    found = log.placements(20.0)
    assert [one.job for one in found.stays] == [0, 1]  # of 43 and 44 characters
    assert (found.num_left_out, found.until_s) == (2, 2.0)


@pytest.mark.parametrize(
    ("ids", "text"), [((), ""), ((3,), "3"), ((5, 3, 4), "3-5"), ((9, 0, 1, 7, 2), "0-2 7 9"), ((0, 2, 4), "0 2 4")]
)
def test_ranges_are_read_as_they_are_written(ids, text):
    assert ranges(ids) == text
    assert members(text) == sorted(ids)


def test_other_text_is_no_range():
    with pytest.raises(ValueError, match="x"):
        read_ranges("0-7 x")
