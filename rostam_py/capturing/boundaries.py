"""Where steps of a program begin and end: at the first end of an optimizer's step after a backward pass.

Several optimizers, and one that steps for each part of the parameters, make one such end an iteration: what lies
between two of them is one iteration, wherever in it they are.
"""

import functools
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from rostam_py.capturing.memory import Memory
from rostam_py.capturing.recorder import Recorder
from rostam_py.capturing.replacing import put


class StepRecorded(BaseException):
    """Ends a program when its step is recorded; no error, so that no program handles it as one."""


class Boundaries:
    """Counts steps, and records one and the one before it. done: steps that ended. cut: rows of the one before.

    in_backward: ends of an optimizer's step inside a backward pass, which are none of an iteration.
    """

    def __init__(self, recorder: Recorder, memory: Memory, step: int) -> None:
        self.done = self.cut = self.in_backward = 0
        self._recorder, self._memory, self._step = recorder, memory, step
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
        if self.done == self._step - 2:
            self._recorder.is_on = True
        elif self.done == self._step - 1:
            self.cut = len(self._recorder.rows)
            self._memory.restart()
        elif self.done == self._step:
            self._recorder.is_on = False
            raise StepRecorded
