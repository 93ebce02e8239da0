"""What weeks of large clusters may cost: a minute of CPU time, in which they take a tenth to a half."""

import time

import numpy as np
import pytest

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators import Room, make_allocator
from rostam_py.fleet.queueing.names import SOURCES
from rostam_py.fleet.queueing.orders.first_come import FirstCome
from rostam_py.fleet.queueing.places.servers import Servers
from rostam_py.fleet.queueing.places.units import Units
from rostam_py.fleet.queueing.simulate import simulate_queue
from rostam_py.fleet.queueing.sources.source import make_source

MOST_S = 60.0

pytestmark = pytest.mark.slow


def cpu_s(jobs, places):
    begin = time.process_time()
    found = simulate_queue(jobs, places, FirstCome())
    assert len(found.runs) == len(jobs)
    return time.process_time() - begin


def test_as_many_jobs_as_all_of_philly():
    jobs = make_source(SOURCES, "targets", {"cluster": "Philly", "count": 82_000, "load": 0.9}, 368, 0).draw()
    assert cpu_s(jobs, Servers(np.ones(368, bool), 8)) < MOST_S


def test_a_hundred_thousand_jobs_of_mixed_sizes_on_boards():
    options = {"count": 100_000, "family": "mixed", "largest": 614, "unit": 4, "load": 0.8}
    jobs = make_source(SOURCES, "families", options, 16_384, 0).draw()
    is_working = np.ones(16_384, bool)
    room = Room(HammingMeshConfig(board=(2, 2), boards=(64, 64)), is_working, ~is_working)
    assert cpu_s(jobs, Units(make_allocator("submesh", room), 4)) < MOST_S
