"""Where steps of a program begin and end: at the first end of an optimizer's step after a backward pass.

Several optimizers, and one that steps for each part of the parameters, make one such end an iteration: what lies
between two of them is one iteration, wherever in it they are.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from rostam_py.capturing.memory import Memory
from rostam_py.capturing.recorder import Recorder, Row
from rostam_py.capturing.replacing import put

Rows = list[Row]


class StepRecorded(BaseException):
    """Ends a program when its step is recorded; no error, so that no program handles it as one."""


class Boundaries:
    """Counts steps, and records one and the one before it. done: steps that ended.

    steps: the first that may be recorded, and the last: from one to the other until one is the step before once more.
    repeats: whether rows are those of the step before once more. recorded: (step, rows of the one before, its rows) of
    the latest that was compared. peak_bytes: of tensors in it. held_bytes: of the allocator at its end. in_backward:
    ends of an optimizer's step inside a backward pass.
    """

    def __init__(
        self, recorder: Recorder, memory: Memory, steps: tuple[int, int], repeats: Callable[[Rows, Rows], bool]
    ) -> None:  # fmt: skip
        self.done = self.in_backward = 0
        self.recorded: tuple[int, Rows, Rows] = (0, [], [])
        self.peak_bytes = self.held_bytes = 0
        self._recorder, self._memory, self._steps, self._repeats = recorder, memory, steps, repeats
        self._before: Rows = []
        self._depth = 0
        self._went_backward = False

    def install(self) -> None:
        """Watch backward passes and optimizers."""
        put(torch.autograd, backward=self._watched(torch.autograd.backward))
        put(torch.autograd, grad=self._watched(torch.autograd.grad))
        register_optimizer_step_pre_hook(self._began)
        register_optimizer_step_post_hook(self._ended)

    def _watched(self, backward: Any) -> Any:
        @functools.wraps(backward)
        def watched(*arguments: Any, **others: Any) -> Any:
            self._depth += 1
            try:
                return backward(*arguments, **others)
            finally:
                self._depth -= 1
                self._went_backward = True

        return watched

    def _began(self, optimizer: Any, arguments: Any, others: Any) -> None:
        self._recorder.mark("optimizer", type(optimizer).__name__)

    def _ended(self, optimizer: Any, arguments: Any, others: Any) -> None:
        self._recorder.mark("optimizer_end", "")
        if self._depth:
            self.in_backward += 1
            return
        if not self._went_backward:
            return
        self._went_backward = False
        self.done += 1
        first, last = self._steps
        if self.done == first - 2:
            self._recorder.is_on = True
        elif self.done >= first:
            self._compare(is_last=self.done == last)
        if self.done >= first - 1:
            self._before = list(self._recorder.rows)
            self._recorder.rows.clear()
            self._memory.restart()

    def _compare(self, *, is_last: bool) -> None:
        """Take the step that ended, and end the program if it is the one before once more."""
        rows = list(self._recorder.rows)
        self.recorded = (self.done, self._before, rows)
        self.peak_bytes, self.held_bytes = self._memory.peak_bytes, self._memory.allocator.held_bytes
        if is_last or self._repeats(self._before, rows):
            self._recorder.is_on = False
            raise StepRecorded
