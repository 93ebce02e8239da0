"""A search says what it does, keeps what it found, ends in time, and does not try what cannot fit."""

import io
import time

import pytest
from rich.console import Console

import rostam_py as rostam
from rostam_py.cli.progress_lines import ProgressLines
from rostam_py.errors import ConfigError
from rostam_py.placement.sip_ml import placer
from rostam_py.searching import Searcher
from rostam_py.searching.watch import NOT_TRIED


def test_a_spent_budget_leaves_the_best_so_far_and_says_what_was_not_tried(gpt, machine, base):
    found = rostam.search(gpt, machine, batches=[32, 64], base=base, budget=1e-9, software="ideal")
    missing = [c for c in found.candidates if c.reason == NOT_TRIED]
    assert found.best.simulated_s is not None
    assert len(missing) > len(found.candidates) / 2
    assert f"{len(missing):,} of {len(found.candidates):,} candidates were not tried" in found.notes[-1]


def test_a_budget_that_is_not_spent_changes_nothing(gpt, machine, base):
    free, limited = (
        rostam.search(gpt, machine, batches=[32], base=base, num_simulated=1, budget=budget, software="ideal")
        for budget in (None, "1000 s")
    )
    assert free.to_dict() == limited.to_dict()


@pytest.mark.parametrize("budget", ["0 s", "-1 s", "soon"])
def test_a_budget_is_a_time(gpt, machine, base, budget):
    with pytest.raises(ConfigError, match="budget"):
        rostam.search(gpt, machine, batches=[32], base=base, budget=budget, software="ideal")


def test_what_was_found_so_far_is_handed_out(gpt, machine, base):
    seen = []
    searcher = Searcher(gpt, base=base, placers=["megatron"], software="ideal")
    found = searcher.search(machine, batches=[32], num_simulated=2, so_far=lambda make: seen.append(make()))
    assert len(seen[0].candidates) == 1
    assert seen[-1].best.simulated_s == found.best.simulated_s
    assert all("not finished: what was found so far" in one.notes for one in seen)
    assert "not finished: what was found so far" not in found.notes


def test_no_op_is_split_for_a_group_without_room_and_its_refusal_is_kept(gpt, machine, base, monkeypatch):
    monkeypatch.setattr(placer, "_sub_ops", lambda *_: pytest.fail("an op was split"))
    checks = []
    check = placer.check_group_room
    monkeypatch.setattr(placer, "check_group_room", lambda *given: (checks.append(given), check(*given)))
    searcher = Searcher(gpt, base=base, placers=["sip_ml"], software="ideal")
    for _ in range(2):
        with pytest.raises(ConfigError, match="no strategy fits"):
            searcher.search(machine, batches=[8 * 4096])
    assert len(checks) == 4  # groups of 1, 2, 4 and 8, each once


def test_a_line_comes_off_a_terminal_even_during_one_long_step(monkeypatch):
    monkeypatch.setattr("rostam_py.cli.progress_lines.EVERY_S", 0.02)
    console = Console(file=io.StringIO())
    with ProgressLines(console) as log:
        log.say("estimating dp 8")
        time.sleep(0.3)
    assert "0 s: estimating dp 8" in console.file.getvalue()
