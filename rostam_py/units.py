"""Parse and format quantities with units; the only place that reads "400 Gb/s" or "5 us".

Prefixes: k M G T P = 10^n, Ki Mi Gi Ti = 2^n; ``b`` is bits, ``B`` bytes (MODEL A6). A bare Python
number is SI (seconds, bytes, bytes per second); a bare number in text is an error.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from rostam_py.errors import UnitError

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# The range of the core's SimTime, and of its byte counts.
MAX_SIMULATED_S = 9.2e6
_MAX_BYTES = 2**63 - 1
_MAX_EXACT = 2**53  # integers up to here are doubles
_QUANTITY = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*$")


def parse_time(value: str | float | int, key: str = "time") -> float:
    """Return seconds for "5 us" or a bare Python number of seconds.

    Raises: UnitError if the text has no known unit, or the value is negative or not finite.
    """
    if not isinstance(value, str):
        return _number(value, key, "a time such as '5 us'")
    number, unit = _split(value, key, "a time such as '5 us'")
    if unit not in _SECONDS:
        raise UnitError(f"{key} is {value!r}; a time needs one of the units {', '.join(_SECONDS)}")
    return _checked(number * _SECONDS[unit], value, key)


def check_simulated(seconds: float, key: str) -> float:
    """Return a time that a simulation can hold, its clock being 64-bit picoseconds.

    Raises: UnitError beyond 106 days.
    """
    if not abs(seconds) < MAX_SIMULATED_S:
        raise UnitError(f"{key} is {seconds:g} s; simulated time ends at 106 days ({MAX_SIMULATED_S:g} s)")
    return seconds


def parse_bandwidth(value: str | float | int, key: str = "bandwidth") -> float:
    """Return bytes per second for "400 Gb/s", "400 Gbps", "50 GB/s" or a bare Python number of bytes per second.

    Raises: UnitError if the text has no known unit, or the value is negative or not finite.
    """
    if not isinstance(value, str):
        return _number(value, key, "a bandwidth such as '400 Gb/s'")
    number, unit = _split(value, key, "a bandwidth such as '400 Gb/s'")
    if not unit.endswith(("/s", "ps")):
        raise UnitError(f"{key} is {value!r}; a bandwidth needs a unit such as 'Gb/s' (bits) or 'GB/s' (bytes)")
    amount = unit[:-2].replace("bit", "b")  # Gbit/s and Gbps are Gb/s
    return _checked(number * _byte_scale(amount, value, key, "'Gb/s' or 'GB/s'"), value, key)


def parse_size(value: str | float | int, key: str = "size") -> int:
    """Return whole bytes for "25 MB", "80 GiB" or a bare Python number of bytes.

    Raises: UnitError if the text has no known unit, or the value is not a whole number of bytes >= 0.
    """
    if isinstance(value, str):
        number, unit = _split(value, key, "a size such as '25 MB'")
        number *= _byte_scale(unit, value, key, "'MB' or 'MiB'")
    else:
        number = _number(value, key, "a size such as '25 MB'")
    _checked(number, value, key)
    if abs(number - round(number)) > 1e-6 * max(1.0, abs(number)) and number != int(number):
        raise UnitError(f"{key} is {value!r}; a size must be a whole number of bytes")
    if round(number) > _MAX_BYTES:
        raise UnitError(f"{key} is {value!r}; a size must be below 2^63 bytes (8 EiB)")
    return round(number)


def parse_sizes(values: Sequence[Any], key: str = "size") -> list[int]:
    """Return whole bytes of every size, as parse_size does; integers all at once."""
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= _MAX_EXACT:
        return list(values)
    return [parse_size(value, key) for value in values]


def format_time(seconds: float) -> str:
    """Return a short human-readable time, e.g. '12.3 ms'."""
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:g} s"
    for scale, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * scale:
            return f"{seconds / scale:.3g} {unit}"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(seconds) >= 0.99995 * scale:  # what four digits round to 1000 is 1 of the next unit
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-12:.4g} ps"


def format_bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth in bits per second, e.g. '400 Gb/s'."""
    return f"{_scaled(bytes_per_s * 8)}b/s"


def format_size(num_bytes: float) -> str:
    """Return a size in decimal bytes, e.g. '1.5 GB'."""
    return f"{_scaled(num_bytes)}B"


def format_count(value: float) -> str:
    """Return a count with a decimal prefix, e.g. '174.6 G'."""
    return _scaled(value).rstrip()


def format_share(share: float | None) -> str:
    """Return a share of 1 as "48.0%", "-" for one that is not known."""
    return "-" if share is None else f"{share:.1%}"


def format_number_of(count: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless there is just one: "1 failure", "1,200 failures"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _scaled(value: float) -> str:
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}"
    return f"{value:.4g} "


def _split(value: str, key: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.match(value)
    if match is None:
        raise UnitError(f"{key} is {value!r}; expected {example}")
    if not match.group(2):
        raise UnitError(f"{key} is {value!r}, a number without a unit; expected {example}")
    return float(match.group(1)), match.group(2)


def _number(value: object, key: str, example: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UnitError(f"{key} is {value!r}; expected {example}") from None
    return _checked(number, value, key)


def _byte_scale(unit: str, value: str, key: str, example: str) -> float:
    prefix, base = unit[:-1], unit[-1:]
    scale = _DECIMAL.get(prefix, _BINARY.get(prefix))
    if base not in ("b", "B") or scale is None:
        raise UnitError(f"{key} is {value!r}; unknown unit {unit!r}, expected for example {example}")
    return scale / 8 if base == "b" else scale


def _checked(number: float, value: object, key: str) -> float:
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise UnitError(f"{key} is {value!r}; it must be finite and >= 0")
    return number
