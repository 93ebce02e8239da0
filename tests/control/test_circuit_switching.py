"""Circuits that are set anew: who is dark and for how long, what a setting may be, what is relayed.

The second computation of finish times knows no network: with a flow for each pair and links of their own, a flow ends
when the capacity that the recorded settings give its pair, summed over time, has carried its bytes.
"""

import re

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, DeadlockError
from rostam_py.fabrics.traffic import Traffic
from rostam_py.simulation.events import LinkBandwidth
from rostam_py.simulation.network import make_router
from rostam_py.simulation.reconfigurations import circuit_controllers

GBPS = 1e9 / 8
PORT = 50 * GBPS  # B / Q of the fabrics below


def fabric_of(num, num_ocs, **keys):
    """Return optical switches of 50 Gb/s a port, without latency."""
    keys = {"control": "periodic"} | keys
    return rostam.fabric(
        "sip_ocs", num_accelerators=num, num_ocs=num_ocs, link_bandwidth="50 Gb/s", latency="0 s", **keys
    )


def run_recorded(fabric, src, dst, sizes, starts):
    """Return (circuits' switching, the core's result, the controller's report) of flows, every setting recorded."""
    src, dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
    sizes, starts = np.asarray(sizes, np.int64), np.asarray(starts, np.int64)
    fabric = fabric.with_circuits(Traffic.from_messages(fabric.num_accelerators, src, dst, sizes))
    router = make_router(fabric, "hash")
    ((name, parameters),) = circuit_controllers(router, fabric, (starts, src, dst, sizes))
    raw = _core.run_flows(
        router, fabric.num_accelerators, src, dst, sizes, starts, np.full(len(src), np.inf),
        np.full(len(src), -1), controllers=[(name, parameters | {"record": [1]})], reroutes=[],
    )  # fmt: skip
    return fabric.circuits.switching, raw, raw["reports"][0]


def settings_of(report):
    """Return [(begin ps, end ps, pairs, channels, is changed)] of every setting, the first from 0."""
    begins, ends = np.append(0, report["begin_ps"]), np.append(0, report["end_ps"])
    found = []
    for number in range(len(begins)):
        own = report["setting"] == number
        columns = (report[key][own] for key in ("setting_pair", "setting_channel", "setting_is_changed"))
        found.append((int(begins[number]), int(ends[number]), *columns))
    return found


def check_settings(switching, settings, num, num_ocs, all_work=False):
    """On a switch an accelerator sends on, and receives on, one circuit at most; what changed was not there before.

    Where all parts work, what is given up has made room for what came.
    """
    before = None
    for _, _, pairs, channels, is_changed in settings:
        assert np.all((channels >= 0) & (channels < num_ocs))
        for ends in (switching.src, switching.dst):
            ports = channels * num + ends[pairs]
            assert len(np.unique(ports)) == len(ports)
            assert np.bincount(ends[pairs], minlength=num).max(initial=0) <= num_ocs
        taken = [
            set(zip(channels.tolist(), ends[pairs].tolist(), strict=True)) for ends in (switching.src, switching.dst)
        ]
        now = set(zip(pairs.tolist(), channels.tolist(), strict=True))
        changed = {one for one, new in zip(sorted(now), is_changed[np.lexsort((channels, pairs))], strict=True) if new}
        if before is not None:
            assert changed == now - before
            for pair, channel in (before - now) if all_work else ():
                assert (channel, switching.src[pair]) in taken[0] or (channel, switching.dst[pair]) in taken[1]
        before = now


def check_wavelengths(switching, settings, config, all_work=False):
    """One owner for each segment and wavelength, driver and receiver; reach; what changed was not there before.

    Where all parts work, what is given up has made room for what came.
    """
    num, w = config.num_accelerators, config.num_wavelengths
    before = None

    def owned_by(pair, channel):
        (fibre, c), a, b = divmod(channel, w), int(switching.src[pair]), int(switching.dst[pair])
        way = [(fibre, (a + (1 - 2 * fibre) * hop) % num, c) for hop in range(((1 - 2 * fibre) * (b - a)) % num)]
        return {("drives", a, c), ("receives", b, c), *way}

    for _, _, pairs, channels, is_changed in settings:
        fibre = channels // w
        assert np.all((fibre >= 0) & (fibre <= 1))
        src, dst = switching.src[pairs], switching.dst[pairs]
        hops = np.where(fibre == 0, dst - src, src - dst) % num
        assert hops.max(initial=0) <= config.reach
        owned = [one for circuit in zip(pairs.tolist(), channels.tolist(), strict=True) for one in owned_by(*circuit)]
        assert len(set(owned)) == len(owned)
        now = set(zip(pairs.tolist(), channels.tolist(), strict=True))
        changed = {one for one, new in zip(sorted(now), is_changed[np.lexsort((channels, pairs))], strict=True) if new}
        if before is not None:
            assert changed == now - before
            assert not all_work or all(owned_by(*circuit) & set(owned) for circuit in before - now)
        before = now


