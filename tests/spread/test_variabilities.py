"""Variability of a step against order statistics and hand-made cases."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.simulation import TaskGraph
from rostam_py.simulation.variation import KernelVariation, distributions, draw_factors
from tests.spread.hand import LINK, all_reduce, compute, copy, plan, product

T = 0.010  # of the one kernel
TINY = 2  # bytes of an all-reduce that only synchronises: 2 ns


def synchronous(num_devices):
    """A step in which nobody goes on before all have computed: that of the slowest device."""
    tasks = [compute(product(T)), all_reduce(TINY * num_devices, 0), compute(copy(1e-9), deps=(1,))]
    return plan(tasks, num_devices)


def lognormal(deviation):
    variance = math.log1p(deviation**2)
    return stats.lognorm(s=math.sqrt(variance), scale=math.exp(-variance / 2))


def test_two_devices_take_the_slower_ones_time():
    found = rostam.variability(synchronous(2), devices=0.08, samples=10)
    for number, sample in enumerate(found.samples):
        factors = draw_factors("lognormal", 0.08, seed=0, stream=f"devices {number}", count=2)
        assert sample.step_s == pytest.approx(T * factors.max(), abs=1e-8)
        assert sample.slowest == int(factors.argmax())
        assert sample.slowest_share == pytest.approx(1 - factors.mean() / factors.max(), abs=1e-5)
    assert found.nominal_s == pytest.approx(T, abs=1e-8)


@pytest.mark.parametrize("num_devices", [2, 8, 64])
def test_synchronous_steps_are_the_maximum_of_as_many_draws(num_devices):
    deviation, samples = 0.05, 400
    found = rostam.variability(synchronous(num_devices), devices=deviation, samples=samples)
    one = lognormal(deviation)
    # E[max of n] = int x n F^(n-1) f dx; quantile p of the maximum = F^-1(p^(1/n)).
    mean = integrate.quad(lambda x: x * num_devices * one.cdf(x) ** (num_devices - 1) * one.pdf(x), 0.5, 2)[0]
    square = integrate.quad(lambda x: x * x * num_devices * one.cdf(x) ** (num_devices - 1) * one.pdf(x), 0.5, 2)[0]
    error = math.sqrt((square - mean**2) / samples)
    assert abs(found.mean_s / T - mean) < 4 * error
    assert found.p50_s / T == pytest.approx(one.ppf(0.5 ** (1 / num_devices)), abs=6 * error)
    assert found.p95_s / T == pytest.approx(one.ppf(0.95 ** (1 / num_devices)), abs=12 * error)


def test_the_median_grows_with_the_fleet():
    medians = [rostam.variability(synchronous(n), devices=0.05, samples=60).p50_s for n in (1, 4, 16, 64)]
    assert medians == sorted(medians)
    assert medians[-1] > medians[0] + 0.05 * T


def test_kernels_vary_from_iteration_to_iteration_as_independent_sums():
    # 16 equal kernels in one task: a quarter of one kernel's deviation.
    graph = TaskGraph.of(plan([compute(*[product(T / 16)] * 16)]))
    kernels, long = KernelVariation("lognormal", 0.20), {"min_iterations": 2000, "max_iterations": 2000}
    steps = np.array(rostam.simulate(graph, variation=kernels, **long).iteration_times_s)
    assert len(set(steps)) > 1990
    assert steps.mean() == pytest.approx(T, rel=4 * 0.05 / math.sqrt(2000))
    assert steps.std() == pytest.approx(0.05 * T, rel=0.08)
    alone = [rostam.simulate(graph, variation=kernels, fuse=fuse, min_iterations=600, max_iterations=600)
             for fuse in (True, False)]  # fmt: skip
    deviations = [np.std(one.iteration_times_s) for one in alone]
    assert deviations[0] == pytest.approx(deviations[1], rel=0.15)  # a fused task varies as its kernels together


def test_devices_and_kernels_draw_apart_from_each_other():
    only, both = (
        rostam.variability(synchronous(4), samples=5, **given).samples
        for given in ({"devices": 0.05}, {"devices": 0.05, "kernels": 1e-9})
    )
    assert [one.step_s for one in only] == pytest.approx([one.step_s for one in both], rel=1e-6)


def test_a_cable_keeps_its_factor():
    # Ring of two, 2 steps of S / 2 over both cables at once: the slower cable decides.
    size = int(0.020 * LINK)
    hand = plan([compute(product(T)), all_reduce(size, 0), compute(copy(0.001), deps=(1,))], 2)
    found = rostam.variability(hand, links=0.10, samples=6)
    cables = TaskGraph.of(hand).machine.fabric.links["cable"]
    for number, sample in enumerate(found.samples):
        factors = draw_factors("lognormal", 0.10, seed=0, stream=f"links {number}", count=int(cables.max()) + 1)
        assert sample.step_s == pytest.approx(T + 0.001 + 0.020 * factors.max(), rel=1e-6)


def test_equal_seeds_give_equal_samples_and_more_samples_go_on():
    few, many = (rostam.variability(synchronous(4), devices=0.05, kernels=0.1, samples=n) for n in (3, 7))
    assert few.samples == many.samples[:3]
    other = rostam.variability(
        synchronous(4), devices=0.05, kernels=0.1, samples=3, options=rostam.SimulationOptions(seed=1)
    )
    assert all(a.step_s != b.step_s for a, b in zip(few.samples, other.samples, strict=True))


def test_a_whole_plan_is_slower_at_p50_and_conserves_its_own_time_without_variability():
    graph = rostam.trace("gpt_125m")
    fabric = rostam.fabric("fat_tree", num_accelerators=16, server_size=8, accelerator_bandwidth="400 Gb/s")
    strategy = rostam.Strategy(dp=2, tp=4, pp=2, precision="bf16_mixed", micro_batch=1)
    placed = rostam.place(
        graph,
        rostam.Machine(fabric=fabric, accelerator="a100_80gb"),
        global_batch=8,
        strategy=strategy,
        cost="roofline",
        software="ideal",
    )
    nominal = rostam.simulate(placed).iteration_time_s
    found = rostam.variability(placed, devices="5%", links="5%", kernels="5%", samples=8)
    assert found.nominal_s == nominal
    assert nominal < found.p50_s < found.p95_s < 1.3 * nominal
    least = rostam.variability(placed, devices=1e-12, links=1e-12, kernels=1e-12, samples=1)
    assert least.p50_s == pytest.approx(nominal, rel=1e-6)


@pytest.mark.parametrize("name", list(distributions()))
def test_factors_have_mean_1_their_deviation_and_their_shape(name):
    factors = draw_factors(name, 0.14, seed=3, stream="devices 0", count=50_000)
    assert factors.mean() == pytest.approx(1, abs=4 * 0.14 / math.sqrt(50_000))
    assert factors.std() == pytest.approx(0.14, rel=0.02)
    half = 0.14 * math.sqrt(3)
    shape = {"lognormal": lognormal(0.14), "uniform": stats.uniform(1 - half, 2 * half)}[name]
    assert stats.kstest(factors, shape.cdf).pvalue > 1e-3


def test_streams_are_independent():
    first, second, third = (
        draw_factors("lognormal", 0.1, seed=seed, stream=stream, count=20_000)
        for seed, stream in ((0, "devices 0"), (0, "devices 1"), (1, "devices 0"))
    )
    for one, other in ((first, second), (first, third)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / math.sqrt(20_000)
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 4 / math.sqrt(20_000)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"devices": -0.1}, "variability.devices is -0.1; it must be a number from 0 to 0.5"),
        ({"links": 0.7}, "variability.links is 0.7; it must be"),
        ({"kernels": "60%"}, "variability.kernels is '60%'; it must be"),
        ({"kernels": "much"}, "variability.kernels is 'much'; it must be"),
        ({"devices": True}, "variability.devices is True"),
        ({}, "variability got no variation"),
        ({"devices": 0.1, "samples": 0}, "variability.samples is 0; it must be an integer from 1"),
        ({"devices": 0.1, "distribution": "cauchy"}, "it must be one of: lognormal, uniform"),
        ({"devices": 0.1, "max_cpu": 0.0}, "variability.max_cpu is 0.0; it must be a time > 0"),
        ({"devices": 0.1, "samples": 1000, "max_cpu": "10 ms"}, "of CPU; variability.max_cpu allows 10 ms"),
    ],
)
def test_bad_values_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        rostam.variability(synchronous(2), **given)
