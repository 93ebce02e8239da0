"""Assigners of single paths: loads by hand, by brute force over all assignments, and by an integer program."""

import itertools
import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.simulation import assigners
from rostam_py.simulation.path_choice import Pairs

DRAWING_NONE = [name for name in assigners() if name not in ("planned", "annealing")]


def tree(leaves, down, spines, **keys):
    return rostam.fabric(
        "fat_tree", num_accelerators=leaves * down, levels=2, radix=down + spines, leaf_down=down, leaf_up=spines,
        num_spines=spines, link_bandwidth="100 Gb/s", **keys,
    )  # fmt: skip


def permutation(rng, count):
    """Return where each sends: every host sends and receives one flow, none to itself."""
    while True:
        dst = rng.permutation(count)
        if not (dst == np.arange(count)).any():
            return dst


def loads_of(pairs, paths):
    """Return assigned paths by link, from the links of every path."""
    counts = {}
    for ways, path in zip(pairs.core.links(), paths, strict=True):
        for link in ways[path]:
            counts[link] = counts.get(link, 0) + 1
    return counts


def greedy_by_hand(pairs):
    """Return algorithm 1 of Cohen et al. over the links of every path."""
    counts, chosen = {}, []
    for ways in pairs.core.links():
        busy = [max((counts.get(link, 0) for link in way), default=0) for way in ways]
        chosen.append(busy.index(min(busy)))
        for link in ways[chosen[-1]]:
            counts[link] = counts.get(link, 0) + 1
    return chosen


def largest_degree(dst, down):
    src_leaf, dst_leaf = np.arange(len(dst)) // down, dst // down
    away = src_leaf != dst_leaf
    return max(np.bincount(src_leaf[away]).max(), np.bincount(dst_leaf[away]).max())


def test_paths_of_a_pair_come_in_the_order_of_spines_with_the_latency_of_a_hashed_one():
    fabric = tree(4, 4, 3, link_latency="300 ns", switch_latency="200 ns")
    router = fabric.router("hash", enable_bundling=False)
    paths = _core.candidate_paths(router, 0, 13)
    spines = [int(fabric.links["dst"][links[1]]) for links, _ in paths]
    assert spines == sorted(spines)
    assert len(set(spines)) == 3
    links, _, latency_ps = router.route(0, 13, 7)
    assert list(links) in [way for way, _ in paths]
    assert {latency for _, latency in paths} == {latency_ps}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("spines", [2, 4, 8])
def test_greedy_is_algorithm_1_and_colours_reach_the_degree(seed, spines):
    rng = np.random.default_rng([seed, spines])
    dst = permutation(rng, 64)
    pairs = Pairs.of(tree(8, 8, spines), np.arange(64), dst)
    greedy = pairs.core.assign("greedy")
    assert greedy == greedy_by_hand(pairs)
    assert pairs.core.assign("greedy_components") == greedy
    best = pairs.core.assign("edge_colouring")
    least = math.ceil(largest_degree(dst, 8) / spines)
    assert max(loads_of(pairs, best).values()) == pairs.assigned(best).largest_load == least
    for name in DRAWING_NONE:
        assert least <= max(loads_of(pairs, pairs.core.assign(name)).values()) <= 2 * least, name


@pytest.mark.slow
def test_greedy_is_within_twice_the_optimum_on_three_thousand_full_instances():
    rng = np.random.default_rng(0)
    sizes = ((4, 4, 4), (8, 8, 4), (8, 8, 8), (16, 8, 8), (6, 10, 5), (6, 4, 3))
    fabrics = {(leaves, down, spines): tree(leaves, down, spines) for leaves, down, spines in sizes}
    worst = 0.0
    for number in range(3_000):
        (leaves, down, spines), fabric = list(fabrics.items())[number % len(fabrics)]
        dst = permutation(rng, leaves * down)
        pairs = Pairs.of(fabric, np.arange(leaves * down), dst)
        least = math.ceil(largest_degree(dst, down) / spines)
        load = max(loads_of(pairs, pairs.core.assign("greedy")).values())
        assert load <= 2 * least
        assert max(loads_of(pairs, pairs.core.assign("edge_colouring")).values()) == least
        worst = max(worst, load / least)
    assert worst > 1  # not all of them are easy


