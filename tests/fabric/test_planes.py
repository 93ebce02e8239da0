"""Failures in single planes, what is cut off, and random failures by scope and share (MODEL A1)."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError

# A ring of four, 1 GB/s a link and direction, 10 ns a link and 40 ns through an accelerator. From 0 to 2 both ways
# round are minimal: 2 GB/s, alpha = 10 + 40 + 10 ns.
ALPHA_PS = 60_000


def ring(planes=2, size=4):
    return rostam.fabric("torus", dims=(size,), link_bandwidth=1e9, link_latency=10e-9, planes=planes)


def cables(fabric, *pairs, plane=0):
    """Ids of the cables between accelerators, in one plane."""
    links = fabric.links[fabric.links["plane"] == fabric.links["plane"].min()]
    wanted = [set(pair) for pair in pairs]
    found = {int(link["cable"]) for link in links if {int(link["src"]), int(link["dst"])} in wanted}
    return [plane * fabric.num_links // fabric.planes + cable for cable in sorted(found)]


def flow_ps(fabric, num_bytes=300, src=0, dst=2):
    run = rostam.run_flows(fabric, src=[src], dst=[dst], num_bytes=[num_bytes], start_s=[0.0], routing="spray")
    return round(run.finish_s[0] * 1e12), run


def test_a_message_is_split_by_what_each_plane_offers_and_waits_for_the_slowest():
    whole = ring()
    # Both planes alike: 150 bytes each at 2 GB/s.
    assert flow_ps(whole)[0] == 75_000 + ALPHA_PS
    # Plane 1 has one way left: 200 bytes at 2 GB/s and 100 at 1 GB/s.
    faulty = whole.with_failures(links=cables(whole, (0, 1), plane=1))
    assert faulty.plane_classes == [(0,), (1,)]
    took, run = flow_ps(faulty)
    assert took == 100_000 + ALPHA_PS
    links = faulty.links
    assert len(run.link_bytes) == len(links) == 16
    assert sorted(run.link_bytes[links["plane"] == 0]) == [0] * 4 + [100] * 4
    assert sorted(run.link_bytes[links["plane"] == 1]) == [0] * 6 + [100] * 2
    # 301 bytes: 201 and 101, rounded up in each plane.
    assert flow_ps(faulty, 301)[0] == 101_000 + ALPHA_PS


def test_a_pair_that_one_plane_cuts_apart_uses_the_others_alone():
    whole = ring()
    cut = whole.with_failures(links=cables(whole, (0, 1), (2, 3), plane=1))
    assert flow_ps(cut)[0] == 150_000 + ALPHA_PS
    assert list(cut.healthy_accelerators) == [0, 1, 2, 3]
    # Everything of plane 1 gone: as one plane of the same links.
    dead = whole.with_failures(links=range(whole.num_links // 2, whole.num_links))
    assert flow_ps(dead)[0] == 150_000 + ALPHA_PS
    assert list(dead.healthy_accelerators) == [0, 1, 2, 3]
    assert dead.diameter() == whole.diameter() == 2


def test_a_failure_that_says_all_planes_leaves_planes_alike_and_one_of_them_is_simulated():
    whole, single = ring(planes=3), ring(planes=1)
    everywhere = whole.with_failures(links=cables(whole, (0, 1)), planes="all")
    assert everywhere.plane_classes == [(0, 1, 2)]
    assert len(everywhere.failures.links) == 3
    alone = single.with_failures(links=cables(single, (0, 1)))
    assert flow_ps(everywhere, 900)[0] == flow_ps(alone, 300)[0] == 300_000 + ALPHA_PS
    assert whole.num_links == 12
    assert everywhere.num_links == 12


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "bidirectional_ring"])
def test_collectives_over_planes_that_differ_send_each_byte_once(algorithm):
    # Whatever plane it takes, a ring step of S / 4 bytes takes as long as the pair with the least bandwidth needs; a
    # pair without its link goes round the others, where messages share links.
    whole = ring(planes=4)
    faulty = whole.with_failures(links=cables(whole, (0, 1), plane=2))
    given = {"num_bytes": 4000, "algorithm": algorithm}
    folded = rostam.run_collective(faulty, "all_reduce", **given)
    plain = rostam.run_collective(faulty, "all_reduce", fold=False, **given)
    intact = rostam.run_collective(whole, "all_reduce", **given)
    assert folded.time_ps == plain.time_ps
    assert folded.bytes_sent == plain.bytes_sent == intact.bytes_sent
    assert len(folded.link_bytes) == 16
    assert folded.time_ps > intact.time_ps


def test_an_accelerator_cut_off_in_every_plane_counts_as_failed():
    whole = ring(planes=2, size=6)
    around = [(2, 3), (3, 4)]
    one = whole.with_failures(links=cables(whole, *around, plane=0))
    assert one.failures.accelerators == ()
    both = one.with_failures(links=cables(whole, *around, plane=1))
    assert both.failures.accelerators == both.failures.cut_off == (3,)
    assert "1 accelerators cut off" in both.describe()
    assert list(both.healthy_accelerators) == [0, 1, 2, 4, 5]
    assert rostam.run_collective(both, "all_reduce", num_bytes=500, algorithm="ring").time_ps > 0
    with pytest.raises(NoRouteError, match="accelerator 3 has failed"):
        both.router().route(0, 3)


def test_halves_of_equal_size_are_not_cut_off_from_each_other():
    whole = ring(planes=1, size=6)
    halves = whole.with_failures(links=cables(whole, (0, 5), (2, 3)))
    assert halves.failures.accelerators == ()
    assert len(halves.router().route(0, 2)[0]) == 2
    with pytest.raises(NoRouteError, match="no path is left"):
        halves.router().route(0, 3)


def test_a_leaf_without_uplinks_is_cut_off_with_all_on_it():
    tree = rostam.fabric("fat_tree", num_accelerators=32, radix=8, link_bandwidth=1e9)
    leaf = 32 + 3  # accelerators 12 to 15
    up = {int(one["cable"]) for one in tree.links if one["src"] == leaf and one["dst"] > leaf}
    cut = tree.with_failures(links=up)
    assert cut.failures.cut_off == (12, 13, 14, 15)


@pytest.mark.parametrize("taper", [{}, {"leaf_down": 12, "leaf_up": 4}])
@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("levels", [2, 3])
def test_five_percent_of_the_links_of_a_tree_do_not_kill_a_job(taper, planes, levels):
    tree = rostam.fabric(
        "fat_tree", num_accelerators=96, radix=16, levels=levels, link_bandwidth=1e9, planes=planes, **taper
    )
    hosts = planes * 96
    for seed in range(5):
        broken = tree.with_random_failures("links", "5%", seed)
        assert len(broken.failures.links) == int(0.05 * (tree.num_links - hosts) + 0.5)
        ends = {(int(one["src"]), int(one["dst"])) for one in broken.links if one["is_failed"]}
        assert all(min(pair) >= 96 for pair in ends)
        ranks = broken.healthy_accelerators
        assert len(ranks) >= 96 - len(broken.failures.cut_off)
        assert rostam.run_collective(broken, "all_to_all", num_bytes=96_000, ranks=ranks[:12]).time_ps > 0


def test_scopes_draw_from_the_cables_they_name():
    tree = rostam.fabric("fat_tree", num_accelerators=16, radix=8, link_bandwidth=1e9, planes=2)
    links = tree.links
    host = {int(one["cable"]) for one in links if min(one["src"], one["dst"]) < 16}
    host |= {cable + tree.num_links // 2 for cable in host}
    between = set(range(tree.num_links)) - host
    assert set(tree.with_random_failures("links", "100%", scope="network").failures.links) == between
    assert set(tree.with_random_failures("links", "100%", scope="host").failures.links) == host
    assert len(tree.with_random_failures("links", "100%", scope="all").failures.links) == tree.num_links
    # On a torus accelerators forward: all cables are the network's.
    assert len(ring().with_random_failures("links", "50%").failures.links) == 4
    half = tree.with_random_failures("links", 3, planes="all")
    assert len(half.failures.links) == 6
    assert half.plane_classes == [(0, 1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": "5"}, None),
        ({"count": "five"}, r"failures.links is 'five'; it must be an integer >= 0 or a share from 0% to 100%"),
        ({"count": "101%"}, "share from 0% to 100%"),
        ({"count": "nan%"}, "share from 0% to 100%"),
        ({"count": 1.5}, "failures.links is 1.5"),
        ({"count": 1, "scope": "leaf"}, "failures.scope is 'leaf'; it must be one of: network, host, all"),
        ({"count": 1, "planes": 2}, "failures.planes is 2; it must be one of: one, all"),
        ({"count": 9}, r"failures.links is 9; allowed: 0\.\.8, the working links of scope 'network'"),
    ],
)
def test_counts_shares_and_scopes_are_checked(given, message):
    if message is None:
        assert len(ring().with_random_failures("links", **given).failures.links) == 5
        return
    with pytest.raises(ConfigError, match=message):
        ring().with_random_failures("links", **given)


# Sixteen accelerators on leaves of four, two cables from each of four leaves to each of two spines, 4 planes, 1 GB/s a
# link, no latency. Accelerators 0 to 3 (leaf 0) send 12 MB each to 12 to 15 (leaf 3).
SHARED = 12_000_000


@pytest.mark.parametrize(
    ("failed", "expected_ms"),
    [
        # Whole: a quarter of 12 MB in each plane at 1 GB/s.
        ((), (3, 3, 3, 3)),
        # scope=network, an uplink of leaf 0 in plane 2: alone a pair still gets 1 GB/s there, so a quarter goes there;
        # together the four share 3 GB/s: 3 MB at 0.75 GB/s.
        (((16, 20, 2),), (4, 4, 4, 4)),
        # scope=host, the cable of accelerator 0 in plane 1: it is up and stripes over three planes, 4 MB in each.
        (((0, 16, 1),), (4, 3, 3, 3)),
        # scope=all, both: in plane 2 accelerator 0 has 4 MB, the others 3 MB, at 0.75 GB/s until these end at 4 ms;
        # then 1 MB is left at 1 GB/s.
        (((16, 20, 2), (0, 16, 1)), (5, 4, 4, 4)),
    ],
)
def test_faults_of_every_scope_cost_what_a_count_by_hand_says(failed, expected_ms):
    whole = rostam.fabric(
        "fat_tree", num_accelerators=16, radix=8, planes=4, link_bandwidth=1e9, link_latency=0, switch_latency=0
    )
    links, cut = whole.links, []
    for src, dst, plane in failed:
        between = links["cable"][(links["src"] == src) & (links["dst"] == dst)]
        cut.append(int(between[0]) + plane * whole.num_links // 4)
    fabric = whole.with_failures(links=cut)
    assert len(fabric.healthy_accelerators) == 16
    faulty = {plane for *_, plane in failed}
    assert (tuple(sorted({0, 1, 2, 3} - faulty))) in fabric.plane_classes
    assert len(fabric.plane_classes) == 1 + len(faulty)  # intact planes are simulated as one
    run = rostam.run_flows(
        fabric, src=[0, 1, 2, 3], dst=[12, 13, 14, 15], num_bytes=[SHARED] * 4, start_s=[0.0] * 4, routing="spray"
    )
    assert run.finish_s == pytest.approx([ms / 1e3 for ms in expected_ms], abs=2e-12)
