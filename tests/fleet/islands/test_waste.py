"""Wasted GPUs: against a search over disjoint groups in every second, which knows the islands' links alone."""

import functools
import itertools
import random

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import FaultTrace, ServerFault
from rostam_py.fleet.islands import ISLANDS, wasted_share
from rostam_py.fleet.islands.cube import Cube
from rostam_py.fleet.islands.k_hop_ring import KHopRing
from rostam_py.fleet.islands.nvl72 import Nvl72
from rostam_py.fleet.islands.server import Server
from rostam_py.fleet.islands.switch import Switch

GPUS = 2  # of a server here


def joined(kind, count):
    """Return the pairs of servers with a link, by what each kind is."""
    pairs = set()
    for a, b in itertools.combinations(range(count), 2):
        if isinstance(kind, Switch):
            linked = True
        elif isinstance(kind, Nvl72 | Cube):
            size = kind.gpus // GPUS
            linked = a // size == b // size
        elif isinstance(kind, KHopRing):
            linked = min(b - a, a + count - b) <= kind.hops
        else:
            linked = False
        pairs |= {(a, b), (b, a)} if linked else set()
    return pairs


def usable(kind, works):
    """Return the servers that may be in groups: of cubes whole ones alone."""
    if not isinstance(kind, Cube):
        return {k for k, one in enumerate(works) if one}
    size = kind.gpus // GPUS
    cubes = [range(k, k + size) for k in range(0, len(works) - size + 1, size)]
    return {k for cube in cubes if all(works[k] for k in cube) for k in cube}


@functools.cache
def most_groups(kind, works, servers):
    """Return the most disjoint paths of so many servers along links, by trying all."""
    links, free = joined(kind, len(works)), frozenset(usable(kind, works))

    def paths():
        found, front = set(), [(k,) for k in free]
        for _ in range(servers - 1):
            front = [(*path, k) for path in front for k in free if k not in path and (path[-1], k) in links]
        for path in front:
            found.add(frozenset(path))
        return found

    every = paths()

    @functools.cache
    def best(left):
        return max((1 + best(left - path) for path in every if path <= left), default=0)

    return best(free)


def counted(kind, trace, servers, order):
    """Return the wasted share by counting every second."""
    total = 0.0
    for t in range(int(trace.window_s)):
        down = {one.server for one in trace.faults if one.start_s <= t < one.end_s}
        works = tuple(server not in down for server in order)
        if any(works):
            total += 1 - most_groups(kind, works, servers) * servers / sum(works)
    return total / trace.window_s


@pytest.mark.parametrize(
    "kind", [Server(), Nvl72(gpus=6), Nvl72(gpus=8), Cube(gpus=8), KHopRing(1), KHopRing(2), KHopRing(3), Switch()]
)
@pytest.mark.parametrize("seed", range(6))
def test_the_share_is_that_of_a_search_in_every_second(kind, seed):
    rng = random.Random(seed)
    count, servers = rng.choice([7, 8]), rng.choice([1, 2, 4])
    faults = []
    for _ in range(9):
        start = rng.randrange(60)
        faults.append(ServerFault(float(start), float(start + rng.randint(1, 25)), rng.randrange(count)))
    trace = FaultTrace(tuple(faults), count, 60.0)
    order = rng.sample(range(count), count)
    found = wasted_share(trace, kind, tp=servers * GPUS, gpus_per_server=GPUS, order=order)
    assert found == pytest.approx(counted(kind, trace, servers, order))


def test_no_islands_waste_less_than_one_switch():
    trace = FaultTrace.drawn(num_servers=144, window="60 d", mtbf="30 d", repair="2 d", seed=2)
    for tp in (4, 8, 16, 32):
        least = wasted_share(trace, "switch", tp=tp)
        assert all(wasted_share(trace, name, tp=tp) >= least - 1e-12 for name in ISLANDS)


def test_working_clusters_waste_what_does_not_divide():
    none = FaultTrace((), 9, 100.0)
    assert wasted_share(none, "server", tp=16) == 1
    assert wasted_share(none, "server", tp=8) == wasted_share(none, "server", tp=4) == 0
    assert wasted_share(none, "nvl72", tp=16) == pytest.approx(8 / 72)
    assert wasted_share(none, "nvl72", tp=32) == pytest.approx(8 / 72)
    assert wasted_share(none, "cube", tp=16) == pytest.approx(8 / 72)  # one server is in no cube
    assert wasted_share(none, "cube", tp=128) == 1
    assert wasted_share(none, "k_hop_ring", tp=16) == pytest.approx(8 / 72)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tp": 12}, "tp is 12; it must be a multiple or a divisor of gpus_per_server = 8"),
        ({"tp": 0}, "tp is 0; it must be an integer >= 1"),
        ({"tp": 16, "order": [0, 0]}, r"order is \[0, 0\]; it must list servers 0 to 1 once each"),
        ({"tp": 10, "gpus_per_server": 5, "islands": "nvl72"}, "gpus_per_server is 5; it must divide the 72 GPUs"),
        ({"tp": 16, "islands": "torus"}, "unknown kind of islands 'torus'"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        wasted_share(FaultTrace((), 2, 10.0), **{"islands": "switch", **given})
    with pytest.raises(ConfigError, match=r"k_hop_ring\.hops is 0"):
        KHopRing(0)
