"""Activations of Megatron's models next to Korthikanti et al.'s figures and formulas."""

import pytest

pytestmark = pytest.mark.slow  # four models of up to a trillion parameters are traced and placed


@pytest.fixture(scope="module")
def rows(load_experiment):
    return {row["name"]: row for row in load_experiment("korthikanti_activation_memory").compare()}


def test_all_published_figures_are_met_to_their_last_digit(rows):
    assert len(rows) == 4
    for row in rows.values():
        assert abs(row["none"] - row["none_printed"]) < 0.015
        assert abs(row["selective"] - row["selective_printed"]) < 0.015


@pytest.mark.parametrize(
    ("name", "heads", "width", "layers", "batch", "in_flight"),
    [("megatron_22b", 64, 6144, 48, 4, 1), ("megatron_1t", 160, 25600, 128 / 64, 1, 64)],
)
def test_layers_keep_what_the_formulas_say(rows, name, heads, width, layers, batch, in_flight):
    sequence, tp, row = 2048, 8, rows[name]
    unit = sequence * batch * width * layers * in_flight / 2**30
    scores = 5 * heads * sequence / width
    assert row["none"] == pytest.approx(unit * (10 + 24 / tp + scores / tp), rel=1e-4)
    assert row["sequence"] == pytest.approx(unit / tp * (34 + scores), rel=1e-4)
    assert row["selective"] == pytest.approx(unit / tp * 34, rel=1e-4)


def test_whole_devices_hold_little_more_than_their_layers(rows):
    for row in rows.values():
        assert row["none"] < row["none_device"] < 1.03 * row["none_printed"]
        assert row["selective"] < row["selective_device"] < 1.05 * row["selective_printed"]
