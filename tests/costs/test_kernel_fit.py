"""How measured kernels are fitted: what a fit may count as the ideal time, and when it does."""

from dataclasses import replace

import numpy as np
import pytest

from rostam_py.costs.kernel_fit import fitted, judged
from rostam_py.costs.kernel_kinds import KERNEL_KINDS
from rostam_py.costs.kernel_surface import Fit, left_out_error
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, MeasuredDevice

PEAK, BANDWIDTH, LAUNCH_S = 989.4e12, 3350e9, 3e-6
DEVICE = MeasuredDevice("device", PEAK, BANDWIDTH, 132)
PLAIN = Fit("", (), 0.0, 0.0)


def attention(seconds_of, lengths=tuple(2.0**power for power in range(9, 15)), sizes=((8, 64), (32, 64), (16, 128))):
    """A series of causal attention, one sequence of each length for each of (heads, head size)."""
    shapes = [(1.0, s, heads, heads, size, size) for heads, size in sizes for s in lengths]
    fields = KERNEL_KINDS["attention_forward"].fields
    columns = {name: np.array([shape[at] for shape in shapes], float) for at, name in enumerate(fields)}
    arithmetic_s = KERNEL_KINDS["attention_forward"].flops(columns) / PEAK
    traffic_s = KERNEL_KINDS["attention_forward"].traffic(columns, 2.0) / BANDWIDTH
    seconds = seconds_of(columns["sequence"], arithmetic_s, traffic_s)
    return KernelSeries(
        kind="attention_forward",
        precision="bf16",
        source="made up",
        device=DEVICE,
        element_bytes=2,
        columns=columns,
        seconds=seconds,
        fit=PLAIN,
    )


def blocks(lengths, arithmetic_s, traffic_s):
    """Half of the peak, blocks that lose 256 keys; traffic is hidden, as it would not be at the data sheet's peak."""
    return arithmetic_s * (1 + 256 / lengths) / 0.5 + LAUNCH_S


def test_what_blocks_lose_is_found():
    found = judged(fitted(attention(blocks)))
    assert found.fit.lost == 256
    assert found.fit.share < 1
    assert found.held_out.absolute < 0.01
    between = attention(blocks, lengths=(700.0, 3000.0, 12000.0))
    assert found.seconds_of(between.columns) == pytest.approx(between.seconds, rel=0.01)


def test_a_law_of_the_longer_time_keeps_it():
    found = fitted(attention(lambda lengths, arithmetic_s, traffic_s: np.maximum(arithmetic_s, traffic_s) / 0.6))
    assert (found.fit.share, found.fit.lost) == (1.0, 0.0)


def test_too_few_rows_keep_it():
    found = fitted(attention(blocks, lengths=(512.0, 2048.0, 8192.0), sizes=((8, 64), (32, 64))))
    assert (found.fit.share, found.fit.lost) == (1.0, 0.0)


def test_an_ideal_time_by_hand():
    # 1,024 keys at half of the peak, 256 of them lost: (1 + 1/4) / 0.5 = 2.5 times the arithmetic, and a launch.
    made = attention(lambda _, arithmetic_s, traffic_s: arithmetic_s, lengths=(1024.0, 4096.0), sizes=((64, 128),))
    fit = Fit("work", (4.0, 4.0), 1e-9, LAUNCH_S, share=0.5, lost=256.0)
    arithmetic_s = 4 * 64 * 1024**2 * 128 / 2 / PEAK
    assert made.ideal_s(fit)[0] == pytest.approx(2.5 * arithmetic_s + LAUNCH_S, rel=1e-12)
    first = {name: column[:1] for name, column in made.columns.items()}
    told = replace(made, fit=fit).predicted(first, np.array([arithmetic_s * PEAK]), np.array([1.0]), PEAK, DEVICE)
    assert told.seconds[0] == pytest.approx(arithmetic_s, rel=1e-6)
    assert (told.weights[0], told.least_s[0]) == pytest.approx((2.5, arithmetic_s))


def test_beyond_measured_lengths_the_nearest_efficiency_holds():
    found = fitted(attention(blocks, sizes=((128, 128),) * 2 + ((256, 128),)))
    for inside, outside in ((512.0, 64.0), (16384.0, 2.0**17)):
        at = {name: np.full(2, column[-1]) for name, column in found.columns.items()}
        at["sequence"] = np.array([inside, outside])
        flops = found.of_kind.flops(at)
        seconds = found.predicted(at, flops, np.zeros(2), PEAK, DEVICE).seconds - found.fit.fixed_s
        assert flops[1] / seconds[1] == pytest.approx(flops[0] / seconds[0], rel=0.15)  # the launch's time apart


def test_the_error_of_a_point_left_out_is_that_of_a_fit_of_the_others():
    made = attention(lambda lengths, arithmetic_s, traffic_s: arithmetic_s * (1 + np.sin(lengths) ** 2) + 1e-5)
    fit = Fit("work", (2.0, 1.0), 0.03, LAUNCH_S, share=0.7, lost=128.0)
    points, values = made.of_kind.spaces["work"](made.columns, 132) / np.array(fit.scales), made.log_ratios(fit)
    root = np.sqrt(3) * np.linalg.norm(points[:, None] - points[None, :], axis=2)
    covariance, centred = (1 + root) * np.exp(-root), values - np.median(values)
    errors = []
    for place in range(len(values)):
        others = np.arange(len(values)) != place
        inner = covariance[np.ix_(others, others)] + fit.noise * np.eye(len(values) - 1)
        errors.append(abs(centred[place] - covariance[place, others] @ np.linalg.solve(inner, centred[others])))
    plain = made.of_kind.spaces["work"](made.columns, 132)
    assert left_out_error(plain, values, fit.scales, fit.noise) == pytest.approx(np.mean(errors), rel=1e-9)


def test_a_table_keeps_the_ideal_time(tmp_path):
    found = fitted(attention(blocks))
    path = tmp_path / "mine.kernels.json"
    for one, is_told in ((found, True), (replace(found, fit=replace(found.fit, share=1.0, lost=0.0)), False)):
        KernelTable("h100_80gb", {}, (one,)).save(path)
        (read,) = KernelTable.load(path).series
        assert read.fit == one.fit
        assert ('"lost"' in path.read_text()) == is_told
