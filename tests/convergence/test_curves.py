"""Measured curves: ranges, units, interpolation, fits, and what happens beyond them."""

import pytest

from rostam_py.convergence import CURVES, DEFAULT_CURVES, Curve, Point, default_curve, get_curve
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.models import MODELS


@pytest.mark.parametrize("name", CURVES.names())
def test_every_curve_names_its_source_target_and_models(name):
    curve = get_curve(name)
    assert curve.name == name
    assert curve.source
    assert curve.target
    assert set(curve.models) <= set(MODELS)


@pytest.mark.parametrize("name", CURVES.names())
def test_iterations_never_rise_with_the_batch_and_the_samples_never_fall(name):
    curve = get_curve(name)
    low, high = curve.sample_range
    batches = [low + (high - low) * k // 9 for k in range(10)]
    steps = [curve.iterations(b) for b in batches]
    assert steps == sorted(steps, reverse=True)
    samples = [b * s for b, s in zip(batches, steps, strict=True)]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in zip(samples, samples[1:], strict=False))


@pytest.mark.parametrize("name", CURVES.names())
def test_a_batch_outside_the_range_is_refused_and_says_what_is_allowed(name):
    curve = get_curve(name)
    low, high = curve.sample_range
    for batch in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=f"{low:,}"):
            curve.iterations(batch)
        low_band, high_band = curve.band(batch, extrapolate=True)
        assert low_band < curve.iterations(batch, extrapolate=True) < high_band


@pytest.mark.parametrize(("model", "name"), DEFAULT_CURVES.items())
def test_every_default_belongs_to_its_model(model, name):
    assert model in get_curve(name).models
    assert default_curve(model) is get_curve(name)


def test_goyal_keeps_90_epochs_between_its_ends():
    # 90 x 1,281,167 images / 1,024 a step
    assert get_curve("resnet50_goyal").iterations(1_024) == pytest.approx(112_602.6, rel=1e-6)


def test_mlperfs_fit_states_a_residual_that_its_points_do_not_exceed():
    # 35 epochs at 3,200: 14,012.8 steps; 66-70 at 40,448: 2,090.5-2,217.2; 77 at 57,344: 1,720.3
    curve = get_curve("resnet50_mlperf")
    published = {3_200: (14_012.8, 14_012.8), 40_448: (2_090.5, 2_217.2), 57_344: (1_720.3, 1_720.3)}
    worst = max(abs(curve.iterations(b) / end - 1) for b, ends in published.items() for end in ends)
    assert worst == pytest.approx(curve.fit.residual, abs=1e-4)
    assert 0.01 < curve.fit.residual < 0.08
    for batch, (low, high) in published.items():
        band = curve.band(batch)
        assert band[0] <= high * 1.0001
        assert band[1] >= low * 0.9999


def test_a_fit_through_two_points_meets_them():
    # S = 100 (1 + 50 / B): 600 at 10, 200 at 50
    curve = Curve(
        name="mine", models=(), target="t", source="s", points=(Point(10, 600, 600), Point(50, 200, 200)), form="fit"
    )
    assert curve.fit.min_iterations == pytest.approx(100)
    assert curve.fit.critical_batch == pytest.approx(50)
    assert curve.iterations(25) == pytest.approx(300)
    assert curve.iterations(100, extrapolate=True) == pytest.approx(150)


def test_points_between_which_steps_halve_as_batches_double_interpolate_so():
    curve = Curve(
        name="mine",
        models=(),
        target="t",
        source="s",
        points=(Point(10, 800, 800), Point(40, 200, 200)),
        form="log_log",
    )
    assert curve.iterations(20) == pytest.approx(400)
    assert [curve.iterations(b) for b in (10, 40)] == [800, 200]


def test_one_point_extrapolates_with_the_critical_batch_at_its_own_batch_and_a_band_around():
    # (1 + c/B) / (1 + c/B0) at B = 2 B0: c = B0: 3/4; c = B0/10: 1.05/1.1; c = 10 B0: 6/11
    curve = get_curve("transformer_sip_ml")
    assert curve.iterations(2_048, extrapolate=True) == pytest.approx(16_384 * 3 / 4)
    assert curve.band(2_048, extrapolate=True) == pytest.approx((16_384 * 6 / 11, 16_384 * 1.05 / 1.1))


def test_tokens_are_counted_from_samples():
    # 1.246e9 tokens / (2,304 x 2,048 a step)
    assert get_curve("gpt3_175b_mlperf").iterations(2_304) == pytest.approx(264.06, abs=0.01)
    # 300e9 tokens / (1,536 x 2,048)
    assert get_curve("gpt3_175b_brown").iterations(1_536) == pytest.approx(95_367.4, abs=0.1)
    assert get_curve("gpt3_175b_brown").sample_range == (1_536, 1_600)


def test_cosmoflows_minutes_become_iterations():
    # 2.10 min x 60 / 4.84 ms
    assert get_curve("cosmoflow_mlperf_hpc").iterations(512) == pytest.approx(26_033, abs=1)


def test_dlrms_spread_of_epochs_is_its_band():
    # 4.2e9 samples / 65,536 a step x 0.70 to 0.95 epochs
    low, high = get_curve("dlrm_mlperf").band(65_536)
    assert (low, high) == pytest.approx((44_861, 60_883), rel=1e-4)


def test_an_unknown_curve_or_model_is_an_error_that_lists_what_there_is():
    with pytest.raises(UnknownNameError, match="resnet50_mlperf"):
        get_curve("resnet50_mlperv")
    with pytest.raises(ConfigError, match="transformer_350m"):
        default_curve("gpt_125m")


@pytest.mark.parametrize(
    "fields",
    [
        {"points": ()},
        {"points": (Point(4, 1, 1), Point(2, 1, 1))},
        {"points": (Point(4, 2, 1),)},
        {"form": "spline"},
        {"batch_unit": "images"},
        {"sample_kind": "pictures"},
    ],
)
def test_a_curve_that_cannot_be_is_refused(fields):
    good = {"name": "x", "models": (), "target": "t", "source": "s", "points": (Point(4, 1, 1),), "form": "single"}
    with pytest.raises(ConfigError, match="'x'"):
        Curve(**(good | fields))
