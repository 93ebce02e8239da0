"""Photonic rails: which rail each message takes, and through which server; times by hand, bytes on every link.

Four servers of four accelerators, so four rails of four places: accelerator 4 s + i is server s's on rail i. A rail has
one optical switch of 1 GB/s, whose circuits begin from each server to the next. Accelerators have 10 GB/s, latencies
are 0.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.plan.failures import Outages
from rostam_py.spec.build import build_machine
from rostam_py.spec.settings import complete_settings
from rostam_py.spread.outages import check_parts

MB = 10**6
SMALL = {
    "server_size": 4, "num_ocs": 1, "port_bandwidth": 1e9, "link_bandwidth": 1e10, "server_latency": 0.0,
    "latency": 0.0, "reconfiguration_delay": "1 ms",
}  # fmt: skip
ON_DEMAND = {"control": "periodic", "period": "0 s", "estimator": "backlog"}


def build(num_accelerators=16, **keys):
    return rostam.fabric("photonic_rails", num_accelerators=num_accelerators, **{**SMALL, **keys})


def carried(fabric, result):
    """Return the bytes on links that carry any, by their ends; 16, 17, ... are the servers' switches."""
    links = fabric.links
    used = np.flatnonzero(result.link_bytes > 0)
    return {(int(links["src"][k]), int(links["dst"][k])): float(result.link_bytes[k]) for k in used}


def expected(fabric, src, dst, num_bytes):
    """Return the same by the rule: inside the own server to the destination's rail, then along it in one hop."""
    size, sums = fabric.config.server_size, {}
    for a, b, amount in zip(src, dst, num_bytes, strict=True):
        server = fabric.num_accelerators + a // size
        via = b if a // size == b // size else a // size * size + b % size
        hops = [(a, server), (server, via)] if via != a else []
        for hop in [*hops, *([(via, b)] if via != b else [])]:
            sums[hop] = sums.get(hop, 0) + float(amount)
    return sums


@pytest.mark.parametrize("control", [{}, ON_DEMAND, {"control": "scheduled"}])
def test_messages_stay_on_their_rail_or_reach_it_through_their_own_server(control):
    # 0 -> 4 on rail 0 and 1 -> 5 on rail 1 have circuits. 0 -> 5 comes to rail 1 by way of accelerator 1 and shares its
    # circuit: 2 MB at 1 GB/s. 0 -> 1 is inside, 1 MB besides the message that goes the same way at 0.5 GB/s.
    fabric = build(**control)
    flows = {"src": [0, 1, 0, 0], "dst": [4, 5, 5, 1], "num_bytes": [MB] * 4}
    result = rostam.run_flows(fabric, **flows)
    np.testing.assert_allclose(result.finish_s[:3], [1e-3, 2e-3, 2e-3], rtol=1e-9)
    assert result.finish_s[3] == pytest.approx(MB / 9.5e9, rel=1e-6)
    assert carried(fabric, result) == expected(fabric, *flows.values())


def test_a_rail_is_set_anew_for_what_comes_to_it_from_the_whole_server():
    # Neither 0 -> 8 nor, on rail 1, 0 -> 9 has a circuit: both rails are dark for 1 ms, then take 1 ms. Rails 2 and 3
    # stay as they are.
    fabric = build(**ON_DEMAND)
    flows = {"src": [0, 0], "dst": [8, 9], "num_bytes": [MB] * 2}
    result = rostam.run_flows(fabric, **flows)
    np.testing.assert_allclose(result.finish_s, [2e-3, 2e-3], rtol=1e-9)
    assert carried(fabric, result) == expected(fabric, *flows.values())
    assert result.reconfigurations.num_changed.tolist() == [1, 1]


def test_circuits_set_once_are_passed_along_the_rail():
    # 0 -> 8 goes 0 -> 4 -> 8 and shares 0 -> 4 with a message of its own; 0 -> 9 goes 1 -> 5 -> 9.
    fabric = build()
    result = rostam.run_flows(fabric, src=[0, 0, 0], dst=[8, 9, 4], num_bytes=[MB] * 3)
    np.testing.assert_allclose(result.finish_s, [2e-3, 1e-3, 2e-3], rtol=1e-9)
    found = carried(fabric, result)
    assert found == {(0, 4): 2 * MB, (4, 8): MB, (0, 16): MB, (16, 1): MB, (1, 5): MB, (5, 9): MB}


