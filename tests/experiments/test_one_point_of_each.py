"""One point of every experiment is computed anew by default: its program runs, and gives what is shipped.

Of an experiment that ships no points the cheapest rows go through its whole comparison (all: test_ledger, slow).
"""

import csv
import itertools
import json
import sys

import pytest

from rostam_py.reproduction import experiments_in, run_experiment

pytestmark = pytest.mark.always
KNOWN = experiments_in()
# Of those that ship points one that takes seconds: few accelerators, small groups.
POINTS = {
    "hammingmesh_fig11": "Hx2Mesh | direct | 16 KiB",
    "hammingmesh_fig12": "75% tapered tree | packet",
    "hammingmesh_fig15": "CosmoFlow | Hx4Mesh",
    "hammingmesh_table2_packets": "75% tapered tree | shifts | 16 KiB | packet",
    "hammingmesh_fig13_fig17": "2D torus | torus_2d_unidirectional",
    "ml_routing_mix": "1 jobs, seed 0",
    "ordering_against_flat": "resnet50 | dp 256 | electrical_flat | 400 Gb/s",
    "sip_ml_abstract": "resnet50 | compute 70% | flat | 8192 Gb/s | 1",
    "sip_ml_fig5": "resnet50 | paper | Elect-Flat | 128 Gb/s",
    "sip_ml_fig6": "paper | dp | 512 Gb/s",
    "sip_ml_fig7": "k = 4, 16 circuits, 10 us",
    "ml_routing_controllers": "staggered | 2 jobs, rings of 8 | greedy_by_sets | 4 spines and 0 links failed",
    "sip_ml_fig8": "all, groups | 1024 Gb/s | 4 OCS",
    "sip_ml_fig9": "sip_ocs | 512 Gb/s | control periodic, reconfiguration_delay 1 us",
    "sip_ml_fig10": "resnet50 | Elect-Flat | 64",
    "slim_fly_against_tree": "ring | 128 nodes | as numbered",
    "sip_ml_table1": "transformer_350m, transformer_sip_ml | all | 32 | 10 us",
}
TIMED = "search_all_axes"  # its points hold CPU seconds
# Of those whose rows are in expected.csv, and take more than seconds all together.
ROWS = {
    "hammingmesh_dlrm": "Hx4Mesh",
    "hammingmesh_gpt3_moe": "Hx4Mesh",
    "hammingmesh_table2_throughput": "Hx4Mesh small",
    "korthikanti_activation_memory": "megatron_22b",
}
OWN = (
    "fleet_goodput",
    "fleet_jobs",
    "hammingmesh_allocation",
    "hammingmesh_allocation_failures",
    "hammingmesh_cosmoflow",
    "hammingmesh_gpt3",
    "hammingmesh_resnet152",
    "hammingmesh_table2_cost",
    "in_network_reduction",
    "infinitehbd_wasted_gpus",
)  # whole in test_ledger, or in part in tests of their own


def close(anew, kept):
    """Say whether a point is the kept one, numbers to the last digits that JSON and sums keep."""
    if isinstance(kept, dict):
        return anew.keys() == kept.keys() and all(close(anew[key], kept[key]) for key in kept)
    if isinstance(kept, list):
        return len(anew) == len(kept) and all(map(close, anew, kept))
    return anew == pytest.approx(kept, rel=1e-9) if isinstance(kept, float) else anew == kept


def test_every_experiment_has_its_point():
    assert {*POINTS, *ROWS, *OWN, TIMED, "sip_ml_ring", "packet_against_flow", "search_exhaustive"} == set(KNOWN)


class _FoundError(Exception):
    """Ends an experiment that has asked for its point."""


@pytest.mark.parametrize("name", POINTS)
def test_a_shipped_point_is_computed_anew(name, monkeypatch, tmp_path):
    kept = json.loads((KNOWN[name].folder / "points.json").read_text())["points"]
    module = KNOWN[name].load()
    asked = []

    def keep(self, key, compute):
        if key == POINTS[name]:
            asked.append(json.loads(json.dumps(compute())))
            raise _FoundError
        return kept[key]

    monkeypatch.setattr(sys.modules["searched_points"].SearchedPoints, "keep", keep)
    with pytest.raises(_FoundError):
        module.figures(tmp_path / "points.json")
    assert close(asked[0], kept[POINTS[name]])


def test_a_ring_is_taken_apart_on_few_accelerators(monkeypatch, tmp_path):
    module = KNOWN["sip_ml_ring"].load()  # its points are of 1,024, and take minutes each
    for name, value in {"NUM_ACCELERATORS": 32, "BATCH": 32, "GROUPS": (4,), "BANDWIDTHS": (1_024,)}.items():
        monkeypatch.setattr(module, name, value)
    (figure,) = module.figures(tmp_path / "points.json")
    ((_, times),) = json.loads((tmp_path / "points.json").read_text())["points"].items()
    assert len(times) == len(module.STEPS)
    assert figure.ours.startswith(f"{times[-1] / times[0]:.2f}x")
    assert times[3] >= times[2] * (1 - 1e-9)  # shared fibres take nothing away from a circuit's time


def test_a_search_over_few_axes_is_compared_with_all_of_them_simulated(monkeypatch):
    module = KNOWN[TIMED].load()
    monkeypatch.setattr(module, "SMALL_AXES", {"tp": [4, 8], "pp": [1, 2], "shard": [0, 1]})
    found = module.small("llama3_70b")
    assert found["strategies"] > 50
    assert found["gap"] <= module.MOST_GAP


def compared(name, module, monkeypatch, capsys):
    """Return the figures of an experiment whose module is cut to few rows, after its table is printed."""
    experiment = KNOWN[name]
    monkeypatch.setattr(type(experiment), "load", lambda _: module)
    monkeypatch.setattr(sys, "argv", ["compare.py"])
    monkeypatch.setenv("COLUMNS", "400")
    entry = run_experiment(experiment)
    assert not entry.failed
    module.main()
    printed = capsys.readouterr().out
    assert all(row.figure.ours in printed for row in entry.rows)
    return [row.figure for row in entry.rows]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_goes_through_the_whole_comparison(name, monkeypatch, tmp_path, capsys):
    module = KNOWN[name].load()
    with module.EXPECTED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    row = next(row for row in rows if ROWS[name] in row.values())
    (tmp_path / "expected.csv").write_text("\n".join(",".join(cells) for cells in (row.keys(), row.values())))
    monkeypatch.setattr(module, "EXPECTED", tmp_path / "expected.csv")
    figures = compared(name, module, monkeypatch, capsys)
    assert figures
    assert all(figure.name.startswith(ROWS[name]) for figure in figures)


def test_packets_are_compared_with_flows(monkeypatch, capsys):
    module = KNOWN["packet_against_flow"].load()
    cases = module.cases
    monkeypatch.setattr(module, "cases", lambda: itertools.islice(cases(), 2))
    figures = compared("packet_against_flow", module, monkeypatch, capsys)
    assert [figure.is_met for figure in figures] == [True, True]


def test_a_search_is_compared_with_all_strategies_simulated(monkeypatch, capsys):
    module = KNOWN["search_exhaustive"].load()
    monkeypatch.setattr(module, "MODELS", (("gpt_125m", {"num_layers": 1}, 16),))
    monkeypatch.setattr(module, "FABRICS", module.FABRICS[:1])
    figures = compared("search_exhaustive", module, monkeypatch, capsys)
    assert [figure.is_met for figure in figures] == [True]
