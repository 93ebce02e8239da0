"""Flows on systems small enough to draw, with times worked out by hand."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DeadlockError, NoRouteError

GB = 10**9


def trunk(bandwidth=6 * GB, latency=0.0):
    """a0, a1, a2 - s0 ==6 GB/s== s1 - a3, a4, a5; ports of 100 GB/s."""
    ports = [(f"a{k}", "s0" if k < 3 else "s1", 100 * GB, latency) for k in range(6)]
    return rostam.fabric("custom", links=[*ports, ("s0", "s1", bandwidth, latency)])


def directed(fabric, src, dst):
    """Index of the directed link between two vertices (accelerators first)."""
    links = fabric.links
    return int(np.flatnonzero((links["src"] == src) & (links["dst"] == dst))[0])


S0, S1 = 6, 7


def test_three_staggered_flows_share_a_trunk():
    # A 12 GB from 0 s, B 6 GB from 1 s, C 1 GB from 2 s over 6 GB/s.
    # 0-1 s: A 6.  1-2 s: A, B 3 each.  From 2 s all have 2 GB/s: C ends at 2.5 s, with A and B down to
    # 12 - 6 - 3 - 1 = 2 and 6 - 3 - 1 = 2 GB, which take 2/3 s at 3 GB/s.
    result = rostam.run_flows(trunk(), src=[0, 1, 2], dst=[3, 4, 5], num_bytes=[12 * GB, 6 * GB, GB], start_s=[0, 1, 2])
    assert result.sent_s[2] == 2.5
    assert result.sent_s[:2] == pytest.approx([2.5 + 2 / 3] * 2, abs=2e-12)


def test_a_flow_held_elsewhere_leaves_its_share_to_the_others():
    # a0 -> a2 (X) and a1 -> a2 (Y) share the port of a2, 6 GB/s; a1 -> a3 (Z) shares the port of a1, 4 GB/s, with Y.
    # Port a1: Y and Z 2 each. Port a2: Y 2, so X has 4 although an even split would give it 3.
    rows = [("a0", "s0", 10 * GB), ("a1", "s0", 4 * GB), ("a2", "s0", 6 * GB), ("a3", "s0", 10 * GB)]
    fabric = rostam.fabric("custom", links=rows)
    result = rostam.run_flows(fabric, src=[0, 1, 1], dst=[2, 2, 3], num_bytes=[4 * GB, 2 * GB, 2 * GB])
    assert result.sent_s == pytest.approx([1, 1, 1], abs=1e-12)


def test_both_directions_of_a_cable_are_independent():
    result = rostam.run_flows(trunk(), src=[0, 3], dst=[3, 0], num_bytes=[6 * GB, 6 * GB])
    assert result.sent_s.tolist() == [1, 1]


def test_latency_is_paid_once_and_not_part_of_holding_the_links():
    # Three links of 1 us: sent after 1 s, arrived 3 us later; the next flow starts on free links at 1 s.
    result = rostam.run_flows(trunk(latency=1e-6), src=[0, 1], dst=[3, 4], num_bytes=[6 * GB, 6 * GB], start_s=[0, 1])
    assert result.sent_s.tolist() == [1, 2]
    assert result.finish_s == pytest.approx([1 + 3e-6, 2 + 3e-6], abs=1e-15)


def test_a_flow_without_bytes_arrives_after_the_latency_and_takes_nothing_from_others():
    result = rostam.run_flows(trunk(latency=1e-6), src=[0, 1], dst=[3, 4], num_bytes=[0, 6 * GB], start_s=[0.5, 0])
    assert result.sent_s.tolist() == [0.5, 1]
    assert result.finish_s[0] == pytest.approx(0.5 + 3e-6, abs=1e-15)


def test_a_single_byte_takes_a_picosecond_at_least():
    rows = [("a0", "s0", 1e15), ("a1", "s0", 1e15)]
    result = rostam.run_flows(rostam.fabric("custom", links=rows), src=[0], dst=[1], num_bytes=[1])
    assert result.sent_s[0] == 1e-12


def test_a_link_that_slows_down_in_flight_delays_what_is_left():
    # 12 GB at 6 GB/s; from 1 s on half of it: 6 GB left at 3 GB/s, done at 3 s.
    fabric = trunk()
    event = rostam.LinkBandwidth(time=1, link=directed(fabric, S0, S1), scale=0.5)
    result = rostam.run_flows(fabric, src=[0], dst=[3], num_bytes=[12 * GB], events=[event])
    assert result.sent_s[0] == 3


def test_a_link_back_from_0_lets_its_flows_go_on_where_they_stood():
    # Down from 1 s to 5 s, then a quarter above the old speed: 6 + 0 + 6 / 7.5 s.
    fabric = trunk()
    link = directed(fabric, S0, S1)
    events = [rostam.LinkBandwidth("1 s", link, 0), rostam.LinkBandwidth("5 s", link, 1.25)]
    result = rostam.run_flows(fabric, src=[0], dst=[3], num_bytes=[12 * GB], events=events)
    assert result.sent_s[0] == pytest.approx(5.8, abs=1e-12)
    assert result.link_bytes[link] == 12 * GB


def test_a_change_of_the_other_direction_changes_nothing():
    fabric = trunk()
    event = rostam.LinkBandwidth(time=0, link=directed(fabric, S1, S0), scale=0)
    assert rostam.run_flows(fabric, src=[0], dst=[3], num_bytes=[6 * GB], events=[event]).sent_s[0] == 1


def test_flows_left_on_a_dead_link_are_a_deadlock():
    fabric = trunk()
    event = rostam.LinkBandwidth(time=1, link=directed(fabric, S0, S1), scale=0)
    with pytest.raises(DeadlockError, match="2 flows are stalled on links of capacity 0; the first is flow 0, 0 to 3"):
        rostam.run_flows(fabric, src=[0, 1, 2], dst=[3, 4, 0], num_bytes=[12 * GB, 12 * GB, GB], events=[event])


# a0 -- s0 (4 GB/s) -- a1
#   \-- s1 (2 GB/s) --/      two minimal paths of two links each
def two_paths():
    rows = [("a0", "s0", 4 * GB), ("s0", "a1", 4 * GB), ("a0", "s1", 2 * GB), ("s1", "a1", 2 * GB)]
    return rostam.fabric("custom", links=rows)


def hash_for(fabric, first_link):
    """A path hash under which 0 -> 1 leaves over `first_link`."""
    router = fabric.router("hash", enable_bundling=False)
    return next(h for h in range(64) if first_link in router.route(0, 1, h)[0])


def test_a_flow_rerouted_in_flight_takes_the_rest_over_the_new_path():
    fabric = two_paths()
    fast, slow = directed(fabric, 0, 2), directed(fabric, 0, 3)
    # Forced onto the fast path at 0 s, onto the slow one at 1 s: 4 GB done, 4 GB left at 2 GB/s, done at 3 s.
    events = [rostam.Reroute(0, 0, hash_for(fabric, fast)), rostam.Reroute(1, 0, hash_for(fabric, slow))]
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[8 * GB], events=events)
    assert result.sent_s[0] == 3
    assert result.link_bytes[[fast, slow]] == pytest.approx([4 * GB, 4 * GB])
    assert result.link_bytes.sum() == pytest.approx(2 * 8 * GB)


def test_a_flow_rerouted_away_frees_its_share_for_the_other():
    fabric = two_paths()
    fast, slow = directed(fabric, 0, 2), directed(fabric, 0, 3)
    # Both on the fast path, 2 GB/s each. At 1 s flow 1 moves away: flow 0 has 4 - 2 = 2 GB left at 4 GB/s.
    to_fast = [rostam.Reroute(0, f, hash_for(fabric, fast)) for f in (0, 1)]
    events = [*to_fast, rostam.Reroute(1, 1, hash_for(fabric, slow))]
    result = rostam.run_flows(fabric, src=[0, 0], dst=[1, 1], num_bytes=[4 * GB, 4 * GB], events=events)
    assert result.sent_s == pytest.approx([1.5, 2], abs=1e-12)


def test_a_reroute_off_a_dead_link_saves_the_flow():
    fabric = two_paths()
    fast, slow = directed(fabric, 0, 2), directed(fabric, 0, 3)
    events = [
        rostam.Reroute(0, 0, hash_for(fabric, fast)), rostam.LinkBandwidth(1, fast, 0),
        rostam.Reroute(2, 0, hash_for(fabric, slow)),
    ]  # fmt: skip
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[8 * GB], events=events)
    assert result.sent_s[0] == 1 + 1 + 2


def test_a_reroute_after_the_end_is_nothing():
    fabric = two_paths()
    fast = directed(fabric, 0, 2)
    events = [rostam.Reroute(0, 0, hash_for(fabric, fast)), rostam.Reroute(9, 0, 1)]
    assert rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[8 * GB], events=events).sent_s[0] == 2


def test_spray_uses_both_paths_and_is_held_by_the_slower_one():
    # Half each (MODEL F18): the slow path's 2 GB/s carry half, so 4 GB/s in all.
    result = rostam.run_flows(two_paths(), src=[0], dst=[1], num_bytes=[8 * GB], routing="spray")
    assert result.sent_s[0] == 2


def test_flows_over_planes_carry_their_share_on_the_one_that_is_simulated():
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, accelerator_bandwidth=8 * GB, planes=4, latency=0.0)
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[8 * GB])
    assert result.sent_s[0] == 1
    assert result.link_bytes.max() == 2 * GB


def test_equal_runs_are_equal_and_another_seed_may_take_other_paths():
    fabric = two_paths()
    arguments = {"src": [0] * 12, "dst": [1] * 12, "num_bytes": [GB] * 12}
    ends = [rostam.run_flows(fabric, seed=seed, **arguments).sent_s.tolist() for seed in (3, 3, 4, 5, 6)]
    assert ends[0] == ends[1]
    assert any(other != ends[0] for other in ends[2:])


def test_bad_flows_say_what_is_allowed():
    fabric = trunk()
    with pytest.raises(ConfigError, match="flow 1 goes from 3 to 3"):
        rostam.run_flows(fabric, src=[0, 3], dst=[3, 3], num_bytes=[1, 1])
    with pytest.raises(ConfigError, match="dst names accelerator 6; the fabric has 0 to 5"):
        rostam.run_flows(fabric, src=[0], dst=[6], num_bytes=[1])
    with pytest.raises(ConfigError, match="src has 1 entries and dst 2"):
        rostam.run_flows(fabric, src=[0], dst=[1, 2], num_bytes=[1])
    with pytest.raises(ConfigError, match="Reroute of flow 5; flows are 0 to 0"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[1], events=[rostam.Reroute(0, 5, 0)])
    with pytest.raises(ConfigError, match="routing is 'spray'; only 'hash' has paths to select from"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[1], routing="spray", events=[rostam.Reroute(0, 0, 0)])
    with pytest.raises(ConfigError, match="link 77"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[1], events=[rostam.LinkBandwidth(0, 77, 1)])
    with pytest.raises(ConfigError, match=r"scale .*-1"):
        rostam.LinkBandwidth(0, 0, -1)


def test_failed_parts_are_refused_or_have_no_route():
    fabric = trunk()
    with pytest.raises(ConfigError, match="accelerator 3, which has failed"):
        rostam.run_flows(fabric.with_failures(accelerators=[3]), src=[0], dst=[3], num_bytes=[1])
    cable = int(fabric.links["cable"][directed(fabric, S0, S1)])
    with pytest.raises(NoRouteError):
        rostam.run_flows(fabric.with_failures(links=[cable]), src=[0], dst=[3], num_bytes=[1])
