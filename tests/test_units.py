"""Times, bandwidths and sizes as people read them."""

import pytest

from rostam_py.errors import UnitError
from rostam_py.units import format_time, parse_bandwidth, parse_size, parse_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.9999999e-7, "1 us"), (0.9999999, "1 s"), (9.999e-4, "999.9 us"), (1e-12, "1 ps"), (119.9, "119.9 s"),
        (120.0, "2 min"), (0.0, "0 s"), (-0.0515, "-51.5 ms"),
    ],
)  # fmt: skip
def test_times_take_the_unit_that_they_round_to(seconds, text):
    assert format_time(seconds) == text


@pytest.mark.parametrize("parse", [parse_time, parse_bandwidth, parse_size])
@pytest.mark.parametrize("value", [None, [1], {"s": 1}, True, float("nan"), -1, "5 parsecs", "five"])
def test_what_is_no_quantity_is_refused_with_its_key(parse, value):
    with pytest.raises(UnitError, match=r"strategy\.quantum is"):
        parse(value, "strategy.quantum")
