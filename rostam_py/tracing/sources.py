"""Where a traced model comes from: the registry, a user's file, a Hugging Face configuration, or a module in hand.

A file "path/to/file.py:Name" defines Name as a module class, a function that returns a module, or one that returns a
ModelSpec; it is called with the arguments in the model's name ("file.py:Name@args.depth=4"), if any. Example inputs
come from ``example_inputs(batch)`` on the class or in the file, which may take these arguments, too; the loss from
``loss_fn`` in either place.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rostam_py.digests import file_digest
from rostam_py.errors import ConfigError, TracingError, UnknownNameError
from rostam_py.graph.naming import LENGTH, ModelName, check_sizes
from rostam_py.models import FAMILIES, MODELS, get_spec, misnamed, registered
from rostam_py.models.spec import ModelSpec
from rostam_py.registry import Registry
from rostam_py.tracing.batches import BatchDims, Examples, LeafDims, make_slots
from rostam_py.tracing.cache import Sources
from rostam_py.tracing.loaded import LoadedModule
from rostam_py.tracing.origins import own_source, sources_of
from rostam_py.tracing.step import Layout, num_positional
from rostam_py.tracing.subject import Subject
from rostam_py.tracing.wrappers import check_unwrapped

_EXAMPLE_BATCH = 2


def load_source(text: str) -> ModelSpec | LoadedModule:
    """Return what the text of a model stands for.

    Raises: UnknownNameError for a name that is not registered; ConfigError for a file without it, and for parts of the
        name that such a model has not.
    """
    if registered(text) is not None:
        return get_spec(text)
    if wrong := misnamed(text):
        raise ConfigError(wrong)
    name = ModelName.parse(text)
    if name.kind == "family":
        return family_spec(name)
    if name.kind == "hugging_face":
        from rostam_py.tracing.hugging_face_model import load_hugging_face

        return load_hugging_face(name)
    path, colon, attribute = name.base.rpartition(":")
    if not colon or not path.endswith(".py"):
        registry = Registry("model")
        for known, model in MODELS.items():
            registry.add(known, model.target)
        try:
            registry.get(text)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error}, or path/to/file.py:Class") from None
    return _load_file(Path(path), attribute, name.arguments)


def family_spec(name: ModelName) -> ModelSpec:
    """Return the specification of a family's member. Raises: ConfigError for arguments that it does not take."""
    module, _, attribute = FAMILIES[name.base].target.partition(":")
    build = getattr(importlib.import_module(module), attribute)
    entries = dataclasses.fields(sys.modules[module].Config)
    known = [entry.name for entry in entries]
    missing = [one.name for one in entries if one.default is dataclasses.MISSING and one.name not in name.arguments]
    if missing:
        raise ConfigError(f"model.args.{missing[0]} is missing, which {name.base} needs: {', '.join(missing)}")
    for key in name.arguments:
        if key not in known:
            raise ConfigError(f"model.args.{key} is no argument of {name.base}; it has: {', '.join(known)}")
    try:
        spec: ModelSpec = build(**name.arguments)
    except ValueError as error:
        raise ConfigError(f"model {name.base!r}: model.args.{error}") from error
    length = name.parts.get(LENGTH)
    if length is not None and spec.at_length is not None:
        check_sizes(name)
        spec = spec.at_length(length)
    return replace(spec, name=name.short)


def sources_of_loaded(text: str, source: ModelSpec | LoadedModule, opened: Iterable[str]) -> Sources:
    """Return the files and packages that ``load_source(text)``, which opened some files, and a trace came from."""
    model, base = registered(text), ModelName.parse(text).base
    root = model.target.partition(":")[0] if model is not None else _module_name(Path(base.rpartition(":")[0]))
    modules = source.module.modules() if isinstance(source, LoadedModule) else ()
    return sources_of([root], {type(module) for module in modules}, opened if model is None else ())


def _module_name(path: Path) -> str:
    return f"rostam_user_{path.stem}"


