"""trace: the one way into tracing. Models that are named by text come from the trace cache where they can.

Importing this loads no torch: a kept graph is read without it.
"""

import contextlib
import gc
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.model_size import ModelSize
from rostam_py.graph.naming import HUB, LAYERS, LENGTH, ModelName, check_sizes
from rostam_py.models import AT_LENGTH, MODELS, misnamed, registered
from rostam_py.tracing.cache import Sources, TraceCache, TraceKey
from rostam_py.tracing.custom import is_customized

_SHAPING = ("num_layers", "batch_dims")  # options that a saved graph has been traced with
_OBJECTS_A_COLLECTION = 200_000  # a tenth of the time of a trace otherwise; some 50 MB of cycles wait at most


def trace(
    model: Any,
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
    capacity_factor: float | None = None,
    imbalance: float = 1.0,
    batch_dims: int | Sequence[int | None] | Mapping[str | int, int | None] | None = None,
    sequence_length: int | None = None,
    cache: bool = True,
    refuse: Callable[[ModelSize], None] | None = None,
) -> OperatorGraph:
    """Trace one training step, forward and backward, into an OperatorGraph.

    Model: two traces at different batches are paired op by op, so that every quantity is a part that
    grows with the batch and one that does not. No weights are allocated for registered models.
    Args:
        model: a registered name, "path/to/file.py:Class" (see tracing/sources.py), a Hugging Face configuration's
            "path/to/config.json", its folder or "hf:ORGANISATION/NAME" of the local cache, a saved graph's
            "path/to/graph.json.gz", a module (compiled ones as they were), a torch.export program or a ModelSpec.
        example_inputs: a tensor, a sequence of inputs, or a mapping of keyword inputs; inputs may be nested, and
            values that are no tensors are passed as they are. What the module's forward does not take, and the
            targets that the loss needs where the module can do without them, go to ``loss_fn`` after the output.
        loss_fn: ``loss_fn(output, *targets)`` -> scalar; without one, the module's own loss or the sum
            of the means of its outputs. targets: tensors for ``loss_fn``.
        name: the graph's name. optimizer, precision: defaults to record in the graph.
        num_layers: depth of a registered model's stacks, or of a Hugging Face configuration's language model, in place
            of its own.
        route: "auto" (joint, and dispatch where that fails), "joint" or "dispatch".
        replicate_blocks: trace what repeats a few times only and grow it, which gives the same graph sooner: the
            stacks of registered models (tracing/replicate.py), whatever repeats in others (tracing/repeats.py).
        capacity_factor: rows of an expert over the mean, padded or dropped to that; None: all that is routed to it,
            as dropless training computes. Tokens are spread evenly over experts either way. For experts that take
            their rows by a mask and Hugging Face's expert modules; an error where no expert does.
        imbalance: load of the busiest expert over the mean, >= 1, kept with the graph for the ranks that experts
            are spread over (ep > 1, and no capacity_factor); what all experts compute together does not depend on it.
        batch_dims: the dim that is the batch of all inputs, of each, or of some by place or name (None: of none); by
            default dim 0, or what layers inside expect.
        sequence_length: tokens of a sample of a registered model that has them, in place of its own; a table of learned
            positions has a row for each. The same as the name "llama3_8b@32768". Of a Hugging Face configuration, too.
        cache: take a model named by text, traced without inputs or a loss of the caller's, from the trace cache
            (tracing/cache.py) if nothing that it came from has changed, and keep it there; modules in hand, and what
            is traced after ``register_op`` or ``register_module``, are always traced.
        refuse: raises for a registered model that is too large; asked before it is traced, not of what is kept.
    Raises: TracingError, naming the op or module, if no route can trace the module or the traces at
        two batches do not match; UnknownNameError for an unknown model.
    Cost: a few CPU seconds; grows with the number of distinct ops. From the cache some 0.1 s, without torch.
    """
    options: dict[str, Any] = {
        "num_layers": num_layers, "route": route, "replicate_blocks": replicate_blocks,
        "capacity_factor": capacity_factor, "imbalance": imbalance, "batch_dims": batch_dims,
    }  # fmt: skip
    if isinstance(model, str):
        model, options["num_layers"] = _with_sizes(model, sequence_length, num_layers)
    elif sequence_length is not None:
        raise _no_length(sequence_length, f"a {type(model).__name__}")
    inputs: dict[str, Any] = {"example_inputs": example_inputs, "loss_fn": loss_fn, "targets": targets}
    with _rare_collections():
        graph = _traced(model, options, inputs, cache, refuse)
    wanted = {"name": name, "default_optimizer": optimizer, "default_precision": precision}
    changed: dict[str, Any] = {key: value for key, value in wanted.items() if value and value != getattr(graph, key)}
    return replace(graph, **changed) if changed else graph  # a replaced graph is checked again


