"""trace_now: a registered model, a module or a file's class, to an OperatorGraph."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from rostam_py.errors import ConfigError, TracingError
from rostam_py.graph import OperatorGraph
from rostam_py.models.spec import ModelSpec
from rostam_py.tracing.balance import BalancedMode, UnevenBatchError
from rostam_py.tracing.batches import (
    BatchDependentError,
    BatchDims,
    LayerWatch,
    SequenceFirstError,
    check_sequences,
    other_guesses,
)
from rostam_py.tracing.blocks import find_block_groups
from rostam_py.tracing.checkpoints import Regions
from rostam_py.tracing.dispatch import trace_dispatch
from rostam_py.tracing.finishing import assign_blocks, finish, number
from rostam_py.tracing.growing import grow
from rostam_py.tracing.hugging_face import as_in_training
from rostam_py.tracing.iterations import UnevenError
from rostam_py.tracing.joint import trace_joint
from rostam_py.tracing.neutral import neutral_ops
from rostam_py.tracing.op_properties import with_properties
from rostam_py.tracing.pairing import Draft, pair_traces, with_notes
from rostam_py.tracing.quick import NeedsRunError
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.repeats import find_repeats, have_steady_integers
from rostam_py.tracing.replicate import NUM_TRACED, replicate
from rostam_py.tracing.sources import LoadedModule, load_source, user_subject
from rostam_py.tracing.step import (
    ModuleTrail,
    Step,
    fake_parameters,
    module_path,
    parameter_names,
    stand_ins,
    uncompiled,
)
from rostam_py.tracing.stream import Player, Recorder, Stream
from rostam_py.tracing.subject import ExpertLoad, Subject

_MAX_BATCH = 2**14  # samples of a trace
_MORE_ENDS = 3  # iterations traced at either end of a repeat where as few as may be were too few
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Attempt:
    """One way to trace; ``label`` is what notes call it."""

    route: str
    label: str
    run: Callable[..., RawTrace]
    folds: bool = False

    def __str__(self) -> str:
        return self.label


_ATTEMPTS = (
    _Attempt("joint", "joint", trace_joint, folds=True),
    _Attempt("joint", "joint (as exported)", partial(trace_joint, as_exported=True)),
    _Attempt("dispatch", "dispatch", trace_dispatch),
)
_ROUTES = tuple(dict.fromkeys(attempt.route for attempt in _ATTEMPTS))


def trace_now(
    model: str | nn.Module | ModelSpec | LoadedModule | torch.export.ExportedProgram,
    *,
    example_inputs: Any = None,
    loss_fn: Callable[..., Any] | None = None,
    targets: Any = None,
    num_layers: int | Mapping[str, int] | None = None,
    route: str = "auto",
    replicate_blocks: bool = True,
    capacity_factor: float | None = None,
    imbalance: float = 1.0,
    batch_dims: BatchDims = None,
) -> OperatorGraph:
    """Trace one training step, forward and backward, into an OperatorGraph.

    Args: as those of ``front.trace``; model: also what ``load_source`` returns.
    Raises: as ``front.trace``.
    """
    if route != "auto" and route not in _ROUTES:
        raise ConfigError(f"route is {route!r}; allowed: auto, {', '.join(_ROUTES)}")
    experts = ExpertLoad(capacity_factor, imbalance)
    source = load_source(model) if isinstance(model, str) else model
    if isinstance(source, ModelSpec):
        if example_inputs is not None or loss_fn is not None:
            raise ConfigError(f"model {source.name!r} brings its own inputs and loss; pass neither")
        return _trace_spec(source, num_layers, route, replicate_blocks, experts)
    if num_layers is not None:
        raise ConfigError("num_layers applies to registered models only")
    if isinstance(source, LoadedModule):
        example_inputs = source.inputs if example_inputs is None else example_inputs
        module, label, loss_fn = source.module, source.name, loss_fn or source.loss
    else:
        module, label = _module(source), type(source).__name__

    def subject_of(dims: BatchDims) -> Subject:
        made = user_subject(module, example_inputs, loss_fn, targets, label, dims)
        is_exported = module is not source and label == "ExportedProgram"
        return replace(made, experts=experts, is_exported=is_exported, folds=replicate_blocks)

    return _trace_user(subject_of, batch_dims, route)


def _module(source: Any) -> nn.Module:
    """Return the module to trace: a compiled one as it was, an exported program as modules."""
    if isinstance(source, torch.export.ExportedProgram):
        return torch.export.unflatten(source)
    if not isinstance(source, nn.Module):
        raise ConfigError(
            f"model is a {type(source).__name__}; expected a module, a registered name or 'file.py:Class'"
        )
    original = getattr(source, "_orig_mod", None)
    return original if isinstance(original, nn.Module) else source


def _trace_user(subject_of: Callable[[BatchDims], Subject], batch_dims: BatchDims, route: str) -> OperatorGraph:
    """Trace a user's module; where the batch dims are guesses, try others that fit better."""
    subject = subject_of(batch_dims)
    try:
        return _trace_subject(subject, route)
    except SequenceFirstError as error:
        if batch_dims is not None:
            raise
        with contextlib.suppress(TracingError):
            graph = _trace_subject(replace(subject_of(1), is_guessed=True), route)
            note = "the batch is dim 1 of the inputs, as layers inside take (sequence, batch, features)"
            return replace(graph, notes=(*graph.notes, note))
        raise error from None
    except BatchDependentError:
        for other in other_guesses(subject):
            with contextlib.suppress(TracingError):
                return _trace_subject(other, route)
        raise