@dataclass
class _Imports:
    """Modules that models' files imported, with their files' digests: Python imports each once, however it changes."""

    digests: dict[str, tuple[str, str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def anew(self) -> Iterator[None]:
        """Let what is imported inside be what stands in the files now; take note of it."""
        if any(file_digest(path) != digest for path, digest in self.digests.values()):
            for name in self.digests:
                sys.modules.pop(name, None)
            self.digests.clear()
            importlib.invalidate_caches()
        before = set(sys.modules)
        try:
            yield
        finally:
            for name in set(sys.modules) - before:
                if (path := own_source(name)) is not None:
                    self.digests[name] = (path, file_digest(path))


_IMPORTS = _Imports()


def _load_file(path: Path, attribute: str, arguments: Mapping[str, Any]) -> ModelSpec | LoadedModule:
    if not path.is_file():
        raise ConfigError(f"model file {str(path)!r} does not exist")
    with _IMPORTS.anew():
        return _loaded(path, attribute, arguments)


def _loaded(path: Path, attribute: str, arguments: Mapping[str, Any]) -> ModelSpec | LoadedModule:
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"model file {str(path)!r} cannot be imported")
    file = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = file  # dataclasses and pickling look the module up by name
    try:
        spec.loader.exec_module(file)
    except Exception as error:
        raise ConfigError(f"model file {str(path)!r} fails on import: {type(error).__name__}: {error}") from error
    if not hasattr(file, attribute):
        known = [n for n, v in vars(file).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        raise ConfigError(f"{str(path)!r} has no {attribute!r}; module classes there: {', '.join(known) or 'none'}")
    factory = getattr(file, attribute)
    try:
        with torch.device("meta"):
            built = factory(**arguments)
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ConfigError(f"{attribute}({given}) in {str(path)!r} fails: {type(error).__name__}: {error}") from error
    if isinstance(built, ModelSpec):
        return built
    check_unwrapped(built, f"{attribute}() in {str(path)!r}")
    if not isinstance(built, nn.Module):
        raise ConfigError(f"{attribute}() in {str(path)!r} returns a {type(built).__name__}, not a module")
    inputs = getattr(factory, "example_inputs", None) or getattr(file, "example_inputs", None)
    if inputs is None:
        raise ConfigError(f"{str(path)!r} needs a function example_inputs(batch), in the file or on {attribute}")
    made = _example_inputs(_with_arguments(inputs, arguments), f"{attribute} in {str(path)!r}")
    loss = getattr(factory, "loss_fn", None) or getattr(file, "loss_fn", None)
    return LoadedModule(attribute, built, made, loss)


def _with_arguments(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a function of the batch with those arguments of the model that it takes by name."""
    try:
        taken = inspect.signature(function).parameters
    except (TypeError, ValueError):  # no function, or a builtin without a signature
        return function
    own = {key: value for key, value in arguments.items() if key in taken}
    return functools.partial(function, **own) if own else function


def _example_inputs(function: Any, where: str) -> Examples:
    """Return example inputs of _EXAMPLE_BATCH samples, and twice as many.

    Raises: ConfigError if the function cannot make them.
    """
    takes = f"example_inputs of {where} must be a function of the batch alone, example_inputs(batch)"
    if not callable(function):
        raise ConfigError(f"{takes}, but it is a {type(function).__name__}")
    try:
        inspect.signature(function).bind(_EXAMPLE_BATCH)
    except TypeError as error:
        raise ConfigError(f"{takes}, a staticmethod if it is on a class: {error}") from None
    except ValueError:
        pass  # a builtin without a signature
    made = []
    for batch in (_EXAMPLE_BATCH, 2 * _EXAMPLE_BATCH):
        try:
            with torch.device("meta"):
                made.append(function(batch))
        except Exception as error:
            raise ConfigError(f"example_inputs({batch}) of {where} fails: {type(error).__name__}: {error}") from error
    return Examples(made[0], made[1], _EXAMPLE_BATCH)


def user_subject(
    module: nn.Module,
    example_inputs: Any,
    loss: Callable[..., Any] | None,
    targets: Any,
    name: str,
    batch_dims: BatchDims | LeafDims = None,
) -> Subject:
    """Return a module in hand as a Subject. Raises: TracingError if inputs or parameters are missing."""
    if not any(p.requires_grad for p in module.parameters()):
        raise TracingError(f"{name} has no trainable parameters: there is no training step to trace")
    if example_inputs is None:
        raise TracingError(f"{name} needs example_inputs: a tensor, a sequence of tensors, or keyword inputs")
    kwargs = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    args = [] if kwargs else _listed(example_inputs)
    extra = _listed(targets) if targets is not None else []
    if isinstance(targets, Mapping):
        extra = list(targets.values())
    if loss is not None and targets is None:
        taken = _num_inputs(module, loss, len(args))
        args, extra = args[:taken], args[taken:]
    slots, batch = make_slots(name, batch_dims, (args, kwargs, extra))
    _check_loss(loss, len(extra), name)
    layout = Layout.of(args, kwargs, extra)
    first = max(2, batch)
    return Subject(
        name=name,
        module=module,
        slots=slots,
        layout=layout,
        loss=loss,
        batches=(first, 2 * first),
        notes=_no_loss_note(module, loss),
        is_guessed=batch_dims is None,
        precision=_own_precision(module),
    )


def _own_precision(module: nn.Module) -> str:
    """Return the precision a module is trained in where the user names none: by what most of its weights are."""
    counts: dict[torch.dtype, int] = {}
    for parameter in module.parameters():
        counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
    return _PRECISIONS.get(max(counts, key=lambda dtype: counts[dtype]), "fp32")


_PRECISIONS = {torch.bfloat16: "bf16_mixed", torch.float16: "fp16_mixed"}


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _num_inputs(module: nn.Module, loss: Callable[..., Any], num_given: int) -> int:
    """Return how many of the positional inputs are the module's; the rest are the loss's targets.

    Model: the loss gets the targets it needs, the last ones, if the module can do without them; and all that the
        module does not take.
    """
    needed, taken = num_positional(module.forward)
    try:
        targets = max(0, num_positional(loss)[0] - 1)
    except ValueError:  # a builtin without a signature
        targets = 0
    most = num_given if taken is None else min(taken, num_given)
    return min(most, max(needed, num_given - targets))


def _no_loss_note(module: nn.Module, loss: Callable[..., Any] | None) -> tuple[str, ...]:
    return () if loss is not None else ("no loss_fn: the module's own loss, or the mean of its outputs",)


def _check_loss(loss: Callable[..., Any] | None, num_targets: int, name: str) -> None:
    """Reject a loss that needs more targets than there are, before the tracer stumbles over it."""
    if loss is None:
        return
    try:
        inspect.signature(loss).bind(*range(1 + num_targets))
    except TypeError as error:
        raise TracingError(
            f"{name}: loss_fn cannot be called with the output and {num_targets} targets ({error}); "
            "pass targets=(...) or append them to example_inputs"
        ) from None
    except ValueError:
        return  # a builtin without a signature
