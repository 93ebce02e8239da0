"""Traces of faults: read, drawn, and what they come to."""

from pathlib import Path

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput.faults import DAY_S, HOUR_S, FaultTrace, ServerFault

FAULTS = """# a comment
start_days,end_days,server,level,class,description
1,3,0,Hardware Failure,GPU,x
2,4,0,Software Failure,Tool,y
2,2.5,2,Other Failure,Stress Test Failure,z
"""


@pytest.fixture
def trace(tmp_path: Path) -> FaultTrace:
    path = tmp_path / "faults.csv"
    path.write_text(FAULTS)
    return FaultTrace.read(path, num_servers=4, window="10 d")


def test_a_file_is_read_with_overlaps_of_a_server_as_one_time_down(trace):
    assert [(one.start_s / DAY_S, one.server, one.cuts) for one in trace.faults] == [
        (1, 0, True), (2, 2, False), (2, 0, True),
    ]  # fmt: skip
    assert trace.times_down == ((DAY_S, 4 * DAY_S, 0), (2 * DAY_S, 2.5 * DAY_S, 2))
    assert trace.per_1000_server_days == pytest.approx(3 / 40 * 1000)
    assert trace.share_down == pytest.approx(3.5 / 40)
    assert (trace.mean_down, trace.most_down) == (pytest.approx(0.35), 2)
    assert [trace.quantile_down(share) for share in (0.7, 0.95, 0.96)] == [0, 1, 2]
    assert trace.share_of_time_above(0) == pytest.approx(0.3)
    assert trace.share_of_time_above(1) == pytest.approx(0.05)
    assert (trace.num_failing, trace.share_on_worst(1)) == (2, pytest.approx(2 / 3))
    assert len(trace.only(["Hardware"]).faults) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no row"),
        ("start,end,server\n1,2,3\n", "must have the columns start_days and end_days"),
        ("start_s,end_s\n1,2\n", "has no column 'server'"),
        ("start_s,end_s,server\n1,x,3\n", "line 2: end_s is 'x'; it must be a number"),
        ("start_s,end_s,server\n1,2,0.5\n", "line 2: server is '0.5'; it must be an integer"),
        ("start_s,end_s,server,cuts\n1,2,0,maybe\n", "cuts is 'maybe'; it must be true or false"),
        ("start_s,end_s,server\n3,2,0\n", "line 2: the fault is from 3 to 2 s; it must not end before it begins"),
    ],
)
def test_files_that_make_no_sense_are_refused_by_line_and_column(tmp_path, text, said):
    path = tmp_path / "faults.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        FaultTrace.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"fleet\.faults is .*nothing.*cannot be read"):
        FaultTrace.read(tmp_path / "nothing")


def test_faults_behind_the_window_are_left_out_of_a_file_and_refused_otherwise(tmp_path):
    path = tmp_path / "faults.csv"
    path.write_text(FAULTS)
    found = FaultTrace.read(path, window="1.5 d")
    assert (len(found.faults), found.num_servers) == (1, 3)
    assert found.share_down == pytest.approx(0.5 / (3 * 1.5))
    assert FaultTrace.read(path, least_servers=7).num_servers == 7
    with pytest.raises(ConfigError, match=r"it must begin in the window of 100\.0 s"):
        FaultTrace((ServerFault(100.0, 101.0, 0),), 1, 100.0)
    with pytest.raises(
        ConfigError, match=r"faults would be drawn, of 1,000 servers in 100,000 days; at most 5,000,000"
    ):
        FaultTrace.drawn(num_servers=1_000, window="100000 d", mtbf="1 d", repair="1 h")


def test_the_time_to_a_cut_counts_working_time_and_cutting_faults(trace):
    assert trace.mtbf_s == pytest.approx((40 - 3.5) * DAY_S / 2)
    drawn = FaultTrace.drawn(num_servers=300, window="400 d", mtbf="20 d", repair="5 d", seed=1, cutting=0.25)
    assert drawn.mtbf_s == pytest.approx(80 * DAY_S, rel=0.05)


def test_drawn_faults_have_their_means_and_do_not_depend_on_other_servers():
    trace = FaultTrace.drawn(num_servers=200, window="900 d", mtbf="60 d", repair="2 d", seed=4)
    assert len(trace.faults) == pytest.approx(200 * 900 / 62, rel=0.03)
    assert trace.repair_s.mean() == pytest.approx(2 * DAY_S, rel=0.04)
    assert trace.share_down == pytest.approx(2 / 62, rel=0.06)
    assert trace.cv_between == pytest.approx(1, abs=0.05)
    fewer = FaultTrace.drawn(num_servers=50, window="900 d", mtbf="60 d", repair="2 d", seed=4)
    assert fewer.faults == tuple(one for one in trace.faults if one.server < 50)
    assert FaultTrace.drawn(num_servers=5, window="90 d", mtbf="6 d", repair="2 h", seed=5) != FaultTrace.drawn(
        num_servers=5, window="90 d", mtbf="6 d", repair="2 h", seed=6
    )


def test_memoryless_faults_keep_the_means_of_a_trace():
    rng = np.random.default_rng(2)
    starts = np.cumsum(rng.pareto(1.5, 3000)) * HOUR_S  # bursts
    faults = tuple(ServerFault(start, start + 5 * HOUR_S, k % 40) for k, start in enumerate(starts.tolist()))
    trace = FaultTrace(faults, 40, float(starts[-1]) + DAY_S)
    alike = trace.memoryless(seed=1)
    assert trace.cv_between > 1.5
    assert alike.cv_between == pytest.approx(1, abs=0.08)
    assert alike.per_1000_server_days == pytest.approx(trace.per_1000_server_days, rel=0.08)
    assert alike.share_down == pytest.approx(trace.share_down, rel=0.1)
