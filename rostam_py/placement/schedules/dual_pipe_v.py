"""DualPipe-V: two chunks of layers on a device, in a V, whose forwards and backwards run in pairs."""

from collections import deque
from collections.abc import Iterator

from rostam_py.placement.schedule import Schedule, written_out
from rostam_py.plan.phases import BACKWARD, FORWARD, FULL, WEIGHT, template_name
from rostam_py.plan.program import Entry, Program


class DualPipeV(Schedule):
    """A forward of one chunk with a full backward of the other; weight gradients apart only where a bubble would be.

    Model: a pair receives what both need and sends what both make at once. With p stages on p / 2 devices, free
        communication and F, B (full) and W of a chunk, B twice W and F, the bubble is (p / 2 - 1) (F&B + B - 3 W), F&B
        being a pair; a device holds p + 1 chunks of micro-batches, at least p of which there are. Pairs run one behind
        the other, unless software.rules.ep_overlap has their parts take turns.
    Source: the table in the README of deepseek-ai/DualPipe; the order is that of ScheduleDualPipeV in
        pytorch/pytorch, torch/distributed/pipelining/schedules.py.
    """

    splits_backward = takes_chunks = is_v = joins_pairs = True

    @classmethod
    def least_microbatches(cls, num_stages: int) -> int:
        """Return the number of stages, two on each device."""
        return 2 * num_stages

    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int) -> Program:
        """Return what a device runs."""
        return written_out(_Device(stage, num_stages, num_microbatches).units())


class _Device:
    """What one device has run. waiting: (chunk, micro-batch) whose weight gradients are put off."""

    def __init__(self, stage: int, num_stages: int, num_microbatches: int) -> None:
        self.stage, self.behind = stage, num_stages - stage - 1
        self.num_pairs = num_microbatches - 2 * num_stages + stage + 1
        self.done: dict[tuple[str, int], int] = {}
        self.waiting: deque[tuple[int, int]] = deque()

    def units(self) -> Iterator[tuple[Entry, ...]]:
        """Yield entries, those of a pair together."""
        for _ in range(2 * self.behind):
            yield (self._run(FORWARD, 0),)
        for _ in range(self.stage + 1):
            yield (self._run(FORWARD, 0),)
            yield (self._run(FORWARD, 1),)
        for _ in range(self.behind):
            yield (self._run(BACKWARD, 1),)
            yield from self._weights()
            yield (self._run(FORWARD, 1),)
        for number in range(self.num_pairs):
            pair = self._run(FORWARD, 0), self._run(FULL, 1)
            if number == 0 and not self.behind:  # apart, which makes the bubble smaller
                yield (pair[0],)
                yield (pair[1],)
            else:
                yield pair
            yield self._run(FORWARD, 1), self._run(FULL, 0)
        for _ in range(self.behind):
            yield (self._run(FULL, 1),)
            yield self._run(FORWARD, 1), self._run(FULL, 0)
        yield from self._cool_down()

    def _cool_down(self) -> Iterator[tuple[Entry, ...]]:
        """Yield the backwards that are left, whole up to the middle of those that come in twos."""
        for number in range(2 * (self.stage + 1)):
            yield (self._run(BACKWARD if number > self.stage else FULL, (number + 1) % 2),)
        for _ in range(self.behind):
            yield from self._weights()
            yield (self._run(BACKWARD, 0),)
        for _ in range(self.stage + 1):
            yield from self._weights()

    def _run(self, phase: str, chunk: int) -> Entry:
        kind = FORWARD if phase == FORWARD else BACKWARD
        microbatch = self.done.get((kind, chunk), 0)
        self.done[kind, chunk] = microbatch + 1
        if phase == BACKWARD:
            self.waiting.append((chunk, microbatch))
        return template_name(phase, chunk), microbatch

    def _weights(self) -> Iterator[tuple[Entry, ...]]:
        if self.waiting:
            chunk, microbatch = self.waiting.popleft()
            yield ((template_name(WEIGHT, chunk), microbatch),)
