"""How ranks stand on a fabric: on servers, in units that are close, and on its grid."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, is_integer
from rostam_py.collectives.direct_links import direct_rings, joined_size, spanning_trees
from rostam_py.collectives.relabelled_rings import relabelled_rings
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import schedule_traffic

DEFAULT_UNIT = 8  # accelerators of a server where the fabric has neither servers nor leaves


class ScheduleKey(NamedTuple):
    """What a schedule is made of: the arguments of the core's ``Schedule``.

    group_size: of rings the ranks on every server, or on each, where a server has a NIC for each of them; of
        hierarchical the ranks that are close. grid: sides that the ranks stand on, row-major; () for none. num_pieces:
        of the buffer, that go through the phases of hierarchical one behind the other. rings: orders of the ranks of a
        server, the channels of a ring where direct links decide them. trees: of spanning_trees, root by root, up before
        down, each the parents of all ranks and then the stages of their links (csrc/collectives/schedule.h). protocol:
        how messages go on links that cost something to start (transport.py), which schedules do not depend on; ""
        where they cost nothing. parts: of an all-to-all of unequal ones, the chunks that each rank has for each.
    """

    collective: str
    algorithm: str
    num_ranks: int
    group_size: int | tuple[int, ...] = 1
    grid: tuple[int, ...] = ()
    num_pieces: int = 1
    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[int, ...], ...] = ()
    protocol: str = ""
    parts: tuple[tuple[int, ...], ...] = ()

    @property
    def shape(self) -> tuple[Any, ...]:
        """What the core's schedule is made of: all but the protocol."""
        return (*self[:8], self.parts)

    @property
    def num_channels(self) -> int:
        """Rings side by side: over direct links, or one for each NIC of the smallest server; 1 without rings."""
        if self.rings:
            return len(self.rings)
        return self.least_ranks if _core.uses_servers(self.collective, self.algorithm) else 1

    @property
    def least_ranks(self) -> int:
        """Ranks of the smallest group of close ones."""
        return self.group_size if isinstance(self.group_size, int) else min(self.group_size)

    def schedule(self) -> "_core.Schedule":
        """Return the core's schedule."""
        return _core.Schedule(*self.shape)

    def traffic(self, num_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sending ranks, receiving ranks and bytes of every pair."""
        return schedule_traffic(self.shape, num_bytes)


class RankShape(TypedDict, total=False):
    """How ranks stand, where an algorithm asks. grid: its sides. group: ranks that are close; by default none."""

    grid: tuple[int, ...] | None
    group: int | None


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


_BOTH_WAYS = "bidirectional_ring"
# Collectives that rank 0 begins or ends alone.
_ROOTED = ("broadcast", "reduce")


def by_server(
    fabric: Fabric, members: np.ndarray, *, has_root: bool = False
) -> tuple[np.ndarray, int | tuple[int, ...]]:
    """Return the order of the ranks in which those of a server follow each other, and how many each server has.

    Model: where a server's accelerators have a NIC each (``nics_per_server``) servers come by falling number of ranks,
        then by their first rank, so that groups of one shape have one schedule; elsewhere the order stays.
    Args: members: accelerators in rank order. has_root: the server of rank 0 comes first.
    Returns: rank of each place, int array (p,); ranks on every server, or on each where they differ, as in
        ``ScheduleKey``; 1 where all are on one server, or servers have one port.
    """
    nics = fabric.config.nics_per_server
    if nics == 1 or len(members) == 0:
        return np.arange(len(members)), 1
    _, first, server, count = np.unique(members // nics, return_index=True, return_inverse=True, return_counts=True)
    is_behind = server != server[0] if has_root else np.zeros(len(members), bool)
    order = np.lexsort((first[server], -count[server], is_behind))  # stable: ranks of a server keep their order
    sizes = count[server[order][np.sort(np.unique(server[order], return_index=True)[1])]]
    if len(sizes) == 1:
        return order, 1
    return order, int(sizes[0]) if (sizes == sizes[0]).all() else tuple(sizes.tolist())


def _on_servers(fabric: Fabric, members: np.ndarray) -> int | tuple[int, ...]:
    """Return how many ranks each server has that shares a NIC among its accelerators, as ``by_server`` does; 1 where
    those of a server do not follow each other."""
    servers = members // fabric.config.accelerators_per_server
    starts = np.flatnonzero(np.diff(servers, prepend=-1))
    if len(np.unique(servers)) != len(starts):
        return 1
    sizes = np.diff([*starts.tolist(), len(members)])
    return int(sizes[0]) if (sizes == sizes[0]).all() else tuple(sizes.tolist())


def ring_channels(fabric: Fabric, members: np.ndarray, algorithm: str) -> tuple[tuple[int, ...], ...]:
    """Return the orders of a server's ranks in which rings run as channels; none where direct links decide nothing.

    Model: those of the fabric's Config, where the ranks stand at the same places of all their servers in one order; of
        one without servers, rings over links between the ranks (``direct_rings``), or on a torus the order of the
        dimensions that is fastest (``relabelled_rings``).
    Args: members: accelerators in the order of ``by_server``. algorithm: of rings.
    """
    if not fabric.config.has_direct_links:
        is_both_ways = algorithm == _BOTH_WAYS
        found = relabelled_rings(fabric, members, is_both_ways=is_both_ways)
        return found or direct_rings(fabric, members[None, :])
    if len(members) < 2:
        return ()
    size = fabric.config.nics_per_server
    servers = np.unique(members // size)
    if len(members) % len(servers):
        return ()
    places = (members % size).reshape(len(servers), -1)
    if (places != places[0]).any():
        return ()
    return fabric.config.ring_channels(places[0].tolist(), len(servers))


def in_server_order(fabric: Fabric, groups: np.ndarray) -> np.ndarray:
    """Return groups of accelerators, int array (groups, ranks), each in the order of ``by_server``."""
    if fabric.config.nics_per_server == 1 or not len(groups):
        return groups
    return np.stack([group[by_server(fabric, group)[0]] for group in groups])


def close_ranks(fabric: Fabric, members: np.ndarray) -> int:
    """Return the group size of a hierarchical collective: of ranks in the order of ``by_server``.

    Model: where a server's accelerators have a NIC each the greatest number that divides the ranks of every server;
        where direct links join ranks that follow each other, all those; elsewhere a divisor of the ranks of which a
        unit has at least as many.
    """
    sizes = by_server(fabric, members)[1]
    if sizes != 1:
        return sizes if isinstance(sizes, int) else math.gcd(*sizes)
    joined = joined_size(fabric, members)
    if 1 < joined < len(members):
        return joined
    in_unit = np.unique(members // unit_size(fabric), return_counts=True)[1]
    return group_size(len(members), int(in_unit.max(initial=1)))


def check_shapes(num_ranks: int, grid: tuple[int, ...] | None, group: int | None) -> None:
    """Raise ConfigError for a grid that does not hold the ranks, or a group that does not divide them.

    Either is checked whether or not the algorithm uses it.
    """
    if grid is not None:
        sides = list(grid) if isinstance(grid, tuple | list | np.ndarray) else []
        are_sides = len(sides) > 0 and all(is_integer(side) and side >= 1 for side in sides)
        if not are_sides or math.prod(int(side) for side in sides) != num_ranks:
            raise ConfigError(
                f"grid is {grid!r} for {num_ranks} ranks; it must be sides, such as (rows, columns), that hold them"
            )
    if group is not None and (not is_integer(group) or group < 1 or num_ranks % group):
        raise ConfigError(f"group is {group!r} for {num_ranks} ranks; it must be an integer >= 1 that divides them")


def needs_grid(collective: str, algorithm: str) -> bool:
    """Return whether a registered algorithm runs on ranks that stand on a grid."""
    return bool(_core.needs_grid(collective, algorithm))


def needed_ranks(collective: str, algorithm: str) -> str:
    """Return in words on which ranks a registered algorithm runs."""
    if not needs_grid(collective, algorithm):
        return "any"
    return "on a 2D grid" if _core.needs_2d_grid(collective, algorithm) else "on a grid"


def collectives() -> list[str]:
    """Return the collectives that have registered algorithms."""
    return list(dict.fromkeys(str(name) for name, _ in _core.schedule_names()))


def algorithm_names(collective: str) -> list[str]:
    """Return the registered algorithms of a collective."""
    return [str(algorithm) for name, algorithm in _core.schedule_names() if name == collective]


def grid_of_ranks(fabric: Fabric, ranks: Sequence[int] | np.ndarray) -> np.ndarray | None:
    """Return accelerators as a box of the fabric's grid, or None if they do not fill one.

    Model: the ranks must be all crossings of some places along each side, which need not be adjacent: on a HammingMesh
        that is a virtual sub-mesh. Along a side that a box does not span, the hop that closes its rings crosses what
        its other hops do, or goes round the rest of the side; routes know.
    Args: ranks: accelerators in any order, each once.
    Returns: the same ids in the order of the fabric's own grid, int array of as many sides, each >= 1.
    """
    grid = fabric.config.grid()
    members = check_integers("ranks", ranks)
    if grid is None or members.size == 0:
        return None
    places = np.nonzero(np.isin(grid, members))
    along = [np.unique(at) for at in places]
    if len(places[0]) != len(members) or math.prod(len(at) for at in along) != len(members):
        return None
    return grid[np.ix_(*along)]


def boxes_of(fabric: Fabric, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return groups in the order of the fabric's own grid, and the sides of the boxes that they fill.

    Model: ``grid_of_ranks`` of every group at once.
    Args: groups: accelerators, int array (groups, ranks), each once in a group.
    Returns: int array (groups, ranks); sides, int array (groups, number of sides), zeros for a group that fills none.
    """
    grid = fabric.config.grid()
    if grid is None or not groups.size:
        return groups, np.zeros((len(groups), 1), np.int64)
    place = np.empty(grid.size, np.int64)
    place[grid.ravel()] = np.arange(grid.size)
    placed = np.sort(place[groups], axis=1)
    along = [np.sort(at, axis=1) for at in np.unravel_index(placed, grid.shape)]
    sides = np.stack([1 + (np.diff(at, axis=1) > 0).sum(axis=1) for at in along], axis=1)
    sides[sides.prod(axis=1) != groups.shape[1]] = 0
    return grid.ravel()[placed], sides


def in_grid_order(fabric: Fabric, groups: np.ndarray) -> np.ndarray:
    """Return groups of accelerators, int array (groups, ranks), each in the order of the box that it fills.

    Raises: ConfigError where a group fills none.
    """
    ordered, sides = boxes_of(fabric, groups)
    for group in groups[~sides.all(axis=1)]:
        place_on_grid(fabric, group, None)  # reports the error
    return ordered


def place_on_grid(fabric: Fabric, ranks: Sequence[int] | np.ndarray | None, grid: tuple[int, ...] | None) -> np.ndarray:
    """Return the accelerators on which a collective that needs a grid runs, int array of the grid's sides.

    Args: ranks: row-major on ``grid``, or, without one, in any order if they fill a box of the fabric's own grid; None
        takes all working accelerators. grid: its sides, such as (rows, columns).
    Raises: ConfigError where there is no grid, or it does not hold the ranks.
    """
    if grid is None:
        found = fabric.grid() if ranks is None else grid_of_ranks(fabric, ranks)
        if found is None:
            what = "" if ranks is None else " that these ranks fill"
            raise ConfigError(
                f"{fabric.describe()}: there is no grid{what}; name ranks, row-major, and its sides,"
                " grid=(rows, columns) say"
            )
        return found
    members = fabric.healthy_accelerators if ranks is None else check_integers("ranks", ranks)
    check_shapes(len(members), grid, None)
    own = fabric.grid()
    if ranks is None and own is not None and own.shape == tuple(grid):
        return own
    return members.reshape([int(side) for side in grid])


def arrange(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    grid: tuple[int, ...] | None = None,
    group: int | None = None,
) -> tuple[np.ndarray, ScheduleKey]:
    """Return the accelerators in the rank order that an algorithm takes them in, and its schedule in one piece.

    Args: ranks: accelerators, default all working ones. grid, group: as ``predict_collective_time``.
    Returns: int32 array (p,), row-major on the grid, or server by server, where the algorithm uses one; the key.
    Raises: ConfigError for unknown accelerators, a grid or group that does not fit, or a grid that is missing.
    """
    members = members_of(fabric, ranks)
    check_shapes(len(members), grid, group)
    if needs_grid(collective, algorithm) and len(members) > 1:
        placed = place_on_grid(fabric, ranks, grid)
        shape = tuple(int(side) for side in placed.shape)
        return placed.reshape(-1).astype(np.int32), ScheduleKey(collective, algorithm, len(members), 1, shape)
    size: int | tuple[int, ...] = 1
    rings: tuple[tuple[int, ...], ...] = ()
    if _core.uses_servers(collective, algorithm):
        order, size = by_server(fabric, members, has_root=collective in _ROOTED)
        members = members[order]
        if _core.models_bandwidth(collective, algorithm) and fabric.config.nics_per_server == 1:
            size = _on_servers(fabric, members)
        else:
            rings = ring_channels(fabric, members, algorithm)
    elif _core.works_in_pieces(collective, algorithm):
        members = members if group is not None else members[by_server(fabric, members)[0]]
        size = group if group is not None else close_ranks(fabric, members)
    trees = spanning_trees(fabric, collective, members[None, :]) if _core.takes_trees(collective, algorithm) else ()
    return members, ScheduleKey(collective, algorithm, len(members), size, rings=rings, trees=trees)


def members_of(fabric: Fabric, ranks: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Return the accelerators of the ranks, int32 array, by default all that work."""
    ids = fabric.healthy_accelerators if ranks is None else check_integers("ranks", ranks)
    unknown = ids[(ids < 0) | (ids >= fabric.num_accelerators)]
    if unknown.size:
        raise ConfigError(f"ranks name accelerator {unknown[0]}; there are 0 to {fabric.num_accelerators - 1}")
    return ids.astype(np.int32)
