"""Sizes: the parameters of any fabric for a given number of accelerators, so that sizes can be swept over fabrics."""

import math
from collections.abc import Mapping
from typing import Any

from rostam_py.errors import ConfigError


def resize_parameters(name: str, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
    """Return a fabric's parameters with what decides its size replaced.

    Model: a torus keeps its number of dimensions (default 2) and its boards, a HammingMesh its boards; the sizes are as
        near to equal as whole numbers allow, the larger first. Other fabrics take ``num_accelerators``.
    Args: name: registered fabric. parameters: of its Config. num_accelerators: >= 1.
    Raises: ConfigError for a fabric of given links, and for a number that whole boards do not make up.
    """
    if name == "custom":
        raise ConfigError("num_accelerators cannot size fabric=custom: its links are given one by one")
    resized = dict(parameters)
    if name == "torus":
        board = resized.get("board") or [1] * len(resized.get("dims") or (1, 1))
        counts = _near_equal(_boards(name, board, num_accelerators), len(board))
        resized["dims"] = [count * part for count, part in zip(counts, board, strict=True)]
    elif name == "hammingmesh":
        resized["boards"] = _near_equal(_boards(name, resized.get("board") or (1, 1), num_accelerators), 2)
    else:
        resized["num_accelerators"] = num_accelerators
    return resized


def _boards(name: str, board: Any, num_accelerators: int) -> int:
    size = math.prod(board)
    if num_accelerators < 1 or num_accelerators % size:
        text = "x".join(str(part) for part in board)
        raise ConfigError(
            f"num_accelerators is {num_accelerators}; fabric={name} has boards of {text}, so it must be a multiple"
            f" of {size}"
        )
    return num_accelerators // size


def _near_equal(product: int, num_factors: int) -> list[int]:
    """Return whole factors of a product, as near to equal as they come, the largest first."""
    if num_factors == 1:
        return [product]
    root = product ** (1 / num_factors)
    least = max(f for f in range(1, int(root + 1e-9) + 1) if product % f == 0)
    return [*_near_equal(product // least, num_factors - 1), least]