def _trace_spec(
    spec: ModelSpec, num_layers: Any, route: str, replicate_blocks: bool, experts: ExpertLoad
) -> OperatorGraph:
    """Trace a registered model, deep stacks from few blocks if that is safe."""
    depth = _depth(spec, num_layers)
    short = {path: min(count, NUM_TRACED) for path, count in depth.items()}
    groups = [[f"{path}.{i}" for i in range(count)] for path, count in depth.items() if count > 1]
    if replicate_blocks and short != depth:
        draft, used, notes = _draft(Subject.of_spec(spec, short, experts=experts), route)
        grown: Draft | None = draft
        for path, count in depth.items():
            if grown is not None and count > NUM_TRACED:
                grown = replicate(grown, path, count)
        if grown is not None:
            return _graph(Subject.of_spec(spec, depth, build=False, experts=experts), grown, used, notes, groups)
    subject = Subject.of_spec(spec, depth, experts=experts)
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
        notes=(*subject.notes, *subject.experts.notes, *notes, *draft.notes),
        metadata={
            "block_groups": [[s, s + len(g)] for s, g in zip(starts, groups, strict=True)],
            **({} if subject.experts == ExpertLoad() else {"experts": asdict(subject.experts)}),
        },
    )


def _draft(subject: Subject, route: str) -> tuple[Draft, str, list[str]]:
    """Return the paired draft, the route used, and a note on each attempt given up."""
    failures: list[tuple[_Attempt, str]] = []
    for attempt in _ATTEMPTS:
        if route not in ("auto", attempt.route):
            continue
        try:
            draft = _paired(subject, attempt)
        except _RouteFailed as failed:
            failures.append((attempt, str(failed)))
            continue
        notes = [f"traced by {attempt}: the {failed} route failed {reason}" for failed, reason in failures]
        return draft, attempt.route, notes
    causes = {reason for _, reason in failures}
    reasons = causes if len(causes) == 1 else (f"{failed} route {reason}" for failed, reason in failures)
    raise TracingError(f"{subject.name} cannot be traced: {'; '.join(reasons)}")


def _paired(subject: Subject, attempt: _Attempt) -> Draft:
    """Trace at two batches, larger ones where tokens do not divide evenly over experts, and pair the traces."""
    batches = subject.batches
    lost: _NotFolded | None = None
    while True:
        try:
            if subject.folds and attempt.folds:
                try:
                    folded = _folded(subject, attempt, batches)
                except _NotFolded as error:
                    folded, lost = None, error
                if folded is not None:
                    return folded
            raws = _run_both(subject, attempt, batches)
        except UnevenBatchError as uneven:
            factor = uneven.factor
            if batches[0] * factor > _MAX_BATCH:
                raise TracingError(
                    f"{subject.name}: tokens divide evenly over the experts only at {batches[0] * factor} samples and "
                    f"more; the most that is tried is {_MAX_BATCH}: pass example_inputs of more tokens a sample"
                ) from None
            batches = (batches[0] * factor, batches[1] * factor)
            continue
        draft = finish(pair_traces(raws[0], raws[1], batches), raws[0])
        if lost is not None:
            _LOG.warning("%s is traced whole, which takes longer: %s", subject.name, lost)
        return with_notes(draft, raws[0].unknown_flops, raws[0].num_checkpoints)


class _NotFolded(Exception):
    """Why a program that repeats cannot be traced from a few iterations."""


