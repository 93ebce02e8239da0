"""Search against exhaustive simulation, and on a large machine (experiments/search_exhaustive prints it)."""

import importlib.util
from pathlib import Path

import pytest

import rostam_py as rostam

FOLDER = Path(__file__).parents[2] / "experiments" / "search_exhaustive"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows():
    """Three models on three fabrics of 16 accelerators."""
    spec = importlib.util.spec_from_file_location("search_exhaustive", FOLDER / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compare()


def test_the_found_strategy_is_within_5_percent_of_the_best_of_all(rows):
    assert len(rows) == 9
    assert all(row["simulated"] > 30 for row in rows)
    assert {(row["model"], row["fabric"]): row["gap"] for row in rows if row["gap"] > 0.05} == {}


def test_half_of_all_estimates_are_within_5_percent(rows):
    assert all(row["median_error"] < 0.05 for row in rows)


def test_a_thousand_accelerators_are_searched():
    graph = rostam.trace("transformer_350m")
    fabric = rostam.fabric("electrical_cluster", num_accelerators=1024, accelerator_bandwidth="1600 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    found = rostam.search(
        graph,
        machine,
        convergence="transformer_sip_ml",
        base=rostam.Strategy(precision="bf16_mixed"),
        software="ideal",
    )
    assert found.best.global_batch == 1024
    assert len(found.simulated) == 8
