"""The bench itself, on cases that are made up: limits, targets, growth, stored results and regressions."""

import json
import subprocess
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks import history
from benchmarks import measure as measuring
from benchmarks.case import Case
from benchmarks.cases import cases
from benchmarks.measure import Measurement


def run(name="x", cpu_s=1.0, **other):
    return Measurement(name=name, family=name.partition(":")[0], cpu_s=cpu_s, **other)


def stored(folder, name, date, processor, **cpu_s):
    rows = [{"name": key, "cpu_s": value, "error": ""} for key, value in cpu_s.items()]
    document = {"date": date, "machine": {"processor": processor}, "measurements": rows}
    (folder / name).write_text(json.dumps(document))


def test_names_are_unique_and_sizes_ascend_within_a_family():
    found = cases()
    assert len({case.name for case in found}) == len(found)
    sizes = {}
    for case in found:
        sizes.setdefault(case.family, []).append(case.size)
    assert all(one == sorted(one) for one in sizes.values())


def test_growth_is_the_slope_through_all_sizes_that_ended():
    # 3 size^2 exactly; the size that was ended at its limit and the case alone are left out.
    found = [run(f"f:{n}", 3.0 * n**2, size=n) for n in (2, 4, 8)]
    found += [run("f:16", 5.0, size=16, is_over=True), run("alone:2", 1.0, size=2)]
    assert bench.growth(found) == {"f": pytest.approx(2.0)}


def test_growth_for_each_of_a_figure_leaves_out_cases_without_it():
    found = [run(f"f:{n}", 3.0 * n**2, size=n, figures={"message_hops": n**1.5}) for n in (2, 4, 8)]
    found += [run(f"g:{n}", 3.0 * n**2, size=n) for n in (2, 4)]
    assert bench.growth(found, "message_hops") == {"f": pytest.approx(0.5)}


def test_misses_name_each_target_that_is_not_met():
    one = run(cpu_s=2.0, target_cpu_s=1.0, peak_bytes=5, target_bytes=6, least={"rate": 10}, figures={"rate": 9})
    assert one.misses == ["cpu_s", "rate"]
    assert "MISSED" in bench.targets(one)
    assert run(cpu_s=1.0, target_cpu_s=1.0).misses == []
    assert run(cpu_s=9.0, target_cpu_s=9.0, is_over=True).misses == ["cpu_s"]
    ended = run(cpu_s=1.0, target_cpu_s=9.0, is_over=True)
    assert ended.misses == []
    assert bench.targets(ended) == "9 CPU s: not known"
    assert not run().has_target


_PROGRAM = """
import sys
from benchmarks import measure
from benchmarks.case import Case
def spin():
    while True: pass
def quick(): return {{"rate": 7.0}}
def prepare(): {prepare}
measure.cases = lambda: [Case(name="x", prepare=prepare, cpu_limit_s=1)]
print(measure._MARK + measure.json.dumps(measure.asdict(measure.run_here("x"))))
"""


@pytest.mark.parametrize(
    ("prepare", "is_over", "error"),
    [
        ("return quick", False, ""),
        ("return spin", True, ""),
        ("spin()", False, "its preparation took more than 1 CPU s"),
        ("raise ValueError('no such')", False, "ValueError: no such"),
    ],
)
def test_a_case_past_its_limit_is_reported_as_more_and_not_as_an_error(monkeypatch, prepare, is_over, error):
    program = _PROGRAM.format(prepare=prepare)
    real = subprocess.run

    def redirected(command, **options):
        assert command[1:] == ["-m", "benchmarks.measure", "x", "1"]
        return real([sys.executable, "-c", program], **options)

    monkeypatch.setattr(measuring.subprocess, "run", redirected)
    found = measuring.measure(Case(name="x", prepare=lambda: dict, cpu_limit_s=5), 60.0, cpu_limit_s=1)
    assert (found.is_over, found.error) == (is_over, error)
    assert found.figures == ({"rate": 7.0} if prepare == "return quick" else {})
    if is_over:
        assert found.cpu_s == 1.0


def test_the_newest_result_of_the_same_processor_is_compared_with(tmp_path):
    stored(tmp_path, "a.json", "2026-01-02", "this", x=1.0)
    stored(tmp_path, "b.json", "2026-01-01", "this", x=2.0)
    stored(tmp_path, "c.json", "2026-01-03", "other", x=3.0)
    (tmp_path / "d.json").write_text("[]")
    compared = {"date": "2026-01-04", "machine": {"processor": "this"}, "measurements": [{"name": "x", "there": {}}]}
    (tmp_path / "e.json").write_text(json.dumps(compared))
    assert history.newest(tmp_path, "this")["file"] == "a.json"
    assert history.newest(tmp_path, "none") is None


