"""How routers spread tokens over experts: evenly, or by the shares of a file.

Example:
    [4, 2, 1, 1]        # JSON: the first of four experts gets half of all tokens
"""

import json
from collections.abc import Sequence
from pathlib import Path

from rostam_py.errors import ConfigError

BALANCED = "balanced"


def read_loads(splits: str | Path) -> tuple[float, ...]:
    """Return the loads of the experts, relative to each other; () if all have the same.

    Args: splits: BALANCED, or a JSON file with a list of numbers.
    Raises: ConfigError for a file that is not there, or holds something else.
    """
    if splits == BALANCED:
        return ()
    try:
        found = json.loads(Path(splits).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"splits is {str(splits)!r}; it must be {BALANCED!r} or a JSON file: {error}") from error
    is_list = isinstance(found, list) and bool(found)
    if not is_list or not all(type(one) in (int, float) and 0 <= one < float("inf") for one in found) or not sum(found):
        raise ConfigError(f"{splits} must hold a list of numbers >= 0, the share of every expert, such as [4, 2, 1, 1]")
    return tuple(float(one) for one in found)


def counts_of(loads: Sequence[float], choices: int) -> list[int]:
    """Return how many of so many choices each expert gets: rounded down, the rest to those that lost most by it."""
    exact = [choices * one / sum(loads) for one in loads]
    counts = [int(one) for one in exact]
    by_loss = sorted(range(len(loads)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_loss[: choices - sum(counts)]:
        counts[k] += 1
    return counts
