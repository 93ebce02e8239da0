"""Upper levels: what share of a sub-mesh's traffic crosses the upper levels of its row and column networks.

Legend: a leaf is a switch of a network's lowest level, which holds ``leaf_boards`` boards that follow one another.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.fleet.allocators.board_mesh import SubMesh, bits_of


@dataclass(frozen=True, slots=True)
class LeafBoards:
    """Boards on one leaf, along rows and along columns of boards."""

    along_row: int
    along_column: int


def all_to_all_share(found: SubMesh, leaves: LeafBoards) -> float:
    """Return the share of the crossings of row and column networks that leave their leaf, all boards to all; 0 of none.

    Model: every board sends as much to every other; a pair in two columns crosses a row network once, one in two rows
        a column network once. With c_l columns on leaf l, v^2 - sum(c_l^2) of v (v - 1) pairs of columns leave theirs.
    Source: HammingMesh, section IV-B names the traffic on upper levels; the count is own, tests/fleet/
        test_upper_levels.py lists all pairs.
    """
    u, v = len(found.rows), len(found.columns)
    of_columns, of_rows = _apart(found.columns, leaves.along_row), _apart(found.rows, leaves.along_column)
    crossings = u * u * v * (v - 1) + v * v * u * (u - 1)
    return (u * u * of_columns + v * v * of_rows) / crossings if crossings else 0.0


def ring_share(found: SubMesh, leaves: LeafBoards) -> float:
    """Return the share of the steps between boards that leave their leaf, on the rings of a torus; 0 of one board.

    Model: each row of boards is a ring of its columns in order, each column one of its rows.
    """
    u, v = len(found.rows), len(found.columns)
    steps = (u * v if v > 1 else 0) + (u * v if u > 1 else 0)
    leaving = u * _turns(found.columns, leaves.along_row) + v * _turns(found.rows, leaves.along_column)
    return leaving / steps if steps else 0.0


def columns_on_fewest_leaves(common: int, count: int, leaf_boards: int) -> tuple[int, ...]:
    """Return ``count`` columns of a bit set on as few leaves as hold them, from the leaf that has most of them on.

    Model: of the last leaf it takes the one that has least more than is needed.
    """
    by_leaf: dict[int, list[int]] = {}
    for column in bits_of(common):
        by_leaf.setdefault(column // leaf_boards, []).append(column)
    groups = sorted(by_leaf.values(), key=len, reverse=True)
    chosen: list[int] = []
    while len(chosen) < count:
        missing = count - len(chosen)
        enough = [group for group in groups if len(group) >= missing]
        group = enough[-1] if enough else groups[0]
        groups.remove(group)
        chosen += group[:missing]
    return tuple(sorted(chosen))


def _apart(places: Sequence[int], leaf_boards: int) -> int:
    """Return the ordered pairs of places on two leaves."""
    counts = Counter(place // leaf_boards for place in places)
    return len(places) ** 2 - sum(count * count for count in counts.values())


def _turns(places: Sequence[int], leaf_boards: int) -> int:
    """Return the steps of a ring of places that go from a leaf to another."""
    leaves = [place // leaf_boards for place in places]
    return sum(leaf != following for leaf, following in zip(leaves, [*leaves[1:], leaves[0]], strict=True))
