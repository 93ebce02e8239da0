"""Sizes: the parameters of any fabric for a given number of accelerators, so that sizes can be swept over fabrics.

Example:
    resize_parameters("torus", {"board": [2, 2]}, 64)       # {"board": [2, 2], "dims": [8, 8]}
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS


def resize_parameters(name: str, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
    """Return a fabric's parameters with what decides its size replaced, as its Config says (``resized``).

    Args: name: registered fabric. parameters: of its Config. num_accelerators: >= 1.
    Raises: ConfigError for a size that the fabric cannot have.
    """
    changed: dict[str, Any] = FABRICS.get(name).resized(parameters, num_accelerators)
    return changed


def first_of_whole(name: str, num_accelerators: int) -> tuple[int, list[int] | None]:
    """Return the size of a fabric that holds so many accelerators, and the first of them where it has more.

    Args: name: registered fabric. num_accelerators: that a job uses.
    """
    size = FABRICS.get(name).whole_size(num_accelerators)
    return size, list(range(num_accelerators)) if size > num_accelerators else None


def whole_boards(board: Sequence[int], num_accelerators: int) -> int:
    """Return how many boards make up a number of accelerators.

    Raises: ConfigError naming the nearest numbers that whole boards make up.
    """
    size = math.prod(board)
    if num_accelerators < 1 or num_accelerators % size:
        text = "x".join(str(part) for part in board)
        below = num_accelerators // size * size
        near = f"{below} or {below + size}" if below > 0 else f"{size}"
        raise ConfigError(
            f"num_accelerators is {num_accelerators}; fabric.board is {text}, so it must be a multiple of {size}, such"
            f" as {near}"
        )
    return num_accelerators // size


def near_equal(product: int, num_factors: int) -> list[int]:
    """Return whole factors of a product, as near to equal as they come, the largest first."""
    if num_factors == 1:
        return [product]
    root = product ** (1 / num_factors)
    least = max(f for f in range(1, int(root + 1e-9) + 1) if product % f == 0)
    return [*near_equal(product // least, num_factors - 1), least]