def capacities(settings, num_pairs, port):
    """Return [(from ps, bytes/s of every pair)]: circuits that have changed carry from the end of their setting on."""
    steps = []
    for begin, end, pairs, _, is_changed in settings:
        steps.append((begin, port * np.bincount(pairs[is_changed == 0], minlength=num_pairs)))
        steps.append((end, port * np.bincount(pairs, minlength=num_pairs)))
    return steps


def finish_ps(steps, pair, num_bytes, start):
    """Return when a pair's only flow has sent its bytes."""
    left = float(num_bytes)
    for (begin, rates), (until, _) in zip(steps, [*steps[1:], (np.inf, None)], strict=True):
        begin = max(begin, start)
        rate = rates[pair] * 1e-12  # bytes/ps
        if until <= begin or rate == 0:
            continue
        if left <= rate * (until - begin + 3):  # rates that changed have rounded the end up before
            return begin + left / rate
        left -= rate * (until - begin)
    raise AssertionError("the recorded settings never carry the flow")


def random_control(rng):
    """Return keys of a fabric's control, drawn at random."""
    delay_us = int(rng.choice([0, 1, 20, 100]))
    return {
        "control": str(rng.choice(["periodic", "periodic", "periodic", "scheduled"])),
        "reconfiguration_delay": f"{delay_us} us",
        "estimator": str(rng.choice(["last_window", "backlog", "active", "perfect"])),
        "reporting_delay": f"{int(rng.choice([0, 0, 7, 300]))} us",
        "period": None if rng.random() < 0.7 else "0 s" if rng.random() < 0.5 else f"{3 * delay_us + 1} us",
    }


def random_fabric(kind, rng):
    """Return optical switches or a ring, of wavelengths as fast as a port."""
    num = int(rng.integers(2, 12))
    if kind == "sip_ocs":
        return fabric_of(num, int(rng.integers(1, 5)), **random_control(rng))
    bandwidth = f"{50 * int(rng.integers(1, 7))} Gb/s"
    return rostam.fabric(
        "sip_ring", num_accelerators=num, accelerator_bandwidth=bandwidth, wavelength_bandwidth="50 Gb/s",
        reach=int(rng.integers(1, 5)) if num <= 8 else 16, latency="0 s", **random_control(rng),
    )  # fmt: skip


def random_flows(kind, rng):
    """Return a fabric and one flow for each of random pairs that it can connect."""
    fabric = random_fabric(kind, rng)
    num = fabric.num_accelerators
    keys = rng.permutation(num * num)[: int(rng.integers(1, 3 * num + 1))]
    src, dst = keys // num, keys % num
    used = (src != dst) & fabric.can_connect(src, dst)
    src, dst = src[used], dst[used]
    sizes = np.ceil(rng.exponential(size=len(src)) * 2e6).astype(np.int64)
    starts = (rng.integers(0, 4, len(src)) * 10**8).astype(np.int64)
    return fabric, src, dst, sizes, starts


def check_random(kind, seed):
    fabric, src, dst, sizes, starts = random_flows(kind, np.random.default_rng(seed))
    if not len(src):
        return 0
    switching, raw, report = run_recorded(fabric, src, dst, sizes, starts)
    settings = settings_of(report)
    if kind == "sip_ocs":
        check_settings(switching, settings, fabric.num_accelerators, fabric.num_switches, all_work=True)
    else:
        check_wavelengths(switching, settings, fabric.config, all_work=True)
    steps = capacities(settings, len(switching.src), PORT)
    keys = switching.src * fabric.num_accelerators + switching.dst
    pairs = np.searchsorted(keys, src * fabric.num_accelerators + dst)
    expected = [finish_ps(steps, *flow) for flow in zip(pairs, sizes, starts, strict=True)]
    changes = len(report["begin_ps"])
    assert np.abs(raw["sent_ps"] - expected).max() <= 2 + changes  # a picosecond for each time that rates change
    assert np.allclose(raw["link_bytes"][pairs], sizes, rtol=1e-9)
    return changes


