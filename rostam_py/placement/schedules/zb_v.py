"""ZB-V: two chunks of layers on a device, in a V, with weight gradients apart, at the memory of 1F1B."""

from collections import Counter
from collections.abc import Iterator

from rostam_py.placement.schedule import Schedule, written_out
from rostam_py.plan.phases import BACKWARD, FORWARD, WEIGHT, template_name
from rostam_py.plan.program import Entry, Program

_Unit = tuple[Entry, ...]


class ZeroBubbleV(Schedule):
    """Weight gradients (W) apart from input gradients (B), on two chunks there and back: the last stage is the first's.

    Model: with F = B = W of a chunk, free communication and m >= 2 p - 1 on p devices no device waits between its first
        forward and its last kernel, nor between iterations; it holds no more than 2 p chunks of micro-batches, as much
        as the first stage of 1F1B. Of fewer micro-batches the order is that of 2 p - 1, what is over left out.
    Source: Qi et al. 2024 (arXiv 2405.15362, Pipeline Parallelism with Controllable Memory); the order is that of
        ScheduleZBVZeroBubble in pytorch/pytorch, torch/distributed/pipelining/schedules.py.
    """

    splits_backward = takes_chunks = is_v = True

    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int) -> Program:
        """Return what a device runs."""
        device = _Device(stage, num_stages, max(2 * num_stages - 1, num_microbatches))
        return written_out(unit for unit in device.units() if unit[0][1] < num_microbatches)


class _Device:
    """What one device has run."""

    def __init__(self, stage: int, num_stages: int, num_microbatches: int) -> None:
        self.stage, self.left, self.num_microbatches = stage, num_stages - stage, num_microbatches
        self.done: Counter[tuple[str, int]] = Counter()

    def units(self) -> Iterator[_Unit]:
        """Yield entries one by one."""
        yield from self._warm_up()
        done = self.done
        while done[FORWARD, 0] < self.num_microbatches or done[FORWARD, 1] < done[FORWARD, 0]:
            if done[FORWARD, 0] < self.num_microbatches:
                yield self._run(FORWARD, 0)
            yield self._run(BACKWARD, 0)
            yield self._run(WEIGHT, 0)
            yield from self._there_and_back()
        yield from self._cool_down()

    def _warm_up(self) -> Iterator[_Unit]:
        for _ in range(2 * self.left - 1):
            yield self._run(FORWARD, 0)
        for _ in range(self.stage):
            yield self._run(FORWARD, 1)
            yield self._run(FORWARD, 0)
        for _ in range(self.left):
            yield from self._there_and_back()

    def _there_and_back(self) -> Iterator[_Unit]:
        """Yield all of a micro-batch of the second chunk."""
        for phase in (FORWARD, BACKWARD, WEIGHT):
            yield self._run(phase, 1)

    def _cool_down(self) -> Iterator[_Unit]:
        for _ in range(self.stage):
            yield self._run(BACKWARD, 0)
            yield self._run(BACKWARD, 1)
        for _ in range(self.left):
            yield self._run(BACKWARD, 0)
            yield self._run(WEIGHT, 0)
        for chunk in (1, 0):
            for _ in range(self.done[BACKWARD, chunk] - self.done[WEIGHT, chunk]):
                yield self._run(WEIGHT, chunk)

    def _run(self, phase: str, chunk: int) -> _Unit:
        self.done[phase, chunk] += 1
        return ((template_name(phase, chunk), self.done[phase, chunk] - 1),)
