"""The optimum over all routings: known ones by hand, above every routing, the same with and without symmetry."""

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import FABRICS, build_fabric, example_fabric, optimal
from rostam_py.fabrics.throughput import saturation_throughput

SOLVED = 1e-6  # HiGHS's tolerance, relative
_RING = build_fabric("torus", dims=(3,))
STATIC = [name for name in _core.routing_names() if not _RING.router(name).is_adaptive]  # those with link loads


# Wavelengths of a ring are assigned for each routing's traffic anew; of its patterns the other is quick.
def _slow_if(name, pattern):
    return pytest.mark.slow if (name, pattern) == ("sip_ring", "all_to_all") else ()


def best(fabric, pattern="all_to_all", **options):
    return saturation_throughput(fabric, pattern, "optimal", **options)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        pytest.param(name, pattern, marks=_slow_if(name, pattern))
        for pattern in ("all_to_all", "neighbour", "bisection", "permutation", "matrix")
        for name in FABRICS.names()
    ],
)
def test_no_registered_routing_beats_it(name, pattern):
    fabric = example_fabric(name)
    rng = np.random.default_rng(4)
    count = fabric.num_accelerators
    given = {"permutation": rng.permutation(count), "matrix": rng.random((count, count))}.get(pattern, pattern)
    if fabric.is_circuit_switched and pattern not in ("neighbour", "all_to_all"):
        pytest.skip("its circuits, not routings, decide")
    most = best(fabric, given)
    for routing in STATIC:
        assert saturation_throughput(fabric, given, routing) <= most * (1 + SOLVED), routing


@pytest.mark.parametrize(("switches", "terminals"), [(4, 1), (4, 3), (5, 4), (3, 8)])
def test_a_complete_graph_sends_directly(switches, terminals):
    # Every pair of switches has a cable for t x t pairs of accelerators, B / (p - 1) each; no way is shorter, and all
    # links are full at once.
    fabric = build_fabric("hyperx", dims=(switches,), terminals=terminals)
    count = switches * terminals
    assert best(fabric) == pytest.approx(min(1, (count - 1) / terminals**2), rel=SOLVED)


@pytest.mark.parametrize("dims", [(4, 4), (8, 8), (3, 5), (3, 4, 5), (9,)])
def test_all_to_all_on_a_torus_meets_the_mean_distance_bound_of_its_longest_dimension(dims):
    fabric = build_fabric("torus", dims=dims)
    count = int(np.prod(dims))
    hops = [sum(min(step, size - step) for step in range(size)) / size for size in dims]  # mean along a dimension
    # What an accelerator sends crosses a dimension's mean hops, B / (p - 1) to a peer: two links of B / (2 dimensions).
    share = min(2 / (2 * len(dims)) * (count - 1) / (count * hop) for hop in hops)
    # Detours along other dimensions cross as many links of the full one: they help nothing.
    assert best(fabric) == pytest.approx(share, rel=SOLVED)


def test_a_ring_splits_a_shift_in_inverse_proportion_to_the_lengths():
    # Shift 3 of 8: a of B goes 3 links one way, 1 - a 5 the other; 3 a = 5 (1 - a), 15/8 of B on links of B/2.
    assert best(build_fabric("torus", dims=(8,)), "shift", shift=3) == pytest.approx(4 / 15, rel=SOLVED)


def test_trees_carry_what_their_uplinks_do():
    assert best(build_fabric("fat_tree", num_accelerators=128, radix=16)) == pytest.approx(1, rel=SOLVED)
    assert best(build_fabric("fat_tree", num_accelerators=128, radix=8, levels=3)) == pytest.approx(1, rel=SOLVED)
    tapered = build_fabric("fat_tree", num_accelerators=1024, leaf_down=32, leaf_up=16, radix=64)
    assert best(tapered) == pytest.approx(0.5 * 1023 / 992, rel=SOLVED)
    assert best(tapered, "shift", shift=32) == pytest.approx(0.5, rel=SOLVED)


def test_a_server_switch_and_nics_are_all_used():
    # Every accelerator has a cable of B inside its server and one outside: neighbours send over both.
    fabric = build_fabric("fat_tree", num_accelerators=16, radix=8, server_size=4)
    assert best(fabric) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(12))
