"""Which points a lane gets: those that share work stay together until another lane has none."""

import pickle
from pathlib import Path

import pytest

import rostam_py as rostam
from rostam_py.sweep.backend import ProcessBackend, Work
from rostam_py.sweep.evaluate import shared_work
from rostam_py.sweep.queues import COMMON, Queues


def queues(**groups):
    return Queues((key, shares) for shares, keys in groups.items() for key in keys)


def emptied(found, lane, size=100):
    taken = []
    while len(found):
        taken += found.take(lane, size)
    return taken


def test_each_lane_empties_a_queue_of_its_own():
    found = queues(a="123", b="456")
    assert [found.take(lane, 1) for lane in (0, 1, 1, 0)] == [["1"], ["4"], ["5"], ["2"]]
    assert len(found) == 2


def test_a_batch_never_spans_two_queues():
    found = queues(a="12", b="34")
    assert found.take(0, 5) == ["1", "2"]
    assert found.take(0, 5) == ["3", "4"]
    assert not len(found)


def test_a_lane_without_points_takes_the_latter_half_of_the_fullest_queue_in_order():
    found = queues(a="1", b="abcdefg")
    assert found.take(0, 1) == ["1"]
    assert found.take(1, 1) == ["a"]
    assert found.take(0, 2) == ["e", "f"]  # of b to g the latter half
    assert emptied(found, 1) == ["b", "c", "d", "g"]


def test_the_last_point_of_another_lane_is_taken_too():
    found = queues(a="12")
    assert found.take(0, 1) == ["1"]
    assert found.take(1, 9) == ["2"]
    assert found.take(1, 9) == []


def test_points_that_share_nothing_come_in_their_order_to_whoever_asks():
    found = Queues((key, COMMON) for key in "12345")
    assert [found.take(lane, 2) for lane in (0, 1, 0)] == [["1", "2"], ["3", "4"], ["5"]]


def test_points_of_a_lost_worker_come_first_of_those_that_share_nothing():
    found = Queues([("1", COMMON), ("2", COMMON)])
    found.put_back(["8", "9"])
    assert emptied(found, 0) == ["8", "9", "1", "2"]


@pytest.mark.parametrize("num_lanes", [1, 2, 3, 7])
def test_every_point_is_taken_once(num_lanes):
    keys = {f"{group}{number}" for group in "abc" for number in range(17)} | {f"x{number}" for number in range(5)}
    found = Queues((key, key[0] if key[0] != "x" else COMMON) for key in sorted(keys))
    taken, lane = [], 0
    while len(found):
        batch = found.take(lane, 1 + lane)
        assert batch
        taken += batch
        lane = (lane + 1) % num_lanes
    assert sorted(taken) == sorted(keys)


def test_searches_of_one_model_share_work_and_runs_do_not(base):
    search = dict(base, mode="search", search={"placers": None})
    names = ("strategy", "cost", "software", "routing", "fidelity", "seed", "controllers")
    search |= {name: search.get(name) for name in names}
    assert shared_work(search) == shared_work(search | {"fabric": {"name": "other"}}) != COMMON
    assert shared_work(search) != shared_work(search | {"model": "another"})
    assert shared_work(dict(search, mode="run")) == COMMON


def test_what_a_process_is_started_with_fits_a_pipe(tmp_path):
    # A process that dies while it starts reads nothing: more than a pipe holds would block the driver for good.
    graph = rostam.trace("gpt_125m")
    graphs = {str(number): graph for number in range(20)}
    assert len(pickle.dumps(graphs["0"])) > 2**16
    backend = ProcessBackend(Work("token", str(tmp_path), "code"), graphs, 2)
    try:
        assert len(pickle.dumps(backend._arguments)) < 2**12
        (path,) = Path(backend._folder.name).iterdir()
        assert pickle.loads(path.read_bytes()).keys() == graphs.keys()
    finally:
        backend.close()
    assert not path.exists()
