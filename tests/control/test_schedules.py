"""Circuits that follow the phases of a known iteration: an infinite delay is one-shot, cuts are no iterations."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

LONG = "9000000 s"
PORTS = {
    "sip_ocs": {"num_ocs": 16, "link_bandwidth": "50 Gb/s"},
    "sip_ring": {"link_bandwidth": "1600 Gb/s"},
}


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize("control", ["periodic", "scheduled"])
def test_an_infinite_delay_is_one_shot_for_random_flows(name, control):
    rng = np.random.default_rng(7)
    num_judged = 0
    for _ in range(60):
        num, count = int(rng.integers(3, 40)), int(rng.integers(1, 60))
        src = rng.integers(0, num, count)
        dst = (src + rng.integers(1, min(num, 8), count) * rng.choice([-1, 1], count)) % num
        src, dst = src[src != dst], dst[src != dst]
        flows = {
            "src": src, "dst": dst, "num_bytes": rng.integers(1, 10**7, len(src)),
            "start_s": rng.integers(0, 5, len(src)) * 1e-4,
        }  # fmt: skip
        try:
            once = rostam.run_flows(rostam.fabric(name, num_accelerators=num, **PORTS[name]), **flows)
        except ConfigError:  # more peers than circuits
            continue
        anew = rostam.fabric(
            name, num_accelerators=num, control=control, reconfiguration_delay=LONG, **PORTS[name]
        )  # fmt: skip
        found = rostam.run_flows(anew, **flows)
        assert found.finish_s.tolist() == once.finish_s.tolist()
        assert len(found.reconfigurations.begin_s) == 0
        num_judged += 1
    assert num_judged > 20


def test_the_first_phase_of_what_is_known_has_its_circuits_from_the_start():
    # Two switches of 1 GB/s, 1 ms dark. 0 -> 1 and 0 -> 2 go at once, then 0 -> 3, 0 -> 4: two phases of 8 ms each.
    fabric = rostam.fabric(
        "sip_ocs", num_accelerators=5, num_ocs=2, link_bandwidth="1 GB/s", latency="0 s", control="scheduled",
        reconfiguration_delay="1 ms",
    )  # fmt: skip
    found = rostam.run_flows(
        fabric, src=[0] * 4, dst=[1, 2, 3, 4], num_bytes=[8_000_000] * 4, start_s=["0 s", "0 s", "20 ms", "20 ms"]
    )
    # The second phase is known: its circuits are set when the first has ended, and are lit at 9 ms.
    assert found.finish_s.tolist() == pytest.approx([8e-3, 8e-3, 28e-3, 28e-3])
    assert found.reconfigurations.begin_s.tolist() == pytest.approx([8e-3])


def test_a_job_that_restarts_goes_on_by_its_schedule():
    # Ten iterations; the accelerator fails in the seventh, which is by phases as those before and after it.
    graph = rostam.trace("gpt_125m")
    fabric = rostam.fabric(
        "sip_ocs", num_accelerators=16, num_ocs=4, accelerator_bandwidth="400 Gb/s", control="scheduled"
    )
    plan = rostam.place(
        graph, rostam.Machine(fabric=fabric, accelerator="a100_80gb"), global_batch=32,
        strategy=rostam.Strategy(dp=4, tp=4), software="ideal",
    )  # fmt: skip
    whole = rostam.simulate(plan, min_iterations=10, max_iterations=10)
    assert whole.reconfigurations.num_phases > 1
    fail_s = sum(whole.iteration_times_s[:6]) + 0.5 * whole.iteration_time_s
    cut = rostam.simulate(
        plan, min_iterations=10, max_iterations=10, recovery=rostam.Recovery(restart="1 ms"),
        events=[rostam.Failure(fail_s, "accelerators", 0, repair=fail_s + 1e-3)],
    )  # fmt: skip
    assert cut.iteration_times_s[6] > 1.4 * whole.iteration_time_s
    # The next one begins with the circuits of its first phase dark, once at most.
    assert cut.iteration_times_s[7] <= whole.iteration_time_s + 0.010
    assert cut.iteration_times_s[9] == pytest.approx(whole.iteration_time_s)
