"""A flow of run_flows and a message of a task graph take one path through the network, its control and its faults.

Times by hand: links of 1 GB/s, so that a byte takes 1 ns; 1 ms = 10^9 ps. 3 MB from accelerator 0 to 1.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError

MS = 10**9
ACCELERATOR, LINK = 0, 1
KEPT = "links of every accelerator carry what it sends, receives and forwards"
NEVER = {"fail_kind": [ACCELERATOR], "fail_id": [2], "fail_ps": [1000 * MS]}


def flat(count=3):
    return rostam.fabric("electrical_flat", num_accelerators=count, link_bandwidth=1e9, latency=0.0)


def ring(**failures):
    fabric = rostam.fabric("torus", dims=[4], link_bandwidth=1e9, link_latency=0.0)
    return fabric.with_failures(**failures) if failures else fabric


def moves(*times_and_rates):
    times, rates = zip(*times_and_rates, strict=True)
    return {"src": 0, "dst": 1, "time_ps": list(times), "bytes_per_s": list(rates)}


def failing_link(fabric, src, dst, fail_ps, repair_ps):
    ends = [(int(link["src"]), int(link["dst"])) for link in fabric.links]
    return {"fail_kind": [LINK], "fail_id": [ends.index((src, dst))], "fail_ps": [fail_ps], "repair_ps": [repair_ps]}


def uneven():
    """Return two planes, of which one has lost the cable of accelerators 0 and 1: it goes the long way round there."""
    fabric = rostam.fabric("torus", dims=[4], link_bandwidth=1e9, link_latency=0.0, planes=2)
    return fabric.with_failures(links=[0])


def flow(fabric, controllers, num_bytes=3_000_000, **more):
    given = {"src": [0], "dst": [1], "num_bytes": [num_bytes], "routing": "spray", **more}
    return rostam.run_flows(fabric, controllers=controllers, **given)


def message(fabric, controllers, num_bytes=3_000_000, **more):
    given = {"ranks": [0, 1], "num_bytes": num_bytes, "algorithm": "direct", "routing": "spray", **more}
    return rostam.run_collective(fabric, "send_recv", controllers=controllers, **given)


CASES = {
    "undisturbed": (flat(), None, {}, 3.0),
    "moved twice": (flat(), moves((MS, 2e9), (3 * MS // 2, 4e9)), {}, 1.75),
    "its link fails and is repaired": (ring(), failing_link(ring(), 0, 1, MS, 5 * MS), {}, 7.0),
    # 1 MB by 1 ms, nothing until it is moved at 2 ms, then 2 MB at 2 GB/s; the link is repaired too late.
    "moved off its failed link": (ring(), failing_link(ring(), 0, 1, MS, 50 * MS) | moves((2 * MS, 2e9)), {}, 3.0),
    "without a route, which it is given at once": (ring(links=[0, 2]), NEVER, {"park": True}, 3.0),
    "without a route until 2 ms": (
        ring(links=[0, 2]), NEVER | {"restart_after_ps": [MS]} | moves((2 * MS, 1e9)), {"park": True}, 5.0,
    ),
    "over planes that differ": (uneven(), moves((MS, 1e9)), {}, None),
}  # fmt: skip


@pytest.mark.parametrize("fidelity", _core.engine_names())
@pytest.mark.parametrize("case", CASES)
def test_a_flow_and_a_message_take_equal_times_bytes_and_routes(case, fidelity):
    fabric, parameters, more, expected_ms = CASES[case]
    controllers = [] if parameters is None else [("wanderer", parameters)]
    is_packets = fidelity == "packet"
    if is_packets and expected_ms is None:
        with pytest.raises(ConfigError, match="under way over planes that differ"):
            flow(fabric, controllers, fidelity=fidelity, **more)
        return
    one = flow(fabric, controllers, fidelity=fidelity, **more)
    other = message(fabric, controllers, fidelity=fidelity, **more)
    assert round(one.finish_s[0] * 1e12) == other.time_ps
    assert np.array_equal(one.link_bytes, other.link_bytes)
    assert {KEPT} <= set(one.checks) & set(other.checks)
    assert one.bytes_left.tolist() == [0]
    if expected_ms is not None:
        # Packets in buffers, 8 kB at most, move at the rate of the link that they are on.
        assert one.finish_s[0] == pytest.approx(expected_ms * 1e-3, abs=8e-6 if is_packets else 2e-12)


def cut_off():
    """Return a ring of four without the cables of 0 - 1 and 2 - 3: two halves."""
    return ring(links=[0, 2])


def test_a_flow_waits_for_a_route_and_for_the_repair_of_its_link():
    # It waits until 2 ms; 1 MB over the new link by 3 ms, which is then down until 6 ms; 2 MB by 8 ms.
    fabric = cut_off()
    added = len(fabric.links)  # the first link after the fabric's own
    controller = moves((2 * MS, 1e9)) | {
        "restart_after_ps": [MS], "fail_kind": [LINK], "fail_id": [added], "fail_ps": [3 * MS], "repair_ps": [6 * MS],
    }  # fmt: skip
    result = flow(fabric, [("wanderer", controller)], park=True)
    assert result.sent_s[0] == result.finish_s[0] == pytest.approx(8e-3, abs=2e-12)
    assert KEPT in result.checks
    assert result.link_bytes.sum() == 0  # the fabric's own links saw none of it
    with pytest.raises(NoRouteError, match="no path"):
        flow(fabric, [("wanderer", controller)])


def test_the_flows_that_have_a_route_go_on_while_others_wait():
    # Of 0's two flows one waits until 4 ms, one is cut off before; 2 MB from 1 to 2 take 2 ms meanwhile.
    fabric = cut_off()
    controller = NEVER | {"restart_after_ps": [MS]} | moves((4 * MS, 1e9))
    result = rostam.run_flows(
        fabric, src=[0, 1, 0], dst=[1, 2, 1], num_bytes=[3_000_000, 2_000_000, 500_000], stop_s=[None, None, 3e-3],
        routing="spray", controllers=[("wanderer", controller)], park=True,
    )  # fmt: skip
    assert result.finish_s[:2] == pytest.approx([7e-3, 2e-3], abs=2e-12)
    assert np.isnan(result.finish_s[2])
    assert result.bytes_left.tolist() == [0, 0, 500_000]
    assert result.link_bytes.sum() == pytest.approx(2_000_000)
