"""Run a step on fake tensors by one of the routes, at one batch or at two."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from rostam_py.errors import TracingError
from rostam_py.tracing.balance import BalancedMode
from rostam_py.tracing.batches import BatchDependentError, LayerWatch, check_sequences
from rostam_py.tracing.dispatch import trace_dispatch
from rostam_py.tracing.hugging_face import as_in_training
from rostam_py.tracing.joint import trace_joint
from rostam_py.tracing.laws import UnevenBatchError
from rostam_py.tracing.neutral import neutral_ops
from rostam_py.tracing.pieces import joined_again
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.step import (
    ModuleTrail,
    Step,
    fake_parameters,
    module_path,
    named_tensors,
    parameter_names,
    stand_ins,
    uncompiled,
)
from rostam_py.tracing.stream import Player
from rostam_py.tracing.subject import Subject


@dataclass(frozen=True)
class Attempt:
    """One way to trace; ``label`` is what notes call it."""

    route: str
    label: str
    run: Callable[..., RawTrace]
    folds: bool = False

    def __str__(self) -> str:
        return self.label


ATTEMPTS = (
    Attempt("joint", "joint", trace_joint, folds=True),
    Attempt("joint", "joint (as exported)", partial(trace_joint, as_exported=True)),
    Attempt("dispatch", "dispatch", trace_dispatch),
)


def run_both(
    subject: Subject,
    attempt: Attempt,
    batches: tuple[int, int],
    players: tuple[Player | None, Player | None] = (None, None),
) -> list[RawTrace]:
    """Run one route at two batches. Raises: BatchDependentError if only the first runs, SequenceFirstError."""
    watches = LayerWatch(), LayerWatch()
    first = run_once(subject, attempt, batches[0], watches[0], players[0])
    try:
        second = run_once(subject, attempt, batches[1], watches[1], players[1])
    except RouteFailedError as failed:
        hint = (
            ": export it with dynamic_shapes={...: {0: torch.export.Dim('batch')}}"
            if subject.is_exported
            else ": the module's structure depends on the batch, or inputs that have none were taken to have one "
            "(say which by batch_dims=)"
        )
        raise BatchDependentError(
            f"{subject.name} runs at batch {batches[0]} and not at {batches[1]}, {failed}{hint}"
        ) from failed
    check_sequences(subject.name, *watches)
    return [first, second]


class RouteFailedError(Exception):
    """Why one route failed, to be completed by the other's reason."""


def run_once(
    subject: Subject, attempt: Attempt, batch: int, watch: LayerWatch | None = None, player: Player | None = None
) -> RawTrace:
    """Run one route at one batch. Raises: TracingError for the user's mistakes, RouteFailedError for the route's."""
    trails: list[ModuleTrail] = []
    with prepared(subject, batch, watch) as (step, inputs, mode):
        if player is not None:
            step.around = partial(player.follow, partial(named_tensors, step, parameter_names(step)))
        try:
            raw = attempt.run(step, inputs, mode, trails)
        except (TracingError, UnevenBatchError):
            raise
        except Exception as error:
            raise RouteFailedError(reason_of(error, trails)) from error
    if subject.experts.capacity_factor not in (None, 1) and not mode.has_capacity:
        raise TracingError(
            f"capacity_factor is {subject.experts.capacity_factor}, which {subject.name} has no use for: it sets the "
            "rows of experts that take theirs by a mask and of Hugging Face's expert modules, not of grouped products "
            "over sorted rows; leave it out"
        )
    return raw


@contextlib.contextmanager
def prepared(
    subject: Subject, batch: int, watch: LayerWatch | None = None
) -> Iterator[tuple[Step, tuple[Any, ...], BalancedMode]]:
    """Yield the step with fake tensors in place of its own, its inputs at ``batch``, and the tensors' mode."""
    mode = BalancedMode(subject.experts.capacity_factor)
    step = Step(subject.module, subject.loss, subject.layout)
    with contextlib.ExitStack() as stack:
        stack.enter_context(neutral_ops())
        stack.enter_context(joined_again())
        stack.enter_context(as_in_training(mode))
        stack.enter_context(uncompiled(step))
        stack.enter_context(stand_ins(step))
        stack.enter_context(fake_parameters(step, mode))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(_quiet_torch())
        stack.enter_context(_plain_rnn(step))
        for handle in watch.attach(subject.module) if watch is not None else ():
            stack.callback(handle.remove)
        warnings.simplefilter("ignore")
        with mode:
            inputs = subject.inputs_at(batch)
        yield step, inputs, mode


_REMEDY = (
    " (a trace has no values: put a module whose shapes do not depend on them in its place by "
    "rostam.register_module(Class, stand_in))"
)


@contextlib.contextmanager
def _quiet_torch() -> Iterator[None]:
    """Keep torch from logging what a route stumbles over: the error that is raised says it once."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "torch"]
    loggers = [log for log in map(logging.getLogger, names) if not log.disabled]
    for log in loggers:
        log.disabled = True
    try:
        yield
    finally:
        for log in loggers:
            log.disabled = False


@contextlib.contextmanager
def _plain_rnn(step: nn.Module) -> Iterator[None]:
    """Run recurrent layers as ordinary ops: the fused CPU kernel has neither FLOPs nor splits."""
    if any(isinstance(module, nn.RNNBase) for module in step.modules()):
        with torch.backends.mkldnn.flags(enabled=False):
            yield
    else:
        yield


def reason_of(error: Exception, trails: list[ModuleTrail]) -> str:
    """Return "in module 'x' (op y): type: message" of a failed run."""
    path = trails[-1].failed if trails else ""
    where = f"in module {module_path(path) or '(root)'!r}" if path else "outside any module"
    op = getattr(error, "func", None)
    text = " ".join(str(error).split())[:300]
    remedy = _REMEDY if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)) else ""
    return f"{where}{f', op {op}' if op is not None else ''}: {type(error).__name__}: {text}{remedy}"
