"""Parts that fail and are repaired during a run: stalls, new routes and restarts against times by hand."""

import functools
import itertools
import random
import re

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError, RostamError
from rostam_py.fabrics.routings import routings
from rostam_py.plan.failures import FAILING_KINDS
from rostam_py.spread.lost_time import DOWN_CAUSES, OTHER, STALLED, lost_time, spans_of

FABRICS = {
    "flat": ("electrical_flat", {"num_accelerators": 8}),
    "cluster": ("electrical_cluster", {"num_accelerators": 16}),
    "tree": ("fat_tree", {"num_accelerators": 16, "radix": 8}),
    "tree of servers": ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4, "planes": 2}),
    "torus": ("torus", {"dims": (4, 4)}),
    "hammingmesh": ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}),
    "hammingmesh of 4 planes": ("hammingmesh", {"board": (2, 2), "boards": (2, 2), "planes": 4}),
    "hyperx": ("hyperx", {"dims": (3, 3), "terminals": 1}),
    "dragonfly": (
        "dragonfly",
        {"routers_per_group": 2, "terminals_per_router": 1, "global_links_per_router": 2, "num_groups": 5},
    ),
    "slim fly": ("slim_fly", {"q": 3, "terminals_per_switch": 1}),
    "cube mesh": ("hybrid_cube_mesh", {"num_accelerators": 16}),
    "optical switches": ("sip_ocs", {"num_accelerators": 8}),
    "optical ring": ("sip_ring", {"num_accelerators": 8}),
    "optical switches by phases": (
        "sip_ocs",
        {"num_accelerators": 8, "num_ocs": 2, "control": "scheduled", "reconfiguration_delay": "2 us"},
    ),
    "custom": (
        "custom",
        {
            "num_accelerators": 8,
            "links": [[k, (k + d) % 8] for k in range(8) for d in (1, 3)],
            "link_bandwidth": 1e10,
            "forwarding": True,
        },
    ),
    "servers on optical switches": ("regional_ocs", {"num_accelerators": 16, "server_size": 2, "region_servers": 4}),
    "photonic rails": ("photonic_rails", {"num_accelerators": 16, "server_size": 2}),
    "optical switches that relay": ("sip_ocs", {"num_accelerators": 8, "num_ocs": 2, "relay": True}),
    "relays by windows": (
        "sip_ocs",
        {"num_accelerators": 8, "num_ocs": 2, "relay": True, "control": "periodic", "reconfiguration_delay": "2 us"},
    ),
    "optical ring by windows": (
        "sip_ring",
        {"num_accelerators": 8, "control": "periodic", "reconfiguration_delay": "2 us"},
    ),
}


def build(name):
    fabric, settings = FABRICS[name]
    return rostam.fabric(fabric, **settings)


def torus(**more):
    return rostam.fabric("torus", dims=(4, 4), link_bandwidth=1e9, link_latency=0.0, switch_latency=0.0, **more)


def send(fabric, *failures, dst=1, **more):
    return rostam.run_collective(
        fabric, "send_recv", num_bytes=3_000_000, ranks=[0, dst], events=failures, routing="hash", **more
    )


def cable(fabric, src, dst):
    links = fabric.links
    return int(links["cable"][(links["src"] == src) & (links["dst"] == dst)][0])


def test_a_message_waits_at_its_failed_cable_until_it_is_repaired():
    # 1 GB/s: 1 MB by 1 ms, nothing until 5 ms, then the other 2 MB.
    fabric = torus()
    result = send(
        fabric,
        rostam.Failure("1 ms", "links", cable(fabric, 0, 1), repair="5 ms"),
        recovery=rostam.Recovery(detection="1 s"),
    )
    assert result.time_s == pytest.approx(7e-3, abs=2e-12)