@pytest.mark.parametrize("seed", range(6))
def test_the_integer_program_and_colours_agree_where_whole_spines_fail(seed):
    rng = np.random.default_rng(seed)
    fabric = tree(6, 6, 5)
    failed = sorted(rng.choice(5, size=seed % 3, replace=False).tolist())
    broken = fabric.with_failures(switches=[6 + spine for spine in failed])
    dst = permutation(rng, 36)
    best = rostam.optimal_paths(broken, src=np.arange(36), dst=dst)
    colours = rostam.assign_paths(broken, src=np.arange(36), dst=dst, assigner="edge_colouring")
    least = math.ceil(largest_degree(dst, 6) / (5 - len(failed)))
    assert best.largest_load == colours.largest_load == best.bound == least


FORWARDING = [
    ("torus", {"dims": [4, 4]}),
    ("torus", {"dims": [3, 5]}),
    ("hammingmesh", {"board": [2, 2], "boards": [2, 2]}),
]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "keys"), FORWARDING)
def test_the_least_share_is_the_best_there_is_on_fabrics_that_forward(name, keys, seed):
    """Brute force over all assignments, and all links of every path, of a few pairs."""
    fabric = rostam.fabric(name, **keys, link_bandwidth="100 Gb/s")
    src = np.random.default_rng(seed).permutation(fabric.num_accelerators)[:5]
    dst = np.roll(src, 1)
    router = fabric.router("hash", enable_bundling=False)
    ways = [[links for links, _ in _core.candidate_paths(router, a, b)] for a, b in zip(src, dst, strict=True)]
    loads = (np.unique(np.concatenate(taken), return_counts=True)[1] for taken in itertools.product(*ways))
    best = rostam.optimal_paths(fabric, src=src, dst=dst)
    one = rostam.assign_paths(fabric, src=src[:1], dst=dst[:1])
    assert best.rates.min() == pytest.approx(one.rates[0] / min(load.max() for load in loads))


def test_rates_are_over_all_planes():
    fabric = tree(4, 4, 4, planes=2)
    found = rostam.assign_paths(fabric, src=[0], dst=[5])
    run = rostam.run_flows(fabric, src=[0], dst=[5], num_bytes=["1 GB"])
    assert found.rates[0] == pytest.approx(1e9 / run.sent_s[0])


def best_by_brute_force(pairs, ways):
    """Return the best largest load, and the best objective, of all assignments."""
    found = [pairs.assigned(paths) for paths in itertools.product(*(range(len(one)) for one in ways))]
    return min(one.largest_load for one in found), max(sorted(one.job_shares.values()) for one in found)


