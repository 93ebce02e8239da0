"""All-to-all along rails (PXN) and rail-optimised leaves: closed forms and link loads by hand, and the choice of both.

Servers of g accelerators with a NIC each, m of them, whose accelerators i are on leaf i of 8-port switches.
"""

import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.predicted_time import algorithm_costs, choose_algorithm
from rostam_py.errors import ConfigError

NIC, INSIDE = 50e9, 450e9
ALPHA_IN_PS = ALPHA_RAIL_PS = 80_000  # two links of 20 ns and a switch of 40 ns, inside a server and on a leaf
ALPHA_SPINE_PS = 200_000  # four links and three switches


def rails(m=4, g=4, **others):
    shape = {"radix": 8, "leaf_down": 4, "leaf_up": 4, "server_bandwidth": "450 GB/s", "link_bandwidth": "400 Gb/s"}
    return rostam.fabric("fat_tree", num_accelerators=m * g, server_size=g, rails=g > 1, **(shape | others))


def all_to_all(fabric, num_bytes, algorithm="rail_aligned", **others):
    return rostam.run_collective(fabric, "all_to_all", num_bytes=num_bytes, algorithm=algorithm, **others)


def ps(num_bytes, bandwidth):
    return math.ceil(round(num_bytes / bandwidth * 1e12, 3))


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(("m", "g"), [(4, 4), (3, 4), (2, 2), (4, 1)])
@pytest.mark.parametrize("size", [2**26, 1_000_003, 1])
def test_a_rail_aligned_all_to_all_meets_its_closed_form_to_the_picosecond(m, g, size, fold):
    # K pieces of c = ceil(S/Kp): inside (g-1) m c at 450 GB/s, between (m-1) g c at 50 GB/s, one behind the other.
    p, fabric = m * g, rails(m, g)
    result = all_to_all(fabric, size, fold=fold)
    pieces = algorithm_costs(fabric, "all_to_all", "rail_aligned").num_pieces(size)

    def expected_ps(pieces):
        chunk = math.ceil(size / (pieces * p))
        inside = ALPHA_IN_PS + ps((g - 1) * m * chunk, INSIDE) if g > 1 else 0
        between = ALPHA_RAIL_PS + ps((m - 1) * g * chunk, NIC)
        return inside + (pieces - 1) * max(inside, between) + between

    # A message's bytes divide by the flows beside it: rounding up to 1 ps, once a phase.
    assert result.time_ps == pytest.approx(expected_ps(pieces), abs=pieces + 2)
    assert expected_ps(pieces) <= min(expected_ps(2**k) for k in range(7) if 2**k <= max(1, size // p)) + pieces
    chunk = math.ceil(size / (pieces * p))
    assert result.bytes_sent == result.bytes_received == pieces * p * ((g - 1) * m + (m - 1) * g) * chunk


def test_bytes_that_cross_rails_go_inside_the_servers_and_no_spine_carries_any():
    # S = 16 x 12 kB in one unit of 4 servers: NICs carry 3 servers x 4 chunks; links inside 3 x 4 chunks, each way.
    fabric, chunk = rails(), 12_000
    p, size = 16, 16 * chunk
    result = all_to_all(fabric, size)
    pieces = algorithm_costs(fabric, "all_to_all", "rail_aligned").num_pieces(size)
    assert pieces * math.ceil(size / (pieces * p)) == chunk
    links = fabric.links
    leaves = range(p, p + 4)
    first_nic = p + fabric.num_switches
    is_nic = (links["src"] >= first_nic) & (links["src"] < first_nic + p) & np.isin(links["dst"], leaves)
    is_inside = (links["src"] < p) & (links["dst"] >= first_nic + p)
    is_uplink = np.isin(links["src"], leaves) & (links["dst"] >= p + 4) & (links["dst"] < first_nic)
    assert (is_nic.sum(), is_inside.sum(), is_uplink.sum()) == (16, 16, 16)
    assert result.link_bytes[is_nic].tolist() == pytest.approx([3 * 4 * chunk] * 16)
    assert result.link_bytes[is_inside].tolist() == pytest.approx([3 * 4 * chunk] * 16)
    assert not result.link_bytes[is_uplink].any()
    # Direct: of 12 chunks for other servers 9 are for other rails, over the uplinks of a leaf; inside 3.
    direct = all_to_all(fabric, size, "direct")
    assert direct.link_bytes[is_nic].tolist() == pytest.approx([3 * 4 * chunk] * 16)
    assert direct.link_bytes[is_inside].tolist() == pytest.approx([3 * chunk] * 16)
    assert direct.link_bytes[is_uplink].sum() == pytest.approx(16 * 9 * chunk)


def test_auto_takes_the_rails_where_spines_are_thin_and_direct_messages_where_they_are_not():
    # Uplinks a quarter of the ports down: direct messages put 4 x 9 chunks on one uplink, rails 12 on a NIC.
    thin = rails(leaf_down=4, leaf_up=1)
    size = 2**28
    assert choose_algorithm(thin, "all_to_all", size) == "rail_aligned"
    times = {name: all_to_all(thin, size, name).time_s for name in ("direct", "rail_aligned", "auto")}
    assert times["auto"] == times["rail_aligned"] < times["direct"]
    chunk = size / 16
    assert times["direct"] == pytest.approx(4 * 9 * chunk / NIC, rel=0.01)
    assert times["rail_aligned"] == pytest.approx(12 * chunk / NIC, rel=0.03)
    assert choose_algorithm(rails(), "all_to_all", size) == "direct"
    # On a leaf there is nothing to gain, and without servers there are no rails.
    assert choose_algorithm(thin, "all_to_all", size, [0, 1, 2, 3]) == "direct"
    plain = rostam.fabric("fat_tree", num_accelerators=16, radix=8, leaf_down=4, leaf_up=1)
    assert choose_algorithm(plain, "all_to_all", size) == "direct"


def test_rings_stay_on_their_rails_and_load_no_spine():
    # Servers take turns in going round: of an even number every channel enters a server on the rail it left the last.
    fabric = rails(4, 4, leaf_up=1)
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=2**26, algorithm="ring")
    links, p = fabric.links, 16
    is_uplink = (links["src"] >= p) & (links["src"] < p + 4) & (links["dst"] >= p + 4) & (links["dst"] < p + 5)
    assert is_uplink.sum() == 4
    assert not result.link_bytes[is_uplink].any()
    # 2 (p-1) steps of S / 64 on every NIC at once.
    assert result.time_ps == 30 * (ALPHA_RAIL_PS + ps(2**20, NIC))
    # An odd number has one border, from the last server to the first, where channels change rails.
    odd = rails(3, 4, leaf_up=1)
    loads = rostam.run_collective(odd, "all_reduce", num_bytes=48 * 2**10, algorithm="ring").link_bytes
    links, p = odd.links, 12
    is_uplink = (links["src"] >= p) & (links["src"] < p + 4) & (links["dst"] >= p + 4) & (links["dst"] < p + 5)
    assert loads[is_uplink].sum() == 4 * 22 * 2**10


def test_a_ring_over_rails_and_a_cluster_of_several_units_fold_to_the_same_times():
    fabric = rails(6, 4)  # a unit of four servers and one of two, whose rails share leaves in pairs
    assert fabric.num_switches == 4 + 2 + 3
    for collective, algorithm in [
        ("all_reduce", "ring"),
        ("all_reduce", "hierarchical"),
        ("all_to_all", "rail_aligned"),
    ]:
        times = [
            rostam.run_collective(fabric, collective, num_bytes=2**22, algorithm=algorithm, fold=fold).time_ps
            for fold in (True, False)
        ]
        assert times[0] == pytest.approx(times[1], abs=200)  # 1 ps a dependency step (MODEL H24)


def test_folding_uses_the_symmetry_of_rails():
    result = all_to_all(rails(4, 4), 2**20)
    assert result.num_simulated_ranks < 16


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"server_size": 1}, "fabric.rails is true, but fabric.server_size is 1"),
        ({"rails": "yes"}, "fabric.rails is 'yes'"),
    ],
)
def test_rails_need_servers(params, words):
    with pytest.raises(ConfigError, match=words):
        rostam.fabric("fat_tree", **({"num_accelerators": 16, "server_size": 4, "rails": True} | params))
