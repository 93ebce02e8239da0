"""Slim fly, dragonfly and hyperx: counts, degrees, wiring and diameters against searches of the links themselves."""

import collections
import itertools

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.slim_fly import constructible, network_degree


def switch_graph(fabric):
    """Neighbours of every switch, counted from 0, with repetitions for parallel cables."""
    links, first = fabric.links, fabric.num_accelerators
    neighbours = [[] for _ in range(fabric.num_switches // fabric.planes)]
    for src, dst in zip(links["src"].tolist(), links["dst"].tolist(), strict=True):
        if src >= first and dst >= first:
            neighbours[src - first].append(dst - first)
    return neighbours


def farthest(neighbours, start):
    """Hops to the farthest switch."""
    hops, queue = {start: 0}, collections.deque([start])
    while queue:
        here = queue.popleft()
        for there in neighbours[here]:
            if there not in hops:
                hops[there] = hops[here] + 1
                queue.append(there)
    assert len(hops) == len(neighbours)
    return max(hops.values())


# q = 4 w + delta: delta is -1 for 3, 7, 11; 0 for 4, 8, 16; 1 for 5, 9, 13, 17.
@pytest.mark.parametrize(
    ("q", "degree"), [(3, 5), (4, 6), (5, 7), (7, 11), (8, 12), (9, 13), (11, 17), (13, 19), (16, 24), (17, 25)]
)
def test_slim_fly_is_a_graph_of_two_q_squared_switches_and_diameter_two(q, degree):
    fabric = build_fabric("slim_fly", q=q, terminals_per_switch=1)
    neighbours = switch_graph(fabric)
    assert len(neighbours) == 2 * q * q
    assert {len(found) for found in neighbours} == {degree}
    assert all(len(set(found)) == degree for found in neighbours)
    assert max(farthest(neighbours, s) for s in range(0, len(neighbours), max(1, q // 5))) == 2
    assert fabric.diameter() == 4  # and a cable to the accelerator at each end
    assert network_degree(q) == degree


def test_the_deployed_slim_fly_has_its_published_counts():
    # Blach et al., NSDI 2024: 50 switches of 7 links to others and 4 endpoints, 10 cables between every two racks.
    fabric = build_fabric("slim_fly", q=5)
    assert (fabric.num_switches, fabric.num_accelerators) == (50, 200)
    assert fabric.num_links - fabric.num_accelerators == 175
    between = collections.Counter()
    for switch, found in enumerate(switch_graph(fabric)):
        for other in found:
            racks = sorted({switch % 25 // 5, other % 25 // 5})  # subgroups (0, i, *) and (1, i, *) are rack i
            if len(racks) == 2:
                between[tuple(racks)] += 1
    assert between == dict.fromkeys(itertools.combinations(range(5), 2), 20)  # each cable is seen from both ends


@pytest.mark.parametrize("q", [5, 7, 8])
def test_shortest_paths_of_a_slim_fly_are_nearly_all_single(q):
    # 2 q^2 - 1 - k' switches are two apart; at q = 5 the Hoffman-Singleton graph has exactly one path to each.
    neighbours = [set(found) for found in switch_graph(build_fabric("slim_fly", q=q, terminals_per_switch=1))]
    common = [
        len(neighbours[0] & neighbours[other]) for other in range(1, len(neighbours)) if other not in neighbours[0]
    ]
    assert min(common) >= 1
    if q == 5:
        assert set(common) == {1}


@pytest.mark.parametrize(
    ("q", "nearest"), [(1, "3"), (2, "3"), (6, "5 or 7"), (10, "9 or 11"), (12, "11 or 13"), (15, "16"), (500, "128")]
)
def test_a_q_without_a_graph_is_refused_with_the_nearest(q, nearest):
    with pytest.raises(ConfigError, match=rf"fabric.q is {q}, which has no MMS graph here; .* nearest is {nearest}$"):
        build_fabric("slim_fly", q=q)


def test_prime_powers_are_those_of_the_definition():
    primes = [p for p in range(2, 130) if all(p % d for d in range(2, p))]
    powers = {p**n for p in primes for n in range(1, 8)}
    assert constructible(128) == [q for q in range(3, 129) if q in powers]


@pytest.mark.parametrize(
    ("accelerators", "said"), [(201, r"the nearest has 200 \(fabric.q 5\)"), (0, r"the nearest has \d+ \(fabric.q 3\)")]
)
def test_a_slim_fly_of_another_size_is_refused_with_the_nearest(accelerators, said):
    from rostam_py.fabrics.sizes import resize_parameters

    with pytest.raises(ConfigError, match=said):
        resize_parameters("slim_fly", {}, accelerators)
    assert resize_parameters("slim_fly", {}, 200)["q"] == 5


SMALL_DRAGONFLY = {
    "routers_per_group": 16, "terminals_per_router": 8, "global_links_per_router": 8, "num_groups": 8,
    "routers_per_switch": 2, "planes": 16,
}  # fmt: skip
LARGE_DRAGONFLY = {
    "routers_per_group": 32, "terminals_per_router": 17, "global_links_per_router": 16, "num_groups": 30, "planes": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("params", "accelerators", "switches", "copper", "optical", "usd"),
    [
        # HammingMesh, appendix C: 16 (64 x 14,280 + 1,920 x 272 + 512 x 603).
        (SMALL_DRAGONFLY, 1024, 64, 1920, 512, 27_918_336),
        # 16 (960 x 14,280 + 31,200 x 272 + 7,680 x 603).
        (LARGE_DRAGONFLY, 16_320, 960, 31_200, 7_680, 429_219_840),
    ],
)
def test_dragonflies_of_the_paper_have_its_counts_and_price(params, accelerators, switches, copper, optical, usd):
    fabric = build_fabric("dragonfly", link_bandwidth="400 Gb/s", **params)
    assert fabric.num_accelerators == accelerators
    bill = fabric.bill_of_materials()
    assert bill == BillOfMaterials(16 * switches, {"DAC": 16 * copper, "AoC": 16 * optical})
    assert bill.total_usd == usd
    assert fabric.num_switches == 16 * switches
    assert fabric.num_links == 16 * (copper + optical)


@pytest.mark.parametrize(
    ("a", "h", "g", "per_switch"),
    [(4, 2, 9, 1), (4, 2, 4, 2), (4, 2, 6, 1), (3, 1, 4, 1), (4, 1, 3, 4), (5, 3, 7, 1), (2, 2, 1, 1), (16, 8, 8, 2)],
)
def test_dragonfly_groups_are_joined_evenly_and_no_port_is_used_twice(a, h, g, per_switch):
    fabric = build_fabric(
        "dragonfly", routers_per_group=a, terminals_per_router=1, global_links_per_router=h, num_groups=g,
        routers_per_switch=per_switch,
    )  # fmt: skip
    size = a // per_switch
    between, local, ports = collections.Counter(), collections.Counter(), collections.Counter()
    for switch, found in enumerate(switch_graph(fabric)):
        for other in found:
            if switch // size == other // size:
                local[switch, other] += 1
            else:
                between[switch // size, other // size] += 1
                ports[switch] += 1
    assert local == {
        (s, o): per_switch**2 for s, o in itertools.permutations(range(g * size), 2) if s // size == o // size
    }
    assert max(ports.values(), default=0) <= per_switch * h
    if g == 1:
        assert not between
        return
    assert set(between) == set(itertools.permutations(range(g), 2))
    assert max(between.values()) - min(between.values()) <= 1
    is_one_left = a * h % (g - 1) % 2 and g % 2
    assert sum(between.values()) == g * (a * h - bool(is_one_left)) == 2 * fabric.config.num_global_cables
    assert sum(local.values()) == 2 * fabric.config.num_local_cables


def test_dragonfly_paths_take_one_global_cable_at_most():
    fabric = build_fabric(
        "dragonfly", routers_per_group=4, terminals_per_router=1, global_links_per_router=1, num_groups=5
    )
    links, first = fabric.links, fabric.num_accelerators
    router = fabric.router("spray", enable_bundling=False)
    for src, dst in itertools.permutations(range(20), 2):
        route = router.route(src, dst)[0]
        ends = [(int(links["src"][k]) - first, int(links["dst"][k]) - first) for k in route]
        crossed = [(s, d) for s, d in ends if min(s, d) >= 0 and s // 4 != d // 4]
        # One cable between every two groups: a single path of at most local, global, local.
        assert len(crossed) == (src // 4 != dst // 4)
        assert len(route) <= 5
    assert fabric.diameter() == 5  # local, global, local and an accelerator's cable at each end


def test_a_dragonfly_pair_whose_groups_lost_their_cables_goes_by_way_of_a_third_group():
    fabric = build_fabric(
        "dragonfly", routers_per_group=4, terminals_per_router=1, global_links_per_router=1, num_groups=5
    )
    links, first = fabric.links, fabric.num_accelerators
    groups = (links["src"].astype(int) - first) // 4, (links["dst"].astype(int) - first) // 4
    cable = links["cable"][(groups[0] == 0) & (groups[1] == 1) & (links["src"] >= first)]
    broken = fabric.with_failures(links=np.unique(cable))
    route = broken.router(enable_bundling=False).route(0, 4)[0]
    ends = [(int(links["src"][k]) - first, int(links["dst"][k]) - first) for k in route]
    assert sum(min(s, d) >= 0 and s // 4 != d // 4 for s, d in ends) == 2
    # Local, global, local, global, local and an accelerator's cable at each end, where no switch has two of the cables.
    assert broken.diameter() == 7
    # Without any cable of group 0 there is no path.
    lost = links["cable"][(groups[0] == 0) & (groups[1] != 0) & (np.minimum(links["src"], links["dst"]) >= first)]
    with pytest.raises(NoRouteError, match="from accelerator 0 to accelerator 4"):
        fabric.with_failures(links=np.unique(lost)).router().route(0, 4)


@pytest.mark.parametrize(("dims", "terminals"), [((4,), 1), ((2, 4), 2), ((3, 1, 5), 1), ((3, 3, 3), 2), ((1,), 3)])
def test_hyperx_joins_switches_that_differ_in_one_coordinate(dims, terminals):
    fabric = build_fabric("hyperx", dims=dims, terminals=terminals)
    cells = list(itertools.product(*map(range, dims)))
    expected = [
        [k for k, other in enumerate(cells) if sum(a != b for a, b in zip(cell, other, strict=True)) == 1]
        for cell in cells
    ]
    neighbours = switch_graph(fabric)
    assert [sorted(found) for found in neighbours] == expected
    assert fabric.num_accelerators == len(cells) * terminals
    assert fabric.diameter() == 2 + max(farthest(neighbours, s) for s in range(len(cells)))
    assert max(farthest(neighbours, s) for s in range(len(cells))) == sum(size > 1 for size in dims)


def test_router_fabrics_are_priced_as_their_cables_are_counted():
    # q = 5: 200 cables to accelerators and 75 inside racks in copper, 100 between racks optical.
    bill = build_fabric("slim_fly", q=5, link_bandwidth="400 Gb/s").bill_of_materials()
    assert bill == BillOfMaterials(50, {"DAC": 275, "AoC": 100})
    assert bill.total_usd == 50 * 14_280 + 275 * 272 + 100 * 603
    # 8 x 8 switches with 8 terminals: 512 in copper, 64 x 14 / 2 optical.
    bill = build_fabric("hyperx", dims=(8, 8), terminals=8, link_bandwidth="400 Gb/s").bill_of_materials()
    assert bill == BillOfMaterials(64, {"DAC": 512, "AoC": 448})
    with pytest.raises(ConfigError, match="no bill of materials"):
        build_fabric("hyperx", dims=(40, 40), terminals=1).bill_of_materials()  # 79 ports


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("hyperx", {"dims": []}, "fabric.dims is empty"),
        ("hyperx", {"dims": [2, 0]}, r"fabric.dims\[1\] is 0"),
        ("hyperx", {"dims": [2], "terminals": 0}, "fabric.terminals is 0"),
        ("dragonfly", {"routers_per_group": 4, "terminals_per_router": 1, "global_links_per_router": 1,
                       "num_groups": 6}, "fabric.num_groups is 6; 4 global links .* at most 5 groups"),
        ("dragonfly", {"routers_per_group": 4, "terminals_per_router": 1, "global_links_per_router": 1,
                       "num_groups": 3, "routers_per_switch": 3}, "fabric.routers_per_switch is 3; it must divide"),
        ("slim_fly", {"q": 5, "terminals_per_switch": 0}, "fabric.terminals_per_switch is 0"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be_are_refused(name, params, said):
    with pytest.raises(ConfigError, match=said):
        build_fabric(name, **params)


@pytest.mark.parametrize(
    ("name", "params", "share"),
    [
        # 4 switches of 2, all joined: each sends 2/7 of what it injects to each other switch over one cable: 4/7 of a
        # cable's rate; the port is the bound.
        ("hyperx", {"dims": (4,), "terminals": 2}, 1.0),
        # 2 switches of 4: of 4 senders' bytes 4/7 cross one cable, 16/7 of its rate.
        ("hyperx", {"dims": (2,), "terminals": 4}, 7 / 16),
        # q = 5, 4 terminals: all 50 x 4 senders spread over 199. Of a switch's 49 others 7 are one, 42 two cables away,
        # each pair on one path: (7 + 2 x 42) x 50 paths load 350 directed cables alike, 13 each, of 4 x 4 / 199.
        ("slim_fly", {"q": 5}, 199 / (13 * 16)),
    ],
)
def test_all_to_all_throughput_is_that_of_a_count_by_hand(name, params, share):
    assert rostam.saturation_throughput(build_fabric(name, **params)) == pytest.approx(share, rel=1e-12)
