"""Packed pods of a fat tree: counts by hand, ports, reachability by search, shares and bytes of what is sent."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric

# Radix 8: leaves of 5 ports down and 3 up, pods of 4 leaves on ceil(12 / 4) = 3 switches.
PACKED = {"radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3, "pod_leaves": 4}


def tree(num, **params):
    return build_fabric("fat_tree", num_accelerators=num, **{**PACKED, **params})


# 120: 24 leaves, 6 pods, 72 uplinks on 9 cores. 110: 22 leaves, a last pod of 2 on 2; 66 uplinks, 9 cores, of which the
# last pod's 6 cables miss three. 20: a single pod and no core.
@pytest.mark.parametrize(
    ("num", "leaves", "pod_switches", "cores", "cables"),
    [(120, 24, 18, 9, 2 * 72), (110, 22, 17, 9, 2 * 66), (20, 4, 3, 0, 12)],
)
def test_switches_and_cables_are_the_fewest_that_hold_all_uplinks(num, leaves, pod_switches, cores, cables):
    fabric = tree(num)
    assert fabric.num_switches == leaves + pod_switches + cores
    assert fabric.num_links == num + cables
    bill = fabric.bill_of_materials()
    parts = fabric.config.parts_per_link
    assert (bill.num_switches, sum(bill.num_cables.values())) == (parts * fabric.num_switches, parts * fabric.num_links)
    ports = np.bincount(fabric.links["src"])[num:]
    assert ports.max() <= 8
    middle = slice(leaves, leaves + pod_switches)
    if cores:  # as many ports up as down, and every core within one port of every other
        ups = np.bincount(
            fabric.links["src"][fabric.links["dst"] >= num + leaves + pod_switches], minlength=len(ports) + num
        )
        assert (ups[num:][middle] * 2 == ports[middle]).all()
        assert np.ptp(ports[leaves + pod_switches :]) <= 1


@pytest.mark.parametrize("num", [120, 110, 87, 20])
def test_every_two_accelerators_are_as_far_apart_as_their_pods_say(num):
    fabric = tree(num)
    leaf, pod = np.arange(num) // 5, np.arange(num) // 20
    for target in range(0, num, 7):
        hops = np.asarray(fabric.core.search_distances(target))[:num]
        expected = np.where(pod == pod[target], np.where(leaf == leaf[target], 2, 4), 6)
        expected[target] = 0
        assert (hops == expected).all()


def test_packed_pods_are_routed_free_of_deadlock_and_carry_every_byte():
    fabric = tree(110)
    for routing in ("turns", "up_down", "spray"):
        assert rostam.check_dependencies(fabric, routing).is_deadlock_free
    result = rostam.run_collective(fabric, "all_to_all", num_bytes="1 MB", algorithm="direct")
    assert result.bytes_sent == result.bytes_received > 0
    # Tapered to 3/5 at leaves: no more than that can leave them (105 of 109 peers are on other leaves), and less where
    # pods have unequal numbers of cables to a core.
    even = build_fabric("fat_tree", num_accelerators=110, **{**PACKED, "pod_leaves": None})
    bound = 0.6 * 109 / 105
    packed = rostam.saturation_throughput(fabric)
    assert 0.5 * bound < packed <= rostam.saturation_throughput(even) <= bound + 1e-9
    assert even.num_switches > fabric.num_switches


def test_full_pods_without_taper_are_the_usual_ones():
    packed, even = (build_fabric("fat_tree", num_accelerators=128, radix=8, levels=3, pod_leaves=p) for p in (4, None))
    assert packed.num_switches == even.num_switches
    assert packed.num_links == even.num_links
    assert packed.diameter() == even.diameter()
    assert rostam.saturation_throughput(packed) == pytest.approx(1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pod_leaves": 5}, r"fabric.pod_leaves is 5; 24 leaves allow 3 .* to 4 \(half of fabric.radix 8\)"),
        ({"pod_leaves": 2}, "fabric.pod_leaves is 2; 24 leaves allow 3"),
        ({"pod_leaves": 0}, "fabric.pod_leaves is 0; it must be an integer >= 1"),
        ({"pod_leaves": 1.5}, "fabric.pod_leaves is 1.5; it must be an integer >= 1"),
        (
            {"num_accelerators": 30, "levels": 2},
            "fabric.pod_leaves is 4, but the tree has two levels; pods are of three",
        ),
    ],
)
def test_other_pods_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric("fat_tree", **{"num_accelerators": 120, **PACKED, **params})
