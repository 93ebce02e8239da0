"""Ports, optical switches, fibres, wavelengths and micro-rings that fail in a run: times by hand, then at random.

The second computation of the random cases knows the settings that the controller recorded and, from the parts' numbers
alone, which circuits a failed part darkens: a flow ends when what is left of its pair's capacity has carried its bytes.
"""

from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, DeadlockError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic
from rostam_py.simulation.network import make_router
from rostam_py.simulation.reconfigurations import circuit_controllers
from tests.control.test_circuit_switching import (
    PORT,
    check_settings,
    check_wavelengths,
    finish_ps,
    random_flows,
    settings_of,
)

REROUTE = rostam.Recovery(detection="600 us", reroute="400 us")


def switches(num_ocs=2, **keys):
    """Return 4 accelerators with ports of 1 GB/s; circuits that change are dark for 1 ms."""
    return rostam.fabric(
        "sip_ocs", num_accelerators=4, num_ocs=num_ocs, link_bandwidth="1 GB/s", latency="0 s",
        reconfiguration_delay="1 ms", **keys,
    )  # fmt: skip


def ring(num=8, **keys):
    """Return a ring of 4 wavelengths of 1 GB/s; those that change are dark for 1 ms."""
    return rostam.fabric(
        "sip_ring", num_accelerators=num, link_bandwidth="4 GB/s", wavelength_bandwidth="1 GB/s", latency="0 s",
        reconfiguration_delay="1 ms", **keys,
    )  # fmt: skip


def last_ms(fabric, *failures, src=(0,), dst=(1,), num_bytes=(8_000_000,), **more):
    """Return when the last flow ends [ms]."""
    run = rostam.run_flows(
        fabric, src=list(src), dst=list(dst), num_bytes=list(num_bytes), events=list(failures), recovery=REROUTE, **more
    )
    return run.finish_s.max() * 1e3


@pytest.mark.parametrize(("kind", "number"), [("switches", 0), ("links", 0 * 2 + 0), ("links", 1 * 2 + 0)])
def test_one_of_two_switches_or_a_port_at_either_end_halves_what_a_pair_has(kind, number):
    # 2 GB/s: 2 MB by 1 ms, the other 6 MB at 1 GB/s.
    assert last_ms(switches(), rostam.Failure("1 ms", kind, number)) == pytest.approx(7)


def test_a_port_of_another_accelerator_does_no_harm():
    assert last_ms(switches(), rostam.Failure("1 ms", "links", 2 * 2)) == pytest.approx(4)


def test_a_part_repaired_before_it_is_known_is_lit_at_once():
    # 1 to 1.5 ms at 1 GB/s: 2 + 0.5 MB, then 2 GB/s again.
    assert last_ms(switches(), rostam.Failure("1 ms", "switches", 0, repair="1.5 ms")) == pytest.approx(4.25)


def test_a_part_repaired_later_is_used_again_after_detection_and_reconfiguration():
    # 1 GB/s from 1 ms; planned around at 2 ms; repaired at 3, known at 4, lit at 5 ms: 2 + 4 MB, then 2 GB/s.
    assert last_ms(switches(), rostam.Failure("1 ms", "switches", 0, repair="3 ms")) == pytest.approx(6)


def test_a_pair_whose_only_switch_fails_takes_one_that_another_pair_can_spare():
    # Three switches, demands 2 : 1 out of accelerator 0: two circuits and one. 0 -> 2 holds the last; it fails at 1 ms
    # with 3 MB of 4 left. At 2 ms each pair gets one of the two that work. Only 0 -> 2 is dark until 3 ms, then 3 MB.
    fabric = switches(3)
    src, dst, sizes = (0, 0), (1, 2), (8_000_000, 4_000_000)
    circuits = fabric.with_circuits(Traffic.from_messages(4, src, dst, sizes)).circuits
    assert circuits.count.tolist() == [2, 1]
    only = int(circuits.ocs[circuits.circuit_pair == 1][0])
    run = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=sizes, events=[rostam.Failure("1 ms", "switches", only)], recovery=REROUTE
    )
    # 0 -> 1: 2 GB/s for 2 ms, then the other 4 MB at 1 GB/s.
    assert run.finish_s.tolist() == pytest.approx([6e-3, 6e-3])
    done = run.reconfigurations
    assert (done.control, done.num_changed.tolist()) == ("one_shot", [1])
    assert done.failed_circuit_s == pytest.approx(1e-3)  # from 1 to 2 ms, one circuit
    assert done.failed == ((f"optical switch {only}", 10**9, -1),)


