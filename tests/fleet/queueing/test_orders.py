"""Orders against simulators by count that are written here: EASY backfilling, and the shortest first."""

import numpy as np
import pytest

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators import Room, make_allocator
from rostam_py.fleet.queueing.names import ORDERS
from rostam_py.fleet.queueing.orders.backfill import Backfill
from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.orders.shortest_first import ShortestFirst
from rostam_py.fleet.queueing.places.units import Units
from rostam_py.fleet.queueing.simulate import simulate_queue
from tests.fleet.queueing.cases import count, drawn, job, queued, servers, starts

TOTAL = 32


class ByCount:
    """Steps from event to event over numbers alone; ``stated`` may exceed what jobs take."""

    def __init__(self, rows, stated):
        base = min(row[0] for row in rows)
        self.jobs = [(row[0] - base, row[1], row[2], stated[k]) for k, row in enumerate(rows)]
        self.waiting, self.running, self.found = [], [], {}

    def free(self):
        return TOTAL - sum(self.jobs[k][1] for _, k in self.running)

    def start(self, k, now):
        self.waiting.remove(k)
        self.running.append((now + self.jobs[k][2], k))
        self.found[str(k)] = now

    def run(self, schedule):
        submitted = sorted(range(len(self.jobs)), key=lambda k: self.jobs[k][0])
        while submitted or self.waiting or self.running:
            now = min([end for end, _ in self.running] + [self.jobs[k][0] for k in submitted[:1]])
            self.running = [(end, k) for end, k in self.running if end > now]
            while submitted and self.jobs[submitted[0]][0] <= now:
                self.waiting.append(submitted.pop(0))
            schedule(self, now)
        return self.found


def easy(state, now):
    """Start heads, then whoever ends by the head's reservation or leaves it room (Mu'alem and Feitelson, 2001)."""
    while state.waiting and state.jobs[state.waiting[0]][1] <= state.free():
        state.start(state.waiting[0], now)
    if not state.waiting:
        return
    need = state.jobs[state.waiting[0]][1]
    ends = sorted((max(now, state.found[str(k)] + state.jobs[k][3]), state.jobs[k][1]) for _, k in state.running)
    shadow = next(at for at, _ in ends if state.free() + sum(size for end, size in ends if end <= at) >= need)
    extra = state.free() + sum(size for end, size in ends if end <= shadow) - need
    for k in state.waiting[1:]:
        size, end = state.jobs[k][1], now + state.jobs[k][3]
        if size <= state.free() and (end <= shadow or size <= extra):
            extra -= size if end > shadow else 0
            state.start(k, now)


def shortest(state, now):
    """Start the shortest as long as it has room."""
    while state.waiting:
        best = min(state.waiting, key=lambda k: (state.jobs[k][3], state.jobs[k][0], k))
        if state.jobs[best][1] > state.free():
            return
        state.start(best, now)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(("order", "schedule"), [(Backfill, easy), (ShortestFirst, shortest)])
@pytest.mark.parametrize("over", [1, 3])
def test_every_job_starts_when_numbers_alone_say(seed, order, schedule, over):
    rows = [row for row in drawn(seed) if row[2]]  # a simulator by numbers takes no jobs of no duration
    stated = [over * row[2] for row in rows]
    jobs = [job(k, *row, stated[k]) for k, row in enumerate(rows)]
    assert starts(simulate_queue(jobs, count(), order())) == ByCount(rows, stated).run(schedule)


def boards():
    """Return 4 x 2 boards of 2 x 2 accelerators, placed as sub-meshes."""
    is_working = np.ones(TOTAL, bool)
    room = Room(HammingMeshConfig(board=(2, 2), boards=(4, 2)), is_working, ~is_working)
    return Units(make_allocator("submesh", room), 4)


class Promises(Backfill):
    """Backfilling that notes the first reservation of every head."""

    def __init__(self):
        super().__init__()
        self.promised = {}

    def starts(self, view):
        yield from super().starts(view)
        if self._reservation is not None:
            self.promised.setdefault(self._reservation.head.job.name, self._reservation.at_s)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("places", [count, servers, boards])
def test_no_reservation_is_delayed(seed, places):
    order = Promises()
    found = starts(simulate_queue(queued(drawn(seed, total=24)), places(), order))
    assert order.promised
    assert all(found[name] <= at for name, at in order.promised.items())


def test_a_short_job_overtakes_and_one_that_would_delay_the_head_does_not():
    jobs = [job("runs", 0, 24, 100), job("head", 1, 16, 10), job("short", 2, 8, 98), job("long", 2, 8, 99)]
    assert starts(simulate_queue(jobs, count(), Backfill())) == {"runs": 0, "head": 100, "short": 2, "long": 100}
    # 8 accelerators are left beside the head: a long job may have them.
    jobs = [job("runs", 0, 20, 100), job("head", 1, 16, 10), job("long", 2, 12, 500)]
    assert starts(simulate_queue(jobs, count(), Backfill()))["long"] == 2


@pytest.mark.parametrize("order", ORDERS.names())
def test_every_order_runs_all_jobs_alike_twice(order):
    found = [simulate_queue(queued(drawn(3)), servers(), ORDERS.get(order)()) for _ in range(2)]
    assert found[0].to_dict() == found[1].to_dict()
    assert all(run.left_s is not None for run in found[0].runs)


def test_backfilling_and_first_come_are_one_without_a_queue():
    rows = [(1000 * k, 8, 100) for k in range(20)]
    found = [starts(simulate_queue(queued(rows), servers(), order())) for order in (Backfill, FirstCome)]
    assert found[0] == found[1]
