"""Servers in a fat tree: a NIC each into the leaf, a switch inside; spines in a number of one's own."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.rank_groups import unit_size
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric


def tree(**params):
    """16 accelerators, 4 leaves of 4 down and 4 up, servers of 2: NICs 0-15, server switches 0-7."""
    shape = {"num_accelerators": 16, "radix": 8, "server_size": 2, "link_bandwidth": "10 GB/s"}
    return build_fabric("fat_tree", **(shape | params))


def names(fabric, src, dst, routing="spray"):
    """Vertices of a route, one of those that a bundle joins."""
    router = fabric.router(routing)
    links = [router.members[link][0] for link in router.route(src, dst)[0]]
    return [fabric.vertex_name(int(fabric.links["src"][link])) for link in links]


@pytest.mark.parametrize("routing", ["spray", "hash"])
def test_messages_inside_a_server_take_its_switch_and_others_nic_and_leaf(routing):
    fabric = tree()
    assert names(fabric, 4, 5, routing) == ["accelerator 4", "server 2"]
    # 4 and 6: two servers of one leaf.
    assert names(fabric, 4, 6, routing) == ["accelerator 4", "NIC 4", "switch 1", "NIC 6"]
    far = names(fabric, 4, 15, routing)
    assert far[:3] == ["accelerator 4", "NIC 4", "switch 1"]
    assert far[3] in ("switch 4", "switch 5")  # the two spines
    assert far[4:] == ["switch 3", "NIC 15"]


def test_servers_leave_counts_bills_latencies_and_loads_of_the_network_as_they_were():
    # Between servers a path has the cables and switches that it has without servers, and so its latency: 4 x 20 ns +
    # 3 x 40 ns between leaves, 2 x 20 + 40 on one; inside a server it is 2 links and one switch as well.
    plain, served = tree(server_size=1), tree()
    assert (served.num_switches, served.num_links) == (plain.num_switches, plain.num_links) == (4 + 2, 16 + 16)
    assert served.bill_of_materials() == plain.bill_of_materials()
    assert (served.diameter(), plain.diameter()) == (6, 4)
    for src, dst, latency_ps in [(0, 15, 200_000), (0, 2, 80_000), (0, 1, 80_000)]:
        assert served.router().route(src, dst)[2] == plain.router().route(src, dst)[2] == latency_ps
    network = [(int(r["cable"]), float(r["bandwidth_bytes_per_s"]), int(r["bundle"])) for r in plain.links]
    first = [(int(r["cable"]), float(r["bandwidth_bytes_per_s"]), int(r["bundle"])) for r in served.links]
    assert first[: len(network)] == network


def test_links_inside_a_server_have_their_own_bandwidth_over_all_planes():
    fabric = tree(server_bandwidth="60 GB/s", planes=2)
    router = fabric.router()
    assert router.capacities[router.route(0, 1)[0]].tolist() == [30e9, 30e9]
    # NIC, 4 uplinks and 4 downlinks a bundle, NIC: 10 GB/s each.
    assert router.capacities[router.route(0, 15)[0]].tolist() == [10e9, 10e9, 40e9, 40e9, 10e9, 10e9]
    assert fabric.injection_bandwidth_bytes_per_s == 20e9
    assert fabric.config.peak_bandwidth_bytes_per_s == 80e9


def test_nvlink_of_the_a100_is_the_default():
    fabric = build_fabric("fat_tree", num_accelerators=64, server_size=8)
    router = fabric.router()
    assert router.capacities[router.route(0, 7)[0]].tolist() == [300e9, 300e9]


def test_a_collective_inside_a_server_runs_at_the_servers_rate_beside_one_between_servers():
    # Ring all-reduce of 2 ranks: 2 steps of S / 2 each; S = 12 kB: 6 kB at 60 GB/s = 100 ns, + 80 ns alpha.
    fabric = tree(server_bandwidth="60 GB/s")
    assert rostam.run_collective(fabric, "all_reduce", num_bytes=12_000, ranks=[0, 1]).time_ps == 2 * 180_000
    # Between leaves: 6 kB at 10 GB/s = 600 ns, + 200 ns.
    assert rostam.run_collective(fabric, "all_reduce", num_bytes=12_000, ranks=[0, 8]).time_ps == 2 * 800_000
    # Both at once do not touch each other: 0 -> 1 uses no link of 0 -> 8.
    both = rostam.run_flows(fabric, src=[0, 0], dst=[1, 8], num_bytes=[6_000, 6_000], start_s=[0, 0])
    assert both.finish_s.tolist() == pytest.approx([180e-9, 800e-9], abs=1e-12)


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "hierarchical"])
def test_folded_and_unfolded_collectives_agree_on_servers(algorithm):
    # 1 ps per dependency step (MODEL H24); 16 ranks take at most 2 x 15 steps.
    folded, whole = (
        rostam.run_collective(tree(), "all_reduce", num_bytes=1_000_003, algorithm=algorithm, fold=fold)
        for fold in (True, False)
    )
    assert folded.num_simulated_ranks < whole.num_simulated_ranks == 16
    assert abs(folded.time_ps - whole.time_ps) <= 30
    assert (folded.bytes_sent, folded.num_messages) == (whole.bytes_sent, whole.num_messages)
    assert folded.link_bytes == pytest.approx(whole.link_bytes)


def test_the_unit_of_hierarchical_collectives_is_the_server():
    assert unit_size(tree()) == 2
    assert unit_size(tree(server_size=1)) == 4


def test_the_paper_s_machine_is_built_exactly():
    # Cohen et al.: 64 ToRs of 32 accelerators x 32 spines; one 100 Gb/s link from every ToR to every spine.
    fabric = build_fabric("fat_tree", num_accelerators=2048, server_size=8, num_spines=32, link_bandwidth="100 Gb/s")
    assert (fabric.num_switches, fabric.num_links, fabric.diameter()) == (64 + 32, 2048 + 64 * 32, 6)
    links = fabric.links
    ups = links[(links["src"] >= 2048) & (links["src"] < 2048 + 64) & (links["dst"] >= 2048 + 64)]
    ups = ups[ups["dst"] < 2048 + 96]
    assert len(ups) == len(set(zip(ups["src"].tolist(), ups["dst"].tolist(), strict=True))) == 64 * 32
    assert set(ups["bandwidth_bytes_per_s"]) == {12.5e9}
    assert np.bincount(links["src"])[2048 : 2048 + 96].tolist() == [64] * 96


def test_more_spines_than_the_fewest_share_the_uplinks():
    # 4 leaves x 4 uplinks: 2 spines of radix 8 would do; with 4 every leaf has one link to each.
    fabric = tree(num_spines=4)
    assert fabric.num_switches == 4 + 4
    for leaf in range(16, 20):
        assert sorted(fabric.links["dst"][fabric.links["src"] == leaf])[:4] == [20, 21, 22, 23]
    assert rostam.saturation_throughput(fabric) == pytest.approx(1)


@pytest.mark.parametrize("server_size", [1, 2])
def test_a_failed_spine_leaves_equal_shares_on_the_others(server_size):
    # Spines are switches 4 and 5 with servers or without; each leaf has 2 links to each.
    broken = tree(server_size=server_size).with_failures(switches=[4])
    router = broken.router()
    _, shares, _ = router.route(0, 15)
    nics = [1.0] * (2 if server_size > 1 else 1)
    assert shares.tolist() == [*nics, 0.5, 0.5, 0.5, 0.5, *nics]
    with_hash = {tuple(broken.router("hash").route(0, 15, message)[0]) for message in range(200)}
    ends = set(broken.links["dst"][np.array(sorted(with_hash)).ravel()])
    assert 16 + 5 in ends
    assert 16 + 4 not in ends


def test_random_failures_draw_switches_and_cables_of_the_network_only():
    fabric = tree()
    assert fabric.with_random_failures(kind="switches", count=6).failures.switches == tuple(range(6))
    assert fabric.with_random_failures(kind="links", count=32, scope="all").failures.links == tuple(range(32))
    with pytest.raises(ConfigError, match=r"failures.switches is 7; allowed: 0\.\.6"):
        fabric.with_random_failures(kind="switches", count=7)
    with pytest.raises(ConfigError, match=r"failures.switches names 6; .* 0\.\.5"):
        fabric.with_failures(switches=[6])
    with pytest.raises(ConfigError, match=r"failures.links names 32; .* 0\.\.31"):
        fabric.with_failures(links=[32])


def test_a_cut_cable_of_a_nic_leaves_its_accelerator_the_server():
    fabric = tree()
    (cable,) = {int(r["cable"]) for r in fabric.links if fabric.vertex_name(int(r["src"])) == "NIC 4" and r["dst"] > 15}
    cut = fabric.with_failures(links=[cable])
    assert names(cut, 4, 5) == ["accelerator 4", "server 2"]
    assert names(cut, 5, 6) == ["accelerator 5", "NIC 5", "switch 1", "NIC 6"]
    with pytest.raises(NoRouteError, match="from accelerator 4 to accelerator 6"):
        cut.router().route(4, 6)


def test_a_failed_accelerator_leaves_its_server_whole():
    broken = tree(server_size=4).with_failures(accelerators=[1])
    assert names(broken, 0, 2) == ["accelerator 0", "server 0"]
    assert broken.diameter() == 6


def test_a_server_may_stand_across_two_leaves():
    # Leaves of 5, servers of 4: server 1 holds 4 to 7, of leaves 0 and 1.
    fabric = build_fabric("fat_tree", num_accelerators=15, radix=8, leaf_down=5, leaf_up=3, server_size=4)
    assert names(fabric, 4, 7) == ["accelerator 4", "server 1"]
    assert names(fabric, 4, 3) == ["accelerator 4", "NIC 4", "switch 0", "NIC 3"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"server_size": 0}, "fabric.server_size is 0; it must be an integer >= 1"),
        ({"server_bandwidth": 0}, "fabric.server_bandwidth is 0; it must be > 0"),
        ({"num_spines": 0}, "fabric.num_spines is 0; it must be an integer >= 1"),
        ({"num_spines": 1}, r"fabric.num_spines is 1; 4 leaves with fabric.leaf_up = 4 allow 2 \(.* = 8\) to 4"),
        ({"num_spines": 5}, r"fabric.num_spines is 5; 4 leaves with fabric.leaf_up = 4 allow 2 .* to 4"),
        ({"num_spines": 4, "levels": 3}, "fabric.num_spines is 4, but the tree has three levels"),
        ({"num_spines": 4, "num_accelerators": 4}, "fabric.num_spines is 4, but the tree has one leaf for 4"),
    ],
)
def test_bad_parameters_name_key_value_and_what_is_allowed(params, message):
    with pytest.raises(ConfigError, match=message):
        tree(**params)
