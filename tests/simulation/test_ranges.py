"""Times and sizes at the ends of what the core can count: right, or a ConfigError that says what to look at."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.simulation.events import LinkBandwidth


def plan_on(gpt, bandwidth="400 Gb/s", **physics):
    fabric = rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth=bandwidth)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", **physics)
    return rostam.place(gpt, machine, global_batch=16, strategy=rostam.Strategy(dp=8), software="ideal")


@pytest.mark.parametrize("fold", [True, False])
def test_a_bandwidth_without_its_g_is_not_a_fast_network(gpt, fold):
    # Gradients take about 8e6 s at 100 b/s: one iteration fits the clock's 9.2e6 s, two do not.
    with pytest.raises(ConfigError, match=r"106 days.* look for a lost unit"):
        rostam.simulate(plan_on(gpt, "100 b/s"), fold=fold)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_petabyte_over_a_slow_link_takes_its_time_or_is_refused(ranks, fold):
    # 1 PB at 125 MB/s, ring: 2 (p - 1) / p x 8e6 s = 8e6 s for two ranks, 14e6 s for eight, above 9.2e6 s.
    fabric = rostam.fabric("electrical_flat", num_accelerators=ranks, link_bandwidth="1 Gb/s", latency=0.0)

    def run(**options):
        return rostam.run_collective(fabric, "all_reduce", algorithm="ring", num_bytes="1 PB", **options)

    if ranks == 2:
        assert run(fold=fold).time_s == 8e6
        assert run(fidelity="analytic").time_s == pytest.approx(8e6)
        return
    with pytest.raises(ConfigError, match="106 days"):
        run(fold=fold)
    with pytest.raises(ConfigError, match="106 days"):
        run(fidelity="analytic")


def test_launches_of_eleven_days_pass_the_clocks_end_with_the_task_named(gpt):
    plan = plan_on(gpt, launch_latency="1e6 s")
    with pytest.raises(ConfigError, match=r"106 days.* in compute task \d+ of template \d+.* on accelerator \d"):
        rostam.simulate(plan)


def test_a_launch_beyond_the_clock_is_refused_before_any_work():
    for key in ("launch_latency", "min_kernel_time"):
        with pytest.raises(ConfigError, match=rf"^machine\.{key} is 1e\+09 s; simulated time ends at 106 days"):
            rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=2), **{key: "1e9 s"})


@pytest.mark.parametrize("num_bytes", [2**63, 2**80, "1e30 B", "10000 PB"])
def test_sizes_beyond_64_bits_are_refused(num_bytes):
    fabric = rostam.fabric("electrical_flat", num_accelerators=4)
    with pytest.raises(ConfigError, match=r"num_bytes is .*below 2\^63 bytes"):
        rostam.run_collective(fabric, "all_reduce", num_bytes=num_bytes)
    with pytest.raises(ConfigError, match=r"num_bytes is .*below 2\^63 bytes"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[num_bytes])


def test_sums_of_bytes_beyond_64_bits_are_refused():
    # All ranks together send 2 (p - 1) S = 6 x 4e18 bytes.
    fabric = rostam.fabric("electrical_flat", num_accelerators=4, link_bandwidth=1e18)
    with pytest.raises(ConfigError, match=r"2\^63 - 1"):
        rostam.run_collective(fabric, "all_reduce", algorithm="ring", num_bytes=4 * 10**18)


def run_slowed(scales):
    """1 MB at 1 GB/s takes 1 ms; the link's bandwidth is scaled at 0.5 ms and, if given, again at 3 ms."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0)
    links = range(len(fabric.links))
    events = [
        LinkBandwidth(time, link, scale)
        for time, scale in zip(("0.5 ms", "3 ms"), scales, strict=False)
        for link in links
    ]
    flows = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[10**6], events=events)
    ring = rostam.run_collective(fabric, "send_recv", num_bytes=10**6, events=events)
    assert ring.time_s == flows.finish_s[0]
    return flows.finish_s[0]


def test_a_temporary_slow_down_ends_with_the_run_that_would_finish():
    # 0.5 MB in the first 0.5 ms, nothing to speak of until 3 ms (2.5e-13 MB), the rest by 3.5 ms.
    assert run_slowed([1e-10, 1.0]) == pytest.approx(3.5e-3, abs=1e-12)


def test_a_lasting_slow_down_names_the_message_that_does_not_end():
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=1e9, latency=0.0)
    events = [LinkBandwidth("0.5 ms", link, 1e-11) for link in range(len(fabric.links))]
    with pytest.raises(ConfigError, match=r"flow 0 from 0 to 1 has 500000 bytes left at 0\.001 s and would not be"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[10**6], events=events)
    with pytest.raises(ConfigError, match=r"a message of 1000000 bytes from accelerator 0 to 1 \(send_recv, iter"):
        rostam.run_collective(fabric, "send_recv", num_bytes=10**6, events=events)
