"""The ledger's figures are those that the experiments' own comparisons print, each with a verdict that is explained."""

import re
import sys

import pytest

from rostam_py.reproduction import Verdict, experiments_in, run_experiment
from rostam_py.reproduction.reasons import reasons_of, stale

KNOWN = experiments_in()
pytestmark = pytest.mark.always
# hammingmesh_cosmoflow stands for the family's others, whose figures are tested in their own files.
SLOW = (
    "hammingmesh_table2_throughput", "hammingmesh_gpt3_moe", "hammingmesh_gpt3", "hammingmesh_resnet152",
    "korthikanti_activation_memory", "search_exhaustive",
    "packet_against_flow", "fleet_goodput", "hammingmesh_allocation",
    "infinitehbd_wasted_gpus", "in_network_reduction",
)  # fmt: skip


def printed_cells(text):
    """Return the cells of every line of the tables that a comparison prints."""
    return [[cell.strip() for cell in re.split("[\u2502|]", line)] for line in text.splitlines()]


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in KNOWN])
def test_figures_are_those_that_the_comparison_prints(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(sys, "argv", ["compare.py"])
    entry = run_experiment(KNOWN[name])
    assert not entry.failed
    assert entry.rows
    KNOWN[name].load().main()
    lines = printed_cells(capsys.readouterr().out)
    for row in entry.rows:
        figure = row.figure
        with_ours = [cells for cells in lines if figure.ours in cells]
        assert with_ours, figure
        if any(figure.published in cells for cells in lines):
            assert any(figure.published in cells for cells in with_ours), figure
    assert [row.figure.name for row in entry.rows if row.verdict is Verdict.UNEXPLAINED] == []
    assert len({row.figure.name for row in entry.rows}) == len(entry.rows)
    assert stale(entry.rows, reasons_of(KNOWN[name].folder)) == []


def test_every_folder_is_an_experiment_and_has_a_title():
    folder = next(iter(KNOWN.values())).folder.parent
    assert {path.parent.name for path in folder.glob("*/README.md")} == set(KNOWN)
    assert all(one.title != one.name for one in KNOWN.values())
