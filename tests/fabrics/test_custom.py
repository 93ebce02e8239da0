"""Custom fabrics: rebuilt built-ins, file formats, errors."""

import numpy as np
import pytest

from rostam_py.errors import ConfigError, UnitError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.throughput import saturation_throughput

BUILT_IN = [
    ("fat_tree", {"num_accelerators": 24, "radix": 8}, False),
    ("torus", {"dims": (4, 3)}, True),
    ("electrical_cluster", {"num_accelerators": 12, "server_size": 4}, False),
]


def cables_of(fabric):
    """One row a cable, from its first direction."""
    return fabric.links[np.unique(fabric.links["cable"], return_index=True)[1]]


def name_of(fabric, vertex):
    return f"a{vertex}" if vertex < fabric.num_accelerators else f"s{vertex - fabric.num_accelerators}"


def assert_same(fabric, other):
    for key in ("src", "dst", "cable", "bandwidth_bytes_per_s", "latency_s"):
        np.testing.assert_array_equal(fabric.links[key], other.links[key])
    assert fabric.diameter() == other.diameter()
    assert fabric.num_switches == other.num_switches
    assert fabric.injection_bandwidth_bytes_per_s == other.injection_bandwidth_bytes_per_s
    ours = fabric.router("spray", enable_bundling=False)
    theirs = other.router("spray", enable_bundling=False)
    for src, dst in [(0, 1), (0, 11), (7, 2)]:
        for mine, their in zip(ours.route(src, dst), theirs.route(src, dst), strict=True):
            np.testing.assert_array_equal(mine, their)
    assert saturation_throughput(fabric) == pytest.approx(saturation_throughput(other), rel=1e-12)


@pytest.mark.parametrize(("name", "params", "forwarding"), BUILT_IN)
def test_arrays_of_a_built_in_fabric_rebuild_it(name, params, forwarding):
    fabric = build_fabric(name, **params)
    cables = cables_of(fabric)
    arrays = {
        "src": cables["src"],
        "dst": cables["dst"],
        "bandwidth": cables["bandwidth_bytes_per_s"],
        "latency": cables["latency_s"],
    }
    other = build_fabric(
        "custom",
        links=arrays,
        num_accelerators=fabric.num_accelerators,
        forwarding=forwarding,
        switch_latency=getattr(fabric.config, "switch_latency", 0.0),
    )
    assert_same(fabric, other)


@pytest.mark.parametrize(("name", "params", "forwarding"), BUILT_IN)
def test_csv_of_a_built_in_fabric_rebuilds_it(tmp_path, name, params, forwarding):
    fabric = build_fabric(name, **params, link_bandwidth="100 Gb/s")
    rows = ["src,dst,bandwidth,latency"]
    for row in cables_of(fabric):
        bits = row["bandwidth_bytes_per_s"] * 8 / 1e9
        ends = [name_of(fabric, row[end]) for end in ("src", "dst")]
        rows.append(f"{ends[0]}, {ends[1]}, {bits:g} Gb/s, {round(row['latency_s'] * 1e12)} ps")
    path = tmp_path / "links.csv"
    path.write_text("\n".join(rows) + "\n")
    latency = getattr(fabric.config, "switch_latency", 0.0)
    assert_same(fabric, build_fabric("custom", links=str(path), forwarding=forwarding, switch_latency=latency))


def test_directed_rows_carry_one_direction_only():
    rows = [("a0", "a1"), ("a1", "a2"), ("a2", "a0")]
    fabric = build_fabric("custom", links=rows, link_bandwidth="8 Gb/s", duplex=False, forwarding=True)
    assert fabric.num_links == len(fabric.links) == 3
    assert fabric.diameter() == 2
    assert len(fabric.router().route(1, 0)[0]) == 2


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("missing.csv", "fabric.links is 'missing.csv'; the file cannot be read"),
        ([], "fabric.links"),
        ([("a0", "x1", 1e9)], r"fabric.links\[0\].dst is 'x1'; expected a<k>, s<k>"),
        ([("a0", "a1", 1e9), (0, 1, 1e9)], "vertex numbers need fabric.num_accelerators"),
        ([("a0", "a1")], r"fabric.links\[0\] has no bandwidth; give it or fabric.link_bandwidth"),
        ([("a0", "a0", 1e9)], r"fabric.links\[0\] joins vertex 0 to itself"),
        ([("a0", "s0", 1e9), ("s0", "s1", 0.0)], r"fabric.links\[1\] has bandwidth 0"),
        ([("a0", "a2", 1e9)], "gives accelerator a1 no link to send on"),
        ([("a0", "s99999999999", 1e9)], r"the number in fabric.links\[0\].dst is 99999999999; it must be <="),
        ({"src": ["a0"], "dst": ["a1"], "speed": [1]}, "fabric.links has columns src, dst, speed; allowed: src, dst"),
        ({"src": ["a0"], "dst": ["a1", "a2"]}, r"fabric.links has columns of \[1, 2\] entries"),
        ([("s0", "s1", 1e9)], "no accelerator"),
    ],
)
def test_bad_links_name_the_row_and_what_is_expected(links, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric("custom", links=links)


def test_bandwidths_in_a_csv_need_a_unit(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("src,dst,bandwidth\na0,a1,400\n")
    with pytest.raises(UnitError, match=r"fabric.links\[0\].bandwidth is '400', a number without a unit"):
        build_fabric("custom", links=str(path))