def test_the_last_switch_that_fails_ends_the_run_with_a_reason():
    with pytest.raises(DeadlockError, match="flows are stalled on links of capacity 0; the first is flow 0, 0 to 1"):
        last_ms(switches(1), rostam.Failure("1 ms", "switches", 0))
    assert last_ms(switches(1), rostam.Failure("1 ms", "switches", 0, repair="9 ms")) == pytest.approx(18)


def test_errors_name_the_parts_that_stay_failed():
    lost = [rostam.Failure("1 ms", "switches", 0), rostam.Failure("500 us", "links", 2, repair="600 us")]
    with pytest.raises(DeadlockError, match=r"0 to 1; failed and never repaired: switches 0 \(at 1 ms\)$"):
        last_ms(switches(1), *lost)
    with pytest.raises(DeadlockError, match=r"capacity 0; failed and never repaired: switches 0 \(at 1 ms\)\n  coll"):
        rostam.run_collective(switches(1), "all_reduce", num_bytes="10 MB", events=lost)


@pytest.mark.parametrize("late", [{"time": "1 s"}, {"time": "1 s", "repair": "2 s"}, {"time": "4.001 ms"}])
def test_what_fails_behind_the_end_of_a_run_is_none_of_it(late):
    # 2 GB/s for 8 MB: 4 ms.
    run = rostam.run_flows(
        switches(), src=[0], dst=[1], num_bytes=[8_000_000], recovery=REROUTE,
        events=[rostam.Failure(kind="switches", number=0, **late)],
    )  # fmt: skip
    done = run.reconfigurations
    assert run.finish_s[0] == pytest.approx(4e-3)
    assert (done.failed, done.failed_circuit_s, done.dark_circuit_s, done.dark_s) == ((), 0, 0, 0)
    assert done.lit_circuit_s == pytest.approx(2 * 4e-3)


def test_circuits_through_a_failed_part_are_lost_until_the_end_of_the_run_at_most():
    # As above: one of two circuits from 1 to 7 ms, though nothing is planned around it for 104 days.
    run = rostam.run_flows(
        switches(), src=[0], dst=[1], num_bytes=[8_000_000], events=[rostam.Failure("1 ms", "switches", 0)],
        recovery=rostam.Recovery(reroute=9e6),
    )  # fmt: skip
    assert run.finish_s[0] == pytest.approx(7e-3)
    assert run.reconfigurations.failed_circuit_s == pytest.approx(6e-3)


def test_routings_that_take_detours_are_refused_where_relays_are_set_anew():
    for fabric, events in (
        (switches(2, relay=True), [rostam.Failure("1 ms", "switches", 0)]),
        (switches(2, relay=True, control="periodic"), []),
    ):
        with pytest.raises(
            ConfigError, match="routing is 'valiant', which divides messages or takes detours by itself"
        ):
            rostam.run_collective(fabric, "all_reduce", num_bytes="1 MB", routing="valiant", events=events)


def test_a_pair_without_a_circuit_is_relayed_once_it_is_known_that_its_switch_failed():
    # Two switches: 0 -> 1 and 0 -> 2 on one each, and 1 -> 2. Without 0 -> 2's switch 0 has one circuit, for 0 -> 1,
    # since nothing leads from 2 to 1; 0 -> 2 goes over it and 1 -> 2's from 2 ms on.
    fabric, src, dst, sizes = switches(2, relay=True), (0, 0, 1), (1, 2, 2), (5_000_000, 5_000_000, 1_000_000)
    circuits = fabric.with_circuits(Traffic.from_messages(4, src, dst, sizes)).circuits
    lost = int(circuits.ocs[circuits.circuit_pair == 1][0])
    with pytest.raises(DeadlockError, match="stalled"):
        last_ms(switches(2), rostam.Failure("1 ms", "switches", lost), src=src, dst=dst, num_bytes=sizes)
    run = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=sizes, events=[rostam.Failure("1 ms", "switches", lost)], recovery=REROUTE
    )
    # 0 -> 1 and the relayed 0 -> 2 share 1 GB/s from 2 ms on, with 3 and 4 MB left.
    assert run.finish_s[:2].tolist() == pytest.approx([8e-3, 9e-3])
    assert run.reconfigurations.relayed_bytes == pytest.approx(4e6)


MICRO_RING = (1 * 2 + 0) * 4  # accelerator 1's of wavelength 0, clockwise