def test_merging_what_is_alike_keeps_the_optimum(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    name, params = [
        ("torus", {"dims": (3, 4)}),
        ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}),
        ("slim_fly", {"q": 3, "terminals_per_switch": 2}),
        ("fat_tree", {"num_accelerators": 24, "radix": 8, "leaf_down": 6, "leaf_up": 2}),
    ][seed % 4]
    fabric = build_fabric(name, **params)
    if seed >= 4:
        fabric = fabric.with_random_failures("links", 2, seed)
    pattern = "all_to_all" if seed < 8 else rng.permutation(len(fabric.healthy_accelerators))
    pattern = pattern if isinstance(pattern, str) else fabric.healthy_accelerators[pattern]
    sizes = []
    whole = optimal._reduced

    def watched(matrix, right, is_equal):
        found = whole(matrix, right, is_equal)
        sizes.append((matrix.shape[1], found[0].shape[1]))
        return found

    monkeypatch.setattr(optimal, "_reduced", watched)
    merged = best(fabric, pattern)
    monkeypatch.setattr(optimal, "_reduced", lambda m, r, e: (m, r, e, m.shape[1] - 1))
    assert merged == pytest.approx(best(fabric, pattern), rel=SOLVED)
    [(before, after)] = sizes
    assert after <= before
    if seed < 4:
        assert after < before / 5


def test_classes_that_only_look_alike_are_not_merged(monkeypatch):
    fabric = build_fabric("torus", dims=(3, 4))
    expected = best(fabric, "shift", shift=5)
    colours = optimal._colours

    def coarse(*given):  # all rows of one kind, all variables but the factor
        _, columns = colours(*given)
        return given[2].astype(int), np.where(columns == columns[-1], 1, 0)

    monkeypatch.setattr(optimal, "_colours", coarse)
    assert best(fabric, "shift", shift=5) == pytest.approx(expected, rel=SOLVED)


def test_planes_that_differ_share_their_accelerators():
    # A ring of 6 in two planes, one cable cut in one: the whole plane alone carries half of the intact share.
    one, cut = (build_fabric("torus", dims=(6,), planes=2).with_failures(links=links) for links in ([], [0]))
    assert 0.5 * best(one) < best(cut) < best(one)
    assert best(one) == pytest.approx(best(build_fabric("torus", dims=(6,))), rel=SOLVED)


def test_a_pair_that_is_cut_apart_has_no_route():
    halves = {"src": [0, 2], "dst": [1, 3]}
    fabric = build_fabric("custom", links=halves, num_accelerators=4, link_bandwidth="1 GB/s")
    with pytest.raises(NoRouteError):
        best(fabric)
    assert best(fabric, [1, 0, 3, 2]) == pytest.approx(1)


@pytest.mark.parametrize("lost", range(5))
def test_an_accelerator_that_is_cut_off_leaves_the_others(lost):
    # A ring of five without one is a line of four. Its middle cable carries 2 x 2 pairs, B / 3 each, at B / 2.
    ring = build_fabric("torus", dims=(5,))
    cut = ring.with_failures(links=[k for k in range(ring.num_links) if lost in _ends(ring, k)])
    assert cut.failures.cut_off == (lost,)
    assert best(cut) == pytest.approx(3 / 8, rel=SOLVED)


def _ends(fabric, cable):
    return {int(one) for link in fabric.links[fabric.links["cable"] == cable] for one in (link["src"], link["dst"])}


def test_what_is_too_large_says_how_large(monkeypatch):
    monkeypatch.setattr(optimal, "MAX_VARIABLES", 100)
    with pytest.raises(ConfigError, match="12 destinations x 48 links; at most 100 variables fit"):
        best(build_fabric("torus", dims=(3, 4)))
    monkeypatch.undo()
    monkeypatch.setattr(optimal, "MAX_SOLVED", 3)
    with pytest.raises(ConfigError, match="variables here, which symmetry leaves; at most 3 are solved"):
        best(build_fabric("torus", dims=(3, 4)))


def test_a_matrix_is_scaled_to_its_busiest_sender():
    # Accelerator 0 sends 3 parts, 1 sends 1: on one ideal switch the target's port is the limit, (3 + 1) / 3 of B.
    fabric = build_fabric("electrical_flat", num_accelerators=3)
    matrix = np.array([[7.0, 0, 3], [0, 0, 1], [0, 0, 0]])  # what 0 sends to itself is nothing
    for routing in ("spray", "optimal"):
        assert saturation_throughput(fabric, matrix, routing) == pytest.approx(3 / 4)
    uniform = np.ones((3, 3))
    assert saturation_throughput(fabric, uniform) == saturation_throughput(fabric, "all_to_all")
    with pytest.raises(ConfigError, match=r"matrix of shape \(2, 3\)"):
        saturation_throughput(fabric, matrix[:2])
    with pytest.raises(ConfigError, match="negative or not finite"):
        saturation_throughput(fabric, -matrix)
