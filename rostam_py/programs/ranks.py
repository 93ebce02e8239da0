"""Ranks as a person writes them: numbers, and "first-last" for those that follow each other."""

import re
from collections.abc import Sequence

import numpy as np

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError

MAX_RANKS = 2**22  # of one program: 64 times the largest training jobs
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def expand_ranks(written: Sequence[int | str], num_ranks: int, key: str) -> np.ndarray:
    """Return ranks in the order in which they are written, int array (n,).

    Args:
        written: numbers, and texts such as "0-7", both ends included.
        num_ranks: of the program.
        key: what holds them, for errors.
    Raises: ConfigError for a text of another form, a rank that the program does not have, and one that is named twice.
    """
    parts = [_part(one, num_ranks, key) for one in written]
    found = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if len(found) == 0:
        raise ConfigError(f"{key} names no rank; it must name at least one")
    named, counts = np.unique(found, return_counts=True)
    if (counts > 1).any():
        raise ConfigError(f"{key} names rank {named[counts > 1][0]} more than once")
    return found


def written_ranks(ranks: np.ndarray) -> tuple[int | str, ...]:
    """Return ranks as ``expand_ranks`` reads them, runs of consecutive ones as one text."""
    breaks = np.flatnonzero(np.diff(ranks) != 1) + 1
    runs = np.split(ranks, breaks)
    return tuple(f"{run[0]}-{run[-1]}" if len(run) > 1 else int(run[0]) for run in runs)


def _part(one: int | str, num_ranks: int, key: str) -> np.ndarray:
    if is_integer(one):
        first = last = int(one)
    else:
        matched = _RANGE.fullmatch(one) if isinstance(one, str) else None
        if matched is None:
            raise ConfigError(f"{key} has {one!r}; ranks are integers, or texts such as '0-7'")
        first, last = int(matched[1]), int(matched[2])
    if not 0 <= first <= last < num_ranks:
        raise ConfigError(f"{key} has {one!r}; the program's ranks are 0 to {num_ranks - 1}")
    return np.arange(first, last + 1)
