"""The step that is traced: a module and its loss, with fake tensors in place of real ones."""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rostam_py.errors import TracingError
from rostam_py.tracing.custom import find_stand_in


class Step(nn.Module):
    """Run ``model`` on the first inputs and ``loss`` on its output and the rest: a scalar loss.

    names: keyword names of the model's inputs, None for positional ones.
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None, names: tuple[str | None, ...]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.names = names

    def forward(self, *inputs: Any) -> torch.Tensor:
        count = len(self.names)
        positional = [x for x, name in zip(inputs[:count], self.names, strict=True) if name is None]
        keywords = {name: x for x, name in zip(inputs[:count], self.names, strict=True) if name is not None}
        output = self.model(*positional, **keywords)
        loss = self.loss(output, *inputs[count:]) if self.loss is not None else default_loss(output)
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
    leaves = torch.utils._pytree.tree_leaves(output)
    floating = [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if not floating:
        raise TracingError(f"the module returned {_describe(output)}, from which no loss can be made; pass loss_fn=...")
    return sum((t.mean() for t in floating[1:]), floating[0].mean())


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def num_positional(module: nn.Module) -> int | None:
    """Return how many positional inputs ``module.forward`` takes at most, None if any number."""
    parameters = inspect.signature(module.forward).parameters.values()
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


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
        for parent, name, child in replaced:
            parent._modules[name] = child


def _made(make: Callable[[Any], Any], child: nn.Module) -> nn.Module:
    """Return the stand-in of a module. Raises: TracingError if it is none."""
    made = make(child)
    if not isinstance(made, nn.Module):
        raise TracingError(f"the stand-in registered for {type(child).__qualname__} is {_describe(made)}, not a module")
    return made


class ModuleTrail:
    """Hooks that know which module runs; ``failed`` is the innermost one an exception left.

    Under torch's export no hook runs behind a forward that raises: ``remove`` leaves what is still open.

    enter: called with a module's path, returns a context that lasts while the module's forward runs.
    """

    def __init__(self, step: nn.Module, enter: Callable[[str], contextlib.AbstractContextManager[Any]]) -> None:
        self.failed = ""
        self.current = ""
        self._error: BaseException | None = None
        self._stack: list[tuple[str, contextlib.AbstractContextManager[Any]]] = []
        self._handles: list[Any] = []
        for name, module in step.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._before(name, enter)))
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
