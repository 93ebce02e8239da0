"""Servers that are down: rows of a window against each second counted."""

import random

import pytest

from rostam_py.fleet.goodput import FaultTrace, ServerFault, down_times
from rostam_py.fleet.goodput.down_times import down_rows


def drawn(seed, window=300, servers=5):
    rng = random.Random(seed)
    starts = [rng.randrange(window) for _ in range(rng.randint(0, 20))]
    faults = [ServerFault(float(at), float(at + rng.randint(0, 60)), rng.randrange(servers)) for at in starts]
    return FaultTrace(tuple(faults), servers, float(window))


def counted(trace, first):
    """Return how many of the first servers are down in each second."""
    return [
        len({one.server for one in trace.faults if one.start_s <= t < one.end_s and one.server < first})
        for t in range(int(trace.window_s))
    ]


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_the_seconds_counted(seed):
    trace, first = drawn(seed), 3 + seed % 3
    rows = down_rows(trace, first)
    assert rows[0][0] == 0
    ends = [*(start for start, _, _ in rows[1:]), trace.window_s]
    spread = [count for (start, _, count), end in zip(rows, ends, strict=True) for _ in range(int(end - start))]
    assert spread == counted(trace, first)
    assert all(mean == most for _, mean, most in rows)


def test_very_many_changes_become_means_and_maxima_of_equal_stretches(monkeypatch):
    monkeypatch.setattr(down_times, "MOST_ROWS", 6)
    trace = drawn(3)
    seconds = counted(trace, 5)
    rows = down_rows(trace)
    assert [start for start, _, _ in rows] == [0, 50, 100, 150, 200, 250]
    for start, mean, most in rows:
        own = seconds[int(start) : int(start) + 50]
        assert mean == pytest.approx(sum(own) / 50)
        assert most == max(own)
