"""Dragonflies whose groups lost the cable between them: routes by way of a third group, against walks searched here.

A walk from one accelerator to another may take one global cable, where there is such a walk; where there is none, the
shortest walks of all. Everything is searched again over (vertex, global cables taken), in Python.
"""

import collections
import itertools

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import NoRouteError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.throughput import link_loads

GROUP = 3  # switches
SHAPE = {"routers_per_group": GROUP, "terminals_per_router": 1, "global_links_per_router": 1, "num_groups": 4}


class Walks:
    """Links of a Dragonfly's plane that work, and shares of the shortest walks over them."""

    def __init__(self, fabric):
        self.first = fabric.num_accelerators
        links = fabric.links
        self.out = collections.defaultdict(list)
        self.num_links = len(links)
        for link, (src, dst, bad) in enumerate(zip(links["src"], links["dst"], links["is_failed"], strict=True)):
            if not bad:
                self.out[int(src)].append((link, int(dst)))

    def is_global(self, src, dst):
        return min(src, dst) >= self.first and (src - self.first) // GROUP != (dst - self.first) // GROUP

    def next_places(self, place, dst, limit):
        vertex, num_global = place
        if vertex < self.first and num_global >= 0 and vertex == dst:
            return
        for link, there in self.out[vertex]:
            after = num_global + self.is_global(vertex, there)
            if after <= limit and (there >= self.first or there == dst):
                yield link, (there, after)

    def distances(self, dst, limit):
        """Links from every place to dst, of walks that have taken at most `limit` global cables there."""
        into = collections.defaultdict(list)
        for vertex in range(max(self.out) + 1):
            for num_global in range(limit + 1):
                for _, there in self.next_places((vertex, num_global), dst, limit):
                    into[there].append((vertex, num_global))
        far = {(dst, k): 0 for k in range(limit + 1)}
        queue = collections.deque(far)
        while queue:
            here = queue.popleft()
            for before in into[here]:
                if before not in far:
                    far[before] = far[here] + 1
                    queue.append(before)
        return far

    def shares(self, src, dst):
        """Share of every link in equal parts at each hop, and whether the walk is a detour; None without a walk."""
        for limit in (1, 8):
            far = self.distances(dst, limit)
            if (src, 0) not in far:
                continue
            shares, level = np.zeros(self.num_links), {(src, 0): 1.0}
            while level:
                following = collections.defaultdict(float)
                for place, weight in level.items():
                    if place[0] == dst:
                        continue
                    near = [(link, there) for link, there in self.next_places(place, dst, limit)
                            if far.get(there, 99) == far[place] - 1]  # fmt: skip
                    for link, there in near:
                        shares[link] += weight / len(near)
                        following[there] += weight / len(near)
                level = following
            return shares, limit > 1
        return None


def of_route(fabric, routing, src, dst):
    links, shares, _ = fabric.router(routing, enable_bundling=False).route(src, dst)
    found = np.zeros(len(fabric.links))
    found[links] = shares
    return found


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_spray_takes_one_global_cable_or_else_the_shortest_walk_of_all(seed, count):
    intact = build_fabric("dragonfly", **SHAPE)
    fabric = intact.with_random_failures("links", count, seed)
    walks = Walks(fabric)
    num_detours, total = 0, np.zeros(len(fabric.links))
    for src, dst in itertools.permutations(range(fabric.num_accelerators), 2):
        expected = walks.shares(src, dst)
        if expected is None:
            with pytest.raises(NoRouteError):
                fabric.router().route(src, dst)
            return
        shares, is_detour = expected
        num_detours += is_detour
        total += shares
        assert of_route(fabric, "spray", src, dst) == pytest.approx(shares, abs=1e-12)
    src, dst = np.array(list(itertools.permutations(range(fabric.num_accelerators), 2))).T
    assert link_loads(fabric, src, dst, np.ones(len(src))) == pytest.approx(total, abs=1e-9)
    assert num_detours > 0 or count < 4
    # Injection over the fullest link: each sends to n - 1 others, 1 / (n - 1) each.
    share = (fabric.num_accelerators - 1) / total.max()
    assert rostam.saturation_throughput(fabric) == pytest.approx(share)


