"""How ranks stand on a fabric: in units that are close, and on its 2D grid."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric

DEFAULT_UNIT = 8  # accelerators of a server where the fabric has neither servers nor leaves


def unit_size(fabric: Fabric) -> int:
    """Return how many consecutive accelerators are close: a server, a leaf, a board, a torus row, else 8.

    Boards of one accelerator are numbered along their row, which is then the unit.
    """
    config: Any = fabric.config
    if hasattr(config, "leaf_ports") and config.server_size == 1:
        return int(config.leaf_ports[0])
    if hasattr(config, "server_size"):
        return int(config.server_size)
    if hasattr(config, "boards"):
        on_board = int(np.prod(config.board))
        return on_board if on_board > 1 else int(config.boards[0])
    dims = getattr(config, "dims", None)
    return int(dims[-1]) if dims else DEFAULT_UNIT


def group_size(num_ranks: int, unit: int) -> int:
    """Return the group size of a hierarchical collective: the largest divisor of the ranks that is <= unit."""
    return max(size for size in range(1, min(unit, num_ranks) + 1) if num_ranks % size == 0)


def check_shapes(num_ranks: int, grid: tuple[int, int] | None, group: int | None) -> None:
    """Raise ConfigError for a grid that does not hold the ranks, or a group that does not divide them.

    Either is checked whether or not the algorithm uses it.
    """
    if grid is not None:
        sides = list(grid) if isinstance(grid, tuple | list | np.ndarray) else []
        is_pair = len(sides) == 2 and all(is_integer(side) and side >= 1 for side in sides)
        if not is_pair or int(sides[0]) * int(sides[1]) != num_ranks:
            raise ConfigError(f"grid is {grid!r} for {num_ranks} ranks; it must be (rows, columns) that hold them")
    if group is not None and (not is_integer(group) or group < 1 or num_ranks % group):
        raise ConfigError(f"group is {group!r} for {num_ranks} ranks; it must be an integer >= 1 that divides them")


def needs_grid(collective: str, algorithm: str) -> bool:
    """Return whether a registered algorithm runs on ranks that stand on a 2D grid."""
    return bool(_core.needs_grid(collective, algorithm))


def collectives() -> list[str]:
    """Return the collectives that have registered algorithms."""
    return list(dict.fromkeys(str(name) for name, _ in _core.schedule_names()))


def algorithm_names(collective: str) -> list[str]:
    """Return the registered algorithms of a collective."""
    return [str(algorithm) for name, algorithm in _core.schedule_names() if name == collective]


def grid_of_ranks(fabric: Fabric, ranks: Sequence[int] | np.ndarray) -> np.ndarray | None:
    """Return accelerators as rows and columns of the fabric's grid, or None if they do not fill such a rectangle.

    Model: the ranks must be all crossings of some rows with some columns, which need not be adjacent: on a
        HammingMesh that is a virtual sub-mesh.
    Args: ranks: accelerators in any order, each once.
    Returns: the same ids, int array (rows, columns), in the order of the fabric's own grid.
    """
    grid = fabric.config.grid()
    members = check_integers("ranks", ranks)
    if grid is None or members.size == 0:
        return None
    is_member = np.isin(grid, members)
    rows, columns = np.flatnonzero(is_member.any(axis=1)), np.flatnonzero(is_member.any(axis=0))
    if len(rows) * len(columns) != len(members) or is_member.sum() != len(members):
        return None
    return grid[np.ix_(rows, columns)]


def place_on_grid(fabric: Fabric, ranks: Sequence[int] | np.ndarray | None, grid: tuple[int, int] | None) -> np.ndarray:
    """Return the accelerators on which a collective that needs a 2D grid runs, int array (rows, columns).

    Args: ranks: row-major on ``grid``, or, without one, in any order if they fill rows x columns of the fabric's own
        grid; None takes all working accelerators. grid: (rows, columns).
    Raises: ConfigError where there is no grid, or it does not hold the ranks.
    """
    if grid is None:
        found = fabric.grid() if ranks is None else grid_of_ranks(fabric, ranks)
        if found is None:
            what = "" if ranks is None else " that these ranks fill"
            raise ConfigError(
                f"{fabric.describe()}: there is no 2D grid{what}; name ranks, row-major, and grid=(rows, columns)"
            )
        return found
    members = fabric.healthy_accelerators if ranks is None else check_integers("ranks", ranks)
    check_shapes(len(members), grid, None)
    own = fabric.grid()
    if ranks is None and own is not None and own.shape == tuple(grid):
        return own
    return members.reshape(int(grid[0]), int(grid[1]))