def test_scheduled_rails_follow_the_phase_each_on_its_own():
    # Rail 0 sends one server ahead, then two, as another parallelism would: one reconfiguration, dark for 1 ms. Rail 1
    # sends two ahead all the time, and begins with these circuits.
    fabric = build(control="scheduled")
    ahead, servers = {0: [1, 2], 1: [2, 2]}, np.arange(4)
    src, dst, start_s = [], [], []
    for rail, shifts in ahead.items():
        for number, shift in enumerate(shifts):
            src += (4 * servers + rail).tolist()
            dst += (4 * ((servers + shift) % 4) + rail).tolist()
            start_s += [0.1 * number] * 4
    result = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=[50 * MB] * 16, start_s=start_s)
    # The next phase begins once the one before is through, at 50 ms, and hides its delay before the messages at 100.
    np.testing.assert_allclose(result.finish_s, [0.05] * 4 + [0.15] * 4 + [0.05] * 4 + [0.15] * 4, rtol=1e-9)
    assert carried(fabric, result) == expected(fabric, src, dst, [50 * MB] * 16)
    said = result.reconfigurations
    assert said.num_changed.tolist() == [4]
    np.testing.assert_allclose(said.begin_s, [0.05], rtol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_any_messages_cross_the_links_of_their_rail_whatever_changes(seed):
    rng = np.random.default_rng(seed)
    fabric = build(num_ocs=1 + seed % 3, **ON_DEMAND)
    src = rng.integers(0, 16, 20)
    dst = (src + rng.integers(1, 16, 20)) % 16
    num_bytes = rng.integers(1, 5, 20) * MB
    result = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=num_bytes, start_s=rng.random(20) * 5e-3)
    found, by_rule = carried(fabric, result), expected(fabric, src.tolist(), dst.tolist(), num_bytes.tolist())
    assert found.keys() == by_rule.keys()
    assert all(found[hop] == pytest.approx(by_rule[hop], abs=1) for hop in found)


def test_a_job_s_rings_across_servers_stay_on_their_rails():
    # As gradients do where tp is inside servers and dp between them: nothing crosses a server for another rail.
    fabric = build(control="scheduled", reconfiguration_delay="10 us")
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=8 * MB, ranks=[1, 5, 9, 13], algorithm="ring")
    used = carried(fabric, result)
    assert set(used) == {(1, 5), (5, 9), (9, 13), (13, 1)}
    # 2 (p - 1) / p S / B.
    assert result.time_s == pytest.approx(2 * 3 / 4 * 8e6 / 1e9, rel=1e-6)


def test_refusals_name_the_key():
    with pytest.raises(
        ConfigError, match=r"fabric.num_accelerators is 10; it must be a multiple of fabric.server_size"
    ):
        build(10)
    with pytest.raises(ConfigError, match=r"fabric.num_ocs is 0"):
        build(num_ocs=0)
    for key in ("port_bandwidth", "server_latency", "latency", "link_latency"):
        with pytest.raises(ConfigError, match=rf"fabric\.{key} is None"):
            build(**{key: None})


def test_ports_and_pairs_have_limits():
    assert build(num_ocs=64).config.num_ocs == 64
    with pytest.raises(ConfigError, match=r"fabric\.num_ocs is 100000; it must be an integer from 1 to 64"):
        build(num_ocs=100000)
    assert build(400, num_ocs=2 * 99).config.num_ocs == 198  # 100 servers
    with pytest.raises(ConfigError, match=r"fabric\.num_ocs is 199; it must be an integer from 1 to 198"):
        build(400, num_ocs=199)
    # 2^18 servers on 4 rails: 4 x 2^18 x (2^18 - 1) pairs.
    with pytest.raises(ConfigError, match=r"fabric\.num_accelerators is 1048576, .* 274,876,858,368 pairs"):
        build(2**20, control="scheduled")
    with pytest.raises(ConfigError, match=r"fabric\.num_accelerators is 1048576, .* 104,857,600 pairs"):
        build(2**20, num_ocs=100)


def by_hand(num_servers, num_ocs):
    """Return circuits from server s to t of a rail as a matrix: switch k goes k / 2 + 1 ahead, or as many back."""
    count = np.zeros((num_servers, num_servers), int)
    for k in range(num_ocs):
        turn = k % (num_servers - 1)
        shift = turn // 2 + 1 if turn % 2 == 0 else -(turn // 2 + 1)
        for s in range(num_servers):
            count[s, (s + shift) % num_servers] += 1
    return count


