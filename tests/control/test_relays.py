"""Relays over circuits that change or fail: one-shot to the picosecond, nobody left waiting, bytes counted.

The second computations: a fabric that never had a failed switch; chains of circuits found by powers of a matrix; times
by hand.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.traffic import Traffic

AT_ONCE = rostam.Recovery(detection="0 s", reroute="0 s")


def switches(num, num_ocs, **keys):
    """Return accelerators with ports of 1 GB/s that relay; circuits that change are dark for 1 ms."""
    keys = {"reconfiguration_delay": "1 ms", "latency": "1 us", "relay": True} | keys
    return rostam.fabric("sip_ocs", num_accelerators=num, num_ocs=num_ocs, link_bandwidth="1 GB/s", **keys)


def random_flows(seed):
    """Return (accelerators, flows) at random."""
    rng = np.random.default_rng(seed)
    num, count = int(rng.integers(3, 9)), int(rng.integers(4, 14))
    src = rng.integers(0, num, count)
    dst = (src + rng.integers(1, num, count)) % num
    return num, {"src": src, "dst": dst, "num_bytes": 1_000_000 * rng.integers(1, 20, count), "routing": "spray"}


def test_a_port_that_fails_after_the_end_changes_nothing():
    # 2 -> 1 and 3 -> 0 need the ring 0 -> 1 -> 2 -> 3 -> 0: 2 -> 3 and 3 -> 0 are circuits nobody has asked for.
    keys = {"src": [0, 1, 2, 3], "dst": [1, 2, 1, 0], "num_bytes": [5_000_000] * 4}
    alone = rostam.run_flows(switches(4, 1), **keys).finish_s
    assert alone.max() < 0.02
    late = rostam.run_flows(switches(4, 1), events=[rostam.Failure(1000.0, "links", 0)], **keys).finish_s
    assert late.tolist() == alone.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_relays_of_circuits_that_never_change_are_one_shot_to_the_picosecond(seed):
    num, flows = random_flows(seed)
    keys = {"num_ocs": 1 + seed % 3, "symmetric": seed % 4 == 0}
    try:
        alone = rostam.run_flows(switches(num, **keys), **flows).finish_s
    except ConfigError:  # one switch, both ways: no ring
        assert keys == {"num_ocs": 1, "symmetric": True}
        return
    late = rostam.run_flows(switches(num, **keys), events=[rostam.Failure(1000.0, "links", 0)], **flows)
    never = rostam.run_flows(switches(num, control="periodic", reconfiguration_delay="9.1e6 s", **keys), **flows)
    assert late.finish_s.tolist() == never.finish_s.tolist() == alone.tolist()
    assert late.reconfigurations.relayed_bytes == never.reconfigurations.relayed_bytes


@pytest.mark.parametrize("seed", range(20))
def test_a_switch_that_fails_at_once_is_one_that_has_failed_before(seed):
    # As much back as forth: directed circuits that are set before a run are searched for longer than those within it.
    num, flows = random_flows(seed)
    flows |= {"src": np.append(flows["src"], flows["dst"]), "dst": np.append(flows["dst"], flows["src"])}
    flows["num_bytes"] = np.tile(flows["num_bytes"], 2)
    fabric = switches(num, 3, reconfiguration_delay="0 s", symmetric=True)
    before = rostam.run_flows(fabric.with_failures(switches=[1]), **flows).finish_s
    at_once = rostam.run_flows(fabric, events=[rostam.Failure(0.0, "switches", 1)], recovery=AT_ONCE, **flows).finish_s
    assert at_once.tolist() == before.tolist()


def test_pairs_whose_ports_share_no_switch_are_relayed():
    # Accelerator 0 loses its port at switch 0 and accelerator 1 its own at switch 1: 0 -> 2 lies on switch 1, 2 -> 1 on
    # switch 0, and 0 -> 1 takes both. Each of the two carries 4 + 4 MB at 1 GB/s.
    events = [rostam.Failure(0.0, "links", 0 * 2 + 0), rostam.Failure(0.0, "links", 1 * 2 + 1)]
    found = rostam.run_flows(
        switches(3, 2, reconfiguration_delay="0 s", latency="0 s"), src=[0, 0, 2], dst=[1, 2, 1],
        num_bytes=[4_000_000] * 3, events=events, recovery=AT_ONCE,
    )  # fmt: skip
    assert found.finish_s.tolist() == pytest.approx([8e-3] * 3)
    assert found.reconfigurations.relayed_bytes == pytest.approx(4e6)


@pytest.mark.parametrize("control", [{"control": "scheduled"}, {"control": "periodic", "period": "0 s"}])
def test_pairs_that_no_relay_reaches_get_circuits_once_nothing_else_is_under_way(control):
    # One switch, as many circuits back as forth: a ring has no room. 8 MB from 0 to 1, 1 ms dark, 4 MB from 1 to 2.
    fabric = switches(3, 1, symmetric=True, latency="0 s", **control)
    found = rostam.run_flows(fabric, src=[0, 1], dst=[1, 2], num_bytes=[8_000_000, 4_000_000])
    assert found.finish_s.tolist() == pytest.approx([8e-3, 13e-3])
    assert found.reconfigurations.relayed_bytes == 0


def test_circuits_that_change_stay_connected_and_relay():
    # From 0 s on 1 -> 0 and 2 -> 0 alone want circuits, one switch: the ring 0 -> 1 -> 2 -> 0 serves both, 1 -> 0 by
    # way of 2. Both cross 2 -> 0: 8 MB at 1 GB/s. By turns they would take 8 ms and 1 ms of dark.
    fabric = switches(3, 1, control="periodic", period="0 s", latency="0 s")
    found = rostam.run_flows(fabric, src=[1, 2], dst=[0, 0], num_bytes=[4_000_000, 4_000_000])
    assert found.finish_s.tolist() == pytest.approx([8e-3] * 2)
    assert found.reconfigurations.relayed_bytes == pytest.approx(4e6)


@pytest.mark.parametrize("seed", range(30))
def test_every_demand_of_circuits_that_change_has_a_chain_of_circuits(seed):
    num, flows = random_flows(seed)
    traffic = Traffic.from_messages(num, flows["src"], flows["dst"], flows["num_bytes"])
    found = _core.set_ocs_circuits(
        num, traffic.src, traffic.dst, traffic.num_bytes, 1 + seed % 3, can_relay=True, may_leave_out=True
    )
    joined = np.eye(num, dtype=int)
    joined[found["src"], found["dst"]] = 1
    assert np.all(np.linalg.matrix_power(joined, num)[traffic.src, traffic.dst] > 0)