def _folded(subject: Subject, attempt: _Attempt, batches: tuple[int, int]) -> Draft | None:
    """Trace what repeats a few times only, and grow it; None where nothing repeats. Raises: _NotFolded."""
    try:
        stream = _watch(subject, batches[0], is_quick=True)
    except (NeedsRunError, _NotFolded):
        stream = _watch(subject, batches[0], is_quick=False)
    reason = ""
    for num_ends in (None, _MORE_ENDS):
        repeats = find_repeats(stream.calls, stream.names, num_ends)
        if not repeats:
            break
        players = Player(stream, repeats), Player(stream, repeats)
        try:
            raws = _run_both(subject, attempt, batches, players)
            if not all(have_steady_integers(p.integers, repeat) for p in players for repeat in repeats):
                raise _NotFolded("at another batch its iterations differ")
            draft = finish(pair_traces(raws[0], raws[1], batches), raws[0])
            grown, num_checkpoints = grow(draft, raws[0], batches[0], repeats)
        except UnevenError as error:
            reason = str(error)
            continue
        except (_RouteFailed, TracingError) as error:  # the whole trace says it, if it is the program's
            raise _NotFolded(str(error)) from error
        return with_notes(grown, raws[0].unknown_flops, num_checkpoints)
    if reason:
        raise _NotFolded(reason)
    return None


def _watch(subject: Subject, batch: int, is_quick: bool) -> Stream:
    """Run the step on fake tensors and return its calls. Raises: _NotFolded, NeedsRunError of a quick run."""
    with _prepared(subject, batch) as (step, inputs, mode):
        regions = Regions(lambda number: contextlib.nullcontext())
        trail = ModuleTrail(step, lambda name: contextlib.nullcontext())
        recorder = Recorder(
            mode,
            _named_tensors(step, parameter_names(step)),
            lambda: module_path(trail.current),
            regions,
            is_quick,
        )
        step.around = recorder.watch
        try:
            with mode, regions.watch():
                step(*inputs)
        except (UnevenBatchError, NeedsRunError):
            raise
        except Exception as error:  # a program's own, of any kind: if it can be traced at all, it is told
            raise _NotFolded(f"it cannot be run on its own: {_reason(error, [trail])}") from error
        finally:
            trail.remove()
        return recorder.stream


def _named_tensors(step: Step, first: Mapping[str, str]) -> dict[int, str]:
    """Return the names of a step's parameters and buffers by id of the tensors that now stand for them."""
    tensors = (*step.named_parameters(remove_duplicate=False), *step.named_buffers(remove_duplicate=False))
    return {id(tensor): module_path(first[name]) for name, tensor in tensors}


def _run_both(
    subject: Subject,
    attempt: _Attempt,
    batches: tuple[int, int],
    players: tuple[Player | None, Player | None] = (None, None),
) -> list[RawTrace]:
    """Run one route at two batches. Raises: BatchDependentError if only the first runs, SequenceFirstError."""
    watches = LayerWatch(), LayerWatch()
    first = _run(subject, attempt, batches[0], watches[0], players[0])
    try:
        second = _run(subject, attempt, batches[1], watches[1], players[1])
    except _RouteFailed as failed:
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


class _RouteFailed(Exception):
    """Why one route failed, to be completed by the other's reason."""


def _run(
    subject: Subject, attempt: _Attempt, batch: int, watch: LayerWatch | None = None, player: Player | None = None
) -> RawTrace:
    """Run one route at one batch. Raises: TracingError for the user's mistakes, _RouteFailed for the route's."""
    trails: list[ModuleTrail] = []
    with _prepared(subject, batch, watch) as (step, inputs, mode):
        if player is not None:
            step.around = partial(player.follow, partial(_named_tensors, step, parameter_names(step)))
        try:
            raw = attempt.run(step, inputs, mode, trails)
        except (TracingError, UnevenBatchError):
            raise
        except Exception as error:
            raise _RouteFailed(_reason(error, trails)) from error
    if subject.experts.capacity_factor not in (None, 1) and not mode.has_capacity:
        raise TracingError(
            f"capacity_factor is {subject.experts.capacity_factor}, which {subject.name} has no use for: it sets the "
            "rows of experts that take theirs by a mask and of Hugging Face's expert modules, not of grouped products "
            "over sorted rows; leave it out"
        )
    return raw


@contextlib.contextmanager
def _prepared(
    subject: Subject, batch: int, watch: LayerWatch | None = None
) -> Iterator[tuple[Step, tuple[Any, ...], BalancedMode]]:
    """Yield the step with fake tensors in place of its own, its inputs at ``batch``, and the tensors' mode."""
    mode = BalancedMode(subject.experts.capacity_factor)
    step = Step(subject.module, subject.loss, subject.layout)
    with contextlib.ExitStack() as stack:
        stack.enter_context(neutral_ops())
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


def _reason(error: Exception, trails: list[ModuleTrail]) -> str:
    """Return "in module 'x' (op y): type: message" of a failed run."""
    path = trails[-1].failed if trails else ""
    where = f"in module {module_path(path) or '(root)'!r}" if path else "outside any module"
    op = getattr(error, "func", None)
    text = " ".join(str(error).split())[:300]
    remedy = _REMEDY if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)) else ""
    return f"{where}{f', op {op}' if op is not None else ''}: {type(error).__name__}: {text}{remedy}"