def test_every_stored_result_can_be_compared_with():
    documents = [json.loads(path.read_text()) for path in history.STORED.glob("*.json")]
    processors = {one["machine"]["processor"] for one in documents if isinstance(one, dict)}
    assert processors
    for processor in processors:
        before = history.newest(history.STORED, processor)
        name = before["measurements"][0]["name"]
        assert history.regressions(before["measurements"], [run(name, 1e9)])


@pytest.mark.parametrize(
    ("old", "new", "is_slower"), [(1.0, 1.49, False), (1.0, 1.51, True), (0.1, 0.19, False), (0.1, 0.21, True)]
)
def test_a_regression_is_over_half_more_and_over_a_tenth_of_a_second(old, new, is_slower):
    before = [{"name": "x", "cpu_s": old, "error": ""}]
    assert bool(history.regressions(before, [run(cpu_s=new)])) is is_slower


def test_ended_cases_are_compared_as_far_as_they_tell():
    before = [{"name": "x", "cpu_s": 10.0, "error": ""}, {"name": "y", "cpu_s": 1.0, "error": "", "is_over": True}]
    now = [run("x", 60.0, is_over=True), run("y", 5.0), run("new", 5.0)]
    assert history.regressions(before, now) == ["x: more than 60 CPU s, was 10"]


@pytest.mark.parametrize(("cpu_s", "code"), [(1.0, 0), (9.0, 1)])
def test_the_bench_writes_its_result_and_returns_1_for_a_regression(monkeypatch, tmp_path, capsys, cpu_s, code):
    stored(tmp_path, "old.json", "2026-01-01", bench.machine()["processor"], x=1.0)
    monkeypatch.setattr(bench, "cases", lambda: [Case(name="x", prepare=dict), Case(name="other", prepare=dict)])
    monkeypatch.setattr(bench, "measure", lambda case, timeout_s, cpu_limit_s=None: run(case.name, cpu_s))
    out = tmp_path / "out" / "new.json"
    keys = ["--date", "2026-01-02", "--only", "x", "--stored", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *keys])
    assert bench.main() == code
    assert f"regressions against old.json of 2026-01-01: {code}" in capsys.readouterr().out
    document = json.loads(out.read_text())
    assert [one["name"] for one in document["measurements"]] == ["x"]
    assert document["machine"]["processor"] == bench.machine()["processor"]


def test_short_calls_have_cpu_seconds_under_a_limit_too():
    # The CPU seconds of a process with a limit step by 4 ms: a call of 0.5 ms took none on most tries.
    script = """
import time
from benchmarks import measure, scale
measure._limit_cpu(60)
call = scale._permutation(count=64, routing="spray", num_seeds=5)
assert 1e3 < call()["flows_per_s"] < 1e8
for _ in range(20):
    before, start = measure._cpu_s(), time.thread_time()
    while time.thread_time() - start < 5e-4:
        pass
    assert 5e-4 <= max(now - then for now, then in zip(measure._cpu_s(), before, strict=True)) < 0.1
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize(
    ("fixed", "defaults"),
    [
        ("gpt3_16128", "gpt3_16128_defaults"),
        ("resnet50_16384", "resnet50_16384_defaults"),
        ("transformer_1024_slow_device", "transformer_1024_defaults"),
        ("transformer_350m_fat_tree_folded", "transformer_350m_fat_tree_defaults"),
        ("transformer_350m_electrical_cluster_folded", "transformer_350m_electrical_cluster_defaults"),
    ],
)
def test_jobs_also_run_with_the_algorithms_that_users_get(fixed, defaults):
    by_name = {case.name: case for case in cases()}
    ours, theirs = (by_name[name].arguments for name in (fixed, defaults))
    assert "algorithms" in ours["strategy"]
    assert "algorithms" not in theirs["strategy"]
    assert theirs["strategy"] == {key: value for key, value in ours["strategy"].items() if key != "algorithms"}
    assert {key: theirs[key] for key in ("model", "fabric", "global_batch")} == {
        key: ours[key] for key in ("model", "fabric", "global_batch")
    }
