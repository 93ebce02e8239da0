"""The step that is traced: a module and its loss, with fake tensors in place of real ones."""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from rostam_py.errors import TracingError
from rostam_py.tracing.custom import find_stand_in


@dataclass(frozen=True)
class Layout:
    """Where input tensors stand in a call: (positional inputs, keyword inputs, targets), nested as the user has them.

    leaves: values that are not tensors. tensors: for each leaf which tensor it is, None if it is none; one that stands
    in several places is one input.
    """

    spec: pytree.TreeSpec
    leaves: tuple[Any, ...]
    tensors: tuple[int | None, ...]

    @staticmethod
    def of(args: Sequence[Any], kwargs: Mapping[str, Any], targets: Sequence[Any]) -> "Layout":
        """Return the layout of a call's inputs."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs), tuple(targets)))
        first: dict[int, int] = {}
        tensors = tuple(
            first.setdefault(id(leaf), len(first)) if isinstance(leaf, torch.Tensor) else None for leaf in leaves
        )
        plain = tuple(leaf if place is None else None for leaf, place in zip(leaves, tensors, strict=True))
        return Layout(spec, plain, tensors)

    @staticmethod
    def positional(num_inputs: int, num_targets: int = 0) -> "Layout":
        """Return the layout of tensors that are all positional."""
        empty = [torch.empty(0, device="meta") for _ in range(num_inputs + num_targets)]
        return Layout.of(empty[:num_inputs], {}, empty[num_inputs:])

    def call(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """Return (positional inputs, keyword inputs, targets) with these tensors in their places."""
        places = zip(self.leaves, self.tensors, strict=True)
        leaves = [leaf if place is None else tensors[place] for leaf, place in places]
        args, kwargs, targets = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs, targets


class Step(nn.Module):
    """Run ``model`` on the inputs and ``loss`` on its output and the targets: a scalar loss of a list of tensors.

    around: makes a context that every run stands in.
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None, layout: Layout) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.layout = layout
        self.around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        with self.around():
            return self._run(tensors)

    def _run(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        args, kwargs, targets = self.layout.call(tensors)
        output = self.model(*args, **kwargs)
        loss = self.loss(output, *targets) if self.loss is not None else default_loss(output)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            raise TracingError(f"the loss must be a floating-point scalar, got {_describe(loss)}; pass loss_fn=...")
        return loss.reshape(()) if loss.dim() else loss


def default_loss(output: Any) -> torch.Tensor:
    """Return the loss of a module traced without ``loss_fn``: its own, or the sum of its outputs' means."""
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    if isinstance(output, torch.Tensor) and output.numel() == 1:
        return output
    leaves = pytree.tree_leaves(output)
    floating = [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if not floating:
        raise TracingError(f"the module returned {_describe(output)}, from which no loss can be made; pass loss_fn=...")
    return sum((t.mean() for t in floating[1:]), floating[0].mean())


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def num_positional(function: Callable[..., Any]) -> tuple[int, int | None]:
    """Return how many positional arguments a function needs, and takes at most (None: any number).

    Raises: ValueError for a builtin without a signature.
    """
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    return needed, None if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(positional)


def parameter_names(module: nn.Module) -> dict[str, str]:
    """Map every parameter's and buffer's name to the first name of the same tensor (tied weights)."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names[name] = first.setdefault(id(tensor), name)
    return names


def named_tensors(step: nn.Module, first: Mapping[str, str]) -> dict[int, str]:
    """Return the names of a step's parameters and buffers by id of the tensors that now stand for them."""
    tensors = (*step.named_parameters(remove_duplicate=False), *step.named_buffers(remove_duplicate=False))
    return {id(tensor): module_path(first[name]) for name, tensor in tensors}


@contextlib.contextmanager
def fake_parameters(step: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Replace parameters, buffers and tensor attributes by fake CPU tensors of ``mode``, and put them back."""
    replaced: dict[int, torch.Tensor] = {}
    originals: list[tuple[dict[str, Any], str, torch.Tensor]] = []

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in replaced:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, nn.Parameter):
                empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
            replaced[id(tensor)] = empty
        return replaced[id(tensor)]

    attributes: list[tuple[nn.Module, str]] = []
    try:
        with mode:
            for module in step.modules():
                for name in [n for n, value in vars(module).items() if isinstance(value, torch.Tensor)]:
                    attributes.append((module, name))  # a plain attribute acts as a buffer while tracing
                    module._buffers[name] = module.__dict__.pop(name)
                tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
                for table in tables:
                    for name, tensor in list(table.items()):
                        if isinstance(tensor, torch.Tensor):
                            originals.append((table, name, tensor))
                            table[name] = fake(tensor)
        yield
    finally:
        for table, name, tensor in originals:
            table[name] = tensor
        for module, name in attributes:
            module.__dict__[name] = module._buffers.pop(name)


@contextlib.contextmanager
def stand_ins(step: Step) -> Iterator[None]:
    """Put registered stand-ins in the place of their modules, and the modules back."""
    replaced: list[tuple[nn.Module, str, nn.Module]] = []
    try:
        for parent in list(step.modules()):
            for name, child in list(parent._modules.items()):
                make = find_stand_in(type(child))
                if child is not None and make is not None:
                    replaced.append((parent, name, child))
                    parent._modules[name] = _made(make, child)
        yield
    finally:
        for parent, name, child in reversed(replaced):
            parent._modules[name] = child


@contextlib.contextmanager
def uncompiled(step: Step) -> Iterator[None]:
    """Run modules and functions that torch.compile wraps as the programs they were, while the context lasts."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled
        yield
        return
    wrapped: list[tuple[nn.Module, str, nn.Module]] = []
    called: list[tuple[nn.Module, Any]] = []
    try:
        for parent in list(step.modules()):
            for name, child in list(parent._modules.items()):
                if child is not None and hasattr(child, "_orig_mod"):
                    wrapped.append((parent, name, child))
                    parent._modules[name] = child._orig_mod  # type: ignore[assignment]
        for module in step.modules():
            if getattr(module, "_compiled_call_impl", None) is not None:
                called.append((module, module._compiled_call_impl))
                module._compiled_call_impl = None
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, call in called:
            module._compiled_call_impl = call
        for parent, name, child in reversed(wrapped):
            parent._modules[name] = child


def _made(make: Callable[[Any], Any], child: nn.Module) -> nn.Module:
    """Return the stand-in of a module. Raises: TracingError if it is none."""
    made = make(child)
    if not isinstance(made, nn.Module):
        raise TracingError(f"the stand-in registered for {type(child).__qualname__} is {_describe(made)}, not a module")
    return made


class ModuleTrail:
    """Hooks that know which module runs; ``failed`` is the innermost one an exception left.

    Under torch's export no hook runs behind a forward that raises: ``remove`` leaves open ones.

    enter: called with a module's path, returns a context that lasts while the module's forward runs.
    """

    def __init__(self, step: nn.Module, enter: Callable[[str], contextlib.AbstractContextManager[Any]]) -> None:
        self.failed = ""
        self.current = ""
        self._error: BaseException | None = None
        self._stack: list[tuple[str, contextlib.AbstractContextManager[Any]]] = []
        self._handles: list[Any] = []
        for name, module in step.named_modules():
            # Before all others: what a module's own hooks compute, weight_norm's weights say, is the module's.
            self._handles.append(module.register_forward_pre_hook(self._before(name, enter), prepend=True))
            self._handles.append(module.register_forward_hook(self._after(name), always_call=True))

    def _before(self, name: str, enter: Callable[[str], contextlib.AbstractContextManager[Any]]) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            context = enter(name)
            context.__enter__()
            self._stack.append((name, context))
            self.current = name

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            error = sys.exc_info()[1]
            if error is not None and self._error is not error:
                self._error = error
                self.failed = name
            self._stack.pop()[1].__exit__(None, None, None)
            self.current = self._stack[-1][0] if self._stack else ""

        return hook

    def remove(self) -> None:
        """Take the hooks off the modules, and leave the modules that an exception did not."""
        for handle in self._handles:
            handle.remove()
        if self._stack and not self.failed:
            self.failed = self._stack[-1][0]
        while self._stack:
            self._stack.pop()[1].__exit__(None, None, None)


def module_path(path: str) -> str:
    """Return a module's path in the user's model; ops outside the model belong to "loss"."""
    if path == "model":
        return ""
    return path.removeprefix("model.") if path.startswith("model.") else "loss"
