"""Checks of what users give: whole numbers, lists of accelerators, ranks or links, and files of JSON."""

import functools
import operator
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError

NUM_SEEDS = 2**64  # the core's seeds and path hashes are unsigned 64-bit integers


def is_integer(value: Any) -> bool:
    """Return whether a value is a whole number by type: Python's or numpy's, neither a boolean nor 4.0."""
    if isinstance(value, bool | np.bool_):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def check_seed(key: str, value: Any) -> int:
    """Return a seed as an int.

    Raises: ConfigError unless it is an integer in 0 to 2^64 - 1.
    """
    if not is_integer(value) or not 0 <= int(value) < NUM_SEEDS:
        raise ConfigError(f"{key} is {value!r}; it must be an integer from 0 to 2^64 - 1")
    return int(value)


def check_integers(key: str, values: Any) -> np.ndarray:
    """Return a list or array of integers as an int64 array (entries,); their range is the caller's to check.

    Raises: ConfigError naming the first entry that is no integer: nothing is rounded.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "i" and values.ndim == 1:
        return values.astype(np.int64)
    try:
        entries = None if isinstance(values, str | bytes) else list(values)
    except TypeError:
        entries = None
    if entries is None:
        raise ConfigError(f"{key} is {values!r}; it must be a list of integers")
    for i, value in enumerate(entries):
        if not is_integer(value) or not -(2**63) <= int(value) < 2**63:
            raise ConfigError(f"{key}[{i}] is {value!r}; it must be an integer")
    return np.array([int(value) for value in entries], dtype=np.int64)


def parse_json(schema: Any, data: bytes, where: str) -> Any:
    """Return JSON text as a value of a type, for example a dataclass: nothing is converted, nothing missing.

    Args: schema: a type that pydantic knows, fields annotated. where: what the text is, for the error.
    Raises: ConfigError naming the first place that does not fit, its value, and what must stand there.
    """
    from pydantic import ValidationError  # 0.1 s, which only files are worth

    try:
        return _adapter(schema).validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        value = first.get("input")
        given = "" if first["type"] in ("missing", "json_invalid") else f" (it is {_short(value)})"
        more = f" and {error.error_count() - 1} more" if error.error_count() > 1 else ""
        text = first["msg"][:1].lower() + first["msg"][1:]
        raise ConfigError(f"{where}{': ' + place if place else ''}: {text}{given}{more}") from error


@functools.cache
def _adapter(schema: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(schema)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