def between_groups(fabric, one, other):
    """The global cable of two groups."""
    links, first = fabric.links, fabric.num_accelerators
    src, dst = (links[key].astype(int) - first for key in ("src", "dst"))
    found = np.unique(links["cable"][(np.minimum(src, dst) >= 0) & (src // GROUP == one) & (dst // GROUP == other)])
    assert len(found) == 1
    return int(found[0])


def test_every_routing_has_paths_around_a_failed_global_cable_and_ends_its_messages():
    intact = build_fabric("dragonfly", **SHAPE)
    fabric = intact.with_failures(links=[between_groups(intact, 0, 1)])
    count = fabric.num_accelerators
    src, dst = np.array(list(itertools.permutations(range(count), 2))).T
    for routing in _core.routing_names():
        found = check_dependencies(fabric, routing)
        assert (found.num_pairs, found.num_unrouted) == (len(src), 0)
        run = rostam.run_flows(fabric, src=src[:40], dst=dst[:40], num_bytes=[10**6] * 40, routing=routing)
        assert np.isfinite(run.finish_s).all()
        for pair in ((0, 3), (3, 0), (0, 6)):  # switches of groups 0, 1 and 2
            links = fabric.router(routing, enable_bundling=False).route(*pair)[0]
            assert not fabric.links["is_failed"][links].any()


def test_valiant_goes_by_way_of_switches_that_reach_both_ends_over_one_global_cable_each():
    intact = build_fabric("dragonfly", **SHAPE)
    fabric = intact.with_failures(links=[between_groups(intact, 0, 1)])
    walks, first = Walks(fabric), fabric.num_accelerators
    for src, dst in [(0, 3), (3, 0), (0, 6), (6, 0), (1, 2)]:
        # Switches whose own accelerators have walks without a detour to and from both ends; those of the two groups
        # that have lost their cable do not.
        by = []
        for switch in range(fabric.num_switches):
            halves = [walks.shares(src, switch), walks.shares(switch, dst)] if switch not in (src, dst) else [
                walks.shares(src, dst)]  # fmt: skip
            if not any(is_detour for _, is_detour in halves):
                by.append((switch, halves))
        if {src, dst} == {0, 3}:
            assert [switch for switch, _ in by] == list(range(2 * GROUP, 4 * GROUP))
        expected = np.zeros(len(fabric.links))
        for switch, halves in by:
            ways = sum(shares for shares, _ in halves)
            if len(halves) == 2:  # to the switch, not to the accelerator on it
                ends = fabric.links["src"], fabric.links["dst"]
                ways = ways * ((ends[0] != switch) & (ends[1] != switch))
                assert ways[(ends[0] == src) | (ends[1] == dst)].tolist() == [1, 1]
            expected += ways / len(by)
        assert of_route(fabric, "valiant", src, dst) == pytest.approx(expected, abs=1e-12)
    assert fabric.num_switches == first


@pytest.mark.parametrize(("seed", "share"), [(0, "35%"), (1, "45%"), (2, "55%"), (3, "65%")])
def test_a_pair_is_without_a_route_only_where_it_is_without_a_walk(seed, share):
    fabric = build_fabric("dragonfly", **SHAPE).with_random_failures("links", share, seed)
    walks = Walks(fabric)
    num_cut = 0
    for routing in ("spray", "hash", "turns", "valiant", "ugal", "adaptive"):
        router = fabric.router(routing, enable_bundling=False)
        for src, dst in itertools.permutations(range(0, fabric.num_accelerators, 2), 2):
            if walks.shares(src, dst) is not None:
                router.route(src, dst)
                continue
            num_cut += 1
            with pytest.raises(NoRouteError):
                router.route(src, dst)
    assert num_cut > 0 or share < "55%"
