"""Time lost to failures by cause, against sums by hand."""

import gzip
import json

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.errors import ConfigError
from rostam_py.plan.failures import FAILING_KINDS, Outages
from tests.spread.hand import compute, plan, product

T = 0.010  # of an iteration: one kernel


def test_the_sum_of_down_and_redone_time_is_the_slowdown_of_a_job_that_only_computes():
    # Cut at 37 ms in the fourth iteration, down for 5 ms, from the third one's start (checkpoints at 0, 2, 4, ...):
    # 17 ms are done again. Cut again at 50 ms, 8 ms after the restart at 42 ms.
    events = [
        {"time": 0.037, "kind": "accelerators", "number": 0},
        {"time": "50 ms", "kind": "accelerators", "number": 1, "repair": "60 ms"},
    ]
    fabric = rostam.fabric("electrical_flat", num_accelerators=3)
    found = rostam.outages(
        plan([compute(product(T))], 1, fabric), events=events, detection="1 ms", restart="4 ms",
        checkpoint_iterations=2, spares=[1, 2], iterations=6,
    )  # fmt: skip
    assert found.without_s == pytest.approx(6 * T)
    assert found.down_s == pytest.approx(2 * 0.005)
    assert found.redone_s == pytest.approx(0.017 + 0.008)
    assert found.slower_s == pytest.approx(0, abs=1e-9)
    assert found.total_s == pytest.approx(6 * T + 0.035)
    assert [one.from_iteration for one in found.restarts] == [2, 2]
    assert found.to_dict()["failures"][1] == {"time_s": 0.05, "kind": "accelerators", "number": 1, "repair_s": 0.06}


def test_failures_given_for_after_the_end_are_counted_apart():
    found = rostam.outages(
        plan([compute(product(T))], 1), events=[rostam.Failure(1.0, "accelerators", 0)], iterations=2
    )
    assert (found.failures, found.num_later) == ((), 1)
    assert found.total_s == found.without_s


def test_failures_are_drawn_at_their_rate_and_the_same_each_time():
    machine = plan([compute(product(T))], 1)
    given = {"mtbf_accelerators": "400 s", "iterations": 100, "repair": "1 us"}
    parts = machine.machine.num_accelerators
    counts = [len(rostam.outages(machine, seed=seed, spares=[1], **given).failures) for seed in range(40)]
    expected = parts * 100 * T / 400
    assert np.mean(counts) == pytest.approx(expected, abs=4 * np.sqrt(expected / 40) + 0.05)
    first, again = (rostam.outages(machine, seed=3, spares=[1], **given).to_dict() for _ in range(2))
    assert first == again


def walked_s(starts, work, repair, detection, restart, every):
    """Return when a job's iterations are done on one accelerator that fails at given times.

    Args: starts: of failures, ascending. work: times of iterations. every: checkpoints; 0 for none.
    """
    spans = []  # of the accelerator's failures; one during another goes on with it
    for start in starts:
        if spans and start <= spans[-1][1]:
            spans[-1][1] = start + repair
        else:
            spans.append([start, start + repair])
    now, done = 0.0, 0
    for start, end in spans:
        if start > now:  # else the accelerator failed while the job was down
            since = 0.0
            while done < len(work) and now + since + work[done] <= start:
                since += work[done]
                done += 1
            if done == len(work):
                return now + since
            done -= done % every if every else done
        now = max(start + detection, end) + restart
    return now + sum(work[done:])


def test_failures_are_drawn_until_the_run_ends_however_late_that_is():
    # 20 iterations without a checkpoint: exp(5) - 1 = 147 failures of the one accelerator that counts are expected
    # before 200 ms pass without one, 40 ms of work and 30 ms of a restart each: 50 times as long as without. More than
    # 4,000 failures are as likely as exp(-4000/147).
    job = plan([compute(product(T))], 1)
    given = {"mtbf_accelerators": "40 ms", "iterations": 20, "repair": "1 ms", "detection": "2 ms", "restart": "28 ms"}
    found = [rostam.outages(job, checkpoint_iterations=0, seed=seed, **given) for seed in range(30)]
    draw = np.random.default_rng(1)

    def walk(starts):
        return walked_s(starts, [T] * 20, 0.001, 0.002, 0.028, 0)

    for one in found:
        own = sorted(failure.time for failure in one.failures if failure.number == 0)
        assert one.total_s == pytest.approx(walk(own), abs=1e-9)
        assert one.total_s == pytest.approx(one.without_s + one.down_s + one.redone_s + one.slower_s, abs=1e-12)
    drawn = [walk(np.cumsum(draw.exponential(0.040, 4_000)).tolist()) for _ in range(400)]
    totals = [one.total_s for one in found]
    spread = np.hypot(np.std(drawn) / np.sqrt(400), np.std(drawn) / np.sqrt(30))
    assert np.mean(totals) == pytest.approx(np.mean(drawn), abs=4 * spread)
    assert np.mean(drawn) > 40 * 20 * T  # far beyond the time without failures


def test_a_longer_run_draws_the_same_failures_and_more():
    job = plan([compute(product(T))], 1)
    given = {"mtbf_accelerators": "200 ms", "repair": "1 ms", "seed": 5}
    short, long = (rostam.outages(job, iterations=count, **given) for count in (10, 200))
    assert long.failures[: len(short.failures)] == short.failures
    assert len(long.failures) > len(short.failures) + 10
    assert all(one.time <= long.total_s for one in long.failures)


