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
    assert fabric.num_links == fabric.num_directed_links == len(fabric.links) == 3
    assert fabric.diameter() == 2
    assert len(fabric.router().route(1, 0)[0]) == 2


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("missing.csv", "fabric.links is 'missing.csv'; the file cannot be read"),
        ([], "fabric.links"),
        ([("a0", "1x", 1e9)], r"fabric.links\[0\].dst is '1x'; expected a name such as gpu0, leaf0"),
        ([("gpu0", "leaf 0", 1e9)], r"fabric.links\[0\].dst is 'leaf 0'; expected a name"),
        ([("gpu0", "leaf0", 1e9), ("gpu1", 7, 1e9)], r"fabric.links\[1\].dst is '7'; expected a name"),
        ([("tpu0", "leaf0", 1e9)], "names no accelerator: names end in leaf, tpu, and those of accelerators in a, gpu"),
        ([("a0", "a1", 1e9), (0, 1, 1e9)], "vertex numbers need fabric.num_accelerators"),
        ([("a0", "a1")], r"fabric.links\[0\] has no bandwidth; give it or fabric.link_bandwidth"),
        ([("a0", "a0", 1e9)], r"fabric.links\[0\] joins a0 to itself"),
        ([("a0", "s0", 1e9), ("s0", "s1", 0.0)], r"fabric.links\[1\].bandwidth is 0.0; it must be > 0"),
        ([("a0", "a2", 1e9)], "gives accelerator a1 no link to send on"),
        ([("a0", "s99999999999", 1e9)], r"the number in fabric.links\[0\].dst is 99999999999; it must be <="),
        ({"src": ["a0"], "dst": ["a1"], "speed": [1]}, "fabric.links has a column 'speed'; allowed: src, dst"),
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
    with pytest.raises(UnitError, match=r"fabric.links, line 2 of '.*': bandwidth is '400', a number without a unit"):
        build_fabric("custom", links=str(path))


NAMED = """# Two racks, cabled by hand.
src, dst, bandwidth, latency, count, cable_usd

gpu0, rack0/leaf0, 400 Gb/s, 100 ns, 1, 272
gpu1, rack0/leaf0, 400 Gb/s, 100 ns, 1, 272
gpu10, rack1/leaf0, 400 Gb/s, 100 ns, 2, 272
gpu2, rack1/leaf0, 400 Gb/s, 100 ns, , 272
rack0/leaf0, spine0, 400 Gb/s, 500 ns, 3, 603
rack1/leaf0, spine0, 400 Gb/s, 500 ns, 3, 603
"""


@pytest.fixture
def named(tmp_path):
    path = tmp_path / "named.csv"
    path.write_text(NAMED)
    return str(path)


def test_a_byte_order_mark_as_spreadsheets_write_it_is_no_part_of_the_header(named, tmp_path):
    marked = tmp_path / "marked.csv"
    marked.write_text(NAMED, encoding="utf-8-sig")
    plain, found = (build_fabric("custom", links=path) for path in (named, str(marked)))
    assert found.links.tobytes() == plain.links.tobytes()


def test_names_are_numbered_in_their_order_and_counts_are_cables(named):
    fabric = build_fabric("custom", links=named)
    assert [fabric.vertex_name(k) for k in range(7)] == [
        "gpu0", "gpu1", "gpu2", "gpu10", "rack0/leaf0", "rack1/leaf0", "spine0",
    ]  # fmt: skip
    assert (fabric.num_accelerators, fabric.num_switches, fabric.num_links) == (4, 3, 1 + 1 + 2 + 1 + 3 + 3)
    # The same cables one by one, by number.
    ends = [(0, 4), (1, 4), (3, 5), (3, 5), (2, 5)] + [(4, 6)] * 3 + [(5, 6)] * 3
    latency = [100e-9] * 5 + [500e-9] * 6
    rows = [(src, dst, 50e9, alpha) for (src, dst), alpha in zip(ends, latency, strict=True)]
    assert_same_links(fabric, build_fabric("custom", links=rows, num_accelerators=4))


def assert_same_links(fabric, other):
    for key in ("src", "dst", "cable", "bandwidth_bytes_per_s", "latency_s"):
        np.testing.assert_array_equal(fabric.links[key], other.links[key])


def test_names_show_in_reports_of_links(named):
    import rostam_py as rostam

    fabric = build_fabric("custom", links=named)
    plan = rostam.place(
        rostam.trace("transformer_350m"), rostam.Machine(fabric=fabric), global_batch=4,
        strategy=rostam.Strategy(dp=4, micro_batch=1), cost="roofline", software="ideal",
    )  # fmt: skip
    busiest = rostam.simulate(plan).to_dict()["busiest_links"]
    assert busiest
    assert all(part.startswith(("gpu", "rack", "spine")) for one in busiest for part in one["name"].split(" -> "))
    assert build_fabric("custom", links=[("a0", "s0", 1e9)]).vertex_name(1) == "switch 0"