@pytest.mark.parametrize("kind", ["sip_ocs", "sip_ring"])
def test_random_traffic_keeps_circuits_legal_and_only_what_changes_dark(kind):
    assert sum(check_random(kind, seed) for seed in range(200)) > 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sip_ocs", "sip_ring"])
def test_10000_random_traffics_keep_circuits_legal_and_only_what_changes_dark(kind):
    assert sum(check_random(kind, 10**6 + seed) for seed in range(10_000)) > 10_000


def test_a_flow_waits_for_the_next_decision_and_the_delay():
    # One switch. 0 -> 1 holds its circuit from the start (the larger demand); 0 -> 2 begins at 0.1 ms without one.
    # delay 20 us, period 100 us: the decision at 100 us comes before the flow; at 200 us 0 -> 1 is through (625,000
    # bytes last 100 us) and the backlog is all of 0 -> 2: dark to 220 us, then 50 us for 312,500 bytes.
    found = rostam.run_flows(
        fabric_of(3, 1, reconfiguration_delay="20 us", estimator="backlog"),
        src=[0, 0], dst=[1, 2], num_bytes=[625_000, 312_500], start_s=["0 s", "101 us"],
    )  # fmt: skip
    assert found.finish_s.tolist() == pytest.approx([100e-6, 270e-6], abs=1e-12)
    done = found.reconfigurations
    assert (done.begin_s.tolist(), done.end_s.tolist()) == (pytest.approx([200e-6]), pytest.approx([220e-6]))
    assert done.num_changed.tolist() == [1]
    assert done.duty_cycle == pytest.approx(250 / 270)


def test_circuits_that_nothing_needs_stay_lit():
    # One switch, decisions every 100 us. What they know of is 0 -> 1 alone, and nobody wants the ports of 1 -> 2.
    found = rostam.run_flows(
        fabric_of(3, 1, reconfiguration_delay="20 us"),
        src=[0, 1], dst=[1, 2], num_bytes=[625_000, 62_500], start_s=["0 s", "150 us"],
    )  # fmt: skip
    assert found.finish_s.tolist() == pytest.approx([100e-6, 160e-6], abs=1e-12)
    assert len(found.reconfigurations.begin_s) == 0


# Four switches, as many bytes for 0 -> 1 at once as for 0 -> 2 in 10 ms: two circuits each. At 100 us the periods have
# seen the first pair alone, of which half counts and half is the iteration's, 3 to 1: a third circuit makes the slower
# pair 1.5 times as fast. That pays where it is dark for 20 us of 100, and where it is for 60 it does not.
@pytest.mark.parametrize(("delay_us", "finish_us", "num_changed"), [(20, 320, [1]), (60, 420, [])])
def test_a_blend_counts_half_of_the_iteration_and_is_carried_out_where_that_pays(delay_us, finish_us, num_changed):
    fabric = fabric_of(3, 4, reconfiguration_delay=f"{delay_us} us", period="100 us", estimator="blend")
    found = rostam.run_flows(fabric, src=[0, 0], dst=[1, 2], num_bytes=[5_250_000, 5_250_000], start_s=["0 s", "10 ms"])
    assert found.finish_s[0] == pytest.approx(finish_us * 1e-6, abs=1e-12)
    early = found.reconfigurations.begin_s < 1e-3
    assert found.reconfigurations.num_changed[early].tolist() == num_changed


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", ["1 Tb/s", "2 Tb/s", "8 Tb/s"])
def test_rescheduling_a_ring_of_groups_takes_no_longer_than_setting_it_once(bandwidth):
    # Each step of an all-reduce waits for the one before: by the last window alone 78 ms at 2 Tb/s, 58 set once.
    graph = rostam.trace("transformer_350m")
    strategy = rostam.Strategy(dp=16, mp=4, placer="sip_ml", precision="fp32")
    times = []
    for control in ("one_shot", "periodic"):
        fabric = rostam.fabric("sip_ring", num_accelerators=64, accelerator_bandwidth=bandwidth, control=control)
        machine = rostam.Machine(fabric=fabric, accelerator="v100_32gb")
        plan = rostam.place(graph, machine, global_batch=256, strategy=strategy, cost="roofline", software="ideal")
        times.append(rostam.simulate(plan).iteration_time_s)
    assert times[1] <= 1.03 * times[0]