def _with_sizes(model: str, length: Any, num_layers: Any) -> tuple[str, Any]:
    """Return the text of a model with its sizes in it, and the depth of a registered one, which is no part of it.

    Raises: ConfigError for a size that the model has not, is none, or is given twice.
    """
    name = ModelName.parse(model)
    if name.kind == "hugging_face":
        if isinstance(num_layers, Mapping):
            raise ConfigError(f"num_layers is {num_layers!r}, but {name.base} has one depth: give a number")
        given = {LENGTH: length, LAYERS: num_layers}
        return ModelName.of(model, {key: value for key, value in given.items() if value is not None}).text, None
    if length is not None:
        if name.kind not in ("registered", "family") or LENGTH in name.parts:
            raise _no_length(length, repr(model))
        name = ModelName.of(model, {LENGTH: length})
        if name.kind == "registered" and (wrong := misnamed(f"{name.base}{AT_LENGTH}{length}")):
            raise ConfigError(wrong)
    if LAYERS not in name.parts or name.kind != "registered":
        return name.text, num_layers
    if num_layers is not None:
        raise ConfigError(f"num_layers is {num_layers!r}, but model is {model!r}, which has it; give one of them")
    check_sizes(name)
    return ModelName(name.base, {key: one for key, one in name.parts.items() if key != LAYERS}).text, name.parts[LAYERS]


def _no_length(length: Any, shown: str) -> ConfigError:
    return ConfigError(
        f"sequence_length is {length!r}, but model is {shown}: it is of registered models alone, and of Hugging Face"
        " configurations; others have that of their example inputs"
    )


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for unreachable cycles seldom: a trace makes millions of objects that live, and each search visits them."""
    before = gc.get_threshold()
    if gc.isenabled() and before[0]:
        gc.set_threshold(max(before[0], _OBJECTS_A_COLLECTION), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _traced(
    model: Any, options: dict[str, Any], inputs: dict[str, Any], cache: bool,
    refuse: Callable[[ModelSize], None] | None,
) -> OperatorGraph:  # fmt: skip
    """Return the graph of a file, of the trace cache, or of a trace."""
    if isinstance(model, str) and ModelName.parse(model).kind == "graph":
        given = [key for key, value in {**inputs, **{k: options[k] for k in _SHAPING}}.items() if value is not None]
        if given:
            raise ConfigError(f"{model} is a traced graph; {', '.join(given)} would change nothing in it")
        return OperatorGraph.load(model)
    if isinstance(model, str) and cache and not is_customized() and all(one is None for one in inputs.values()):
        return _kept(model, options, refuse)
    from rostam_py.tracing.tracer import trace_now

    _refuse(model, options, refuse)
    return trace_now(model, **inputs, **options)


def _refuse(model: Any, options: dict[str, Any], refuse: Callable[[ModelSize], None] | None) -> None:
    """Ask of a registered model's size whether it is refused."""
    if refuse is not None and isinstance(model, str) and model in MODELS:
        from rostam_py.tracing.sources import load_source
        from rostam_py.tracing.tracer import size_of

        refuse(size_of(load_source(model), options["num_layers"]))


def _kept(model: str, options: dict[str, Any], refuse: Callable[[ModelSize], None] | None) -> OperatorGraph:
    """Return the graph of a model named by text, from the cache or traced and kept."""
    cache, key = TraceCache(), _key(model, options)
    graph = cache.load(key)
    if graph is not None:
        return graph
    _refuse(model, options, refuse)
    from rostam_py.tracing.origins import opened_files
    from rostam_py.tracing.sources import load_source, sources_of_loaded
    from rostam_py.tracing.tracer import trace_now

    begin = time.time()
    with opened_files() as opened:
        source = load_source(model)
    graph = trace_now(source, **options)
    sources = sources_of_loaded(model, source, opened)
    if not _changed_since(begin, sources):
        cache.store(key, graph, sources)
    return graph


def _key(model: str, options: dict[str, Any]) -> TraceKey:
    arguments = json.loads(json.dumps(options, default=repr))  # as an entry has them
    known = registered(model)
    if known is not None:
        return TraceKey(f"{model} ({known.target})", arguments)
    name = ModelName.parse(model)
    if name.kind in ("family", "hugging_face"):
        is_named = name.kind == "family" or name.base.startswith(HUB)
        return TraceKey(model if is_named else f"{Path(name.base).resolve()} ({model})", arguments)
    path, _, attribute = model.rpartition(":")
    return TraceKey(f"{Path(path).resolve()}:{attribute}", arguments)


def _changed_since(begin: float, sources: Sources) -> bool:
    """Say whether a file was written while its model was traced: what was traced is then not what stands there."""
    times = []
    for path in sources.files:
        with contextlib.suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return any(written > begin for written in times)
