"""Edge-disjoint rings of a server's direct links: against integer programming over networkx's cycles."""

import itertools
from collections import Counter

import numpy as np
import pytest

from rostam_py.fabrics.disjoint_rings import disjoint_paths, disjoint_rings
from rostam_py.fabrics.hybrid_cube_mesh import _LINKS

networkx = pytest.importorskip("networkx")

# What 2 to 8 V100 of a DGX-1 measure at 1 GiB [GB/s] (vTrain, shared/data/allreduce_v100_dgx1.csv), and the rings of
# NVLink 2 that explain it: about 22 of 25 GB/s for each, 18.5 where a step goes through an intermediate GPU (5).
MEASURED = {2: (22.55, 1), 3: (45.14, 2), 4: (85.36, 4), 5: (37.17, 2), 6: (45.74, 2), 7: (87.01, 4), 8: (134.51, 6)}


def cube():
    links = np.zeros((8, 8), int)
    for (a, b), count in _LINKS.items():
        links[a, b] = links[b, a] = count
    return links


def largest_packing(links):
    """As many Hamiltonian cycles as share no link, by integer programming over all that networkx finds."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    size = len(links)
    graph = networkx.DiGraph([(a, b) for a, b in itertools.permutations(range(size), 2) if links[a, b]])
    cycles = [c for c in networkx.simple_cycles(graph) if len(c) == size]
    if not cycles:
        return 0
    edges = list(graph.edges)
    uses = np.zeros((len(edges), len(cycles)))
    for k, cycle in enumerate(cycles):
        for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            uses[edges.index((a, b)), k] += 1
    capacity = np.array([links[edge] for edge in edges])
    found = milp(
        -np.ones(len(cycles)), integrality=np.ones(len(cycles)), bounds=Bounds(0, links.max()),
        constraints=LinearConstraint(uses, ub=capacity),
    )  # fmt: skip
    return round(-found.fun)


def used_links(orders, *, closed):
    used = Counter()
    for order in orders:
        steps = zip(order, order[1:] + order[:1] if closed else order[1:], strict=False)
        used.update(steps)
    return used


@pytest.mark.parametrize("size", range(2, 9))
def test_every_set_of_gpus_of_a_dgx_1_has_as_many_rings_as_integer_programming_finds(size):
    links = cube()
    for members in itertools.combinations(range(8), size):
        own = links[np.ix_(members, members)]
        rings = disjoint_rings(own)
        packed = largest_packing(own)
        if packed == 0:
            continue
        assert len(rings) == packed, members
        assert all(sorted(ring) == list(range(size)) for ring in rings)
        assert all(count <= own[edge] for edge, count in used_links(rings, closed=True).items())


@pytest.mark.parametrize("count", MEASURED)
def test_rings_of_the_first_gpus_explain_the_measured_bandwidths(count):
    measured, rings = MEASURED[count]
    assert len(disjoint_rings(cube()[:count, :count])) == rings
    assert 0.74 <= measured / (25 * rings) <= 0.92


def test_five_gpus_have_no_ring_of_direct_links_and_two_through_the_first():
    links = cube()[:5, :5]
    assert largest_packing(links) == 0
    rings = disjoint_rings(links)
    # GPU 4 is joined to GPU 0 alone, over two links: both rings enter or leave it through GPU 0.
    assert len(rings) == 2
    used = Counter()
    for ring in rings:
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            used.update([(a, b)] if links[a, b] else [(a, 0), (0, b)])
    assert all(number <= links[edge] for edge, number in used.items())
    assert used[4, 0] == used[0, 4] == 2


def test_without_a_ring_even_through_others_there_is_none():
    assert disjoint_rings(cube()[np.ix_([0, 5], [0, 5])]) == ()
    assert disjoint_rings(np.zeros((1, 1), int)) == ()


@pytest.mark.parametrize(
    # Of 0, 2, 4 and 6 with their 8 directed links, of which a path takes 3, only two; else a path for every port.
    ("members", "count"),
    [(range(8), 4), ((0, 1, 2, 3), 2), ((0, 1), 1), ((0, 2, 4, 6), 2), ((1, 3, 5, 7), 2), ((2,), 1), ((0, 1, 4), 2)],
)
def test_paths_share_no_link_and_enter_and_leave_at_ports_of_their_own(members, count):
    members = list(members)
    own = cube()[np.ix_(members, members)]
    ports = [member // 2 for member in members]
    paths = disjoint_paths(own, ports, 4)
    assert len(paths) == count
    assert all(sorted(path) == list(range(len(members))) for path in paths)
    for end in (0, -1):
        assert len({ports[path[end]] for path in paths}) == len(paths)
    assert all(count <= own[edge] for edge, count in used_links(paths, closed=False).items())