def test_the_bill_uses_given_prices_of_cables_ports_and_switches(named):
    # 5 cables of 272 and 6 of 603; ports at switches: 5 + 2 x 6; two leaves and a spine; two planes of all.
    given = {"port_usd": 10, "switch_usd": {"leaf": 14_280, "spine0": 20_000}, "planes": 2}
    bill = build_fabric("custom", links=named, **given).bill_of_materials()
    assert bill.total_usd == 2 * (5 * 272 + 6 * 603 + 17 * 10 + 2 * 14_280 + 20_000)
    assert (bill.num_switches, bill.num_cables, bill.missing_prices) == (6, {"cable": 22}, ())
    assert "switch ports" in bill._repr_html_()
    assert build_fabric("custom", links=named, switch_usd=1).network_usd == 5 * 272 + 6 * 603 + 3


def test_missing_prices_are_named_and_make_the_price_unknown(named):
    fabric = build_fabric("custom", links=named, switch_usd={"spine": 20_000})
    assert fabric.missing_prices == ("no price of switch rack0/leaf0, rack1/leaf0",)
    assert fabric.network_usd is None
    assert fabric.bill_of_materials().total_usd == 5 * 272 + 6 * 603 + 20_000
    rows = [{"src": f"gpu{k}", "dst": "leaf0", "cable_usd": 5 if k == 0 else None} for k in range(6)]
    fabric = build_fabric("custom", links=rows, link_bandwidth="1 GB/s", port_usd=1)
    assert fabric.missing_prices == ("no price of cable gpu1 - leaf0, gpu2 - leaf0, gpu3 - leaf0 and 2 more",)
    bare = build_fabric("custom", links=rows[1:], link_bandwidth="1 GB/s")
    assert (bare.network_usd, bare.missing_prices) == (None, ())
    with pytest.raises(ConfigError, match="no bill of materials"):
        bare.bill_of_materials()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("100 ns, 2,", "100 ns, 0,", r"line 6 of '.*named.csv': count is 0; it must be an integer >= 1"),
        ("100 ns, 2,", "100 ns, two,", r"line 6 of '.*': count is 'two'; it must be an integer"),
        (
            "ns, 3, 603\nrack1",
            "ns, 3, much\nrack1",
            r"line 8 of '.*': cable_usd is 'much'; it must be a number of US dol",
        ),
        ("gpu2, rack1/leaf0, 400 Gb/s", "gpu2, rack1/leaf0, fast", r"line 7 of '.*': bandwidth is 'fast'"),
        ("gpu2, rack1/leaf0, 400 Gb/s", "gpu2, rack1/leaf0, 0 Gb/s", r"line 7 of '.*': bandwidth is '0 Gb/s'; it must"),
        ("gpu1, rack0/leaf0", "gpu1, gpu1", r"line 5 of '.*' joins gpu1 to itself"),
        ("gpu1, rack0/leaf0", "gpu1, rack0 leaf", r"line 5 of '.*': dst is 'rack0 leaf'; expected a name"),
        (", 1, 272\ngpu1", ", 1\ngpu1", r"line 4 of '.*': 5 cells; the header has 6"),
        ("latency, count", "latency, latency", r"fabric.links is '.*named.csv'; its header names 'latency' twice"),
        ("cable_usd", "euro", "fabric.links has a column 'euro'; allowed: src, dst, bandwidth, latency, count"),
    ],
)
def test_errors_name_line_column_value_and_what_is_allowed(tmp_path, old, new, words):
    assert old in NAMED
    path = tmp_path / "named.csv"
    path.write_text(NAMED.replace(old, new, 1))
    with pytest.raises(ConfigError, match=words):
        build_fabric("custom", links=str(path))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"switch_usd": {"core": 1}}, "fabric.switch_usd names 'core', which no switch has; those there are: leaf"),
        ({"switch_usd": "dear"}, "fabric.switch_usd is 'dear'; it must be a number of US dollars"),
        ({"port_usd": -1}, "fabric.port_usd is -1; it must be a number of US dollars >= 0"),
        ({"accelerator_names": "gpu3"}, "fabric.accelerator_names is 'gpu3'; it must be a list of words"),
        ({"num_accelerators": 5}, "fabric.num_accelerators is 5; fabric.links names 4: leave it out"),
    ],
)
def test_bad_prices_and_names_are_refused(named, given, words):
    with pytest.raises(ConfigError, match=words):
        build_fabric("custom", links=named, **given)