@pytest.mark.parametrize(
    ("kind", "number"), [("wavelengths", 0), ("micro_rings", MICRO_RING), ("micro_rings", MICRO_RING + 8)]
)
def test_a_wavelength_that_is_lost_on_one_fibre_goes_the_other_way(kind, number):
    # 0 -> 2 passes accelerator 1 and ends at 2: 4 GB/s for 1 ms, 3 GB/s until it is dealt with at 2 ms and lit at 3 ms.
    found = last_ms(ring(), rostam.Failure("1 ms", kind, number), dst=(2,), num_bytes=(18_000_000,))
    assert found == pytest.approx(3 + (18 - 4 - 2 * 3) / 4)


def test_a_stuck_micro_ring_that_light_does_not_meet_does_no_harm():
    far = rostam.Failure("1 ms", "micro_rings", (5 * 2 + 0) * 4)
    other_way = rostam.Failure("1 ms", "micro_rings", (1 * 2 + 1) * 4)
    assert last_ms(ring(), far, other_way, dst=(2,), num_bytes=(16_000_000,)) == pytest.approx(4)


def test_light_goes_the_other_way_round_a_cut_fibre_within_reach_or_not_at_all():
    # Clockwise 1 -> 2 is segment 1. On 8 accelerators 7 hops the other way; dark from 1 to 3 ms. On 40: 39 hops.
    cut = rostam.Failure("1 ms", "links", 2 * 1 + 0)
    assert last_ms(ring(), cut, src=(1,), dst=(2,), num_bytes=(16_000_000,)) == pytest.approx(6)
    assert last_ms(ring(), cut, src=(2,), dst=(1,), num_bytes=(16_000_000,)) == pytest.approx(4)
    with pytest.raises(DeadlockError, match="stalled"):
        last_ms(ring(40), cut, src=(1,), dst=(2,), num_bytes=(16_000_000,))


@pytest.mark.parametrize(
    ("fabric", "kind", "number", "said"),
    [
        (switches(2), "links", 8, "failure.number is 8; fabric 'sip_ocs' has 8 links"),
        (switches(2), "switches", 2, "failure.number is 2; fabric 'sip_ocs' has 2 switches"),
        (
            switches(2),
            "wavelengths",
            0,
            "failure.kind is 'wavelengths'; fabric 'sip_ocs' has none that fails alone: its parts are links, s",
        ),
        (ring(), "switches", 0, "failure.kind is 'switches'; fabric 'sip_ring' has none that fails alone"),
        (ring(), "micro_rings", 64, "failure.number is 64; fabric 'sip_ring' has 64 micro_rings"),
    ],
)
def test_parts_that_a_fabric_does_not_have_are_refused(fabric, kind, number, said):
    with pytest.raises(ConfigError, match=said):
        last_ms(fabric, rostam.Failure("1 ms", kind, number))


# At random.


def drawn(fabric, rng):
    kinds = [kind for kind in ("links", "switches", "wavelengths", "micro_rings") if fabric.num_parts(kind)]
    found = []
    for _ in range(int(rng.integers(1, 6))):
        kind, time = str(rng.choice(kinds)), float(rng.random() * 3e-4)
        repair = time + float(rng.random() * 5e-4) + 1e-9
        found.append(rostam.Failure(time, kind, int(rng.integers(fabric.num_parts(kind))), repair=repair))
    return found


def is_dark(fabric, failure, src, dst, channel):
    """Whether a circuit goes through a part, by the definition of its number."""
    config, number = fabric.config, failure.number
    if fabric.name == "sip_ocs":
        if failure.kind == "switches":
            return channel == number
        accelerator, switch = divmod(number, config.num_ocs)
        return channel == switch and accelerator in (src, dst)
    num, w = config.num_accelerators, config.num_wavelengths
    fibre, wavelength = divmod(channel, w)
    hops = (dst - src) % num if fibre == 0 else (src - dst) % num
    on_way = [(src + (1 - 2 * fibre) * hop) % num for hop in range(hops + 1)]
    if failure.kind == "wavelengths":
        return channel == number
    if failure.kind == "links":
        steps = on_way[:-1] if fibre == 0 else on_way[1:]
        return number % 2 == fibre and number // 2 in steps
    accelerator, own = divmod(number, 2 * w)
    return own == fibre * w + wavelength and accelerator in on_way