def test_what_is_left_of_a_message_goes_round_its_failed_cable_once_that_is_known():
    # Nothing from 1 ms to 1 + 0.5 + 0.25 ms; the other 2 MB take three cables in place of one, at the same rate.
    fabric = torus()
    recovery = rostam.Recovery(detection="500 us", reroute="250 us")
    result = send(fabric, rostam.Failure("1 ms", "links", cable(fabric, 0, 1)), recovery=recovery)
    assert result.time_s == pytest.approx(3.75e-3, abs=2e-12)
    assert result.link_bytes.sum() == pytest.approx(1e6 + 3 * 2e6)
    # Repaired at 2 ms, known at 2.75 ms: 1 MB went round by then, the last one goes straight.
    repaired = send(fabric, rostam.Failure("1 ms", "links", cable(fabric, 0, 1), repair="2 ms"), recovery=recovery)
    assert repaired.link_bytes.sum() == pytest.approx(1e6 + 3 * 1e6 + 1e6)
    assert repaired.time_s == pytest.approx(3.75e-3, abs=2e-12)


def test_a_lost_accelerator_is_replaced_by_a_spare_and_one_without_a_spare_waits_for_its_repair():
    fabric = rostam.fabric("electrical_flat", num_accelerators=3, link_bandwidth=1e9, latency=0.0)
    recovery = rostam.Recovery(detection="500 us", restart="1500 us", spares=[2])
    result = send(fabric, rostam.Failure("1 ms", "accelerators", 1), recovery=recovery)
    assert result.time_s == pytest.approx(6e-3, abs=2e-12)  # 1 ms + 2 ms + 3 ms
    assert result.restarts[0].accelerators == (0, 2)
    waits = send(
        fabric, rostam.Failure("1 ms", "accelerators", 1, repair="4 ms"), recovery=rostam.Recovery(restart="1 ms")
    )
    assert waits.time_s == pytest.approx(8e-3, abs=2e-12)  # again from 5 ms on
    with pytest.raises(
        ConfigError, match=r"accelerator 1 failed, or lost .*, at 0\.001 s, and nothing restarted job 0"
    ):
        send(fabric, rostam.Failure("1 ms", "accelerators", 1))


def test_both_spares_are_used_and_a_repaired_accelerator_is_a_spare_again():
    fabric = rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth=1e9, latency=0.0)
    failures = [
        rostam.Failure("1 ms", "accelerators", 1, repair="2 ms"), rostam.Failure("2 ms", "accelerators", 2),
        rostam.Failure("3 ms", "accelerators", 3),
    ]  # fmt: skip
    result = send(fabric, *failures, recovery=rostam.Recovery(spares=[2, 3]))
    assert [restart.accelerators for restart in result.restarts] == [(0, 2), (0, 1)]
    assert result.time_s == pytest.approx(5e-3, abs=2e-12)


def test_one_of_four_planes_fails_and_the_others_carry_its_part():
    # 4 planes at 1 GB/s in all: 0.75 MB a plane by 1 ms... 3 MB over 3 planes after the stall.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0, planes=4)
    whole = send(fabric).time_s
    recovery = rostam.Recovery(reroute=whole / 4)
    result = send(fabric, rostam.Failure(whole / 2, "planes", 2), recovery=recovery)
    # Half is through; of the other half three planes send on for a quarter, what is left of all is split in three.
    half = 0.5
    after = (half - 3 / 4 * 0.25) / (3 / 4)
    assert result.time_s == pytest.approx(whole * (0.5 + 0.25 + after), rel=1e-6)


def test_a_pair_that_nothing_joins_any_more_ends_the_run_and_says_so():
    fabric = rostam.fabric(
        "custom", num_accelerators=4, links=[[0, 1], [1, 2], [2, 3], [0, 2]], link_bandwidth=1e9, forwarding=True
    )
    with pytest.raises(NoRouteError, match=r"stopped at 0.001 s with 2e[+]06 bytes left, and no path for them"):
        send(fabric, rostam.Failure("1 ms", "links", 1), rostam.Failure("1 ms", "links", 3), dst=3)


def test_failures_after_the_end_change_nothing(hand_plan):
    plan = hand_plan(torus(), pp=2, dp=4, num_microbatches=4, act_bytes=10**6, grad_bytes=10**7)
    plain = rostam.simulate(plan)
    late = rostam.simulate(plan, events=[rostam.Failure("1 h", "links", 3)])
    assert late.iteration_times_s == plain.iteration_times_s
    assert np.array_equal(late.link_bytes, plain.link_bytes)


