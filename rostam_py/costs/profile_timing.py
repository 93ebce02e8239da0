"""Clocks for single ops: what state the memory is in before a repeat, and what is between two readings."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rostam_py.costs.profile_inputs import RebuiltCall

FLUSH_BYTES = 2**27  # several times the last-level cache of common machines


@dataclass(kw_only=True, slots=True)
class TimingLimits:
    """warm_ups: runs before the clock. At most ``max_repeats`` runs, and at least ``min_repeats`` (or
    one, if a single run lasts longer than ``cap_s``) within ``cap_s`` seconds of op time."""

    warm_ups: int = 1
    min_repeats: int = 5
    max_repeats: int = 15
    cap_s: float = 1.5


class CpuTimer:
    """Times ops by the host's clock.

    Other processes only ever add time, so the lower quartile of the repeats counts.
    Before each repeat a large buffer is rewritten, which empties the caches, and inputs that the
    same pass wrote recently are read once, which is the state a step leaves them in.
    """

    def __init__(self, limits: TimingLimits) -> None:
        import torch

        self._torch = torch
        self._limits = limits
        self._flush = torch.zeros(FLUSH_BYTES // 4)

    def time_call(self, call: RebuiltCall) -> float:
        """Return the lower quartile of an op's durations [s]."""
        recent = [owner for owner, is_recent in zip(call.owners, call.is_recent, strict=True) if is_recent]

        def prepare() -> None:
            self._flush.add_(1.0)
            for tensor in recent:
                tensor.clone()

        return self._repeat(call.run, prepare)

    def time_step(self, step: Callable[[], Any]) -> float:
        """Return the lower quartile of an optimizer step's durations [s]; its data exceed the caches."""
        return self._repeat(step, lambda: self._flush.add_(1.0))

    def _repeat(self, call: Callable[[], Any], prepare: Callable[[], Any]) -> float:
        for _ in range(self._limits.warm_ups):
            call()
        samples: list[float] = []
        while len(samples) < self._limits.max_repeats:
            prepare()
            start = time.perf_counter()
            result = call()
            samples.append(time.perf_counter() - start)
            del result
            spent = sum(samples)
            if spent > self._limits.cap_s and (
                len(samples) >= self._limits.min_repeats or spent > 3 * self._limits.cap_s
            ):
                break
        return sorted(samples)[len(samples) // 4]


class CudaTimer:
    """Times ops by device events, after the last-level cache was overwritten.

    The device is kept busy while the host enqueues, so the reading holds the kernels alone.
    """

    def __init__(self, limits: TimingLimits) -> None:
        import torch

        self._torch = torch
        self._limits = limits
        self._flush = torch.zeros(FLUSH_BYTES // 4, device="cuda")

    def time_call(self, call: RebuiltCall) -> float:
        """Return the median duration of an op [s]."""
        return self._repeat(call.run)

    def time_step(self, step: Callable[[], Any]) -> float:
        """Return the median duration of an optimizer step [s]."""
        return self._repeat(step)

    def _repeat(self, call: Callable[[], Any]) -> float:
        cuda = self._torch.cuda
        for _ in range(max(3, self._limits.warm_ups)):
            call()
        cuda.synchronize()
        samples: list[float] = []
        while len(samples) < self._limits.max_repeats and sum(samples) <= self._limits.cap_s:
            first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            self._flush.add_(1.0)
            cuda._sleep(2_000_000)
            first.record()
            call()
            last.record()
            last.synchronize()
            samples.append(first.elapsed_time(last) * 1e-3)
        return statistics.median(samples)
