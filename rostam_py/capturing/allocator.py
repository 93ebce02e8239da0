"""What PyTorch's caching allocator holds of a device, of which tensors take pieces.

Model: a pool for each stream and of small requests and others; a request takes the smallest free piece that it fits
into, of which the rest stays free if it is not tiny, and neighbours that are free become one. Where none fits the
allocator asks the device for a segment: of 2 MiB for up to 1 MiB, of 20 MiB for less than 10 MiB, else of what is
asked, rounded up to 2 MiB. With expandable segments a pool has one, which grows by 2 or 20 MiB at its end. Nothing
goes back to the device. A piece is free at once when its tensor is: what ``record_stream`` would hold it for is
ignored, and so is what libraries take for themselves.
Source: c10/cuda/CUDACachingAllocator.cpp of pytorch/pytorch 2.13: round_size, get_allocation_size, should_split,
get_free_block, try_merge_blocks, ExpandableSegment.

Example:
    allocator = CachingAllocator(is_expandable=True)
    piece = allocator.take(1 << 20, stream=0)
    allocator.free(piece)
    allocator.held_bytes        # 2 MiB
"""

import bisect
import itertools
import os
from dataclasses import dataclass
from typing import Any

_MIB = 2**20
UNIT = 512  # requests are rounded up to multiples of it
_SMALL, _LEAST_OWN = _MIB, 10 * _MIB  # bytes up to which a request is small, and from which a segment is its own
_SMALL_SEGMENT, _SEGMENT, _ROUNDED = 2 * _MIB, 20 * _MIB, 2 * _MIB
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@dataclass(eq=False, slots=True)
class Piece:
    """A part of a segment: its bytes, its neighbours, and where it stands among the free ones."""

    pool: "_Pool"
    size: int
    number: int
    before: "Piece | None" = None
    after: "Piece | None" = None
    is_free: bool = False


class _Pool:
    """Pieces of one stream that are free. end: the last piece of an expandable segment."""

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.end: Piece | None = None
        self._free: list[tuple[int, int, Piece]] = []

    def best(self, size: int) -> Piece | None:
        """Return the smallest free piece of at least so many bytes."""
        place = bisect.bisect_left(self._free, (size, -1))
        return self._free[place][2] if place < len(self._free) else None

    def add(self, piece: Piece) -> None:
        """Make a piece free."""
        piece.is_free = True
        bisect.insort(self._free, (piece.size, piece.number, piece), key=lambda one: one[:2])

    def remove(self, piece: Piece) -> None:
        """Make a piece taken."""
        piece.is_free = False
        del self._free[bisect.bisect_left(self._free, (piece.size, piece.number), key=lambda one: one[:2])]


class CachingAllocator:
    """Pieces of segments. held_bytes: of all segments, which is what ``torch.cuda.memory_reserved`` returns.

    Args: is_expandable: segments grow (expandable_segments:True); None asks the environment, as PyTorch does.
    """

    def __init__(self, *, is_expandable: bool | None = None) -> None:
        self.held_bytes = 0
        self._is_expandable = expands() if is_expandable is None else is_expandable
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._numbers = itertools.count()

    def take(self, num_bytes: int, stream: int) -> Piece:
        """Return a piece for so many bytes on a stream."""
        size = max(UNIT, rounded(num_bytes, UNIT))
        is_small = size <= _SMALL
        pool = self._pools.setdefault((stream, is_small), _Pool(is_small=is_small))
        piece = pool.best(size)
        if piece is None:
            piece = self._grown(pool, size) if self._is_expandable else self._segment(pool, size)
        else:
            pool.remove(piece)
        rest = piece.size - size
        if rest >= UNIT if pool.is_small or self._is_expandable else rest > _SMALL:
            left = Piece(pool, rest, next(self._numbers), piece, piece.after)
            if piece.after is not None:
                piece.after.before = left
            piece.size, piece.after = size, left
            pool.end = left if pool.end is piece else pool.end
            pool.add(left)
        return piece

    def free(self, piece: Piece) -> None:
        """Take a piece back."""
        pool = piece.pool
        for other in (piece.before, piece.after):
            if other is not None and other.is_free:
                pool.remove(other)
                piece = _joined(pool, *((other, piece) if other is piece.before else (piece, other)))
        pool.add(piece)

    def _segment(self, pool: _Pool, size: int) -> Piece:
        """Return a segment of the device's, whole and taken."""
        whole = _SMALL_SEGMENT if pool.is_small else _SEGMENT if size < _LEAST_OWN else rounded(size, _ROUNDED)
        self.held_bytes += whole
        return Piece(pool, whole, next(self._numbers))

    def _grown(self, pool: _Pool, size: int) -> Piece:
        """Return the end of a pool's only segment, longer by what is missing, taken."""
        end = pool.end
        there = end.size if end is not None and end.is_free else 0
        more = rounded(size - there, _SMALL_SEGMENT if pool.is_small else _SEGMENT)
        self.held_bytes += more
        if end is not None and end.is_free:
            pool.remove(end)
            end.size += more
            return end
        piece = Piece(pool, more, next(self._numbers), end)
        if end is not None:
            end.after = piece
        pool.end = piece
        return piece


def _joined(pool: _Pool, first: Piece, second: Piece) -> Piece:
    """Return two neighbours as one piece."""
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    pool.end = first if pool.end is second else pool.end
    return first


def expands() -> bool:
    """Return whether the environment asks PyTorch for segments that grow."""
    given: Any = next((os.environ[name] for name in _SETTINGS if os.environ.get(name)), "")
    return "expandable_segments:true" in given.replace(" ", "").lower()


def rounded(num_bytes: int, unit: int) -> int:
    """Return bytes, rounded up to a unit."""
    return -(-num_bytes // unit) * unit