@pytest.mark.parametrize("name", ["optical switches", "optical ring"])
def test_parts_of_optical_fabrics_that_fail_after_the_end_change_nothing_to_the_picosecond(hand_plan, name):
    plan = hand_plan(build(name), pp=2, dp=4, num_microbatches=3, act_bytes=10**6, grad_bytes=10**7)
    plain = rostam.simulate(plan, fold=False)
    late = rostam.simulate(plan, events=[rostam.Failure("1 h", "links", 3)])
    assert late.iteration_times_s == plain.iteration_times_s
    assert late.bytes_sent == plain.bytes_sent


def test_an_accelerator_fails_where_circuits_are_set_anew_and_its_job_goes_on_after_its_repair(hand_plan):
    fabric = rostam.fabric("sip_ocs", num_accelerators=4, num_ocs=2, control="scheduled", reconfiguration_delay="1 ms")
    plan = hand_plan(fabric, pp=2, dp=2, num_microbatches=3, act_bytes=10**6, grad_bytes=10**7)
    lost = rostam.outages(
        plan, events=[rostam.Failure("5 ms", "accelerators", 1, repair="9 ms")], restart="1 ms", iterations=4
    )
    assert lost.down_s == pytest.approx(5e-3)
    assert lost.without_s + lost.down_s + lost.redone_s + lost.slower_s == pytest.approx(lost.total_s)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "cable"}, "failure.kind is 'cable'; it must be one of: links, switches, accelerators, boards"),
        ({"number": -1}, "failure.number is -1; it must be an integer >= 0"),
        ({"repair": "1 ms"}, "failure.repair is '1 ms'; it must be later than failure.time, '1 ms'"),
        ({"number": 32}, "failure.number is 32; fabric 'torus' has 32 links, counted from 0"),
        ({"kind": "boards"}, "failure.kind is 'boards'; fabric 'torus' has none that fails alone: its parts are l"),
        ({"kind": "switches"}, "failure.kind is 'switches'; fabric 'torus' has none"),
    ],
)  # fmt: skip
def test_bad_failures_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        send(torus(), rostam.Failure(**({"time": "1 ms", "kind": "links", "number": 0} | given)))


def test_bad_recoveries_are_refused():
    one = rostam.Failure("1 ms", "links", 0)
    with pytest.raises(ConfigError, match=r"recovery is given, but events hold no Failure"):
        send(torus(), recovery=rostam.Recovery())
    with pytest.raises(ConfigError, match=r"recovery.spares names accelerator 16"):
        send(torus(), one, recovery=rostam.Recovery(spares=[16]))
    with pytest.raises(ConfigError, match=r"recovery.checkpoint_iterations is -1"):
        rostam.Recovery(checkpoint_iterations=-1)


def drawn(fabric, draw, span_s):
    """Return one to three failures within the time, of kinds that the fabric has."""
    counts = {kind: fabric.num_parts(kind) for kind in FAILING_KINDS}
    counts["planes"] = counts["planes"] if fabric.planes > 1 else 0
    kinds = [kind for kind, count in counts.items() if count]
    found = []
    for _ in range(draw.randint(1, 3)):
        kind, time = draw.choice(kinds), draw.uniform(0, span_s)
        repair = time + draw.uniform(0.01, 1) * span_s if draw.random() < 0.7 else None
        found.append(rostam.Failure(time, kind, draw.randrange(counts[kind]), repair=repair))
    return found


@functools.cache
def routings_of(name):
    """Return the routings that a fabric has where parts fail."""
    found, late = [], rostam.Failure("1 h", "links", 0)
    for routing in routings():
        try:
            rostam.run_collective(
                build(name), "all_reduce", num_bytes=8000, algorithm="ring", routing=routing, events=[late]
            )
        except RostamError:
            continue
        found.append(routing)
    return found


