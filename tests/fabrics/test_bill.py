"""Bills of materials against a second count: by hand from HammingMesh's appendix C, and link by link."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials, parts_per_port


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


# Bytes/s of k ports of 400 Gb/s: what 0.4 k Tb/s come to in floats (3 x 0.4 = 1.2000000000000002), one more bit/s, and
# just above half a port more.
@pytest.mark.parametrize(
    ("bytes_per_s", "parts"),
    [
        (3 * 0.4e12 / 8, 3),
        (0.4 * 3 * 1e12 / 8, 3),
        (3 * 50e9 * (1 + 2**-52), 3),
        (3 * 50e9 + 1, 4),
        (3 * 50e9 * 1.01, 4),
        (3.5 * 50e9, 4),
        (50e9, 1),
        (1.0, 1),
        (0.0, 1),
    ],
)
def test_a_link_takes_as_many_parts_as_its_rate_needs_and_none_for_the_rounding_of_a_float(bytes_per_s, parts):
    assert parts_per_port(bytes_per_s) == parts


@pytest.mark.parametrize(("bandwidth", "parts"), [("400 Gb/s", 1), ("401 Gb/s", 2), ("1.2 Tb/s", 3), ("1201 Gb/s", 4)])
def test_switches_and_cables_are_priced_by_the_parts_of_a_link(bandwidth, parts):
    # Two leaves of 32 and a spine: 3 switches, 64 cables to accelerators, 64 between leaves and spine.
    bill = rostam.fabric("fat_tree", num_accelerators=64, levels=2, link_bandwidth=bandwidth).bill_of_materials()
    assert (bill.num_switches, bill.num_cables) == (3 * parts, {"DAC": 64 * parts, "AoC": 64 * parts})


def dragonfly(routers_per_switch=1, **changed):
    shape = {"routers_per_group": 16, "terminals_per_router": 17, "global_links_per_router": 32, "num_groups": 3}
    return rostam.fabric(
        "dragonfly", link_bandwidth="400 Gb/s", routers_per_switch=routers_per_switch, **(shape | changed)
    )


def test_a_dragonfly_of_switches_with_all_64_ports_is_priced_and_one_with_65_is_not():
    # 17 accelerators + 32 global + 15 local = 64 ports. 3 x 16 switches; 48 x 17 cables to accelerators and 3 x 120
    # inside groups; 16 x 32 global ports of a group over two others: 3 x 512 / 2.
    bill = dragonfly().bill_of_materials()
    assert (bill.num_switches, bill.num_cables) == (48, {"DAC": 48 * 17 + 360, "AoC": 768})
    assert bill.total_usd == 48 * 14_280 + 1176 * 272 + 768 * 603
    with pytest.raises(ConfigError, match="switches of 65 ports have no price; the price list's have 64"):
        dragonfly(terminals_per_router=18).bill_of_materials()


def test_a_dragonfly_of_two_routers_in_a_switch_counts_the_ports_of_both():
    # 2 (9 accelerators + 9 global + 14 local cables to the other switches' routers) = 64 ports; 3 x 8 switches; a group
    # has 16 x 14 / 2 local cables; 16 x 9 global ports.
    bill = dragonfly(2, terminals_per_router=9, global_links_per_router=9).bill_of_materials()
    assert (bill.num_switches, bill.num_cables) == (24, {"DAC": 48 * 9 + 3 * 112, "AoC": 3 * 144 // 2})
    with pytest.raises(ConfigError, match="switches of 66 ports have no price"):
        dragonfly(2, terminals_per_router=10, global_links_per_router=9).bill_of_materials()
