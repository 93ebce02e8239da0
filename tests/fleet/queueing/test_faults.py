"""Faults: cut jobs by hand, a job of all servers against the replay of one job, and sums that hold for random weeks."""

import math
import random

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import FaultTrace, LongJob, ServerFault, replay
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.names import ORDERS
from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.run import CAUSES, Upkeep
from rostam_py.fleet.queueing.simulate import Setting, simulate_queue
from tests.fleet.queueing.cases import count, drawn, job, queued, servers, starts

DAY_S = 86_400.0


def feed(*faults, servers=4, window=1e6):
    return FaultFeed(FaultTrace(tuple(ServerFault(*one) for one in faults), servers, window))


def run(jobs, faults, places=None, **upkeep):
    return simulate_queue(
        jobs, places or servers(), FirstCome(), Setting(upkeep=Upkeep(**upkeep), faults=faults)
    )  # fmt: skip


def test_a_cut_job_loses_work_since_its_checkpoint_is_detected_waits_and_restarts():
    """100 s of work, checkpoints every 20 s; a fault at 50 until 60: 40 s are kept, 10 s done again."""
    found = run(
        [job("a", 0, 32, 100)], feed((50.0, 60.0, 2, True, "GPU")), between_s=20.0, detection_s=5.0, restart_s=7.0
    )
    one = found.runs[0]
    assert one.left_s == 60 + 7 + 60  # all four servers work again at 60; 60 s of work are left
    assert one.spent == {
        "useful": 100, "slower": 0, "checkpoint": 0, "redone": 10, "detection": 5, "restart": 7, "moved": 0,
        "waiting": 5,
    }  # fmt: skip
    assert (found.num_faults, found.cut_by, one.num_cuts) == (1, {"GPU": 1}, 1)


def test_a_second_fault_in_the_restart_loses_the_restart_alone():
    faults = feed((50.0, 51.0, 0), (53.0, 54.0, 1))
    one = run([job("a", 0, 32, 100)], faults, between_s=20.0, restart_s=7.0).runs[0]
    assert one.spent["redone"] == 10
    assert one.spent["restart"] == 2 + 7
    assert one.spent["waiting"] == 1 + 1
    assert one.left_s == 54 + 7 + 60


def test_only_jobs_on_the_server_are_cut_and_they_go_to_the_front():
    jobs = [job("a", 0, 8, 100), job("b", 0, 8, 100), job("c", 0, 16, 100), job("d", 1, 8, 10)]
    found = run(jobs, feed((30.0, 31.0, 1)), between_s=1e9)
    assert [one.num_cuts for one in found.runs] == [0, 1, 0, 0]
    assert found.runs[1].left_s == 31 + 100  # before d, which was submitted long ago
    assert starts(found)["d"] == 100


def test_a_fault_that_tests_found_takes_the_server_once_its_jobs_have_left():
    jobs = [job("a", 0, 32, 100), job("b", 0, 32, 10)]
    found = run(jobs, feed((30.0, 150.0, 1, False)))
    assert found.runs[0].num_cuts == 0
    assert starts(found)["b"] == 150


def test_jobs_wait_while_all_servers_are_down_and_for_ever_is_refused():
    faults = [(float(10 + server), 500.0, server) for server in range(4)]
    found = run([job("a", 0, 1, 5), job("b", 20, 1, 5)], feed(*faults))
    assert starts(found) == {"a": 0, "b": 500}
    assert found.timeline.integral("down") == 32 * 500 - 8 * (10 + 11 + 12 + 13)
    with pytest.raises(ConfigError, match="1 jobs wait for ever"):
        run([job("a", 0, 32, 100)], feed((10.0, math.inf, 0)))


def test_without_checkpoints_all_work_is_lost_and_with_faults_after_the_end_none():
    assert run([job("a", 0, 8, 100)], feed((99.0, 100.0, 0))).runs[0].spent["redone"] == 99
    assert run([job("a", 0, 8, 100)], feed((100.0, 101.0, 0))).runs[0].num_cuts == 0  # it ends first


def test_a_window_counts_what_was_done_until_it_ends():
    setting = Setting(window_s=50.0, faults=feed((10.0, 12.0, 0)), upkeep=Upkeep(between_s=3.0, restart_s=1.0))
    found = simulate_queue([job("a", 0, 32, 100), job("b", 5, 8, 10), job("c", 60)], servers(), FirstCome(), setting)
    assert found.num_after == 1
    assert found.runs[0].spent["useful"] == 9 + (50 - 13)
    assert found.runs[1].spent["waiting"] == 45
    assert found.waits_s().tolist() == [0, 45]  # b has not started
    assert found.to_dict()["slowdown"]["mean"] is None
    assert found.timeline.end_s == 50


