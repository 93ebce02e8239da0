"""Times of a cost model's configuration, as the command line, YAML and Python give them."""

from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.units import parse_time


def cost_time(value: Any, key: str) -> float:
    """Return the seconds of ``cost.KEY``: text with a unit, or a bare Python number of seconds.

    Raises: UnitError for text without a unit (except zero) or a negative time; ConfigError for anything else.
    """
    where = f"cost.{key}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where} is {value!r}; it must be a time such as '5 us'")
    return 0.0 if is_zero(value) else parse_time(value, where)


def is_zero(value: str | float) -> bool:
    """Tell whether a time is 0, which needs no unit in text either."""
    try:
        return float(value) == 0
    except ValueError:
        return False
