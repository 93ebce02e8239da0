"""Units and ticks that readers see."""

import pytest

from rostam_py.costs.families import FAMILIES, HOST_COPY
from rostam_py.plan.group_kinds import counted_kinds
from rostam_py.report.drawing.scales import (
    bandwidth_scale,
    count_scale,
    label,
    log_ticks,
    looks,
    number,
    paper_label,
    part_looks,
    short_strategy,
    size_scale,
    time_scale,
)


@pytest.mark.parametrize(
    ("seconds", "unit"), [(3e-6, "us"), (0.02, "ms"), (2.0, "s"), (90.0, "min"), (7200.0, "h"), (2e5, "d")]
)
def test_times_get_the_unit_that_suits_the_middle_value(seconds, unit):
    scale = time_scale([seconds / 50, seconds, seconds * 50])
    assert scale.unit == unit
    assert 1 <= seconds * scale.factor < 1000


@pytest.mark.parametrize(
    ("unit", "value", "title"),
    [("", 5e3, "cost [thousand]"), ("US$", 5e6, "cost [million US$]"), ("US$", 5.0, "cost [US$]"), ("", 5.0, "cost")],
)
def test_a_count_has_no_blank_behind_its_prefix(unit, value, title):
    assert count_scale([value], unit).title("cost") == title


def test_bandwidths_are_in_bits_and_sizes_in_bytes():
    assert bandwidth_scale([50e9]).factor * 50e9 == pytest.approx(400)
    assert bandwidth_scale([50e9]).unit == "Gb/s"
    assert size_scale([80e9]).unit == "GB"


@pytest.mark.parametrize(("low", "high"), [(25.7, 29.1), (0.9, 4.4), (1.0, 30.0), (3e-3, 2.0), (1.0, 1e7)])
def test_logarithmic_axes_have_a_readable_number_of_round_ticks_inside(low, high):
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 10
    assert all(low / 1.001 <= tick <= high * 1.001 for tick in ticks)
    assert all(len(number(tick)) <= 7 for tick in ticks)


def test_twenty_eight_lines_look_different():
    styles = looks([str(one) for one in range(28)])
    assert len({(look.colour, look.symbol, look.dash) for look in styles.values()}) == 28


def test_users_strings_are_no_markup():
    assert label("<b>&") == "&lt;b&gt;&amp;"
    assert "$" not in label("$x$")
    assert paper_label("a$b$") == r"a\$b\$"


def test_degrees_of_one_are_left_out_of_short_strategies():
    assert short_strategy("dp 64 x tp 1 x pp 2") == "dp 64 x pp 2"
    assert short_strategy("dp 1 x tp 1") == "dp 1"
    assert short_strategy(None) == ""


def test_parts_of_iterations_have_one_colour_each_and_the_same_in_every_figure():
    parts = [*FAMILIES, HOST_COPY, *(f"exposed {kind}" for kind in counted_kinds()), "bubble", "host"]
    looks = part_looks(reversed(parts))
    assert len(looks) == len({colour for _, colour in looks.values()}) == len(parts)
    assert list(part_looks(["bubble", "exposed tp", "matmul"])) == ["matmul", "exposed tp", "bubble"]
    assert part_looks(["mine", "matmul"])["matmul"] == looks["matmul"]
