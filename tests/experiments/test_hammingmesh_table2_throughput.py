"""HammingMesh's Table II: bandwidths and diameters beside the printed ones."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "hammingmesh_table2_throughput"


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("hammingmesh_table2_throughput", FOLDER / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def differences(module):
    return {(row["name"], row["quantity"]): row["difference"] for row in module.compare(enable_shifts=False)}


def test_diameters_are_the_printed_ones_but_for_the_small_hx4mesh_on_shared_switches(differences):
    off = {name: value for (name, quantity), value in differences.items() if quantity == "diameter" and value}
    assert off == {"Hx4Mesh small": 6 / 8 - 1}


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("nonblocking small", 0.01),
        ("50% tapered small (32 / 16)", 0.01),
        ("75% tapered small (32 / 8)", 0.01),
        ("Hx2Mesh small", 0.05),
    ],
)
def test_all_to_all_is_near_print(name, bound, differences):
    assert abs(differences[name, "all-to-all"]) < bound


def test_an_hx1mesh_stays_at_half_of_its_injection_bandwidth_unlike_the_printed_hyperx(differences):
    assert differences["2D HyperX small (as Hx1Mesh)", "all-to-all"] == pytest.approx(33 / 64 / 0.916 - 1)


def test_all_reduce_uses_every_port_and_is_within_two_percent_of_print(differences):
    found = [value for (_, quantity), value in differences.items() if quantity == "all-reduce" and value is not None]
    assert len(found) == 8
    assert all(0 < value < 0.02 for value in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params", "printed"),
    [
        ("fat_tree", {"num_accelerators": 1024, "leaf_down": 32, "leaf_up": 16}, 51.2),
        ("fat_tree", {"num_accelerators": 1024, "leaf_down": 32, "leaf_up": 8}, 25.7),
    ],
)
def test_the_balanced_shift_on_tapered_trees_is_the_printed_one(name, params, printed, module):
    assert 100 * module.shift_by_shift(module.build_fabric(name, **params)) == pytest.approx(printed, abs=0.06)
