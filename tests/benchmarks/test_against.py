"""Comparing two checkouts: medians and ratios, an error instead of a number, and the checkout's own interpreter."""

import stat

import pytest

from benchmarks import against
from benchmarks.case import Case
from benchmarks.measure import Measurement, measure


def run(cpu_s, megabytes, error=""):
    return Measurement(name="x", family="x", cpu_s=cpu_s, peak_bytes=int(megabytes * 1e6), error=error)


@pytest.fixture
def case():
    return Case(name="x", prepare=lambda: dict)


def test_checkouts_take_turns_and_medians_are_compared(case, monkeypatch, tmp_path):
    # Medians there 1.0 s and 100 MB, here 1.2 s and 105 MB; 0.05 s is added to both times.
    there, here = [run(9, 100), run(1, 100), run(0.5, 99)], [run(1.2, 105), run(1.1, 300), run(5, 104)]
    asked = []

    def measured(one, timeout_s, tree=None):
        asked.append(tree)
        return (here if tree is None else there).pop(0)

    monkeypatch.setattr(against, "measure", measured)
    row = against.compare(case, tmp_path, 3, 1.0)
    assert asked == [tmp_path, None] * 3
    assert row["ratio"] == pytest.approx({"cpu_s": 1.25 / 1.05, "peak_bytes": 1.05})


def test_a_case_that_fails_says_where(case, monkeypatch, tmp_path):
    monkeypatch.setattr(against, "measure", lambda one, timeout_s, tree=None: run(1, 1, "gone" if tree is None else ""))
    assert against.compare(case, tmp_path, 3, 1.0) == {"name": "x", "error": "here: gone"}


def test_the_other_checkout_runs_its_own_interpreter_in_its_own_folder(case, tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "ran $2 $3 in $(pwd -P)" >&2\nexit 1\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    assert measure(case, 60.0, tmp_path).error == f"ran benchmarks.measure x in {tmp_path.resolve()}"