def test_daly_decides_the_interval_by_the_servers_of_a_job():
    upkeep = Upkeep(checkpoint_s=30.0, mtbf_s=100 * DAY_S)
    assert upkeep.every_s(16) == pytest.approx(math.sqrt(2 * 30 * 100 * DAY_S / 16) - 30)
    assert Upkeep(checkpoint_s=30.0).every_s(16) == math.inf
    assert Upkeep(checkpoint_s=30.0, mtbf_s=1.0).every_s(16) == 30


def test_faults_that_never_let_a_job_end_are_refused():
    def drawn_at(mtbf, repair):
        def draw(window_s):
            return FaultTrace.drawn(num_servers=4, window=window_s, mtbf=mtbf, repair=repair)

        return FaultFeed.drawn(draw, DAY_S)

    with pytest.raises(ConfigError, match="1,000 times in a row before it saved any work"):
        run([job("a", 0, 8, DAY_S)], drawn_at("5 min", "1 min"), restart_s=1e5)
    always_down = ServerFault(0.0, 1e12, 0)
    busy = tuple(ServerFault(float(k), k + 0.5, 1) for k in range(20_002))
    with pytest.raises(ConfigError, match="job a never finds as many servers that work at once"):
        run([job("a", 0, 32, 5)], FaultFeed(FaultTrace((always_down, *busy), 4, 1e13)))


@pytest.mark.parametrize("seed", range(6))
def test_a_job_of_all_servers_takes_what_the_replay_of_one_job_does(seed):
    """The replay of one job counts iterations of a second between checkpoints; the queue knows neither."""
    trace = FaultTrace.drawn(num_servers=4, window=20 * DAY_S, mtbf="6 d", repair="5 h", seed=seed)
    long = LongJob(
        num_servers=4, iteration=1.0, checkpoint_iterations=3_600, detection=0.0, restart="10 min"
    )  # fmt: skip
    wanted = replay(long, trace, "wait").seconds
    found = simulate_queue(
        [job("a", 0, 32, 30 * DAY_S)], servers(), FirstCome(),
        Setting(upkeep=Upkeep(between_s=3_600.0, restart_s=600.0), faults=FaultFeed(trace), window_s=20 * DAY_S),
    ).runs[0]  # fmt: skip
    assert found.num_cuts > 3
    for cause in ("useful", "redone", "waiting", "restart"):
        assert found.spent[cause] == pytest.approx(wanted[cause], abs=found.num_cuts + 1)


@pytest.mark.parametrize("order", ORDERS.names())
@pytest.mark.parametrize("seed", range(8))
def test_random_weeks_lose_nothing_and_are_equal_twice(order, seed):
    draw = random.Random(seed)
    rows = []
    for _ in range(60):
        start = draw.randrange(0, 2_000)
        rows.append((float(start), float(start + draw.randrange(0, 90)), draw.randrange(4), draw.random() < 0.8, "x"))
    upkeep = Upkeep(between_s=25.0, detection_s=3.0, restart_s=4.0)
    made = [
        simulate_queue(
            queued(drawn(seed)), place(), ORDERS.get(order)(), Setting(upkeep=upkeep, faults=feed(*rows, window=9e9))
        )
        for place in (servers, servers, count)
    ]
    assert made[0].to_dict() == made[1].to_dict()
    for found in made:
        assert sum(one.num_cuts for one in found.runs) == sum(found.cut_by.values()) > 0
        for one in found.runs:  # what the result checks too, a second time
            assert sum(one.spent[cause] for cause in CAUSES) == pytest.approx(one.left_s - one.job.submit_s)
            assert one.spent["useful"] == pytest.approx(one.job.work_s)
        assert found.goodput == pytest.approx(found.spent["useful"] / (32 * found.timeline.end_s))


def test_drawn_faults_go_on_for_as_long_as_jobs_last_and_do_not_follow_the_first_window():
    def draw(window_s):
        return FaultTrace.drawn(num_servers=4, window=window_s, mtbf="3 d", repair="2 h", seed=5)

    def events(window_s):
        one = FaultFeed.drawn(draw, window_s)
        found = []
        while one.next_s < 40 * DAY_S:
            found.append(one.pop())
        return found

    wanted = events(80 * DAY_S)
    assert len(wanted) > 50
    assert events(DAY_S) == events(7 * DAY_S) == wanted
    assert [one.at_s for one in wanted] == sorted(one.at_s for one in wanted)
