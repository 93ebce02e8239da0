"""Plans and collectives on circuits that are set anew while they run."""

import json

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

NEVER = "9000000 s"


def ocs(num, num_ocs=2, **keys):
    return rostam.fabric("sip_ocs", num_accelerators=num, num_ocs=num_ocs, link_bandwidth="10 Gb/s", **keys)


def times(result):
    return result.iteration_times_s, result.first_iteration_s, result.bytes_sent, result.breakdown


@pytest.mark.parametrize("control", ["periodic", "scheduled"])
def test_an_infinite_delay_is_one_shot(hand_plan, control):
    shape = {"pp": 2, "dp": 4, "num_microbatches": 4, "act_bytes": 10**6, "grad_bytes": 10**7}
    once = rostam.simulate(hand_plan(ocs(8), **shape), fold=False)
    never = rostam.simulate(hand_plan(ocs(8, control="periodic", reconfiguration_delay=NEVER), **shape))
    assert times(never) == times(once)
    assert times(once) == times(rostam.simulate(hand_plan(ocs(8), **shape)))
    assert never.reconfigurations.num_decisions == 0
    if control == "scheduled":  # one phase is never worth another of so long a delay
        whole = rostam.simulate(hand_plan(ocs(8, control=control, reconfiguration_delay=NEVER), **shape))
        assert times(whole) == times(once)
        assert whole.reconfigurations.num_phases == 1


def test_a_collective_on_circuits_that_never_change_takes_as_long_as_on_those_set_once():
    once = rostam.run_collective(ocs(8), "all_reduce", num_bytes=10**7, fold=False)
    never = rostam.run_collective(
        ocs(8, control="periodic", reconfiguration_delay=NEVER), "all_reduce", num_bytes=10**7
    )
    assert never.time_ps == once.time_ps
    assert once.reconfigurations is None
    assert never.reconfigurations.duty_cycle == 1


def test_a_schedule_serves_phases_that_circuits_set_once_cannot_hold(hand_plan):
    # pp pairs 2r -> 2r+1 and back, and rings of four over dp: three peers, one switch.
    shape = {"pp": 2, "dp": 4, "num_microbatches": 1, "act_bytes": 10**6, "grad_bytes": 10**7}
    with pytest.raises(ConfigError, match="circuits"):
        hand_plan(ocs(8, 1), **shape)
    one_each = rostam.simulate(hand_plan(ocs(8, 1, control="scheduled", reconfiguration_delay="0 s"), **shape))
    room = rostam.simulate(hand_plan(ocs(8, 2), **shape))
    assert one_each.reconfigurations.num_phases >= 2
    assert one_each.bytes_sent == room.bytes_sent
    # What waits is at most the rings of the other stage: 2 (4 - 1) steps of 10 MB / 4 at 10 Gb/s.
    ring_s = 2 * 3 / 4 * 1e7 * 8 / 10e9
    assert room.iteration_time_s <= one_each.iteration_time_s <= room.iteration_time_s + ring_s


def test_a_slow_switch_costs_its_delay_where_nothing_hides_it(hand_plan):
    # dp rings only, then pairs: the iteration turns over twice, at most 4 delays and at least nothing.
    shape = {"pp": 2, "dp": 4, "num_microbatches": 2, "act_bytes": 10**6, "grad_bytes": 10**7}
    at = {
        delay: rostam.simulate(hand_plan(ocs(8, 2, control="scheduled", reconfiguration_delay=f"{delay} us"), **shape))
        for delay in (0, 100, 1000)
    }
    base = at[0].iteration_time_s
    for delay in (100, 1000):
        turns = at[delay].reconfigurations.num_phases
        assert base <= at[delay].iteration_time_s <= base + (turns + 1) * delay * 1e-6
    assert at[1000].reconfigurations.dark_circuit_s > at[100].reconfigurations.dark_circuit_s > 0
    assert at[0].reconfigurations.duty_cycle == 1


@pytest.mark.parametrize("num_ocs", [1, 2])
@pytest.mark.parametrize("num_microbatches", [1, 2, 4])
@pytest.mark.parametrize("delay", ["0 s", "100 us", "1 ms", "3 ms"])
def test_a_schedule_that_takes_longer_than_what_was_before_is_given_up(hand_plan, num_ocs, num_microbatches, delay):
    # With two switches a schedule brings 22.6 to 16.2 ms; with one, pairs that wait in turn are faster up to some ms.
    shape = {"pp": 2, "dp": 4, "num_microbatches": num_microbatches, "act_bytes": 10**6, "grad_bytes": 10**7}
    fabric = ocs(8, num_ocs, control="scheduled", reconfiguration_delay=delay)
    result = rostam.simulate(hand_plan(fabric, **shape))
    timed = result.iteration_times_s
    assert result.is_steady
    # An iteration, the one that was timed, then two by phases; where these take longer two more as at first.
    assert result.iteration_time_s <= timed[3] + 1e-9
    assert len(timed) <= 5 or timed[3] > timed[1]
    if num_ocs == 2:
        assert result.iteration_time_s < 0.95 * timed[1]