def check_lost(result, plain, failures, recovery):
    """Causes, each summed on its own, make the difference to the picosecond, and down time that of the restarts."""
    spans = spans_of(failures, round(recovery.reroute_s * 1e12))
    lost = lost_time(result.outage_log, plain.outage_log, spans, has_light=result.fabric.is_circuit_switched)
    span, total = (sum(one.iteration_times_s) for one in (plain, result))
    assert lost.total_ps * 1e-12 == pytest.approx(total - span, abs=1e-12)
    downs = {cause: lost.total_s(cause) for cause in DOWN_CAUSES}
    assert sum(downs.values()) == pytest.approx(sum(one.start_s - one.cut_s for one in result.restarts), abs=1e-12)
    count = len(result.restarts)
    assert downs["detection"] >= count * (recovery.detection_s - 1e-12)
    assert downs["restarting"] >= count * (recovery.restart_s - 1e-12)
    assert lost.total_s("redone") >= -1e-12
    stalled = lost.total_s(STALLED)
    assert 0 <= stalled <= sum(one.end_ps - one.begin_ps for one in result.outage_log.stalls) * 1e-12 + 1e-12
    by_kind = lost.by_kind_s()
    assert set(by_kind) <= {one.kind for one in failures} | {OTHER}
    assert all(abs(seconds) < 1e-9 for seconds in by_kind.get(OTHER, {}).values())


def names_what_failed(text, lasting):
    """Return whether an error names a part that stays failed, or the accelerator that a job lost."""
    if any(f"{one.kind} {one.number} (at " in text for one in lasting):
        return True
    return re.search(r"accelerator \d+ failed, or lost all of its links", text) is not None


def check_case(hand_plan, name, seed):
    """Return "ended" or what the run said; a run that ends has moved all that the one without failures moves."""
    draw = random.Random(f"{name} {seed}")
    fabric = build(name)
    pp = draw.choice([1, 2])
    dp = draw.choice([2, 3]) if fabric.num_accelerators < 16 else draw.choice([4, 6])
    plan = hand_plan(
        fabric, pp=pp, dp=dp, num_microbatches=draw.randint(1, 3), act_bytes=draw.randint(1, 10**6),
        grad_bytes=draw.randint(1, 10**8), forward_s=1e-5,
    )  # fmt: skip
    routing = draw.choice(routings_of(name))
    common = {"routing": routing, "min_iterations": 3, "max_iterations": 3}
    plain = rostam.simulate(plan, fold=False, watch_stalls=True, **common)
    span = sum(plain.iteration_times_s)
    spares = list(range(pp * dp, fabric.num_accelerators))[:2]
    if fabric.is_circuit_switched:
        spares = []  # circuits are set for the job's own accelerators
    recovery = rostam.Recovery(
        detection=draw.uniform(0, span / 4), reroute=draw.uniform(0, span / 4), restart=draw.uniform(0, span),
        checkpoint_iterations=draw.randint(0, 2), spares=spares,
    )  # fmt: skip
    failures = drawn(fabric, draw, span)
    lasting, failed = [one for one in failures if one.repair is None], None
    try:
        result = rostam.simulate(plan, events=failures, recovery=recovery, **common)
    except RostamError as error:
        if not lasting:
            raise
        failed = error
    if failed is not None:
        assert names_what_failed(str(failed), lasting)
        return type(failed).__name__
    assert result.bytes_sent == plain.bytes_sent
    check_lost(result, plain, failures, recovery)
    lost = [restart.bytes_sent - restart.bytes_received - restart.bytes_lost for restart in result.restarts]
    assert not any(lost)
    assert "no link above capacity" in result.checks
    # No order of times: a message may find more ways round what failed than it had (MODEL F20).
    again = rostam.simulate(plan, events=failures, recovery=recovery, **common)
    assert again.iteration_times_s == result.iteration_times_s
    return "ended"


@pytest.mark.parametrize("name", FABRICS)
def test_random_failures_end_or_say_why(hand_plan, name):
    said = [check_case(hand_plan, name, seed) for seed in range(8)]
    assert "ended" in said


@pytest.mark.slow
def test_a_thousand_random_schedules_of_failures_end_or_say_why(hand_plan):
    said = [check_case(hand_plan, name, seed) for name, seed in itertools.product(FABRICS, range(8, 85))]
    assert len(said) > 1400
    assert said.count("ended") > len(said) / 2


def test_every_kind_of_failure_is_drawn():
    draw = random.Random(0)
    kinds = {failure.kind for name in FABRICS for _ in range(20) for failure in drawn(build(name), draw, 1.0)}
    assert kinds == set(FAILING_KINDS)
