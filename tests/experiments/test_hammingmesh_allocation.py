"""HammingMesh's allocation claims: what holds whatever the family of job sizes, and what an own replay confirms."""

import pytest

from rostam_py.reproduction import Verdict, experiments_in, run_experiment

pytestmark = pytest.mark.slow  # hundreds of mixes
FAMILIES = ("n^-2", "n^-1.5", "n^-1", "mixed")


@pytest.fixture(scope="module")
def entries():
    """Every figure of both folders by name."""
    names = ("hammingmesh_allocation", "hammingmesh_allocation_failures")
    return {row.figure.name: row for name in names for row in run_experiment(experiments_in()[name]).rows}


@pytest.mark.parametrize("family", FAMILIES)
def test_jobs_by_size_fill_98_percent_where_the_largest_has_15(entries, family):
    where = f"{family}, largest 15%"
    assert float(entries[f"sorted: mean: {where}"].figure.ours) >= 98
    assert float(entries[f"sorted: median: {where}"].figure.ours) >= 98


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("share", ["15%", "50%"])
def test_each_heuristic_adds_to_those_before_it(entries, family, share):
    where = f"{family}, largest {share}"
    names = ("greedy alone", "transpose", "transpose, aspect ratio 8", "sorted: mean")
    own = [float(entries[f"{name}: {where}"].figure.ours) for name in names]
    assert own == sorted(own)


@pytest.mark.parametrize("family", FAMILIES)
def test_40_failed_boards_of_256_leave_70_percent_in_use_where_the_largest_has_15(entries, family):
    for how in ("transpose", "all heuristics"):
        row = entries[f"Hx2Mesh of 16 x 16 boards, 40 failed: median: {family}, largest 15%, {how}"]
        assert row.verdict is Verdict.REPRODUCED


def test_locality_keeps_a_quarter_of_the_traffic_on_upper_levels_at_most(entries):
    rows = [row for name, row in entries.items() if name.startswith("Hx4Mesh of 32 x 32 boards, locality: all-to-all")]
    assert len(rows) == 8
    assert all(row.verdict is Verdict.REPRODUCED for row in rows)
