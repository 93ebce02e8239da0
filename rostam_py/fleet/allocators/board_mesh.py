"""Board mesh: which boards of a HammingMesh are free, and sub-meshes of them: rows that share free columns.

Legend: a bit set is an int whose bit k stands for column k; u rows by v columns is what a job asks for.

Example:
    mesh = BoardMesh(np.ones((4, 4), bool))
    found = mesh.find(2, 3)             # SubMesh(rows=(0, 1), columns=(0, 1, 2))
    mesh.mark(found, is_free=False)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class SubMesh:
    """Boards at all crossings of some rows and columns, both ascending: a HammingMesh of that shape by itself."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def boards(self, boards_in_row: int) -> np.ndarray:
        """Return the numbers of its boards, row-major, int array (boards,)."""
        return np.add.outer(np.multiply(self.rows, boards_in_row), self.columns).ravel()


class BoardMesh:
    """Boards by place, free or not.

    Args: is_free: bool array (rows of boards, columns of boards).
    """

    def __init__(self, is_free: np.ndarray) -> None:
        self.shape: tuple[int, int] = (is_free.shape[0], is_free.shape[1])
        packed = np.packbits(is_free, axis=1, bitorder="little")
        self.free_columns = [int.from_bytes(row.tobytes(), "little") for row in packed]

    @property
    def num_free(self) -> int:
        """Boards that are free."""
        return sum(row.bit_count() for row in self.free_columns)

    def is_all_free(self, found: SubMesh) -> bool:
        """Return whether all its boards are free."""
        wanted = bit_set(found.columns)
        return all(self.free_columns[row] & wanted == wanted for row in found.rows)

    def mark(self, found: SubMesh, *, is_free: bool) -> None:
        """Take the boards of a sub-mesh, or free them."""
        columns = bit_set(found.columns)
        for row in found.rows:
            self.free_columns[row] = self.free_columns[row] | columns if is_free else self.free_columns[row] & ~columns

    def find(self, num_rows: int, num_columns: int) -> SubMesh | None:
        """Return the first sub-mesh that the greedy search finds, its first common columns; None for none.

        Model: ``row_sets``. Where no start fits there may be one even so, which ``find_exhaustively`` finds.
        Cost: rows^2 / 2 intersections at most, rows for the first start.
        Source: HammingMesh, section IV-A; starts after the first one: own.
        """
        found = next(self.row_sets(num_rows, num_columns), None)
        return None if found is None else SubMesh(found[0], first_bits(found[1], num_columns))

    def row_sets(self, num_rows: int, num_columns: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield the rows that the greedy search finds from each start, and their common free columns as a bit set.

        Model: from a row with v free columns on, a row below is added wherever v columns stay common, until there are
            u rows.
        """
        fitting = [(row, bits) for row, bits in enumerate(self.free_columns) if bits.bit_count() >= num_columns]
        for start in range(len(fitting) - num_rows + 1):
            first, common = fitting[start]
            rows = [first]
            missing = num_rows - 1
            for row, bits in fitting[start + 1 :]:
                if not missing:
                    break
                both = common & bits
                if both.bit_count() >= num_columns:
                    common = both
                    rows.append(row)
                    missing -= 1
            if not missing:
                yield tuple(rows), common

    def find_exhaustively(self, num_rows: int, num_columns: int) -> SubMesh | None:
        """Return the first sub-mesh in the order of its rows; None only where there is none.

        Cost: exponential in the rows, milliseconds for 16.
        """
        fitting = [row for row, bits in enumerate(self.free_columns) if bits.bit_count() >= num_columns]
        found = self._extend((), (1 << self.shape[1]) - 1, fitting, (num_rows, num_columns))
        return None if found is None else SubMesh(found[0], first_bits(found[1], num_columns))

    def _extend(
        self, rows: tuple[int, ...], common: int, left: Sequence[int], wanted: tuple[int, int]
    ) -> tuple[tuple[int, ...], int] | None:
        """Return ``rows`` with rows of ``left`` so that there are enough, or None."""
        num_rows, num_columns = wanted
        if len(rows) == num_rows:
            return rows, common
        # Rows that no longer share enough columns with those chosen never will.
        fitting = [row for row in left if (common & self.free_columns[row]).bit_count() >= num_columns]
        for k in range(len(fitting) - (num_rows - len(rows)) + 1):
            row = fitting[k]
            found = self._extend((*rows, row), common & self.free_columns[row], fitting[k + 1 :], wanted)
            if found is not None:
                return found
        return None


def bit_set(columns: Sequence[int]) -> int:
    """Return columns as a bit set."""
    found = 0
    for column in columns:
        found |= 1 << column
    return found


def bits_of(bits: int) -> list[int]:
    """Return the columns of a bit set, ascending."""
    found = []
    while bits:
        least = bits & -bits
        found.append(least.bit_length() - 1)
        bits ^= least
    return found


def first_bits(bits: int, count: int) -> tuple[int, ...]:
    """Return the first ``count`` columns of a bit set."""
    found = []
    for _ in range(count):
        least = bits & -bits
        found.append(least.bit_length() - 1)
        bits ^= least
    return tuple(found)
