"""UnequalBytes: the bytes of an all-to-all whose parts differ from pair to pair of ranks.

Example:
    size = UnequalBytes(((0, 100), (300, 50)))       # rank 0 has 100 bytes for rank 1, which has 300 for rank 0
    int(size)                                        # 350: of the rank with the most, its own part included
    least_time_s(size, latency="500 ns", bandwidth="50 GB/s")
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.units import parse_bandwidth, parse_time

_MOST_CHUNKS = 2**31 - 1  # of the bytes of a rank; what the core's schedules count


class UnequalBytes(int):
    """Bytes of an all-to-all of unequal parts; as a number what the rank with the most has, its own part included.

    parts: bytes that each rank, a row, has for each; what it has for itself stays. Two are equal if their parts are.
    """

    parts: tuple[tuple[int, ...], ...]

    def __new__(cls, parts: Sequence[Sequence[int]]) -> "UnequalBytes":
        """Raises: ConfigError for rows that are no square of integers >= 0, parts that are all 0, or too unlike."""
        rows = tuple(tuple(int(part) for part in row) for row in parts)
        if any(len(row) != len(rows) for row in rows):
            lengths = sorted({len(row) for row in rows})
            raise ConfigError(f"parts are {len(rows)} rows of {lengths} sizes; each rank has one for each")
        least = min((part for row in rows for part in row), default=0)
        if least < 0:
            raise ConfigError(f"parts hold {least} bytes; a part has at least 0")
        found = super().__new__(cls, max(map(sum, rows), default=0))
        if not found:
            raise ConfigError("parts are all 0; at least one rank sends a byte")
        found.parts = rows
        if found // found.chunk_bytes > _MOST_CHUNKS:
            raise ConfigError(
                f"parts of up to {int(found):,} bytes are multiples of {found.chunk_bytes} only; what a rank has may"
                " be at most 2^31 - 1 times the size that divides all of them"
            )
        return found

    @property
    def chunk_bytes(self) -> int:
        """The largest size that all parts are multiples of [bytes]."""
        return math.gcd(*(part for row in self.parts for part in row))

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """The parts in chunks of that size."""
        size = self.chunk_bytes
        return tuple(tuple(part // size for part in row) for row in self.parts)

    def ordered(self, places: Sequence[int]) -> "UnequalBytes":
        """Return the same of ranks in another order. Args: places: rank of each new place."""
        return UnequalBytes([[self.parts[i][j] for j in places] for i in places])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnequalBytes) and self.parts == other.parts

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.parts)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.parts,)


def least_time_s(size: UnequalBytes, *, latency: float | str, bandwidth: float | str) -> float:
    """Return the least time of an all-to-all of unequal parts whose messages all start at once [s].

    Model: latency + what the busiest port sends or receives / bandwidth, where every rank has one port each way. Exact
        where that port is never idle, as of equal parts, of a scatter and of a gather.
    Args: latency: of a message [s or text]. bandwidth: of a port each way [bytes/s or text].
    Source: own; tests/programs/test_unequal.py.
    """
    parts = np.array(size.parts, np.int64)
    np.fill_diagonal(parts, 0)
    busiest = max(parts.sum(axis=1).max(), parts.sum(axis=0).max())
    return parse_time(latency, "latency") + float(busiest) / parse_bandwidth(bandwidth, "bandwidth")