@pytest.mark.parametrize(("num_servers", "num_ocs"), [(2, 1), (2, 5), (3, 2), (5, 3), (6, 5), (6, 7), (9, 2), (9, 4)])
def test_circuits_set_once_are_those_of_the_switches(num_servers, num_ocs):
    fabric = build(4 * num_servers, num_ocs=num_ocs)
    links = fabric.links
    on_rail = links[(links["src"] < 4 * num_servers) & (links["dst"] < 4 * num_servers)]
    expected = by_hand(num_servers, num_ocs)
    for rail in range(4):
        own = on_rail[on_rail["src"] % 4 == rail]
        assert np.all(own["dst"] % 4 == rail)
        found = np.zeros((num_servers, num_servers))
        found[own["src"] // 4, own["dst"] // 4] = own["bandwidth_bytes_per_s"] / 1e9
        np.testing.assert_allclose(found, expected, rtol=1e-9)


NO_FAILURES = r"{}: no part of fabric 'photonic_rails' can fail while fabric\.control is '{}'.*fabric\.control=one_shot"


@pytest.mark.parametrize("control", [ON_DEMAND, {"control": "scheduled"}])
@pytest.mark.parametrize("kind", ["links", "switches", "accelerators"])
def test_no_part_fails_where_circuits_are_set_anew(kind, control):
    with pytest.raises(ConfigError, match=NO_FAILURES.format(rf"failures\.{kind}", control["control"])):
        build(**control).with_random_failures(kind, 1)
    once = build(num_ocs=2).with_random_failures(kind, 1)  # all other messages arrive
    ok = once.healthy_accelerators
    result = rostam.run_flows(once, src=ok[:-1], dst=ok[1:], num_bytes=[MB] * (len(ok) - 1), routing="spray")
    assert np.all(np.isfinite(result.finish_s))


def test_no_part_fails_during_a_run_where_circuits_are_set_anew():
    fabric = build(**ON_DEMAND)
    with pytest.raises(ConfigError, match=NO_FAILURES.format("events", "periodic")):
        rostam.run_flows(fabric, src=[0], dst=[4], num_bytes=[MB], events=[rostam.Failure("1 us", "links", 3)])
    fails = Outages(events=[{"time": "1 us", "kind": "links", "number": 3}], mtbf_switches="1 h")
    with pytest.raises(ConfigError, match=NO_FAILURES.format(r"outages\.events, outages\.mtbf_switches", "periodic")):
        check_parts(fails, fabric, [])


@pytest.mark.parametrize("name", ["photonic_rails", "regional_ocs"])
@pytest.mark.parametrize("routing", ["turns", "valiant", "up_down", "layers", "layers:3", "ugal", "adaptive"])
def test_routings_over_other_pairs_circuits_are_refused(name, routing):
    fabric = rostam.fabric(name, num_accelerators=16, server_size=4, control="scheduled")
    allowed = r"use one of: (dfsssp, )?hash, spray, or fabric\.control=one_shot"
    with pytest.raises(ConfigError, match=rf"routing is '{routing}', which .*{allowed}"):
        rostam.run_flows(fabric, src=[0], dst=[4], num_bytes=[MB], routing=routing)
    with pytest.raises(ConfigError, match=rf"routing is '{routing}', which .*{allowed}"):
        check_dependencies(fabric, routing)


@pytest.mark.parametrize("control", [ON_DEMAND, {"control": "scheduled"}])
@pytest.mark.parametrize(
    ("name", "routing"),
    [(one, routing) for one in ("photonic_rails", "regional_ocs") for routing in ("hash", "spray")]
    + [("regional_ocs", "dfsssp")],
)
def test_other_routings_send_everything(name, control, routing):
    delay = {"reconfiguration_delay": "10 us"}
    fabric = rostam.fabric(name, num_accelerators=32, server_size=4, **control, **delay)
    rng = np.random.default_rng(5)
    src = rng.integers(0, 32, 60)
    dst = (src + rng.integers(1, 32, 60)) % 32
    result = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=rng.integers(1, 5, 60) * MB, start_s=rng.random(60) * 1e-3, routing=routing
    )
    assert np.all(np.isfinite(result.finish_s))


def test_a_run_refuses_before_it_traces():
    keys = {"model": "gpt_125m", "fabric": {"name": "photonic_rails", "num_accelerators": 32, "server_size": 4}}
    keys["fabric"]["control"] = "scheduled"
    with pytest.raises(ConfigError, match=NO_FAILURES.format(r"failures\.links", "scheduled")):
        build_machine(complete_settings({**keys, "failures": {"links": 3, "seed": 1}}))
    with pytest.raises(ConfigError, match="routing is 'dfsssp', which may send over other pairs"):
        build_machine(complete_settings({**keys, "routing": "dfsssp"}))


@pytest.mark.parametrize(
    ("num_accelerators", "server_size", "degrees"),
    [(32, 4, {"tp": 4, "pp": 2, "dp": 4}), (32, 8, {"tp": 2, "pp": 2, "dp": 2}), (32, 8, {"tp": 2, "dp": 2})],
)
def test_rails_judge_a_schedule_together(num_accelerators, server_size, degrees):
    # A job on one server sends nothing on any rail, one on part of the servers nothing on some: these are through with
    # the trial when the others are, so that iterations become steady.
    graph = rostam.trace("gpt_125m", num_layers=2)
    fabric = rostam.fabric(
        "photonic_rails", num_accelerators=num_accelerators, server_size=server_size, control="scheduled"
    )
    strategy = rostam.Strategy.of(**degrees, allow_idle=True)
    plan = rostam.place(graph, rostam.Machine(fabric=fabric), global_batch=64, strategy=strategy, software="ideal")
    result = rostam.simulate(plan)
    assert result.is_steady
    # The fabric's notes say what the schedule was not compared with.
    assert any("fabric.control=scheduled is not compared with one_shot" in note for note in result.notes)
