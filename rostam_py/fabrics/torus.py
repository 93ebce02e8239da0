"""torus: a wrapped grid of accelerators that forward, without switches."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.blocks import CompactOrder, compact_orders
from rostam_py.fabrics.config import FabricConfig, check_dims, check_integer
from rostam_py.fabrics.sizes import near_equal, whole_boards
from rostam_py.units import parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout


@dataclass(kw_only=True, slots=True)
class TorusConfig(FabricConfig):
    """A torus of any number of dimensions; each dimension of size > 1 takes two ports of an accelerator.

    Model: a dimension of size 2 is two parallel cables, so that every accelerator has as many ports.
        Accelerators are numbered row-major within a board, boards row-major (MODEL C11); the last dimension
        runs fastest. All links have one latency, on boards too, as closed forms of rings need (MODEL A5).
    Args:
        dims: sizes such as [4,4], each >= 1, not all 1.
        board: sizes of a board, each a divisor of the same dimension; None numbers the torus as one board and
            prices every link as a cable. Links on a board are traces: counted as links, not priced.
        link_latency: latency of every link; 20 ns in the paper.
        switch_latency: latency of every accelerator that a path goes through; 40 ns, the paper's buffer latency.
    Source: HammingMesh, appendices C (counts) and F (latencies).
    """

    dims: Any  # Any lets text such as 4x4 through to check_dims, whose error says what to write
    board: Any = None
    switch_latency: Any = field(default="40 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        self.dims = check_dims("fabric.dims", self.dims, 1, "dimension")
        if max(self.dims) == 1:
            raise ConfigError(f"fabric.dims is {list(self.dims)}; at least one dimension must be >= 2")
        check_integer(f"the product of fabric.dims {list(self.dims)}", math.prod(self.dims), 2)
        FabricConfig.__post_init__(self)
        if self.board is None:
            return
        self.board = check_dims("fabric.board", self.board, 1, "size")
        if len(self.board) != len(self.dims):
            raise ConfigError(f"fabric.board is {list(self.board)}; it needs {len(self.dims)} sizes, one a dimension")
        for i, (size, part) in enumerate(zip(self.dims, self.board, strict=True)):
            if size % part:
                raise ConfigError(f"fabric.board[{i}] is {part}; it must divide fabric.dims[{i}], which is {size}")

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with ``dims`` as near to equal as whole numbers allow, the largest first.

        Model: the number of dimensions stays, 2 where none are given, and so do the boards.
        Raises: ConfigError for a number that whole boards do not make up.
        """
        given, dims = parameters.get("board"), parameters.get("dims")
        num_dims = len(check_dims("fabric.dims", dims, 1, "dimension")) if dims else 2
        board = check_dims("fabric.board", given, 1, "size") if given else (1,) * num_dims
        counts = near_equal(whole_boards(board, num_accelerators), len(board))
        return {**parameters, "dims": [count * part for count, part in zip(counts, board, strict=True)]}

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw the grid, with stubs where cables wrap."""
        from rostam_py.fabrics.layout_grids import draw_grid

        return draw_grid(fabric, level, self.dims, self.dims if self.board is None else self.board)

    @property
    def ports_per_plane(self) -> int:
        """Links that an accelerator has in one plane: two a dimension."""
        return 2 * sum(size > 1 for size in self.dims)

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {
            "dims": self.dims,
            "board": self.dims if self.board is None else self.board,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def ring_order(self) -> list[int]:
        """Return all accelerators on a Hamiltonian cycle: each, and the last to the first, next to one another."""
        board = self.dims if self.board is None else self.board
        return [_number(cell, self.dims, board) for cell in hamiltonian_cycle(self.dims)]

    def numberings(self) -> list[np.ndarray]:
        """Return the orders of all accelerators with unequal dimensions, and boards, in each other order."""
        board = self.dims if self.board is None else self.board
        own = tuple(zip(self.dims, board, strict=True))
        grid, orders = self.grid(), {own: np.empty(0, np.int64)}
        for axes in itertools.permutations(range(len(own))):
            shape = tuple(own[axis] for axis in axes)
            if shape not in orders:
                dims, boards = (tuple(side) for side in zip(*shape, strict=True))
                orders[shape] = grid.transpose(axes).ravel()[np.argsort(_numbers(dims, boards).ravel())]
        return [order for shape, order in orders.items() if shape != own]

    def grid(self) -> np.ndarray:
        """Return the accelerators by their places along all dimensions."""
        return _numbers(self.dims, self.dims if self.board is None else self.board)

    def compact_orders(self, degrees: Sequence[int], num_blocks: int) -> list[CompactOrder]:
        """Return the orders in boxes of least mean distance, links that wrap included."""
        return compact_orders(self.grid(), [ring_distances(size) for size in self.dims], degrees, num_blocks)

    def bill_of_materials(self) -> BillOfMaterials:
        """Price the cables of all planes that leave a board, as copper; a torus has no switches."""
        board = (1,) * len(self.dims) if self.board is None else self.board
        count = math.prod(self.dims)
        # Of every part links in a row along a dimension, part - 1 stay on the board.
        cables = sum(count // part for size, part in zip(self.dims, board, strict=True) if size > 1)
        return BillOfMaterials(0, {"DAC": self.parts_per_link * cables})


def _numbers(dims: tuple[int, ...], board: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of all accelerators by place, int array of ``dims``; as ``_number``."""
    boards = np.arange(math.prod(dims)).reshape([*(d // b for d, b in zip(dims, board, strict=True)), *board])
    count = len(dims)
    return boards.transpose([axis for d in range(count) for axis in (d, count + d)]).reshape(dims)


def _number(cell: tuple[int, ...], dims: tuple[int, ...], board: tuple[int, ...]) -> int:
    """Return the number of the accelerator at ``cell``: row-major within a board, boards row-major."""
    number = 0
    for x, size, part in zip(cell, dims, board, strict=True):
        number = number * (size // part) + x // part
    for x, part in zip(cell, board, strict=True):
        number = number * part + x % part
    return number


def ring_distances(size: int) -> np.ndarray:
    """Return the hops between all places of a ring, int array (size, size)."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.minimum(apart, size - apart)


def hamiltonian_cycle(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the cells of a torus so that neighbours in the list, and its ends, differ by one step."""
    cycle: list[tuple[int, ...]] = [()]
    for size in dims:
        if size == 1 or len(cycle) == 1:
            cycle = [(*cell, x) for cell in cycle for x in range(size)]
        elif len(cycle) % 2 == 0 or (size % 2 == 1 and len(cycle) >= size):
            cycle = [(*cycle[column], row) for column, row in _columns_cycle(len(cycle), size)]
        else:
            cycle = [(*cycle[row], column) for column, row in _columns_cycle(size, len(cycle))]
    return cycle


def _columns_cycle(num_columns: int, num_rows: int) -> list[tuple[int, int]]:
    """Return (column, row) pairs of a cycle on a torus that goes once round each column in turn.

    A turn upwards leaves a column one row before, a turn downwards one row after it was entered; the cycle closes
    since upward less downward turns are 0 (even columns) or num_rows (both odd, columns >= rows).
    """
    num_up = (num_columns + (num_rows if num_columns % 2 else 0)) // 2
    cells, row = [], 0
    for column in range(num_columns):
        step = 1 if column < num_up else -1
        cells += [(column, (row + step * i) % num_rows) for i in range(num_rows)]
        row = (row - step) % num_rows
    return cells