@pytest.mark.parametrize("mirrored", [{"symmetric": True}, {"duplex": True}])
def test_mirrored_circuits_that_stay_lit_stay_mirrored(mirrored):
    rng = np.random.default_rng(5)
    for _ in range(20):
        num = int(rng.integers(3, 10))
        src, dst = rng.integers(0, num, (2, 12))
        src, dst = src[src != dst], dst[src != dst]
        if not len(src):
            continue
        keys = np.unique(src * num + dst)
        starts = rng.integers(0, 5, len(keys)) * 10**8
        switching, _, report = run_recorded(
            fabric_of(num, 9, reconfiguration_delay="20 us", **mirrored), keys // num, keys % num,
            rng.integers(1, 10**6, len(keys)), starts,
        )  # fmt: skip
        for _, _, pairs, channels, _ in settings_of(report):
            forth = sorted(
                zip(switching.src[pairs], switching.dst[pairs], channels * ("duplex" in mirrored), strict=True)
            )
            back = sorted(
                zip(switching.dst[pairs], switching.src[pairs], channels * ("duplex" in mirrored), strict=True)
            )
            assert forth == back


def test_a_reporting_delay_lets_decisions_know_older_traffic():
    # As above, and decisions know the backlog of 99.5 us before: that at 300 us is the first to know of the flow.
    found = rostam.run_flows(
        fabric_of(3, 1, reconfiguration_delay="20 us", estimator="backlog", reporting_delay="99.5 us"),
        src=[0, 0], dst=[1, 2], num_bytes=[625_000, 312_500], start_s=["0 s", "101 us"],
    )  # fmt: skip
    assert found.finish_s[1] == pytest.approx(370e-6, abs=1e-12)


def test_no_delay_and_no_period_serve_every_message_as_if_it_were_alone():
    # Four shifts, one after another, over two switches: each finds both of every accelerator's circuits at once.
    num, size = 8, 12_500_000
    shifts = np.repeat([1, 2, 3, 5], num)
    src = np.tile(np.arange(num), 4)
    found = rostam.run_flows(
        fabric_of(num, 2, reconfiguration_delay="0 s", period="0 s", estimator="backlog"),
        src=src, dst=(src + shifts) % num, num_bytes=[size] * len(src), start_s=np.repeat([0, 2e-3, 4e-3, 6e-3], num),
    )  # fmt: skip
    assert found.finish_s.tolist() == pytest.approx(np.repeat([1e-3, 3e-3, 5e-3, 7e-3], num).tolist(), abs=1e-12)
    assert found.reconfigurations.duty_cycle == 1


def test_small_messages_wait_for_large_ones_unless_all_that_is_active_gets_as_much():
    # Four switches of 50 Gb/s: 0 sends 93.75 MB to 1 and 6.25 MB to 2. By bytes they get three circuits and one: the
    # large one ends after 5 ms, the small one after 1 ms. All alike they get two each: 0.5 ms for the small one, and
    # then the large one, which has 81.25 MB left, has four circuits: 3.75 ms in all, as on a switch of 200 Gb/s.
    ends = {}
    for estimator in ("backlog", "active"):
        found = rostam.run_flows(
            fabric_of(3, 4, reconfiguration_delay="0 s", period="0 s", estimator=estimator),
            src=[0, 0], dst=[1, 2], num_bytes=[93_750_000, 6_250_000],
        )  # fmt: skip
        ends[estimator] = found.finish_s.tolist()
    assert ends["active"] == pytest.approx([4e-3, 0.5e-3], abs=1e-11)
    assert ends["backlog"] == pytest.approx([4e-3, 1e-3], abs=1e-11)


