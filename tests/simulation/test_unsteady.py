"""Jobs that do not settle: an iteration's figures are means, of a cycle if there is one, against sums by hand."""

import csv
import json

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.cli.main import main
from rostam_py.report.run.headline import run_headline
from rostam_py.simulation.variation import KernelVariation, distributions
from tests.spread.hand import all_reduce, compute, plan, product

MS = 1e-3


def job():
    """Return a kernel of 10 ms, two steps of 2 MB between two accelerators at 1 GB/s, and a kernel of 1 ms: 15 ms."""
    fabric = rostam.fabric("custom", num_accelerators=2, links=[[0, 1]], link_bandwidth=1e9, forwarding=True)
    return plan([compute(product(10 * MS)), all_reduce(4_000_000, 0), compute(product(MS), deps=(1,))], 2, fabric)


def run(scales, **more):
    """Return iterations, both links of each at 1 / scale of their bandwidth: 11 + 4 x scale ms."""
    events, begin = [], 0.0
    for scale in scales:
        events += [rostam.LinkBandwidth(begin, link, 1 / scale) for link in (0, 1)]
        begin += (11 + 4 * scale) * MS
    return rostam.simulate(job(), events=events, max_iterations=len(scales), **more)


def check(result, averaged, mean_scale):
    """Compare with iterations of 11 ms of compute and 4 ms x scale of communication, mean scales so many."""
    expected = (11 + 4 * mean_scale) * MS
    assert (result.is_steady, result.num_averaged) == (averaged == 1, averaged)
    assert result.iteration_time_s == pytest.approx(expected, abs=1e-12)
    assert result.samples_per_s == pytest.approx(result.plan.global_batch / expected)
    parts = {"compute": 11 * MS, "dp": 4 * mean_scale * MS}
    for found in (result.breakdown, result.critical_path_by_kind()):
        assert {kind: seconds for kind, seconds in found.items() if seconds} == pytest.approx(parts, abs=1e-11)
    assert result.breakdown_by_device.sum(axis=1) == pytest.approx(np.full(2, expected), abs=1e-12)
    assert sum(one["duration_s"] for one in result.critical_tasks()) == pytest.approx(expected, abs=1e-11)
    assert [one["count"] for one in result.critical_tasks()] == [2, 1]  # kernels have one name
    on_path = sum(seconds for _, seconds in (*result.kernels_on_path(), *result.communication_on_path()))
    assert on_path == pytest.approx(expected, abs=1e-11)
    assert sum(one.duration_s for one in result.critical_path()) == pytest.approx(result.iteration_times_s[-1])
    assert result.link_bytes == pytest.approx([4e6, 4e6])
    assert result.link_busy_s == pytest.approx(np.full(2, parts["dp"]), abs=1e-11)


def test_one_that_settles_is_its_last_iteration():
    check(run([3, 2, 1, 1, 1, 5]), 1, 1)


def test_one_that_alternates_is_the_mean_of_a_cycle_whatever_the_number_of_iterations():
    check(run([5, 1, 2, 1, 2, 1]), 2, 1.5)
    check(run([5, 2, 1, 2, 1, 2, 1, 2]), 2, 1.5)
    check(run([5, 1, 2, 4, 1, 2, 4, 1, 2]), 3, 7 / 3)


def test_one_without_a_cycle_is_the_mean_of_all_but_the_first():
    check(run([5, 1, 2, 3, 4]), 4, 2.5)
    check(run([1, 2, 1, 2]), 3, 5 / 3)  # the first is from a cold start: not twice 2, 1


def test_two_iterations_are_no_mean():
    result = run([5, 3])
    assert (result.is_steady, result.num_averaged) == (False, 1)
    assert result.iteration_time_s == pytest.approx(23 * MS)
    assert result.first_iteration_s == pytest.approx(31 * MS)


# Sets the first link to 2 to 6 GB/s every 37 ms, which no iteration takes.
TOGGLES = {
    "name": "link_bandwidth", "time_ps": [k * 37 * 10**9 for k in range(60)], "link": [0] * 60,
    "bytes_per_s": [2e9 * (1 + k * k % 5 / 2) for k in range(60)],
}  # fmt: skip


def mean_s(times):
    """Return the mean of all but the first; there is no cycle."""
    return sum(times[1:]) / (len(times) - 1)


def test_shares_of_the_peak_are_those_of_the_mean_iteration():
    fabric = rostam.fabric("electrical_flat", num_accelerators=2)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    graph, strategy = rostam.trace("gpt_125m"), rostam.Strategy(dp=2)
    plan = rostam.place(graph, machine, global_batch=16, strategy=strategy, cost="roofline", software="ideal")
    once, toggled = rostam.simulate(plan), rostam.simulate(plan, controllers=[TOGGLES])
    assert (once.num_averaged, toggled.num_averaged) == (1, 9)
    assert toggled.iteration_time_s == pytest.approx(mean_s(toggled.iteration_times_s))
    assert toggled.mfu == pytest.approx(once.mfu * once.iteration_times_s[-1] / mean_s(toggled.iteration_times_s))
    assert toggled.hfu / toggled.mfu == pytest.approx(once.hfu / once.mfu)


def test_it_is_said_in_notes_documents_and_the_report():
    result = run([5, 1, 2, 1, 2])
    said = (
        "iterations are not steady after 5: an iteration's figures are the mean of the last 2, which take 15 ms to 19"
    )
    assert result.notes[0].startswith(said)
    assert result.to_dict()["num_averaged"] == 2
    assert "num_averaged" not in run([1, 1, 1]).to_dict()
    (first, *_) = run_headline({"result": result.to_dict()})
    assert "17 ms, the mean of the last 2, which are not steady (15 ms to 19 ms)" in first
    assert "17 ms, mean of the last 2, not steady: 15 ms to 19 ms" in result._repr_html_()


def test_kernels_that_vary_are_a_single_draw():
    varied = rostam.simulate(
        job(), max_iterations=4, min_iterations=4, variation=KernelVariation(next(iter(distributions())), 0.3)
    )
    assert (varied.is_steady, varied.num_averaged) == (False, 1)
    assert varied.iteration_time_s == varied.iteration_times_s[-1]


def test_sweeps_rank_what_does_not_settle_by_its_mean_and_mark_it(tmp_path, capsys):
    words = ["model=gpt_125m", "fabric=electrical_flat", "num_accelerators=2", "global_batch=16", "cost=roofline"]
    words.append("seed=0,1")
    toggles = ", ".join(f"{key}: {value}" for key, value in TOGGLES.items())
    words.append(f"controllers=[{{{toggles}}}]")
    assert main(["sweep", *words, "sweep.backend=process", "report=false", f"out={tmp_path / 'sweep'}"]) == 0
    out = capsys.readouterr().out
    assert out.count("ms *") == 2
    assert "* not steady: the mean of its last iterations" in out
    points = list(csv.DictReader((tmp_path / "sweep" / "points.csv").open()))
    assert main(["run", *words[:5], words[6], f"out={tmp_path / 'run'}"]) == 0
    times = json.loads((tmp_path / "run" / "result.json").read_text())["iteration_times_s"]
    assert max(times) > 1.05 * min(times)
    for point in points:
        assert float(point["iteration_time_s"]) == pytest.approx(mean_s(times))
        assert float(point["samples_per_s"]) == pytest.approx(16 / mean_s(times))
        assert point["is_steady"] == "false"
