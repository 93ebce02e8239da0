"""Times, bandwidths and sizes as people read them."""

import pytest

from rostam_py.errors import UnitError
from rostam_py.units import format_number_of, format_time, parse_bandwidth, parse_size, parse_time


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
    with pytest.raises(UnitError, match=r"strategy\.placing\.quantum is"):
        parse(value, "strategy.placing.quantum")


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("400 Gbps", 50e9),
        ("400Gbps", 50e9),
        ("50 GBps", 50e9),
        ("800 Mbps", 1e8),
        ("1 Tbps", 125e9),
        ("400 Gbit/s", 50e9),
    ],
)
def test_spellings_of_bandwidth(text, bytes_per_s):
    assert parse_bandwidth(text) == bytes_per_s


@pytest.mark.parametrize("text", ["400 Gps", "400 ps", "400 Gbpss", "400 bps/s", "400 Gb"])
def test_what_is_no_bandwidth(text):
    with pytest.raises(UnitError, match="bandwidth is"):
        parse_bandwidth(text)


@pytest.mark.parametrize("value", ["9223372036854775808 B", 2**63, "9 EB", 1e30])
def test_sizes_fit_64_bits(value):
    with pytest.raises(UnitError, match="size is"):
        parse_size(value)
    assert parse_size("8000 PB") == 8 * 10**18


@pytest.mark.parametrize(("count", "said"), [(0, "0 failures"), (1, "1 failure"), (1200, "1,200 failures")])
def test_one_of_a_thing_is_singular(count, said):
    assert format_number_of(count, "failure") == said
