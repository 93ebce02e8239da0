"""Break-even curves: against jobs stepped second by second, and against Daly's optimum; what weeks cost."""

import math

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import FaultTrace, LongJob
from rostam_py.fleet.goodput.bill import Bill
from rostam_py.fleet.goodput.break_even import (
    interval_curve,
    intervals,
    least_cost,
    spare_counts,
    spares_curve,
)
from tests.fleet.goodput.seconds import Seconds
from tests.fleet.goodput.test_replay import drawn_case


@pytest.mark.parametrize("policy", ["spares", "shrink", "rejoin", "wait", "ragged"])
@pytest.mark.parametrize("seed", range(12))
def test_points_are_what_jobs_stepped_second_by_second_take(policy, seed):
    job, trace, spares = drawn_case(seed)
    curve = spares_curve(job, [trace], policy, range(spares + 1))
    costs = {}
    for count, one in enumerate(curve):
        stepped = Seconds(job, trace, policy, count).run()
        assert one.goodput == pytest.approx(stepped.causes["useful"] / trace.window_s)
        days = (job.num_servers + count) * trace.window_s / 86_400
        costs[count] = days / stepped.samples if stepped.samples else math.inf
        assert one.server_days == pytest.approx(costs[count])
    cheapest = least_cost(curve).num_spares
    assert costs[cheapest] <= min(costs.values()) * (1 + 1e-9)


def test_points_of_several_traces_are_their_means_and_costs_the_ratio_of_sums():
    traces = [FaultTrace.drawn(num_servers=6, window="3 d", mtbf="2 d", repair="9 h", seed=seed) for seed in (1, 2, 3)]
    job = LongJob(num_servers=4, iteration=60.0, checkpoint_iterations=10, restart=300.0)
    whole = spares_curve(job, traces, "spares", [1])[0]
    each = [spares_curve(job, [trace], "spares", [1])[0] for trace in traces]
    assert whole.goodput == pytest.approx(sum(one.goodput for one in each) / 3)
    assert (whole.least, whole.most) == (min(one.goodput for one in each), max(one.goodput for one in each))
    assert whole.server_days == pytest.approx(3 / sum(1 / one.server_days for one in each))


@pytest.mark.parametrize(("mtbf", "cost"), [(7_200, 20), (20_000, 90)])
def test_the_best_interval_is_dalys(mtbf, cost):
    """Daly 2006: sqrt(2 C M) - C. The curve is flat there, so the best of intervals 2 ** 0.5 apart is a neighbour."""
    trace = FaultTrace.drawn(num_servers=1, window=mtbf * 4_000.0, mtbf=mtbf, repair=1e-3, seed=5)
    best_s = math.sqrt(2 * cost * mtbf) - cost
    job = LongJob(num_servers=1, iteration=1.0, checkpoint=cost, restart=60.0, checkpoint_iterations=round(best_s))
    curve = interval_curve(job, [trace], "wait", 0, intervals(job, trace.window_s))
    assert best_s / 1.5 < least_cost(curve).checkpoint_iterations < best_s * 1.5
    assert len(curve) == 11


def test_values_that_are_tried():
    assert spare_counts(3) == [0, 1, 2, 3]
    assert spare_counts(0) == [0]
    many = spare_counts(100)
    assert (many[0], many[-1], len(many)) == (0, 100, 12)
    job = LongJob(num_servers=1, iteration=10.0, checkpoint_iterations=4)
    assert intervals(job, 100.0) == [1, 2, 3, 4, 6, 8, 10]  # at least an iteration, at most the window


def test_curves_without_traces_are_refused():
    with pytest.raises(ConfigError, match="break_even got no traces"):
        spares_curve(LongJob(num_servers=1, iteration=1.0), [], "wait", [0])


def test_a_bill_is_accelerators_times_hours_times_price_and_power():
    bill = Bill(num_accelerators=136, usd_per_hour=2.0, watts=1_250.0)
    assert bill.over(86_400.0) == {
        "accelerator_hours": 136 * 24, "usd": 136 * 24 * 2, "energy_kwh": pytest.approx(136 * 24 * 1.25)
    }  # fmt: skip
    assert Bill(num_accelerators=8).over(3_600.0) == {"accelerator_hours": 8, "usd": None, "energy_kwh": None}
    assert set(bill.over(None).values()) == {None}