@pytest.mark.parametrize("seed", range(10))
def test_with_failed_links_the_program_and_local_search_find_what_brute_force_does(seed):
    rng = np.random.default_rng(seed)
    fabric = tree(3, 3, 3)
    cables = np.flatnonzero((fabric.links["src"] >= 9) & (fabric.links["dst"] >= 9))
    dead = np.unique(fabric.links["cable"][rng.choice(cables, size=1)])
    broken = fabric.with_failures(links=dead.tolist())
    dst = permutation(rng, 9)
    away = np.flatnonzero(np.arange(9) // 3 != dst // 3)[:7]
    job = rng.integers(0, 2, len(away))
    pairs = Pairs.of(broken, away, dst[away], job)
    least, objective = best_by_brute_force(pairs, pairs.core.links())
    best = rostam.optimal_paths(broken, src=away, dst=dst[away], job=job)
    assert best.largest_load == least >= best.bound
    shares = sorted(pairs.assigned(pairs.core.assign("max_min")).job_shares.values())
    assert shares[0] == pytest.approx(objective[0])
    assert shares >= sorted(pairs.assigned(pairs.core.assign("greedy_by_sets")).job_shares.values())


def test_shares_are_what_flows_that_start_together_get():
    """Equal flows on hashed paths: the slowest by max-min rates is the last that the engine ends."""
    fabric = tree(4, 4, 4)
    dst = permutation(np.random.default_rng(5), 16)
    pairs = Pairs.of(fabric, np.arange(16), dst)
    drawn = [seed * 7 % len(ways) for seed, ways in enumerate(pairs.core.links())]
    shares = pairs.assigned(drawn)
    assert shares.rates.min() < 12.5e9
    run = rostam.run_flows(
        fabric, src=np.arange(16), dst=dst, num_bytes=["1 GB"] * 16,
        controllers=[("path_assignment", {"assigner": "planned", "planned": pairs.planned(drawn), "latency_ps": 0})],
    )  # fmt: skip
    assert run.sent_s.max() == pytest.approx(1e9 / shares.rates.min(), rel=1e-9)


@pytest.mark.parametrize("assigner", ["greedy", "greedy_by_sets", "greedy_components", "edge_colouring", "max_min"])
def test_paths_that_are_best_for_each_job_by_itself_collide_and_those_for_all_do_not(assigner):
    """Own example: any path is as good for a job alone; four jobs of a leaf then get a fourth of a link each."""
    fabric = tree(2, 4, 4)
    pairs = [(source, source + 4, source) for source in range(4)]
    alone = [rostam.assign_paths(fabric, src=[src], dst=[dst], assigner=assigner) for src, dst, _ in pairs]
    best = [rostam.optimal_paths(fabric, src=[src], dst=[dst]) for src, dst, _ in pairs]
    assert all(one.rates.tolist() == other.rates.tolist() == [12.5e9] for one, other in zip(alone, best, strict=True))
    src, dst, job = (list(column) for column in zip(*pairs, strict=True))
    each = Pairs.of(fabric, src, dst, job).assigned([int(one.paths[0]) for one in alone])
    together = rostam.assign_paths(fabric, src=src, dst=dst, job=job, assigner=assigner)
    assert each.largest_load == 4
    assert each.rates.tolist() == [12.5e9 / 4] * 4
    assert together.rates.tolist() == rostam.optimal_paths(fabric, src=src, dst=dst, job=job).rates.tolist()
    assert together.rates.tolist() == [12.5e9] * 4


def test_colours_are_refused_where_single_links_fail_and_elsewhere_than_on_two_levels():
    fabric = tree(4, 4, 4)
    up = np.flatnonzero((fabric.links["src"] == 16) & (fabric.links["dst"] >= 20))
    broken = fabric.with_failures(links=[int(fabric.links["cable"][up[0]])])
    src, dst = np.arange(16), np.array([4, 8, 12, 5, 0, 9, 13, 10, 14, 1, 2, 3, 6, 7, 11, 8])
    with pytest.raises(ConfigError, match="edge_colouring is for trees of two levels in which whole spines"):
        rostam.assign_paths(broken, src=src, dst=dst, assigner="edge_colouring")
    torus = rostam.fabric("torus", dims=[4, 4], link_bandwidth="100 Gb/s")
    with pytest.raises(ConfigError, match="edge_colouring is for trees"):
        rostam.assign_paths(torus, src=[0, 1, 4], dst=[10, 10, 10], assigner="edge_colouring")
    assert rostam.assign_paths(torus, src=[0, 0], dst=[5, 5], assigner="greedy").largest_load == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"src": [0], "dst": [0]}, "src and dst hold accelerator 0 as one pair"),
        ({"src": [0], "dst": [16]}, "dst holds 16; it must be from 0 to 15"),
        ({"src": [0, 1], "dst": [5]}, "src has 2 entries and dst 1"),
        ({"src": [0], "dst": [5], "job": [-1]}, "job holds -1; it must be from 0 to"),
        ({"src": [0], "dst": [5], "assigner": "best"}, "assigner is 'best'; it must be one of: greedy, "),
    ],
)
def test_bad_pairs_are_refused(keys, said):
    with pytest.raises(ConfigError, match=said):
        rostam.assign_paths(tree(4, 4, 4), **keys)


def test_a_pair_that_is_cut_has_no_path():
    fabric = tree(2, 2, 1)
    with pytest.raises(NoRouteError):
        rostam.assign_paths(fabric.with_failures(switches=[2]), src=[0], dst=[2])
