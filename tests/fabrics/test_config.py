"""Schemas of the fabrics: bandwidths, planes, bills, errors."""

import contextlib

import pytest

from rostam_py.errors import ConfigError, UnitError, UnknownNameError
from rostam_py.fabrics import FABRICS, build_fabric, example_fabric


def test_accelerator_bandwidth_is_planes_times_ports_times_link_bandwidth():
    given = build_fabric("torus", dims=(4, 4), link_bandwidth="400 Gb/s", planes=4)
    assert given.injection_bandwidth_bytes_per_s == 4 * 4 * 50e9
    assert given.plane_bandwidth_bytes_per_s == 4 * 50e9
    derived = build_fabric("torus", dims=(4, 4), accelerator_bandwidth="6400 Gb/s", planes=4)
    assert set(derived.links["bandwidth_bytes_per_s"]) == {50e9}
    assert derived.num_links == 4 * given.num_links // 4 == 4 * 32
    plain = build_fabric("electrical_flat", num_accelerators=2, accelerator_bandwidth=1e9)
    assert set(plain.links["bandwidth_bytes_per_s"]) == {1e9}


def test_the_default_bandwidth_is_sixteen_ports_of_400_gigabits():
    for name, params in [("electrical_flat", {"num_accelerators": 2}), ("torus", {"dims": (4, 4)})]:
        assert build_fabric(name, **params).injection_bandwidth_bytes_per_s == 800e9


# HammingMesh, table II and appendix C: 16 planes of trees, 4 of the torus; the torus is priced with copper.
@pytest.mark.parametrize(
    ("name", "params", "cables", "million_usd"),
    [
        ("fat_tree", {"num_accelerators": 1024, "planes": 16}, {"DAC": 1024, "AoC": 1024}, 25.3),
        ("fat_tree", {"num_accelerators": 1050, "planes": 16, "leaf_down": 42}, {"DAC": 1050, "AoC": 550}, 17.6),
        ("fat_tree", {"num_accelerators": 1071, "planes": 16, "leaf_up": 13}, {"DAC": 1071, "AoC": 273}, 13.2),
        ("fat_tree", {"num_accelerators": 16384, "planes": 16}, {"DAC": 16384, "AoC": 32768}, 680),
        ("torus", {"dims": (32, 32), "board": (2, 2), "planes": 4}, {"DAC": 1024}, 4 * 1024 * 272e-6),
    ],
)
def test_bills_of_materials_meet_the_published_prices(name, params, cables, million_usd):
    bill = build_fabric(name, **params).bill_of_materials()
    assert bill.num_cables == {medium: params["planes"] * count for medium, count in cables.items()}
    assert bill.total_usd == pytest.approx(million_usd * 1e6, rel=3e-3)


# The demonstration has 256 accelerators (MODEL 28). By hand from the price list: the tree has 8 + 4 switches of
# 14,280 US$, 256 DAC of 272 and 256 AoC of 603: 395,360 US$ in parts of 400 Gb/s, of which 8 Tb/s take 20.
@pytest.mark.parametrize(
    ("bandwidth", "planes", "parts"),
    [
        ("8 Tb/s", 1, 20),
        ("400 Gb/s", 1, 1),
        ("401 Gb/s", 1, 2),
        ("100 Gb/s", 1, 1),
        ("8 Tb/s", 16, 32),
        ("8 Tb/s", 20, 20),
    ],
)
def test_dollars_grow_with_bandwidth_in_whole_parts_of_every_plane(bandwidth, planes, parts):
    tree = build_fabric("fat_tree", num_accelerators=256, accelerator_bandwidth=bandwidth, planes=planes)
    bill = tree.bill_of_materials()
    assert (bill.num_switches, bill.num_cables) == (parts * 12, {"DAC": parts * 256, "AoC": parts * 256})
    assert bill.total_usd == parts * 395_360


# HammingMesh: 8 Tb/s over four ports are 5 parts a link. 16 switches, 256 DAC and 256 AoC of 400 Gb/s: 452,480 US$.
def test_a_mesh_needs_a_quarter_of_the_parts_a_link_at_the_same_injection_bandwidth():
    params = {"board": (2, 2), "boards": (8, 8), "accelerator_bandwidth": "8 Tb/s"}
    assert build_fabric("hammingmesh", **params).bill_of_materials().total_usd == 5 * 452_480


# A torus of 8 x 8 has 128 cables, of 2 Tb/s each where an accelerator has 8.
def test_a_torus_pays_for_the_parts_of_its_links():
    bill = build_fabric("torus", dims=(8, 8), accelerator_bandwidth="8 Tb/s").bill_of_materials()
    assert bill.total_usd == 128 * 5 * 272


# One port of 400 Gb/s a server: one switch up to 64 servers, else a nonblocking tree; 800 Gb/s are two networks.
@pytest.mark.parametrize(
    ("servers", "params", "switches", "cables"),
    [
        (1, {}, 0, {"DAC": 0}),
        (64, {}, 1, {"DAC": 64}),
        (64, {"server_bandwidth": "800 Gb/s"}, 2, {"DAC": 128}),
        (64, {"server_bandwidth": "800 Gb/s", "planes": 4}, 4, {"DAC": 256}),
        (1024, {"server_bandwidth": "200 Gb/s"}, 32 + 16, {"DAC": 1024, "AoC": 1024}),
    ],
)
def test_a_cluster_is_priced_by_the_network_between_its_servers(servers, params, switches, cables):
    bill = build_fabric("electrical_cluster", num_accelerators=8 * servers, **params).bill_of_materials()
    assert (bill.num_switches, bill.num_cables) == (switches, cables)


