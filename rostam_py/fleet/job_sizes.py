"""Job sizes: families of how many boards jobs ask for, and mixes of them that fill a machine.

Example:
    mixes = draw_mixes("n^-2", num_boards=256, largest=38, room=(16, 16), num_mixes=60, seed=0)
    sum(mixes[0])       # 256
"""

import math
from collections.abc import Callable

import numpy as np

from rostam_py.checks import check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.allocators.shapes import Sides, boxes

_MIXED_EXPONENT = 1.5  # of the power law in "mixed": the middle one of the families


def _power_law(exponent: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda sizes: sizes**-exponent / np.sum(sizes**-exponent)


def _mixed(sizes: np.ndarray) -> np.ndarray:
    """Return 60% powers of two, 20% a power law, 20% multiples of ten, each evenly; what has no size is left out."""
    is_power = np.log2(sizes) % 1 == 0
    is_ten = sizes % 10 == 0
    tens = is_ten / max(1, int(is_ten.sum()))
    return 0.6 * is_power / is_power.sum() + 0.2 * _power_law(_MIXED_EXPONENT)(sizes) + 0.2 * tens


# Family -> chances of sizes, float array, not normalised.
FAMILIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "n^-2": _power_law(2.0), "n^-1.5": _power_law(1.5), "n^-1": _power_law(1.0), "mixed": _mixed,
}  # fmt: skip


def size_chances(family: str, largest: int, room: Sides) -> np.ndarray:
    """Return the chance of each size 1 to ``largest`` [boards], float array (largest,).

    Model: sizes without exact factors that fit the room have none: drawing them again shares theirs out in proportion.
    Args:
        family: one of FAMILIES.
        largest: size of the largest job [boards], >= 1.
        room: boards along each side of the machine.
    Raises: ConfigError for an unknown family or a bad size.
    """
    if family not in FAMILIES:
        raise ConfigError(f"family is {family!r}; it must be one of: {', '.join(FAMILIES)}")
    if not is_integer(largest) or not 1 <= largest <= math.prod(room):
        raise ConfigError(f"largest is {largest!r}; it must be an integer from 1 to {math.prod(room)} boards")
    sizes = np.arange(1, largest + 1, dtype=float)
    fits = np.array([bool(boxes(size, room)) for size in range(1, largest + 1)])
    chances = FAMILIES[family](sizes) * fits
    normalised: np.ndarray = chances / chances.sum()
    return normalised


def draw_mixes(
    family: str, *, num_boards: int, largest: int, room: Sides, num_mixes: int, seed: int = 0
) -> list[list[int]]:
    """Return mixes of job sizes [boards], each of which fills the machine, in the order in which jobs are drawn.

    Model: a job larger than what a mix leaves is kept for the next one, where kept jobs come first in their order; a
        mix is done when it has all boards. Mixes of a seed grow by adding some.
    Args:
        family, largest, room: as of ``size_chances``; largest <= num_boards.
        num_boards: boards that a mix asks for, those that work.
        num_mixes: >= 1.
        seed: of the draw.
    Raises: ConfigError as ``size_chances``, and for a bad count or seed.
    """
    for key, value in (("num_boards", num_boards), ("num_mixes", num_mixes)):
        if not is_integer(value) or value < 1:
            raise ConfigError(f"{key} is {value!r}; it must be an integer >= 1")
    if largest > num_boards:
        raise ConfigError(f"largest is {largest}; it must be at most num_boards, {num_boards}")
    rng = np.random.default_rng([check_seed("seed", seed), *f"job sizes {family}".encode()])
    edges = np.cumsum(size_chances(family, largest, room))
    kept: list[int] = []
    mixes = []
    for _ in range(num_mixes):
        mix, waiting = [], []
        left = num_boards
        while left:
            size = kept.pop(0) if kept else 1 + int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
            if size <= left:
                mix.append(size)
                left -= size
            else:
                waiting.append(size)
        kept = waiting + kept
        mixes.append(mix)
    return mixes