def test_a_job_that_is_not_expected_to_end_is_refused_with_the_number_of_restarts():
    # A stretch of 1 s at 10 failures a second: exp(10) - 1 = 22,025.
    job = plan([compute(product(T))], 1)
    given = {"mtbf_accelerators": "100 ms", "iterations": 100, "repair": "1 ms"}
    with pytest.raises(ConfigError, match=r"'100 ms': failures cut the job every 100 ms, .* about 22,025 restarts are"):
        rostam.outages(job, checkpoint_iterations=0, **given)
    assert rostam.outages(job, checkpoint_iterations=1, **given).total_s > 1


def test_restarts_are_expected_of_every_board_that_a_job_is_on():
    # Five accelerators lie on two of four boards of 2 x 2: 10 failures a second again.
    fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=(2, 2))
    job = plan([compute(product(T))], 5, fabric)
    with pytest.raises(ConfigError, match=r"'200 ms': failures cut the job every 100 ms, .* about 22,025 restarts are"):
        rostam.outages(job, mtbf_boards="200 ms", repair="1 ms", iterations=100, checkpoint_iterations=0)


def test_a_run_that_outlasts_what_can_be_drawn_says_so():
    # Each repair makes up for its failure at once, but 100,000 links fail each second.
    fabric = rostam.fabric("torus", dims=(3, 3), link_bandwidth=1e9)
    with pytest.raises(ConfigError, match="at most 10,000 can be drawn"):
        rostam.outages(plan([compute(product(T))], 1, fabric), mtbf_links="18 us", repair="1 ns", iterations=10)


EVENT = {"time": 1, "kind": "accelerators", "number": 0}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "outages got no failures"),
        ({"events": "links"}, "outages.events is 'links'; it must be a list of failures"),
        ({"events": [{"time": 1, "kind": "links"}]}, "each must have time, kind, number and may have repair, such as"),
        ({"events": [{"time": 1, "kind": "cables", "number": 1}]}, r"outages.events\[0\].kind is 'cables'"),
        ({"events": [EVENT, EVENT | {"time": "-1 s"}]}, r"outages.events\[1\].time is '-1 s'"),
        ({"events": [EVENT | {"repair": 0}]}, r"outages.events\[0\].repair is 0; it must be later than"),
        ({"events": [EVENT], "checkpoint_iterations": -1}, "outages.checkpoint_iterations is -1"),
        ({"events": [EVENT], "detection": "soon"}, "outages.detection is 'soon'"),
        ({"mtbf_links": "0 s"}, "outages.mtbf_links is '0 s'; it must be a time > 0"),
        ({"mtbf_switches": "1 h", "iterations": 0}, "outages.iterations is 0"),
        ({"mtbf_boards": "1 h"}, "outages.mtbf_boards is 3600 s; fabric 'electrical_flat' has none"),
        ({"mtbf_accelerators": "1 ns"}, "at most 10,000 can be drawn"),
        ({"mtbf_accelerators": "1 ms"}, "about 220,255 restarts are expected before it ends; at most 2,047 can be"),
        ({"mtbf_accelerators": "1 h", "repair": 0}, "outages.repair is 0"),
    ],
)
def test_bad_values_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        rostam.outages(plan([compute(product(T))], 1), **given)


def test_every_kind_that_fails_has_a_mean_time():
    assert set(Outages(**{f"mtbf_{kind}": 1 for kind in FAILING_KINDS}).mtbf_s()) == set(FAILING_KINDS)


def test_a_run_folder_holds_the_timeline_of_all_iterations_with_failures(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["model=gpt_125m", "num_accelerators=16", "fabric=torus", "fabric.dims=[4,4]", "strategy.dp=4"]
    words += ["strategy.tp=4", "outages.reroute=1 ms", "outages.iterations=3", "timeline=true", f"out={out}"]
    words += ["outages.events=[{time: 50 ms, kind: links, number: 3, repair: 140 ms}]"]
    assert main(["run", *words]) == 0
    capsys.readouterr()
    total_us = json.loads((out / "result.json").read_text())["outages"]["total_s"] * 1e6
    events = json.loads((out / "timeline_outages.json").read_text())["traceEvents"]
    assert max(one["ts"] + one["dur"] for one in events if one["ph"] == "X") == pytest.approx(total_us)
    (failed,) = (one for one in events if one["ph"] == "X" and one["name"].startswith("links "))
    assert (failed["ts"], failed["ts"] + failed["dur"]) == (50e3, pytest.approx(total_us))
    # Rings of four along a row: both directions of the cable have a message under way, moved 1 ms later.
    arrows = [one for one in events if one.get("cat") == "new route"]
    assert [one["ts"] for one in arrows] == [50e3, 51e3, 50e3, 51e3]
    before, after, *_ = (one for one in events if one["ph"] == "X" and "side" in one["args"])
    assert before["args"]["links"].count(";") == 0 < after["args"]["links"].count(";")
    changes = json.loads(gzip.decompress((out / "detail.json.gz").read_bytes()))["changes"]
    assert sorted(set(changes["marks"]["lane"])) == ["failed parts", "moved messages", "new routes"]