def test_what_can_be_bought_of_the_shipped_fabrics_has_a_price():
    priced = set()
    for name in FABRICS.names():
        with contextlib.suppress(ConfigError):
            assert example_fabric(name).bill_of_materials().total_usd > 0
            priced.add(name)
    assert priced == {
        "dragonfly", "electrical_cluster", "fat_tree", "hammingmesh", "hybrid_cube_mesh", "hyperx", "slim_fly", "torus",
    }  # fmt: skip


def test_ideal_fabrics_have_no_bill():
    with pytest.raises(ConfigError, match="'electrical_flat' has no bill of materials"):
        build_fabric("electrical_flat", num_accelerators=4).bill_of_materials()


def test_schemas_compose_with_omegaconf_and_come_back_as_built():
    omegaconf = pytest.importorskip("omegaconf")
    schema = omegaconf.OmegaConf.structured(FABRICS.get("torus"))
    merged = omegaconf.OmegaConf.merge(schema, {"dims": [4, 6], "board": [2, 2], "link_bandwidth": "100 Gb/s"})
    config = omegaconf.OmegaConf.to_object(merged)
    assert (config.dims, config.board) == ((4, 6), (2, 2))
    for name in FABRICS.names():
        omegaconf.OmegaConf.structured(FABRICS.get(name))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("torus", {"dims": [4, 0]}, r"fabric.dims\[1\] is 0; every dimension must be an integer >= 1"),
        ("torus", {"dims": [4, 2.5]}, r"fabric.dims\[1\] is 2.5; every dimension must be an integer >= 1"),
        ("torus", {"dims": 4}, r"fabric.dims is 4; it must be a list"),
        ("torus", {"dims": (1, 1)}, r"fabric.dims is \[1, 1\]; at least one dimension must be >= 2"),
        ("torus", {"dims": (4, 4), "board": (3, 2)}, r"fabric.board\[0\] is 3; it must divide fabric.dims\[0\]"),
        ("torus", {"dims": (4, 4), "board": (2,)}, r"fabric.board is \[2\]; it needs 2 sizes"),
        ("torus", {}, "fabric.dims is missing; fabric 'torus' needs it"),
        ("torus", {"dims": (4,), "size": 3}, "fabric 'torus' has no parameter 'size'; it has .*board, dims"),
        ("torus", {"dims": (4,), "planes": 0}, "fabric.planes is 0; it must be an integer >= 1"),
        ("fat_tree", {"num_accelerators": 0}, "fabric.num_accelerators is 0; it must be an integer >= 1"),
        ("fat_tree", {"num_accelerators": 8, "levels": 4}, "fabric.levels is 4; allowed: 2, 3"),
        ("fat_tree", {"num_accelerators": 8, "leaf_down": 60, "leaf_up": 5}, "leaf_up is 5; both .* fabric.radix 64"),
        ("fat_tree", {"num_accelerators": 4096, "levels": 2}, "fabric.levels is 2, but 128 leaves .* use 3"),
        (
            "fat_tree",
            {"num_accelerators": 999, "levels": 3, "radix": 4},
            r"fabric.num_accelerators is 999 on 500 leaves; .* 8 leaves, 16 accel",
        ),
        ("electrical_cluster", {"num_accelerators": 8, "server_size": 0}, "fabric.server_size is 0"),
        ("electrical_cluster", {"num_accelerators": 8, "network_latency": "10 ns"}, "must be >= fabric.server_latency"),
        (
            "electrical_flat",
            {"num_accelerators": 8, "link_bandwidth": 1e9, "accelerator_bandwidth": 1e9},
            "give one of them",
        ),
        ("electrical_flat", {"num_accelerators": 8, "link_bandwidth": 0}, "fabric.link_bandwidth is 0; it must be > 0"),
        ("electrical_flat", {"num_accelerators": 2**32}, "fabric.num_accelerators is 4294967296; .* <="),
    ],
)
def test_bad_parameters_name_key_value_and_what_is_allowed(name, params, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric(name, **params)


@pytest.mark.parametrize("bad", ["400", "400 Gq/s", "400 Gb"])
def test_bandwidths_need_units_and_name_their_key(bad):
    with pytest.raises(UnitError, match=r"fabric.link_bandwidth"):
        build_fabric("torus", dims=(4,), link_bandwidth=bad)


def test_unknown_fabric_lists_the_registered_ones():
    with pytest.raises(UnknownNameError, match=r"unknown fabric 'tours'.*custom, dragonfly, .* torus"):
        build_fabric("tours")


def test_describe_names_size_bandwidth_and_failures():
    fabric = build_fabric("torus", dims=(4, 4), planes=2, accelerator_bandwidth="800 Gb/s")
    assert fabric.describe() == "torus, 16 accelerators, 800 Gb/s each, 2 planes"
    assert fabric.with_failures(links=[1, 2]).describe().endswith("2 links failed")
