"""Traffic: bytes from each sender to each receiver in one iteration, summed; circuits are set for it.

Example:
    traffic = Traffic.from_messages(4, src=[0, 0, 1], dst=[1, 1, 2], num_bytes=[10, 5, 8])
    traffic.src, traffic.dst, traffic.num_bytes        # [0, 1], [1, 2], [15, 8]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers
from rostam_py.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes between ordered pairs of accelerators, per iteration.

    src, dst: int64 arrays (pairs,), src != dst, unique, sorted by (src, dst). num_bytes: float64 array (pairs,), > 0.
    """

    num_accelerators: int
    src: np.ndarray
    dst: np.ndarray
    num_bytes: np.ndarray

    def __post_init__(self) -> None:
        for key in ("src", "dst"):
            if np.ndim(getattr(self, key)) == 1:
                object.__setattr__(self, key, check_integers(f"traffic.{key}", getattr(self, key)))
        for key, kind in (("src", np.int64), ("dst", np.int64), ("num_bytes", np.float64)):
            object.__setattr__(self, key, np.ascontiguousarray(getattr(self, key), dtype=kind))
        if not self.src.shape == self.dst.shape == self.num_bytes.shape or self.src.ndim != 1:
            raise ConfigError(
                f"traffic: src, dst and num_bytes have shapes {self.src.shape}, {self.dst.shape} and "
                f"{self.num_bytes.shape}; they must be equally long lists"
            )
        ends = np.concatenate([self.src, self.dst])
        if ends.size and not (ends.min() >= 0 and ends.max() < self.num_accelerators):
            bad = int(ends.max() if ends.min() >= 0 else ends.min())
            raise ConfigError(f"traffic names accelerator {bad}; there are 0 to {self.num_accelerators - 1}")
        keys = self.src * self.num_accelerators + self.dst
        if np.any(np.diff(keys) <= 0) or np.any(self.src == self.dst):
            raise ConfigError("traffic must hold unique pairs src != dst sorted by (src, dst); use from_messages")
        if not (np.isfinite(self.num_bytes).all() and np.all(self.num_bytes > 0)):
            raise ConfigError("traffic.num_bytes must be finite and > 0 for every pair; use from_messages")

    @classmethod
    def from_messages(
        cls,
        num_accelerators: int,
        src: Sequence[int] | np.ndarray,
        dst: Sequence[int] | np.ndarray,
        num_bytes: Sequence[float] | np.ndarray,
    ) -> "Traffic":
        """Sum messages by pair; messages to oneself and of no bytes are dropped.

        Raises: ConfigError for lengths that differ, unknown accelerators, or sizes below 0 or not finite.
        """
        sides = [check_integers(f"traffic.{key}", side) for key, side in (("src", src), ("dst", dst))]
        sizes = np.asarray(num_bytes, dtype=np.float64).reshape(-1)
        if not len(sides[0]) == len(sides[1]) == len(sizes):
            lengths = f"{len(sides[0])}, {len(sides[1])}, {len(sizes)}"
            raise ConfigError(f"traffic: src, dst and num_bytes have lengths {lengths}; all must be equal")
        if not (np.isfinite(sizes).all() and np.all(sizes >= 0)):
            raise ConfigError("traffic.num_bytes must be finite and >= 0")
        used = (sides[0] != sides[1]) & (sizes > 0)
        ends = [side[used] for side in sides]
        for side in ends:
            if side.size and not (side.min() >= 0 and side.max() < num_accelerators):
                bad = int(side.max() if side.min() >= 0 else side.min())
                raise ConfigError(f"traffic names accelerator {bad}; there are 0 to {num_accelerators - 1}")
        keys, which = np.unique(ends[0] * num_accelerators + ends[1], return_inverse=True)
        summed = np.bincount(which, weights=sizes[used], minlength=len(keys))
        return cls(num_accelerators, keys // num_accelerators, keys % num_accelerators, summed)

    @classmethod
    def total(cls, parts: Sequence["Traffic"]) -> "Traffic":
        """Return the sum of several traffics of one machine.

        Raises: ConfigError for none, or for different numbers of accelerators.
        """
        counts = {part.num_accelerators for part in parts}
        if len(counts) != 1:
            raise ConfigError(f"traffics of {sorted(counts)} accelerators cannot be summed; give one machine's")
        columns = [np.concatenate([getattr(part, key) for part in parts]) for key in ("src", "dst", "num_bytes")]
        return cls.from_messages(counts.pop(), *columns)

    def both_ways(self) -> "Traffic":
        """Return it with the opposite of every pair, both with the larger of the two amounts."""
        num = self.num_accelerators
        ends = [np.concatenate([a, b]) for a, b in ((self.src, self.dst), (self.dst, self.src))]
        keys, which = np.unique(ends[0] * num + ends[1], return_inverse=True)
        most = np.zeros(len(keys))
        np.maximum.at(most, which, np.tile(self.num_bytes, 2))
        return Traffic(num, keys // num, keys % num, most)

    def out_degree(self) -> np.ndarray:
        """Return how many peers every accelerator sends to, int array (accelerators,)."""
        return np.bincount(self.src, minlength=self.num_accelerators)

    def in_degree(self) -> np.ndarray:
        """Return how many peers every accelerator receives from, int array (accelerators,)."""
        return np.bincount(self.dst, minlength=self.num_accelerators)

    @property
    def circuit_degree(self) -> int:
        """Most peers that any accelerator sends to, or receives from (MODEL C12)."""
        return int(max(self.out_degree().max(initial=0), self.in_degree().max(initial=0)))

    @property
    def total_bytes(self) -> float:
        """Bytes of all pairs."""
        return float(self.num_bytes.sum())

    def matrix(self) -> np.ndarray:
        """Return the dense traffic matrix [bytes], float array (accelerators, accelerators), row = sender."""
        dense = np.zeros((self.num_accelerators, self.num_accelerators))
        dense[self.src, self.dst] = self.num_bytes
        return dense

    def only(self, accelerators: np.ndarray) -> "Traffic":
        """Return the part whose both ends are among ``accelerators``."""
        kept = np.isin(self.src, accelerators) & np.isin(self.dst, accelerators)
        return Traffic(self.num_accelerators, self.src[kept], self.dst[kept], self.num_bytes[kept])


def schedule_traffic(schedule: tuple[Any, ...], num_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what one run of a collective algorithm sends from rank to rank.

    Args: schedule: the arguments of the core's ``Schedule``, as ``ScheduleKey.shape`` has them. num_bytes: S of MODEL
        A4.
    Returns: source ranks, destination ranks, bytes: int64 arrays (pairs,), ordered by pair.
    Raises: ConfigError for an unknown collective or algorithm, or sizes that do not fit it.
    Cost: messages of the schedule the first time (about 10 ns each), pairs afterwards.
    """
    src, dst, num_chunks, in_buffer = _schedule_chunks(schedule)
    chunk = -(-int(num_bytes) // max(1, in_buffer))
    return src, dst, num_chunks * chunk


@lru_cache(maxsize=64)
def _schedule_chunks(shape: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    schedule = _core.Schedule(*shape)
    src, dst, num_chunks = _core.pair_chunks(schedule)
    columns = [np.asarray(src, np.int64), np.asarray(dst, np.int64), np.asarray(num_chunks, np.int64)]
    for column in columns:
        column.flags.writeable = False
    return columns[0], columns[1], columns[2], int(schedule.num_chunks)
