"""First come, first served, to the second: a simulator written here shares nothing with the package's."""

import pytest

from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.simulate import simulate_queue
from tests.fleet.queueing.cases import count, drawn, job, queued, servers, starts

TOTAL, SERVER = 32, 8


def room_by_count(running, size, now):
    """Return what a job takes where any free accelerators do; None without room."""
    free = TOTAL - sum(taken for end, taken in running if end > now)
    return size if free >= size else None


def room_by_server(running, size, now):
    """Return {server: accelerators} by best fit; None without room."""
    free = [SERVER] * (TOTAL // SERVER)
    for end, taken in running:
        for server, number in taken.items() if end > now else ():
            free[server] -= number
    empty = [server for server, number in enumerate(free) if number == SERVER]
    whole, rest = size // SERVER, size % SERVER
    if len(empty) < whole:
        return None
    taken = dict.fromkeys(empty[:whole], SERVER)
    if rest:
        fitting = [(number, server) for server, number in enumerate(free) if number >= rest and server not in taken]
        if not fitting:
            return None
        taken[min(fitting)[1]] = rest
    return taken


def first_come(rows, room):
    """Return when each job starts: one after the other, at the first second at which it has room."""
    order = sorted(range(len(rows)), key=lambda k: rows[k][0])
    base = min(row[0] for row in rows)
    running, now, found = [], 0, {}
    for k in order:
        submit, size, work = rows[k][0] - base, rows[k][1], rows[k][2]
        moments = sorted({max(now, submit), *(end for end, _ in running if end > max(now, submit))})
        now = next(at for at in moments if room(running, size, at) is not None)
        running.append((now + work, room(running, size, now)))
        found[str(k)] = now
    return found


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(("places", "room"), [(count, room_by_count), (servers, room_by_server)])
def test_every_job_starts_at_the_second_of_an_independent_simulator(seed, places, room):
    # A job of no duration holds its server while others are placed at that moment, which numbers do not show.
    rows = [row for row in drawn(seed) if row[2] or places is count]
    assert starts(simulate_queue(queued(rows), places(), FirstCome())) == first_come(rows, room)


def test_nobody_overtakes_a_job_that_has_no_room():
    jobs = [job("a", 0, 30, 100), job("b", 1, 8, 10), job("c", 2, 1, 10)]
    assert starts(simulate_queue(jobs, count(), FirstCome())) == {"a": 0, "b": 100, "c": 100}


def test_jobs_of_no_duration_and_equal_submissions_start_in_the_order_given():
    jobs = [job("a", 5, 32, 0), job("b", 5, 32, 7), job("c", 5, 32, 0), job("d", 5, 1, 0)]
    found = simulate_queue(jobs, count(), FirstCome())
    assert starts(found) == {"a": 0, "b": 0, "c": 7, "d": 7}
    assert found.timeline.end_s == 7
    assert found.utilisation == 1


def test_a_cluster_of_jobs_that_take_no_time_has_no_goodput_and_breaks_nothing():
    found = simulate_queue([job("a", 0, 1, 0)], count(), FirstCome())
    assert (found.goodput, found.mean_wait_s, found.timeline.end_s) == (0, 0, 0)
    assert found.timeline.series()[2] == []
    found.to_dict()
