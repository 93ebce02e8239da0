"""trace: a registered model, a module or a file's class, to an OperatorGraph."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rostam_py.errors import ConfigError, TracingError
from rostam_py.graph import OperatorGraph
from rostam_py.models.spec import ModelSpec
from rostam_py.tracing.blocks import find_block_groups
from rostam_py.tracing.dispatch import trace_dispatch
from rostam_py.tracing.finishing import assign_blocks, finish, number
from rostam_py.tracing.joint import trace_joint
from rostam_py.tracing.op_properties import with_properties
from rostam_py.tracing.pairing import Draft, pair_traces
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.replicate import NUM_TRACED, replicate
from rostam_py.tracing.sources import LoadedModule, load_source, user_subject
from rostam_py.tracing.step import ModuleTrail, Step, fake_parameters, module_path, stand_ins
from rostam_py.tracing.subject import Subject

_ROUTES = {"joint": trace_joint, "dispatch": trace_dispatch}


def trace(
    model: str | nn.Module | ModelSpec,
    example_inputs: Any = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
    targets: Any = None,
    name: str | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
    num_layers: int | Mapping[str, int] | None = None,
    route: str = "auto",
    replicate_blocks: bool = True,
) -> OperatorGraph:
    """Trace one training step, forward and backward, into an OperatorGraph.

    Model: two traces at different batches are paired op by op, so that every quantity is a part that
    grows with the batch and one that does not. No weights are allocated for registered models.
    Args:
        model: a registered name, "path/to/file.py:Class" (see tracing/sources.py), a module or a ModelSpec.
        example_inputs: a tensor, a sequence of tensors, or a mapping of keyword inputs; dim 0 of the
            first tensor is the batch, and every tensor with that dim 0 scales with it. What the
            module's forward does not take goes to ``loss_fn`` after the output.
        loss_fn: ``loss_fn(output, *targets)`` -> scalar; without one, the module's own loss or the sum
            of the means of its outputs. targets: tensors for ``loss_fn``.
        name: the graph's name. optimizer, precision: defaults to record in the graph.
        num_layers: depth of a registered model's stacks, in place of its own.
        route: "auto" (joint, and dispatch where that fails), "joint" or "dispatch".
        replicate_blocks: grow deep registered models from four traced blocks.
    Raises: TracingError, naming the op or module, if no route can trace the module or the traces at
        two batches do not match; UnknownNameError for an unknown model.
    Cost: a few CPU seconds; grows with the number of distinct ops.
    """
    if route != "auto" and route not in _ROUTES:
        raise ConfigError(f"route is {route!r}; allowed: auto, {', '.join(_ROUTES)}")
    source = load_source(model) if isinstance(model, str) else model
    if isinstance(source, ModelSpec):
        if example_inputs is not None or loss_fn is not None:
            raise ConfigError(f"model {source.name!r} brings its own inputs and loss; pass neither")
        return _declared(_trace_spec(source, num_layers, route, replicate_blocks), name, optimizer, precision)
    if isinstance(source, LoadedModule):
        example_inputs = source.inputs if example_inputs is None else example_inputs
        subject = user_subject(source.module, example_inputs, loss_fn or source.loss, targets, source.name)
    elif isinstance(source, nn.Module):
        subject = user_subject(source, example_inputs, loss_fn, targets, type(source).__name__)
    else:
        raise ConfigError(f"model is a {type(model).__name__}; expected a module, a registered name or 'file.py:Class'")
    if num_layers is not None:
        raise ConfigError("num_layers applies to registered models only")
    return _declared(_trace_subject(subject, route), name, optimizer, precision)


def _declared(graph: OperatorGraph, name: str | None, optimizer: str | None, precision: str | None) -> OperatorGraph:
    return replace(
        graph,
        name=name or graph.name,
        default_optimizer=optimizer or graph.default_optimizer,
        default_precision=precision or graph.default_precision,
    )


def _trace_spec(spec: ModelSpec, num_layers: Any, route: str, replicate_blocks: bool) -> OperatorGraph:
    """Trace a registered model, deep stacks from few blocks if that is safe."""
    depth = _depth(spec, num_layers)
    short = {path: min(count, NUM_TRACED) for path, count in depth.items()}
    groups = [[f"{path}.{i}" for i in range(count)] for path, count in depth.items() if count > 1]
    if replicate_blocks and short != depth:
        draft, used, notes = _draft(Subject.of_spec(spec, short), route)
        grown: Draft | None = draft
        for path, count in depth.items():
            if grown is not None and count > NUM_TRACED:
                grown = replicate(grown, path, count)
        if grown is not None:
            return _graph(Subject.of_spec(spec, depth, build=False), grown, used, notes, groups)
    subject = Subject.of_spec(spec, depth)
    if not depth:
        groups = find_block_groups(subject.module)
    draft, used, notes = _draft(subject, route)
    return _graph(subject, draft, used, notes, groups)


def _depth(spec: ModelSpec, num_layers: Any) -> dict[str, int]:
    if isinstance(num_layers, int):
        num_layers = dict.fromkeys(spec.stacks, num_layers)
    wanted = dict(num_layers or {})
    if unknown := set(wanted) - set(spec.stacks):
        raise ConfigError(f"num_layers names {sorted(unknown)}; stacks of {spec.name}: {sorted(spec.stacks)}")
    depth = {**spec.stacks, **wanted}
    if any(count < 1 for count in depth.values()):
        raise ConfigError(f"num_layers is {wanted}; every stack needs at least one block")
    return depth


def _trace_subject(subject: Subject, route: str) -> OperatorGraph:
    draft, used, notes = _draft(subject, route)
    return _graph(subject, draft, used, notes, find_block_groups(subject.module))


def _graph(
    subject: Subject, draft: Draft, route: str, notes: list[str], groups: Sequence[Sequence[str]]
) -> OperatorGraph:
    numbered, tensors = number(Draft(assign_blocks(draft.ops, groups), draft.tensors, draft.notes))
    starts = [sum(len(g) for g in groups[:i]) for i in range(len(groups))]
    return OperatorGraph(
        name=subject.name,
        ops=with_properties(numbered),
        tensors=tensors,
        route=route,
        default_optimizer=subject.optimizer,
        default_precision=subject.precision,
        sequence_length=subject.sequence_length,
        block_names=tuple(path for group in groups for path in group),
        notes=(*subject.notes, *notes, *draft.notes),
        metadata={"block_groups": [[s, s + len(g)] for s, g in zip(starts, groups, strict=True)]},
    )


def _draft(subject: Subject, route: str) -> tuple[Draft, str, list[str]]:
    """Return the paired draft, the route used, and a note on the route given up."""
    failures: list[tuple[str, str]] = []
    for candidate in _ROUTES if route == "auto" else (route,):
        try:
            raws = [_run(subject, candidate, batch) for batch in subject.batches]
            draft = finish(pair_traces(raws[0], raws[1], subject.batches), raws[0])
        except _RouteFailed as failed:
            failures.append((candidate, str(failed)))
            continue
        notes = [f"traced by {candidate}: the {failed} route failed {reason}" for failed, reason in failures]
        return draft, candidate, notes
    causes = {reason for _, reason in failures}
    reasons = causes if len(causes) == 1 else (f"{failed} route {reason}" for failed, reason in failures)
    raise TracingError(f"{subject.name} cannot be traced: {'; '.join(reasons)}")


class _RouteFailed(Exception):
    """Why one route failed, to be completed by the other's reason."""


def _run(subject: Subject, route: str, batch: int) -> RawTrace:
    """Run one route at one batch. Raises: TracingError for the user's mistakes, _RouteFailed for the route's."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    step = Step(subject.module, subject.loss, subject.names)
    trails: list[ModuleTrail] = []
    with stand_ins(step), fake_parameters(step, mode), warnings.catch_warnings(), _quiet_torch():
        warnings.simplefilter("ignore")
        with mode:
            inputs = subject.inputs_at(batch)
        try:
            with _plain_rnn(step):
                return _ROUTES[route](step, inputs, mode, trails)
        except TracingError:
            raise
        except Exception as error:
            raise _RouteFailed(_reason(error, trails)) from error


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


def _reason(error: Exception, trails: list[ModuleTrail]) -> str:
    """Return "in module 'x' (op y): type: message" of a failed run."""
    path = trails[-1].failed if trails else ""
    where = f"in module {module_path(path) or '(root)'!r}" if path else "outside any module"
    op = getattr(error, "func", None)
    text = " ".join(str(error).split())[:300]
    return f"{where}{f', op {op}' if op is not None else ''}: {type(error).__name__}: {text}"
