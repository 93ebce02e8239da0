"""Bare numbers where a quantity carries a unit as text (MODEL A6): refused, 0 excepted."""

from collections.abc import Mapping
from typing import Any

from rostam_py.errors import UnitError
from rostam_py.spec.lookup import unit_of

_EXAMPLES = {"bandwidth": "400 Gb/s", "time": "5 us", "size": "25 MB"}


def check_bare_numbers(key: str, value: Any, schema: Any = None) -> None:
    """Refuse bare numbers other than 0 where a unit is needed, inside mappings and lists too (MODEL A6).

    Args: schema: the dataclass that the key is of; None takes the keys of all points.
    Raises: UnitError.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_bare_numbers(f"{key}.{name}", inner, schema)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check_bare_numbers(f"{key}[{number}]", inner, schema)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value != 0:
        unit = unit_of(key, schema)
        if unit is not None:
            raise UnitError(f"{key} is {value}, a number without a unit; write for example '{_EXAMPLES[unit]}'")