def test_the_timeline_shows_when_circuits_are_dark(hand_plan, tmp_path):
    shape = {"pp": 2, "dp": 4, "num_microbatches": 2, "act_bytes": 10**6, "grad_bytes": 10**7}
    plan = hand_plan(ocs(8, 1, control="scheduled", reconfiguration_delay="5 us"), **shape)
    result = rostam.simulate(plan, timeline=True)
    result.save_timeline(str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    shown = [event for event in events if event["name"] == "reconfiguration"]
    done, length_s = result.reconfigurations, result.iteration_time_s
    begin_s = sum(result.iteration_times_s) - length_s
    own = (done.end_s > begin_s) & (done.begin_s < begin_s + length_s)
    assert len(shown) == own.sum() > 0
    whole_us = [event["args"].get("whole_us", event["dur"]) for event in shown]
    assert whole_us[:-1] == pytest.approx([5.0] * (len(shown) - 1))
    assert whole_us[-1] == pytest.approx((done.end_s - done.begin_s)[own][-1] * 1e6)  # the run ends in it
    assert [event["args"]["circuits"] for event in shown] == done.num_changed[own].tolist()


def test_results_say_what_was_done(hand_plan):
    shape = {"pp": 2, "dp": 4, "num_microbatches": 2, "act_bytes": 10**6, "grad_bytes": 10**7}
    result = rostam.simulate(hand_plan(ocs(8, 1, control="scheduled", reconfiguration_delay="5 us"), **shape))
    said = json.loads(result.to_json())["reconfigurations"]
    done = result.reconfigurations
    assert said["num_reconfigurations"] == len(done.begin_s) > 0
    assert (said["duty_cycle"], said["dark_s"], said["relayed_bytes"]) == (done.duty_cycle, done.dark_s, 0)
    assert "reconfigurations" not in rostam.simulate(hand_plan(ocs(8, 2), **shape)).to_json()
    assert np.all(result.reconfigurations.end_s >= result.reconfigurations.begin_s)


def ring(num, **keys):
    return rostam.fabric("sip_ring", num_accelerators=num, accelerator_bandwidth="100 Gb/s", **keys)


@pytest.mark.parametrize("control", ["one_shot", "periodic", "scheduled"])
@pytest.mark.parametrize("split", ["blocks", "fragments"])
def test_jobs_share_a_ring_in_blocks_or_fragments(hand_plan, control, split):
    fabric = ring(8, control=control)
    ids = np.arange(8).reshape(2, 4) if split == "blocks" else np.arange(8).reshape(4, 2).T
    shape = {"pp": 2, "dp": 2, "num_microbatches": 2, "act_bytes": 10**6, "grad_bytes": 4 * 10**6}
    plans = [hand_plan(fabric, accelerators=own.tolist(), **shape) for own in ids]
    results = rostam.simulate(plans, max_iterations=4)
    alone = rostam.simulate(hand_plan(ring(8), accelerators=ids[0].tolist(), **shape))
    for result in results:
        assert result.bytes_sent == alone.bytes_sent
        assert "links of every accelerator carry what it sends, receives and forwards" in result.checks
    if control == "scheduled":
        assert results[0].reconfigurations.num_phases >= 2  # one for each job at least
    if control == "one_shot" and split == "blocks":  # they meet nowhere
        assert [r.iteration_time_s for r in results] == pytest.approx([alone.iteration_time_s] * 2, rel=0.01)


def test_a_ring_whose_demand_repeats_uses_known_answers(hand_plan):
    shape = {"pp": 2, "dp": 4, "num_microbatches": 4, "act_bytes": 10**6, "grad_bytes": 10**7}
    done = rostam.simulate(hand_plan(ring(8, control="scheduled"), **shape)).reconfigurations
    assert done.num_decisions > 2 * done.num_phases
    assert done.num_reused >= done.num_decisions - 2 * done.num_phases


def test_an_infinite_delay_is_one_shot_on_a_ring(hand_plan):
    shape = {"pp": 2, "dp": 4, "num_microbatches": 4, "act_bytes": 10**6, "grad_bytes": 10**7}
    once = rostam.simulate(hand_plan(ring(8), **shape), fold=False)
    never = rostam.simulate(hand_plan(ring(8, control="periodic", reconfiguration_delay=NEVER), **shape))
    assert times(never) == times(once)


@pytest.mark.parametrize("name", ["sip_ocs", "sip_ring"])
@pytest.mark.parametrize("control", ["one_shot", "periodic", "scheduled"])
def test_a_flow_without_bytes_needs_a_circuit_that_others_use(name, control):
    fabric = rostam.fabric(name, num_accelerators=4, control=control, accelerator_bandwidth="400 Gb/s")
    # With a message of the same pair it takes that one's circuit: there after its latency, 1 us.
    result = rostam.run_flows(fabric, src=[0, 0], dst=[1, 1], num_bytes=[0, 10**6])
    assert result.finish_s[0] == pytest.approx(1e-6)
    with pytest.raises(ConfigError, match="flow 1 from 1 to 0 has 0 bytes, and no other flow of that pair has any"):
        rostam.run_flows(fabric, src=[0, 1], dst=[1, 0], num_bytes=[10**6, 0])
