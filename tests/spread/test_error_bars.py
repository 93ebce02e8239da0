"""Error bars: the root of the sum of squares over families, by hand; and the residuals that they rest on."""

import json
import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.costs import ACCELERATORS, make_cost_model
from rostam_py.costs.kernel_table import KernelTable, shipped_table
from rostam_py.costs.limits import ROOFLINE_RESIDUAL, KernelLimits, Residual
from rostam_py.costs.roofline import COMPUTE_EFFICIENCY, MATMUL_EFFICIENCY, MEMORY_EFFICIENCY
from rostam_py.fabrics.link_classes import LINK_CLASSES, LINKS
from rostam_py.plan import KernelTime
from rostam_py.spread import ErrorBar, NoErrorBar
from rostam_py.spread.link_errors import residual_of
from tests.spread.hand import A100, all_reduce, call, compute, copy, plan, product


class KnownCost:
    """Times as the roofline's, with residuals by family."""

    def __init__(self, residuals):
        self.residuals, self.inner = residuals, make_cost_model("roofline", A100, ramp_time=0.0, min_kernel_time=0.0)

    def duration_s(self, call):
        return self.inner.duration_s(call)

    def limits(self, call):
        found = self.inner.limits(call)
        return KernelLimits(found.family, found.arithmetic_s, found.memory_s, residual=self.residuals[found.family])

    def notes(self):
        return []


def test_families_are_added_as_the_root_of_the_sum_of_squares_and_kernels_of_one_family_as_they_are():
    cost = KnownCost({"matmul": Residual(0.0, 0.05), "elementwise": Residual(0.0, 0.20)})
    kernels = [product(0.030, cost), product(0.010, cost), copy(0.010, cost)]
    bar = rostam.error_bar(rostam.simulate(plan([compute(*kernels)])))
    # 5% of 40 ms and 20% of 10 ms: 2 ms each.
    assert bar.high_s - 0.050 == pytest.approx(math.hypot(0.002, 0.002), rel=1e-9)
    assert 0.050 - bar.low_s == pytest.approx(math.hypot(0.002, 0.002), rel=1e-9)
    assert [part.family for part in bar.parts] == ["elementwise", "matmul"]


def test_signed_errors_move_the_bar_and_the_spread_of_sources_widens_it():
    # Predictions 6% too fast, scattered by 8% about that, sources 12% apart: 10% scatter about +6%.
    cost = KnownCost({"matmul": Residual(-0.06, 0.10, 0.12)})
    bar = rostam.error_bar(rostam.simulate(plan([compute(product(0.100, cost))])))
    assert bar.high_s == pytest.approx(0.100 * (1 + 0.06 + 0.10), rel=1e-9)
    assert bar.low_s == pytest.approx(0.100 * (1 + 0.06 - 0.10), rel=1e-9)


def test_errors_of_kernels_that_are_hidden_do_not_count():
    cost = KnownCost({"matmul": Residual(0.0, 0.10), "elementwise": Residual(0.0, 0.10)})
    tasks = [compute(copy(0.001, cost)), all_reduce(10**8, 0), compute(product(0.010, cost), deps=(0,))]
    result = rostam.simulate(plan([*tasks, compute(copy(0.001, cost), deps=(1, 2))], 2))
    bar = rostam.error_bar(result)
    assert {part.family for part in bar.parts} == {"elementwise"}
    assert bar.high_s - result.iteration_time_s == pytest.approx(0.1 * 0.002, rel=1e-6)


def servers(count, links="nvlink4"):
    return rostam.fabric(
        "fat_tree", num_accelerators=2 * count, server_size=2, server_bandwidth="450 GB/s", server_links=links,
        accelerator_bandwidth="400 Gb/s", network_links="infiniband" if links != "ideal" else "ideal",
    )  # fmt: skip


def stated(collective):
    """Means over the rows that nvlink4's file states, by hand: signed, absolute, and of rivals."""
    held_out = json.loads((LINKS / "nvlink4.json").read_text())["held_out"]
    rows = [(one["num_even"] + one["num_held_out"], one) for one in held_out if one["collective"] == collective]
    own, rivals = ([pair for pair in rows if pair[1]["is_rival"] == is_rival] for is_rival in (False, True))

    def mean(found, key):
        return sum(n * one[key] for n, one in found) / sum(n for n, _ in found)

    return mean(own, "signed"), mean(own, "absolute"), mean(rivals, "absolute")


@pytest.mark.parametrize("num_servers", [1, 2])
def test_collectives_are_as_far_off_as_their_class_is_on_rows_that_were_not_fitted(num_servers):
    cost = KnownCost({"matmul": Residual(0.0, 0.05)})
    tasks = [compute(product(0.002, cost)), all_reduce(2**30, 0), compute(product(0.002, cost), deps=(1,))]
    result = rostam.simulate(plan(tasks, 2 * num_servers, servers(num_servers)))
    bar = rostam.error_bar(result)
    signed, absolute, rivals = stated("all_reduce")
    deviation = math.hypot(math.sqrt(absolute**2 - signed**2), rivals / 2)
    taken = result.iteration_time_s - 0.004
    above = math.hypot((deviation - signed) * taken, 0.05 * 0.004)
    assert bar.high_s - result.iteration_time_s == pytest.approx(above, rel=1e-6)
    (part,) = (one for one in bar.parts if one.family.startswith("all_reduce"))
    assert part.family == ("all_reduce, nvlink4" if num_servers == 1 else "all_reduce, between servers")
    assert part.unverified_s == pytest.approx(0.0 if num_servers == 1 else taken)
    assert bar.covered == pytest.approx(1.0)