def check_random(kind, seed, **keys):
    """Compare a run with the sums of its recorded settings; return whether some circuit was dark for a failure."""
    rng = np.random.default_rng(seed)
    fabric, src, dst, sizes, starts = random_flows(kind, rng)
    if not len(src):
        return False
    if keys:
        fabric = Fabric(kind, replace(fabric.config, **keys))
    failures, recovery = drawn(fabric, rng), rostam.Recovery(reroute=float(rng.random() * 1e-4))
    src, dst = src.astype(np.int32), dst.astype(np.int32)
    try:
        fabric = fabric.with_circuits(Traffic.from_messages(fabric.num_accelerators, src, dst, sizes))
        router = make_router(fabric, "hash", has_events=True)
        ((name, parameters),) = circuit_controllers(router, fabric, (starts, src, dst, sizes), failures, recovery)
        raw = _core.run_flows(
            router, fabric.num_accelerators, src, dst, sizes, starts, np.full(len(src), np.inf),
            np.full(len(src), -1), controllers=[(name, parameters | {"record": [1]})], reroutes=[],
        )  # fmt: skip
    except ConfigError as error:  # too few switches for both directions of some pair: the run says so
        if "fabric.duplex is true, and no switch is left" not in str(error):
            raise
        return False
    switching, report = fabric.circuits.switching, raw["reports"][0]
    settings = settings_of(report)
    if kind == "sip_ocs":
        check_settings(switching, settings, fabric.num_accelerators, fabric.num_switches)
        check_mirrored(fabric, switching, settings)
    else:
        check_wavelengths(switching, settings, fabric.config)
    spans = list(zip(parameters["part_fail_ps"], parameters["part_repair_ps"], failures, strict=True))
    moments = {t for begin, end, *_ in settings for t in (begin, end)} | {t for one in spans for t in one[:2]}
    wait = parameters["reroute_ps"][0]
    steps, was_dark = [], False
    for now in sorted(moments):
        # The setting that was decided last, and of what it changes nothing before its end.
        begin, end, pairs, channels, changed = [one for one in settings if one[0] <= now][-1]
        lit = np.zeros(len(switching.src))
        failed = [one for fail, repair, one in spans if fail <= now < repair]
        known = [one for fail, repair, one in spans if fail + wait <= begin < repair]
        for pair, channel, is_changed in zip(pairs.tolist(), channels.tolist(), changed.tolist(), strict=True):
            ends = int(switching.src[pair]), int(switching.dst[pair]), channel
            assert not (is_changed and any(is_dark(fabric, one, *ends) for one in known))
            broken = any(is_dark(fabric, one, *ends) for one in failed)
            was_dark = was_dark or broken
            lit[pair] += not broken and (not is_changed or now >= end)
        steps.append((now, PORT * lit))
    keys = switching.src * fabric.num_accelerators + switching.dst
    pairs = np.searchsorted(keys, src * fabric.num_accelerators + dst)
    expected = [finish_ps(steps, *flow) for flow in zip(pairs, sizes, starts, strict=True)]
    assert np.abs(raw["sent_ps"] - expected).max() <= 2 + len(steps)
    assert np.allclose(raw["link_bytes"][pairs], sizes, rtol=1e-9)
    return was_dark


def check_mirrored(fabric, switching, settings):
    """As many circuits back as forth, and on the same switches, where that is asked."""
    for _, _, pairs, channels, _ in settings:
        src, dst = switching.src[pairs], switching.dst[pairs]
        is_duplex = fabric.config.duplex
        if is_duplex or fabric.config.symmetric:
            where = channels if is_duplex else 0 * channels
            forth = sorted(zip(src.tolist(), dst.tolist(), where.tolist(), strict=True))
            assert forth == sorted(zip(dst.tolist(), src.tolist(), where.tolist(), strict=True))


@pytest.mark.parametrize("keys", [{"symmetric": True}, {"duplex": True}], ids=str)
def test_random_failures_leave_mirrored_circuits_mirrored(keys):
    assert sum(check_random("sip_ocs", seed, **keys) for seed in range(100)) > 20


@pytest.mark.parametrize("keys", [{"symmetric": True}, {"duplex": True}], ids=str)
def test_both_directions_go_on_over_the_other_switch(keys):
    # As the directed ones: 2 MB by 1 ms, the other 6 MB at 1 GB/s; the way back, 4 MB, from 1 ms on 2 MB at 1 GB/s.
    run = rostam.run_flows(
        switches(**keys), src=[0, 1], dst=[1, 0], num_bytes=[8_000_000, 4_000_000],
        events=[rostam.Failure("1 ms", "switches", 0)], recovery=REROUTE,
    )  # fmt: skip
    assert run.finish_s.tolist() == pytest.approx([7e-3, 3e-3])


@pytest.mark.parametrize("kind", ["sip_ocs", "sip_ring"])
def test_random_failures_darken_only_circuits_through_them_and_are_planned_around(kind):
    assert sum(check_random(kind, seed) for seed in range(100)) > 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sip_ocs", "sip_ring"])
def test_5000_random_failures_darken_only_circuits_through_them_and_are_planned_around(kind):
    assert sum(check_random(kind, 10**6 + seed) for seed in range(5000)) > 2000
