"""Time lost to failures by cause and kind of part, against sums by hand."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.simulation.outage_log import Down, OutageLog, RestartSpan, Stall
from rostam_py.spread.lost_time import Span, lost_time
from tests.spread.hand import all_reduce, compute, plan, product

T = 0.010  # of an iteration's kernel
MS = 1e-3


def triangle():
    """Return three accelerators that forward, in a triangle of cables of 1 GB/s and 100 us."""
    return rostam.fabric(
        "custom", num_accelerators=3, links=[[0, 1], [0, 2], [2, 1]], link_bandwidth=1e9, link_latency=100e-6,
        forwarding=True,
    )  # fmt: skip


def ring(fabric, num_bytes=4_000_000):
    """Return a plan of accelerators 0 and 1, which add up their gradients in two steps, between two kernels."""
    return plan([compute(product(T)), all_reduce(num_bytes, 0), compute(product(1 * MS), deps=(1,))], 2, fabric)


def lost(found):
    return {cause: seconds for cause, seconds in found.to_dict()["lost_s"].items() if seconds}


def near(**seconds):
    return pytest.approx(seconds, abs=2e-11)


# Steps of 2 MB take 2.1 ms, an iteration 15.2 ms. The cable fails at 11 ms, half of a step through; at 12 ms the other
# half takes the two other cables and 0.2 ms, and so do later steps: 13.2 ms, 15.4 ms, and the end at 16.4 ms; then
# 15.4 ms an iteration.
CABLE = {"events": [rostam.Failure(11 * MS, "links", 0)], "detection": "600 us", "reroute": "400 us"}


def test_a_failed_cable_stalls_a_message_and_its_way_round_is_longer():
    found = rostam.outages(ring(triangle()), iterations=3, **CABLE)
    assert found.without_s == pytest.approx(3 * 15.2 * MS)
    assert found.total_s == pytest.approx((16.4 + 2 * 15.4) * MS)
    assert lost(found) == near(stalled=1 * MS, ways=0.6 * MS)
    assert found.to_dict()["lost_by_part_s"] == {"links": near(stalled=1 * MS, ways=0.6 * MS)}


def test_a_stall_that_computing_hides_costs_nothing():
    # The cable is away from 1 to 9 ms, and known to be back at 10 ms, when the kernel ends.
    found = rostam.outages(
        ring(triangle()), events=[rostam.Failure(1 * MS, "links", 0, repair=9 * MS)], detection="1 ms", iterations=2
    )
    assert lost(found) == {}
    assert (found.down_s, found.redone_s, found.slower_s, found.total_s - found.without_s) == (0, 0, 0, 0)


def test_a_message_that_is_partly_hidden_is_stalled_for_what_the_iteration_is_longer():
    # The sum runs beside a second kernel, from 10 to 14.2 ms, which ends at 20 ms. The stall from 11 to 19 ms ends it
    # at 22.2 ms, over the same cable: of its 8 ms the iteration is 2.2 ms longer.
    tasks = [compute(product(T)), compute(product(T)), all_reduce(4_000_000, 0), compute(product(MS), deps=(1, 2))]
    found = rostam.outages(
        plan(tasks, 2, triangle()), events=[rostam.Failure(11 * MS, "links", 0, repair=19 * MS)], reroute="1 h",
        iterations=1,
    )  # fmt: skip
    assert found.total_s == pytest.approx(23.2 * MS)
    assert lost(found) == near(stalled=2.2 * MS)


@pytest.mark.parametrize(
    ("repair_ms", "waiting_ms"), [(10.5, 0), (11, 0), (12, 0), (12.001, 0.001), (39, 27), (39.001, 27.001)]
)
def test_a_job_without_a_spare_is_down_for_detection_or_repair_and_then_its_restart(repair_ms, waiting_ms):
    # Lost at 10 ms, known at 12 ms: the restart of 20 ms begins at max(12 ms, repair).
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0)
    found = rostam.outages(
        plan([compute(product(4 * MS))], 1, fabric), iterations=4, detection="2 ms", restart="20 ms",
        events=[rostam.Failure(10 * MS, "accelerators", 0, repair=repair_ms * MS)],
    )  # fmt: skip
    expected = {"detection": 2 * MS, "waiting": waiting_ms * MS, "restarting": 20 * MS, "redone": 2 * MS}
    assert lost(found) == near(**{cause: seconds for cause, seconds in expected.items() if seconds})
    assert found.down_s == pytest.approx((max(12, repair_ms) + 20 - 10) * MS)


def test_an_accelerator_without_any_link_is_lost_to_those_that_failed_and_waits_for_one_of_them():
    # The cable 0 - 1 fails at 4 ms and 2, the other neighbour of 0, at 5 ms, until 8 ms.
    events = [rostam.Failure(4 * MS, "links", 0), rostam.Failure(5 * MS, "accelerators", 2, repair=8 * MS)]
    found = rostam.outages(ring(triangle()), iterations=1, restart="1 ms", events=events)
    assert lost(found) == near(waiting=3 * MS, restarting=1 * MS, redone=5 * MS, ways=0.2 * MS)
    assert {*found.to_dict()["lost_by_part_s"]["accelerators"]} == {"waiting", "restarting", "redone"}


def test_a_spare_that_fails_during_a_restart_begins_it_anew():
    # 0 is lost at 10 ms, known at 12; its spare 1 fails at 20 ms, known at 22; 0 is back at 30 ms and takes its place.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0)
    events = [
        rostam.Failure(10 * MS, "accelerators", 0, repair=30 * MS),
        rostam.Failure(20 * MS, "accelerators", 1),
    ]
    found = rostam.outages(
        plan([compute(product(4 * MS))], 1, fabric), events=events, spares=[1], detection="2 ms", restart="20 ms",
        iterations=4,
    )  # fmt: skip
    assert lost(found) == near(detection=4 * MS, waiting=8 * MS, restarting=28 * MS, redone=2 * MS)
    (one,) = found.restarts
    assert (one.start_s, one.accelerators) == (pytest.approx(50 * MS), (0,))


def test_each_kind_of_part_is_told_what_it_cost():
    # The cable as above; at 28 ms accelerator 1 is lost, and 2 is its spare.
    events = [*CABLE["events"], rostam.Failure(28 * MS, "accelerators", 1)]
    found = rostam.outages(ring(triangle()), iterations=2, restart="5 ms", spares=[2], **(CABLE | {"events": events}))
    parts = found.to_dict()["lost_by_part_s"]
    # The second iteration begins at 16.4 ms: 11.6 ms of it are done again, from 33.6 ms on, by 0 and 2 over a cable.
    assert parts["accelerators"] == near(detection=0.6 * MS, restarting=5 * MS, redone=11.6 * MS)
    assert parts["links"] == near(stalled=1 * MS, ways=0.2 * MS)
    assert found.total_s == pytest.approx((33.6 + 15.2) * MS)
    total = sum(seconds for causes in parts.values() for seconds in causes.values())
    assert found.without_s + total == pytest.approx(found.total_s, abs=1e-15)


def test_messages_that_stand_still_are_watched_without_failures_too():
    # The link has no bandwidth from 11 to 13 ms.
    fabric = triangle()
    (link,) = ((fabric.links["src"] == 0) & (fabric.links["dst"] == 1)).nonzero()[0].tolist()
    events = [rostam.LinkBandwidth(11 * MS, link, 0), rostam.LinkBandwidth(13 * MS, link, 1)]
    result = rostam.simulate(ring(fabric), events=events, watch_stalls=True, max_iterations=2)
    (stall,) = result.outage_log.stalls
    assert (stall.iteration, stall.begin_ps, stall.end_ps, stall.failure) == (0, 11 * 10**9, 13 * 10**9, None)
    assert rostam.simulate(ring(fabric), events=events, max_iterations=2).outage_log.stalls == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"spares": [1]}, "outages.spares names accelerator 1, which the job uses; spares must be idle until then"),
        ({"spares": [3]}, "outages.spares names accelerator 3, which has failed or does not exist"),
        ({"spares": [2, 2]}, "outages.spares names accelerator 2 twice"),
        (
            {"events": [rostam.Failure(1, "links", 0), rostam.Failure(1, "links", 3)]},
            r"outages.events\[1\].number is 3; fabric 'custom' has 3 links, counted from 0",
        ),
        (
            {"events": [rostam.Failure(1, "boards", 0)]},
            r"outages.events\[0\].kind is 'boards'; fabric 'custom' has none that fails alone: its parts are links",
        ),
    ],
)
def test_what_the_fabric_or_the_job_does_not_allow_is_refused_at_the_door(given, said):
    with pytest.raises(ConfigError, match=said):
        rostam.outages(ring(triangle()), **(CABLE | given))


# Logs written by hand, in ps: iterations of 100 without failures.
USUAL = OutageLog((0, 100, 200, 300))
NEVER = float("inf")


def table(log, *spans, **options):
    """Return what was lost by cause and kind of part, of failures given as (begin, end, kind)."""
    return lost_time(log, USUAL, [Span(*one) for one in spans], **options).table


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        # The second iteration, from 100 to 230, is 30 longer. A part that fails at its end is none of its reasons, nor
        # is one that works again at its begin, which is the last one before it though.
        ([(50, 100, "boards"), (230, NEVER, "links")], {("ways", "boards"): 30}),
        ([(230, NEVER, "links")], {("ways", "other"): 30}),
        ([(229, NEVER, "links")], {("ways", "links"): 30}),
        ([(50, 100, "boards"), (229, NEVER, "links")], {("ways", "links"): 30}),
        ([(50, 101, "boards"), (229, NEVER, "links")], {("ways", "boards"): 15, ("ways", "links"): 15}),
        # The whole of it and half: 130 to 65.
        ([(100, NEVER, "boards"), (165, 230, "links")], {("ways", "boards"): 20, ("ways", "links"): 10}),
        ([(0, 100, "switches"), (0, 100, "boards")], {("ways", "boards"): 30}),
    ],
)
def test_a_longer_way_is_put_down_to_the_parts_that_have_failed_within_its_iteration(spans, expected):
    assert table(OutageLog((0, 100, 230, 330)), *spans) == expected


@pytest.mark.parametrize(
    ("spans", "kind"),
    [
        ([(150, NEVER, "links")], "links"),  # fails at the instant of the cut
        ([(151, NEVER, "links")], "other"),
        ([(20, 150, "boards"), (150, NEVER, "links")], "links"),  # the one before is back at that instant
        ([(20, 151, "boards"), (150, NEVER, "links")], "boards"),  # the first in force
        ([(20, 150, "boards"), (151, NEVER, "links")], "boards"),  # none in force: the last one before
        ([(20, 30, "boards"), (40, 50, "links")], "links"),
    ],
)
def test_work_done_again_is_put_down_to_what_is_in_force_when_the_job_is_cut(spans, kind):
    log = OutageLog((0, 100, 250, 350), restarts=(RestartSpan(150, 150, 1),))
    assert table(log, *spans) == {("redone", kind): 50}


def test_phases_at_the_instants_of_a_cut_and_of_a_start_belong_to_that_restart():
    # Cut at 150, 10 of detection, a restart of 20 and the work of 50 again; cut anew at the instant of that start.
    boards, links = rostam.Failure(0, "boards", 0), rostam.Failure(0, "links", 0)
    log = OutageLog(
        (0, 100, 325, 425), restarts=(RestartSpan(150, 180, 1), RestartSpan(180, 225, 1)),
        downs=(
            Down("detection", 150, 160, boards), Down("restarting", 160, 180, boards),
            Down("waiting", 180, 205, links), Down("restarting", 205, 225, links),
        ),
    )  # fmt: skip
    assert table(log) == {
        ("detection", "boards"): 10, ("restarting", "boards"): 20, ("redone", "boards"): 50,
        ("waiting", "links"): 25, ("restarting", "links"): 20,
    }  # fmt: skip
    # the work between two starts at one instant is none, and is put down to nobody


def test_a_restart_that_no_controller_of_failures_logged_is_its_own():
    log = OutageLog((0, 100, 260, 360), restarts=(RestartSpan(150, 160, 1),))
    assert table(log) == {("restarting", "other"): 10, ("redone", "other"): 50}


@pytest.mark.parametrize(
    ("stall", "expected"),
    [
        ((120, 140), {("stalled", "links"): 20, ("ways", "links"): 10}),
        ((120, 150), {("stalled", "links"): 30}),
        ((120, 190), {("stalled", "links"): 30}),  # the iteration is 30 longer, whatever waits
    ],
)
def test_a_stall_counts_up_to_what_its_iteration_is_longer(stall, expected):
    log = OutageLog((0, 100, 230, 330), stalls=(Stall(1, *stall, rostam.Failure(0, "links", 0)),))
    assert table(log, (110, NEVER, "links")) == expected


@pytest.mark.parametrize(
    ("again_ms", "detection_ms", "waiting_ms"),
    [(20, (20, 22), (22, 40)), (19.999, (), (20, 40)), (17, (), (20, 40)), (11, (), (20, 40))],
)
def test_a_part_that_fails_again_before_its_repair_is_held_by_each_failure_in_turn(again_ms, detection_ms, waiting_ms):
    # Lost at 10 ms, known at 12 and repaired at 20 ms; the second failure holds it from then on. One that begins before
    # the repair finds it lost already, one at that instant, when it works again, has to be detected.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0)
    first = rostam.Failure(10 * MS, "accelerators", 0, repair=20 * MS)
    second = rostam.Failure(again_ms * MS, "accelerators", 0, repair=40 * MS)
    within = rostam.Failure(again_ms * MS, "accelerators", 0, repair=39 * MS)  # changes nothing
    job = plan([compute(product(4 * MS))], 1, fabric)
    result = rostam.simulate(
        job, events=[first, within, second], min_iterations=4, max_iterations=4,
        recovery=rostam.Recovery(detection="2 ms", restart="5 ms"),
    )  # fmt: skip
    expected = [("detection", 10, 12, first), ("waiting", 12, 20, first), ("waiting", *waiting_ms, second)]
    if detection_ms:
        expected.insert(2, ("detection", *detection_ms, second))
    expected.append(("restarting", 40, 45, second))
    found = [(one.phase, one.begin_ps, one.end_ps, one.failure) for one in result.outage_log.downs]
    assert found == [(phase, begin * 10**9, end * 10**9, failure) for phase, begin, end, failure in expected]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_a_job_waits_for_the_first_of_the_failures_that_nothing_makes_up_for(first, second):
    # Both are lost, at 1 and 2 ms, and back at 6 and 4 ms: of the two the first is what it waits for, to the end.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0)
    events = [
        rostam.Failure(1 * MS, "accelerators", first, repair=6 * MS),
        rostam.Failure(2 * MS, "accelerators", second, repair=4 * MS),
    ]
    recovery = rostam.Recovery(restart="1 ms")
    result = rostam.simulate(ring(fabric), events=events, max_iterations=1, recovery=recovery)
    waits = [(one.begin_ps, one.end_ps, one.failure) for one in result.outage_log.downs if one.phase == "waiting"]
    assert {failure for _, _, failure in waits} == {events[0]}
    assert (waits[0][0], waits[-1][1]) == (10**9, 6 * 10**9)


def test_a_repair_comes_before_a_failure_of_the_same_instant():
    # Each end of a message has a link in each of two planes: repaired before the other one fails, it is never cut off.
    # 2 MB by 1 ms, one over one plane by 2 ms and one over the other by 3 ms, and the last two over both.
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0, planes=2)
    events = [
        rostam.Failure(1 * MS, "planes", 0, repair=2 * MS),
        rostam.Failure(2 * MS, "planes", 1, repair=3 * MS),
    ]
    result = rostam.run_collective(fabric, "send_recv", num_bytes=6_000_000, events=events, recovery=rostam.Recovery())
    assert result.restarts == ()
    assert result.time_s == pytest.approx(4 * MS, abs=1e-11)
