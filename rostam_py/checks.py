"""Checks of what users give: booleans, whole numbers, lists of accelerators, ranks or links, folders to write to."""

import contextlib
import dataclasses
import functools
import operator
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError

TRUE_OR_FALSE = "true or false"
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


@functools.cache
def _booleans(schema: type) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a dataclass that take true or false, and whether each also takes None."""
    kinds: dict[Any, bool] = {bool: False, bool | None: True}
    return tuple((one.name, kinds[one.type]) for one in dataclasses.fields(schema) if one.type in kinds)


def check_booleans(section: str, settings: Any) -> None:
    """Raise ConfigError for a field of a dataclass that takes true or false and holds anything else, such as 2.

    Args: section: what its keys stand in, "" for none.
    """
    for name, is_optional in _booleans(settings.__class__):
        value = getattr(settings, name)
        if not isinstance(value, bool | np.bool_) and not (is_optional and value is None):
            raise ConfigError(f"{section + '.' if section else ''}{name} is {value!r}; it must be {TRUE_OR_FALSE}")


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
    if set(map(type, entries)) == {int}:  # at once, where all of them fit
        with contextlib.suppress(OverflowError):
            return np.array(entries, dtype=np.int64)
    for i, value in enumerate(entries):
        if not is_integer(value) or not -(2**63) <= int(value) < 2**63:
            raise ConfigError(f"{key}[{i}] is {value!r}; it must be an integer")
    return np.array([int(value) for value in entries], dtype=np.int64)


def check_folder(folder: Path, key: str) -> None:
    """Raise ConfigError unless files can be written below a folder; what trying that makes is removed again.

    Args: key: the setting that names the folder.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"{key} is {str(folder)!r}; it must be a folder that can be written to ({error.strerror or error})"
        ) from error
    finally:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()
