"""trace_now: a registered model, a module or a file's class, to an OperatorGraph."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from rostam_py.errors import ConfigError, TracingError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.model_size import ModelSize
from rostam_py.models.spec import ModelSpec
from rostam_py.tracing.batched_experts import mark_experts
from rostam_py.tracing.batches import BatchDependentError, BatchDims, LeafDims, SequenceFirstError, other_guesses
from rostam_py.tracing.blocks import find_block_groups
from rostam_py.tracing.finishing import assign_blocks, finish, number
from rostam_py.tracing.folding import NotFoldedError, fold
from rostam_py.tracing.laws import UnevenBatchError
from rostam_py.tracing.loaded import LoadedModule
from rostam_py.tracing.op_properties import with_properties, with_repeated_flops
from rostam_py.tracing.pairing import Draft, pair_traces, with_notes
from rostam_py.tracing.replicate import NUM_TRACED, replicate
from rostam_py.tracing.running import ATTEMPTS, Attempt, RouteFailedError, run_both
from rostam_py.tracing.shared_inputs import check_shared_inputs
from rostam_py.tracing.sources import load_source, user_subject
from rostam_py.tracing.subject import ExpertLoad, Subject
from rostam_py.tracing.wrappers import check_unwrapped

_MAX_BATCH = 2**14  # samples of a trace
_LOG = logging.getLogger(__name__)
_ROUTES = tuple(dict.fromkeys(attempt.route for attempt in ATTEMPTS))


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
        raise ConfigError("num_layers applies to registered models and Hugging Face configurations only")
    told: BatchDims | LeafDims = batch_dims
    if isinstance(source, LoadedModule):
        if example_inputs is None:
            example_inputs = source.inputs.inputs
            told = source.inputs.dims(source.name) if batch_dims is None else batch_dims
        module, label, loss_fn = source.module, source.name, loss_fn or source.loss
        check_unwrapped(module, label)
    else:
        module, label = _module(source), type(source).__name__

    def subject_of(dims: BatchDims | LeafDims) -> Subject:
        made = user_subject(module, example_inputs, loss_fn, targets, label, dims)
        is_exported = module is not source and label == "ExportedProgram"
        made = replace(made, experts=experts, is_exported=is_exported, folds=replicate_blocks)
        return _as_loaded(made, source) if isinstance(source, LoadedModule) else made

    return _trace_user(subject_of, told, route)


def _as_loaded(subject: Subject, source: LoadedModule) -> Subject:
    """Return a subject with what its file says of training."""
    return replace(
        subject,
        optimizer=source.optimizer or subject.optimizer,
        precision=source.precision or subject.precision,
        sequence_length=source.sequence_length,
        notes=(*subject.notes, *source.notes),
    )


def _module(source: Any) -> nn.Module:
    """Return the module to trace: a compiled one as it was, an exported program as modules."""
    if isinstance(source, torch.export.ExportedProgram):
        return torch.export.unflatten(source)
    check_unwrapped(source)
    if not isinstance(source, nn.Module):
        raise ConfigError(
            f"model is a {type(source).__name__}; expected a module, a registered name or 'file.py:Class'"
        )
    original = getattr(source, "_orig_mod", None)
    return original if isinstance(original, nn.Module) else source


def _trace_user(
    subject_of: Callable[[BatchDims | LeafDims], Subject], batch_dims: BatchDims | LeafDims, route: str
) -> OperatorGraph:
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
    periods = {path: spec.periods.get(path, 1) for path in depth}
    short = {
        path: min(count, NUM_TRACED * periods[path]) if count % periods[path] == 0 else count
        for path, count in depth.items()
    }
    groups = [[f"{path}.{i}" for i in range(count)] for path, count in depth.items() if count > 1]
    if replicate_blocks and short != depth:
        draft, used, notes = _draft(Subject.of_spec(spec, short, experts=experts), route)
        grown: Draft | None = draft
        for path, count in depth.items():
            if grown is not None and count > short[path]:
                grown = replicate(grown, path, count, periods[path])
        if grown is not None:
            return _graph(Subject.of_spec(spec, depth, build=False, experts=experts), grown, used, notes, groups)
    subject = Subject.of_spec(spec, depth, experts=experts)
    if not depth:
        groups = find_block_groups(subject.module)
    draft, used, notes = _draft(subject, route)
    return _graph(subject, draft, used, notes, groups)


def size_of(spec: ModelSpec, num_layers: int | Mapping[str, int] | None = None) -> ModelSize:
    """Return the size of a registered model, whose parameters are counted on the meta device."""
    subject = Subject.of_spec(spec, _depth(spec, num_layers))
    count = sum(one.numel() for one in subject.module.parameters() if one.requires_grad)
    return ModelSize(spec.name, count, spec.default_precision, spec.default_optimizer)


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
    graph = _graph(subject, draft, used, notes, find_block_groups(subject.module))
    check_shared_inputs(subject, graph)
    return graph


def _graph(
    subject: Subject, draft: Draft, route: str, notes: list[str], groups: Sequence[Sequence[str]]
) -> OperatorGraph:
    numbered, tensors = number(Draft(assign_blocks(draft.ops, groups), draft.tensors, draft.notes))
    starts = [sum(len(g) for g in groups[:i]) for i in range(len(groups))]
    return OperatorGraph(
        name=subject.name,
        ops=with_repeated_flops(mark_experts(with_properties(numbered), tensors), tensors),
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
    failures: list[tuple[Attempt, str]] = []
    for attempt in ATTEMPTS:
        if route not in ("auto", attempt.route):
            continue
        try:
            draft = _paired(subject, attempt)
        except RouteFailedError as failed:
            failures.append((attempt, str(failed)))
            continue
        notes = [f"traced by {attempt}: the {failed} route failed {reason}" for failed, reason in failures]
        return draft, attempt.route, notes
    causes = {reason for _, reason in failures}
    reasons = causes if len(causes) == 1 else (f"{failed} route {reason}" for failed, reason in failures)
    raise TracingError(f"{subject.name} cannot be traced: {'; '.join(reasons)}")


def _paired(subject: Subject, attempt: Attempt) -> Draft:
    """Trace at two batches, larger ones where tokens do not divide evenly over experts, and pair the traces."""
    batches = subject.batches
    lost: NotFoldedError | None = None
    while True:
        try:
            if subject.folds and attempt.folds:
                try:
                    folded = fold(subject, attempt, batches)
                except NotFoldedError as error:
                    folded, lost = None, error
                if folded is not None:
                    return folded
            raws = run_both(subject, attempt, batches)
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