def test_scheduled_circuits_are_lit_before_their_phase():
    # The same with 100 us of delay: pauses of 1 ms hide it, except before the first shift, whose circuits are not
    # those that serve all four together.
    num, size = 8, 12_500_000
    shifts = np.repeat([1, 2, 3, 5], num)
    src = np.tile(np.arange(num), 4)
    found = rostam.run_flows(
        fabric_of(num, 2, control="scheduled", reconfiguration_delay="100 us"),
        src=src, dst=(src + shifts) % num, num_bytes=[size] * len(src), start_s=np.repeat([0, 2e-3, 4e-3, 6e-3], num),
    )  # fmt: skip
    assert found.finish_s[num:].tolist() == pytest.approx(np.repeat([3e-3, 5e-3, 7e-3], num).tolist(), abs=1e-12)
    assert found.finish_s[:num].max() <= 1.1e-3 + 1e-12
    assert found.reconfigurations.num_phases == 4


def test_what_cannot_wait_is_relayed_and_counted():
    # One switch: 0 -> 1, 1 -> 2, 2 -> 0 are lit, 0 -> 2 takes two hops, 1000 bytes over 0 -> 1 and 1 -> 2.
    sizes = [10**6] * 3 + [1000]
    found = rostam.run_flows(
        fabric_of(3, 1, reconfiguration_delay="9000000 s", relay=True),
        src=[0, 1, 2, 0], dst=[1, 2, 0, 2], num_bytes=sizes,
    )  # fmt: skip
    assert found.reconfigurations.relayed_bytes == pytest.approx(1000)
    assert found.link_bytes.sum() == pytest.approx(sum(sizes) + 1000)


def test_a_pair_that_never_gets_a_circuit_is_refused():
    keys = {"src": [0, 0], "dst": [1, 2], "num_bytes": [10, 10]}
    for refused in ({"reconfiguration_delay": "9000000 s"}, {"estimator": "iteration"}):
        with pytest.raises(ConfigError, match="accelerator 0 sends to 2 peers"):
            rostam.run_flows(fabric_of(3, 1, **refused), **keys)


def test_circuits_that_carry_nothing_stay_where_nothing_moves():
    # A stopped flow leaves nothing to decide on: the run ends rather than decide for ever.
    found = rostam.run_flows(
        fabric_of(3, 1, reconfiguration_delay="1 us"), src=[0], dst=[1], num_bytes=[10**12], stop_s=["1 ms"]
    )
    assert np.isnan(found.finish_s[0])
    assert found.reconfigurations.num_decisions <= 201


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"control": "dynamic"}, "fabric.control is 'dynamic'; registered: one_shot, periodic, scheduled"),
        (
            {"estimator": "oracle"},
            "fabric.estimator is 'oracle'; registered: iteration, last_window, blend, backlog, active, perfect",
        ),
        ({"period": "1 us", "reconfiguration_delay": "2 us"}, "fabric.period is '1 us', less than"),
        ({"reconfiguration_delay": "2"}, "fabric.reconfiguration_delay is '2'"),
    ],
)
def test_bad_keys_are_refused(keys, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        fabric_of(4, 2, **keys)


def test_events_and_analytic_loads_are_refused_where_circuits_change():
    fabric = fabric_of(3, 1)
    with pytest.raises(ConfigError, match=r"fabric\.control is 'periodic'"):
        rostam.run_flows(
            fabric, src=[0], dst=[1], num_bytes=[10], events=[LinkBandwidth(time="1 us", link=0, scale=0.5)]
        )
    with pytest.raises(ConfigError, match="analytic tier does not support circuits that change"):
        rostam.saturation_throughput(fabric, "shift")


def test_equal_runs_are_equal():
    fabric, *flows = random_flows("sip_ocs", np.random.default_rng(5))
    first, second = (run_recorded(fabric, *flows) for _ in range(2))
    for key, value in first[2].items():
        assert np.array_equal(value, second[2][key]), key
    assert np.array_equal(first[1]["sent_ps"], second[1]["sent_ps"])


def test_demand_that_no_controller_serves_ends_in_an_error():
    # Only what is asked for gets circuits: without any decision the second flow would stand still for ever.
    fabric = fabric_of(3, 1).with_circuits(Traffic.from_messages(3, [0, 0], [1, 2], [10, 10]))
    router = make_router(fabric, "hash")
    ((name, parameters),) = circuit_controllers(router, fabric)
    with pytest.raises(DeadlockError, match="1 flows are stalled"):
        _core.run_flows(
            router, 3, [0], [2], [10], [0], [np.inf], [-1],
            controllers=[(name, parameters | {"period_ps": [-1]})], reroutes=[],
        )  # fmt: skip
