"""Held-out errors: the rule's halves, its arithmetic, and bounds on what the tables reach."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibration
from calibration.judge import shipped, table
from calibration.measurements import Measurements, collected
from calibration.published import published, read
from rostam_py.costs.kernel_kinds import KERNEL_KINDS
from rostam_py.costs.kernel_table import HeldOut, MeasuredDevice

DEVICE = MeasuredDevice("device", 0.0, 1e12)


def copies(seconds_of):
    """Measurements of 40 copies from 1 MB on, each half an octave larger."""
    sizes = [1e6 * 2 ** (number / 2) for number in range(40)]
    rows = collected(((size,), seconds_of(size)) for size in sizes)
    return Measurements("", "elementwise", "copies", "", "made up", DEVICE, 4, rows)


def test_a_smooth_law_is_predicted():
    # 70% of 1 TB/s and 5 us: between the points the surface must find it again, to the tables' four digits.
    found = copies(lambda size: 5e-6 + size / 0.7e12).series().held_out
    assert found.rows == 20
    assert found.absolute < 0.005


def test_half_that_is_not_fitted_is_judged():
    # Every second size takes twice as long: fitted on the fast ones, the slow ones are predicted at half.
    rows = copies(lambda size: size / 1e12).rows
    slow = {shape: [times[0] * (1 + place % 2)] for place, (shape, times) in enumerate(rows.items())}
    found = Measurements("", "elementwise", "copies", "", "made up", DEVICE, 4, slow).series().held_out
    assert found.signed == pytest.approx(-0.5, abs=0.02)
    assert found.is_miss


def test_repeated_shapes_count_once_with_their_median():
    rows = collected([((1e6,), 1.0), ((2e6,), 2.0), ((1e6,), 3.0), ((1e6,), 1.5)])
    measured = Measurements("", "elementwise", "copies", "", "made up", DEVICE, 4, rows)
    assert list(measured.seconds) == [1.5, 2.0]
    assert measured.spread == 2.0  # the slowest of three is three times the fastest


def test_table_lists_misses_first():
    series = copies(lambda size: size / 1e12).series()
    found = [
        replace(series, source=name, held_out=HeldOut(20, error, 0.0, error))
        for name, error in (("held", 0.01), ("missed", 0.09), ("worse", 0.2))
    ]
    lines = list(table([*found, replace(series, source="too few", held_out=None)]))
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["worse", "missed", "held"]


# Of which cuDNN and PyTorch run another kernel from shape to shape.
_OF_IMAGES = (
    "convolution_forward", "convolution_input_gradient", "convolution_weight_gradient", "batch_norm_forward",
    "batch_norm_backward",
)  # fmt: skip


def test_few_series_miss():
    # Kernels whose times jump from shape to shape, and tables whose halves are transposes of each other: see the docs.
    images = "NVIDIA H100 80GB HBM3"
    missed = {(one.device.name, one.kind) for one in shipped() if one.held_out is not None and one.held_out.is_miss}
    assert missed <= {
        ("B200", "grouped_product"), ("B200", "product"), ("Tesla V100-PCIE-32GB", "product"),
        *((images, kind) for kind in _OF_IMAGES),
    }  # fmt: skip
    for one in (one for one in shipped() if one.kind != "normalization" or one.held_out is not None):
        is_of_images = one.kind in _OF_IMAGES
        assert one.held_out.absolute < (0.17 if is_of_images else 0.12)
        assert abs(one.held_out.signed) < (0.075 if is_of_images else 0.05)


def test_documentation_has_the_table():
    text = (Path(calibration.__file__).parents[1] / "docs" / "calibration.md").read_text(encoding="utf-8")
    assert "\n".join(table(shipped())) in text


def test_waves_of_tiles_by_hand():
    # 1,024 x 1,024 outputs are 64 tiles of 128 x 128, which 108 multiprocessors compute in one wave: 64 of 108 work.
    columns = {"batch": np.ones(2), "m": np.array([1024.0, 1025.0]), "n": np.array([1024.0, 1024.0])}
    columns |= {"k": np.full(2, 512.0), "layout": np.zeros(2), "out_bytes": np.full(2, 2.0)}
    filled = KERNEL_KINDS["product"].spaces["shape_waves"](columns, 108)[:, 4]
    # One row more makes 72 tiles, of which the last 8 hold a row each.
    assert 2**filled == pytest.approx([64 / 108, 1025 * 1024 / (108 * 128**2)])


# Means over the held-out halves, each with room for another machine's rounding; docs/calibration.md has them all.
@pytest.mark.parametrize(
    ("source", "precision", "device", "bound"),
    [
        ("grouped_gemm_a100_simumax.csv (SimuMax)", "bf16", "A100 PCIe 80 GB", 0.06),
        ("sdpa_a100_simumax.csv (SimuMax), forward", "bf16", "A100 PCIe 80 GB", 0.04),
        ("sdpa_a100_simumax.csv (SimuMax), backward", "bf16", "A100 PCIe 80 GB", 0.04),
        ("gemm_fp32.csv (NeuSight), linear", "fp32", "NVIDIA A100 80GB PCIe", 0.06),
        ("memory_bound_fp32.csv (NeuSight), ln", "", "NVIDIA A100 80GB PCIe", 0.03),
        ("memory_bound_fp32.csv (NeuSight), softmax", "", "Tesla V100-PCIE-32GB", 0.04),
    ],
)
def test_held_out_errors_stay(source, precision, device, bound):
    measured = next(
        one for one in published() if (one.source, one.precision, one.device.name) == (source, precision, device)
    )
    assert measured.series().held_out.absolute < bound


def test_blocks_of_attention_lose_as_many_keys_as_published_rates_say():
    # Time over tokens^2 is a line in 1 / tokens, by least squares: no surface, no ideal time. A block of 128 queries of
    # a causal kernel has half of the keys, and masks half of the block on the diagonal: 2 x what is lost without + 128.
    lines = {}
    for one in read("attention_h100_flash.csv"):
        key = one["program"], one["pass"], one["causal"], one["head_size"]
        lines.setdefault(key, []).append((1 / float(one["sequence"]), 1 / float(one["tflops"])))
    lost = {}
    for key, pairs in lines.items():
        xs, ys = np.array(pairs).T
        slope, at_none = np.polyfit(xs, ys, 1, w=1 / ys)
        assert (at_none + slope * xs) / ys == pytest.approx(1, abs=0.055)
        lost[key] = slope / at_none
    for (program, stage, causal, size), keys in lost.items():
        if causal == "1":
            assert keys == pytest.approx(2 * lost[program, stage, "0", size] + 128, rel=0.35)
    # Fits have the nearest powers of two, and kriging what is left.
    fits = {one.program: one.fit for one in shipped() if one.kind == "attention_forward" and "paper" in one.source}
    for program, fit in fits.items():
        keys = [lost[program, "forward", "1", size] for size in ("64", "128", "256")]
        assert min(keys) / 1.5 < fit.lost < max(keys) * 1.5
