"""Bills of materials against a second count: by hand from HammingMesh's appendix C, and link by link."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fabrics.bill import BillOfMaterials


def counted(fabric, medium_of):
    """A bill of the priced parts of one plane, by walking its links; medium_of(src, dst): "DAC", "AoC" or None."""
    links = fabric.links
    cables = {int(one["cable"]): (int(one["src"]), int(one["dst"])) for one in links}
    found = {"DAC": 0, "AoC": 0}
    for ends in cables.values():
        medium = medium_of(*sorted(ends))
        if medium is not None:
            found[medium] += 1
    ends = np.union1d(links["src"], links["dst"])
    return BillOfMaterials(int((ends >= fabric.num_accelerators).sum()), found)


@pytest.mark.parametrize(
    "params",
    [
        {"num_accelerators": 256, "radix": 16},
        {"num_accelerators": 100, "radix": 16, "leaf_down": 10, "leaf_up": 6},
        {"num_accelerators": 128, "radix": 8, "levels": 3},
    ],
)
def test_a_tree_is_priced_as_its_links_are_counted(params):
    fabric = rostam.fabric("fat_tree", link_bandwidth="400 Gb/s", **params)
    bill = counted(fabric, lambda low, high: "DAC" if low < fabric.num_accelerators else "AoC")
    assert fabric.bill_of_materials() == bill


@pytest.mark.parametrize(
    ("params", "switches"),
    [
        ({"board": (2, 2), "boards": (8, 8)}, 16),  # one switch a row of boards (32 links), one a column
        ({"board": (1, 1), "boards": (20, 8)}, 8 + 20),
        ({"board": (2, 2), "boards": (6, 6), "radix": 8}, (12 + 12) * 5),  # trees of 3 leaves and 2 spines
    ],
)
def test_a_mesh_is_priced_as_its_links_are_counted(params, switches):
    fabric = rostam.fabric("hammingmesh", link_bandwidth="400 Gb/s", **params)
    count, grid = fabric.num_accelerators, fabric.grid()
    a, b = params["board"]
    # The board row and column of every accelerator, and of every switch those of the accelerators on it.
    row, column = np.empty(count, int), np.empty(count, int)
    row[grid], column[grid] = np.indices(grid.shape)[0] // b, np.indices(grid.shape)[1] // a
    links = fabric.links
    held = {}
    for one in links[(links["src"] < count) & (links["dst"] >= count)]:
        held.setdefault(int(one["dst"]), []).append(int(one["src"]))
    is_row = {switch: len({row[k] for k in on}) == 1 for switch, on in held.items()}

    def medium(low, high):
        if high < count:
            return None  # a trace on a board
        return "DAC" if low < count and is_row[high] else "AoC"

    bill = counted(fabric, medium)
    assert fabric.bill_of_materials() == bill
    assert bill.num_switches == switches


@pytest.mark.parametrize(
    ("name", "params", "usd"),
    [
        # Appendix C, 16 planes of 32 + 16 switches, 1,024 cables of each kind: 16 (48 x 14,280 + 1,024 (272 + 603)).
        ("fat_tree", {"num_accelerators": 1024, "planes": 16}, 25_303_040),
        # Appendix C, 4 planes of 32 switches, 1,024 cables of each kind: 4 (32 x 14,280 + 1,024 (272 + 603)).
        ("hammingmesh", {"board": (2, 2), "boards": (16, 16), "planes": 4}, 5_411_840),
        # MODEL 28 at 8 Tb/s: links of 8 Tb/s take 20 parts; 8 leaves of 32 and 4 spines, 256 cables of each kind:
        # 20 (12 x 14,280 + 256 (272 + 603)).
        ("fat_tree", {"num_accelerators": 256, "accelerator_bandwidth": "8 Tb/s"}, 7_907_200),
        # Four links of 2 Tb/s take 5 parts; 8 + 8 switches, 8 x 32 cables of each kind: 5 (16 x 14,280 + 256 x 875).
        ("hammingmesh", {"board": (2, 2), "boards": (8, 8), "accelerator_bandwidth": "8 Tb/s"}, 2_262_400),
    ],
)
def test_dollars_are_those_of_a_count_by_hand(name, params, usd):
    assert rostam.fabric(name, **params).bill_of_materials().total_usd == usd