def test_ideal_links_are_exact_and_the_bar_says_that_it_covers_kernels_alone():
    cost = KnownCost({"matmul": Residual(0.0, 0.05)})
    tasks = [compute(product(0.002, cost)), all_reduce(2**30, 0), compute(product(0.002, cost), deps=(1,))]
    result = rostam.simulate(plan(tasks, 2, servers(1, "ideal")))
    bar = rostam.error_bar(result)
    assert [part.family for part in bar.parts] == ["matmul"]
    assert bar.covered == pytest.approx(0.004 / result.iteration_time_s)


@pytest.mark.parametrize("name", [name for name in LINK_CLASSES.names() if name.startswith("nvlink")])
def test_every_class_with_tables_knows_how_far_it_is_off(name):
    for collective in ("all_reduce", "send", "broadcast"):
        found = residual_of(name, collective) or residual_of(name, "all_reduce")
        assert 0 < found.absolute < 0.3
        assert abs(found.signed) <= found.absolute


def test_simulated_sensitivities_give_the_bar_of_the_critical_path_where_nothing_else_becomes_critical():
    cost = KnownCost({"matmul": Residual(0.02, 0.07), "elementwise": Residual(0.0, 0.10)})
    hand = plan([compute(product(0.030, cost)), all_reduce(10**7, 0), compute(copy(0.010, cost), deps=(1,))], 2)
    result = rostam.simulate(hand)
    by_path = rostam.error_bar(result)
    simulated = rostam.error_bar(result, rostam.sensitivity(hand))
    assert (simulated.low_s, simulated.high_s) == pytest.approx((by_path.low_s, by_path.high_s), rel=1e-9)
    assert by_path.low_s < result.iteration_time_s < by_path.high_s


def test_kernels_timed_by_the_roofline_have_its_residual():
    bar = rostam.error_bar(rostam.simulate(plan([compute(product(0.100))])))
    assert isinstance(bar, ErrorBar)
    assert bar.parts[0].unverified_s == pytest.approx(0.100, rel=1e-9)
    spread = math.sqrt(0.25**2 - 0.20**2)
    assert bar.high_s == pytest.approx(0.100 * (1 + 0.20 + spread), rel=1e-9)
    assert bar.low_s == pytest.approx(0.100, rel=1e-9)  # too fast by more than it scatters


def test_given_times_have_no_bar_and_say_why():
    given = KernelTime(name="work", module="", op_type="hand", duration_s=0.010)
    bar = rostam.error_bar(rostam.simulate(plan([compute(given)])))
    assert isinstance(bar, NoErrorBar)
    assert "read from a file" in bar.reason
    graph = rostam.trace("gpt_125m")
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=2, accelerator_bandwidth=1e11))
    published = rostam.place(
        graph, machine, global_batch=4, strategy=rostam.Strategy(dp=2), cost="constant",
        cost_config={"forward_s": 0.01, "backward_s": 0.02}, software="ideal",
    )  # fmt: skip
    bar = rostam.error_bar(rostam.simulate(published))
    assert isinstance(bar, NoErrorBar)
    assert "cost=constant" in bar.reason


def series_of_all_tables():
    for name in ACCELERATORS:
        path = shipped_table(name)
        if path is not None:
            yield from ((name, one) for one in KernelTable.load(path).series)


def roofline_s(name, series):
    """The roofline's formula over a series' rows, at the peaks of the part that was measured."""
    shape = np.ones(len(series.seconds))
    flops = series.of_kind.flops(series.columns) * shape
    traffic = series.of_kind.traffic(series.columns, series.element_bytes) * shape
    family = {"softmax": "reduction", "elementwise": "elementwise", "normalization": "normalization"}.get(series.kind)
    if family is None:
        family = "attention" if "attention" in series.kind else "matmul"
        best = COMPUTE_EFFICIENCY["attention"].value if family == "attention" else 0.75
        if family == "matmul":
            best = 0.89 if series.precision == "fp32" else getattr(MATMUL_EFFICIENCY.get(name), "value", best)
        arithmetic = (flops / series.device.peak_flops_per_s + 5e-6) / best
    else:
        arithmetic = 0 * flops
    memory = traffic / (series.device.memory_bandwidth_bytes_per_s * MEMORY_EFFICIENCY[family].value)
    return np.maximum(np.maximum(arithmetic, memory), 1e-6)


def test_the_residual_of_the_roofline_is_that_over_the_shipped_tables():
    known = ("product", "grouped_product", "attention_forward", "attention_backward", "elementwise", "normalization",
             "softmax")  # fmt: skip
    errors = [
        roofline_s(name, one) / one.seconds - 1 for name, one in series_of_all_tables() if one.kind in known
    ]  # fmt: skip
    assert len(errors) > 40
    assert np.mean([error.mean() for error in errors]) == pytest.approx(ROOFLINE_RESIDUAL.signed, abs=0.01)
    assert np.mean([np.abs(error).mean() for error in errors]) == pytest.approx(ROOFLINE_RESIDUAL.absolute, abs=0.01)


def test_calibrated_kernels_of_another_kind_have_at_least_the_rooflines_error():
    graph = rostam.trace("gpt_125m")
    cost = make_cost_model("calibrated", A100, graph=graph)
    own, other = cost.limits(call("aten.add.Tensor", num_bytes=1e8)), cost.limits(call("aten.sum.dim", num_bytes=1e8))
    assert own.is_verified
    assert own.residual.absolute < 0.1
    assert not other.is_verified
    assert other.residual.absolute == pytest.approx(0.25)
