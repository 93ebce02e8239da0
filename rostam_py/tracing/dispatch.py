"""Route 2: an eager run, forward and backward, watched below autograd by a dispatch mode.

Used where the joint route fails: it needs no functional graph, only that the module runs on fake
tensors. Edges are rebuilt from memory: a tensor is known by storage, offset, shape and strides.
"""

import contextlib
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from rostam_py.errors import TracingError
from rostam_py.tracing.checkpoints import Regions, recompute
from rostam_py.tracing.op_properties import op_name
from rostam_py.tracing.raw import Call, RawTrace, Ref
from rostam_py.tracing.step import ModuleTrail, Step, module_path, parameter_names


def trace_dispatch(step: Step, inputs: tuple[Any, ...], mode: FakeTensorMode, trail_out: list[ModuleTrail]) -> RawTrace:
    """Trace forward and backward of ``step`` whose tensors are fake ones of ``mode``, by running it.

    Args and raises as ``trace_joint``.
    """
    trail = ModuleTrail(step, lambda name: contextlib.nullcontext())
    trail_out.append(trail)
    try:
        return _run(step, inputs, mode, trail)
    finally:
        trail.remove()


def _run(step: Step, inputs: tuple[Any, ...], mode: FakeTensorMode, trail: ModuleTrail) -> RawTrace:
    regions = Regions(lambda number: contextlib.nullcontext())
    recorder = _Recorder(step, inputs, trail, regions)
    trained = [(name, p) for name, p in step.named_parameters() if p.requires_grad]
    with mode, regions.watch(), recorder:
        loss = step(*inputs)
        recorder.raw.loss = recorder.find(loss)
        if loss.grad_fn is None:
            raise TracingError("no parameter receives a gradient: the loss does not depend on the parameters")
        recorder.phase = "backward"
        gradients = torch.autograd.grad(loss, [p for _, p in trained], allow_unused=True)
        recorder.phase = "done"
    for (name, _), gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            recorder.raw.gradients[module_path(name)] = [recorder.find(gradient)]
    if not recorder.raw.gradients:
        raise TracingError("no parameter receives a gradient: the loss does not depend on the parameters")
    return recompute(recorder.raw, regions.all)


class _Recorder(TorchDispatchMode):
    """Records every ATen call; ``phase`` is set by the caller."""

    def __init__(self, step: Step, inputs: tuple[Any, ...], trail: ModuleTrail, regions: Regions) -> None:
        super().__init__()
        self.raw = RawTrace()
        self.phase = "forward"
        self._trail = trail
        self._regions = regions
        self._region_of: dict[int, int] = {}  # autograd sequence number -> checkpointed region of the forward op
        self._values: dict[Any, int] = {}
        self._alive: list[torch.Tensor] = []  # no storage may be freed and reused while keys refer to it
        self._modules: dict[int, str] = {}  # autograd sequence number -> module of the forward op
        names = parameter_names(step)
        for name, parameter in step.named_parameters():
            self._add(parameter, "parameter" if parameter.requires_grad else "frozen", module_path(names[name]))
        for name, buffer in step.named_buffers():
            self._add(buffer, "buffer", module_path(names[name]))
        for index, tensor in enumerate(inputs):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor, "input", f"input_{index}")

    def find(self, tensor: torch.Tensor) -> int:
        """Return the value that holds ``tensor``; an unknown tensor becomes a constant."""
        key = self._key(tensor)
        if key not in self._values:
            self._add(tensor, "constant", "")
        return self._values[key]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.phase == "done" or func.namespace == "prim":
            return func(*args, **kwargs)
        refs = pytree.tree_map_only(torch.Tensor, lambda t: Ref(self.find(t)), (tuple(args), dict(kwargs)))
        result = func(*args, **kwargs)
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(result)):
            return result
        module, number = (None, None) if self._is_accumulation(func, refs[0]) else self._place()
        region = self._region(number)
        call = Call(tuple(args), dict(kwargs), result, self.phase, module, number, region)
        ids = self.raw.add_op(func, refs[0], refs[1], call)
        for tensor, value in zip(call.outputs, ids, strict=True):
            if tensor is not None and value is not None:
                self._values[self._key(tensor)] = value
                self._alive.append(tensor)
        return result

    def _is_accumulation(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Return whether a backward add sums two gradients: autograd runs it between its own ops."""
        if self.phase != "backward" or op_name(func) != "add":
            return False
        made = [self.raw.values[a.value].producer for a in args[:2] if isinstance(a, Ref)]
        return len(made) == 2 and all(m is not None and self.raw.ops[m].phase == "backward" for m in made)

    def _place(self) -> tuple[str | None, int | None]:
        """Return (module, autograd sequence number) of the call under way; (None, None) if unknown."""
        if self.phase == "forward":
            number = torch.autograd._get_sequence_nr() - 1
            module = module_path(self._trail.current)
            self._modules.setdefault(number, module)
            return module, number
        running = torch._C._current_autograd_node()
        if running is None:
            return None, None
        number = running._sequence_nr()
        return self._modules.get(number), number

    def _region(self, number: int | None) -> int | None:
        """Return the checkpointed region of the call under way."""
        if self.phase == "forward":
            if number is not None and self._regions.current is not None:
                self._region_of.setdefault(number, self._regions.current)
            return self._regions.current
        return None if number is None else self._region_of.get(number)

    def _add(self, tensor: torch.Tensor, kind: str, name: str) -> None:
        self._values[self._key(tensor)] = self.raw.add_value(tensor, kind, name)
        self._alive.append(tensor)

    @staticmethod
    def _key(tensor: torch.Tensor) -> Any:
        layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        return (tensor.untyped_storage()._cdata, *layout)
