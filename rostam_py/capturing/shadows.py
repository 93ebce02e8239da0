"""Values of small integer tensors of the fake device, so that counts and splits that a program computes stay numbers.

Model: a value is known where all of an op's inputs are; it becomes unknown where data decides, at topk, argmax and
multinomial. There experts are taken in turn, so that every one gets as many tokens ("balanced"), or as a file says.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from rostam_py.capturing.expert_loads import counts_of
from rostam_py.errors import ConfigError

aten = torch.ops.aten
MOST_ENTRIES = 2**22  # of a tensor whose values are kept
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_FACTORIES = {
    aten.arange.default, aten.arange.start, aten.arange.start_step, aten.zeros.default, aten.ones.default,
    aten.full.default,
}  # fmt: skip
# Of an op's input nothing but the shape counts: what the result is filled with.
_FILLED: dict[Any, Callable[[Any], Any]] = {
    aten.zeros_like.default: lambda args: 0, aten.ones_like.default: lambda args: 1,
    aten.full_like.default: lambda args: args[1], aten.new_zeros.default: lambda args: 0,
    aten.new_ones.default: lambda args: 1, aten.new_full.default: lambda args: args[2],
}  # fmt: skip


class Shadows:
    """Real tensors on the CPU that hold what fake ones would."""

    def __init__(self, loads: Sequence[float] = ()) -> None:
        self._loads = loads
        self._values: dict[int, tuple[Any, torch.Tensor]] = {}

    def get(self, fake: torch.Tensor) -> torch.Tensor | None:
        """Return what a fake tensor holds, None where that is not known."""
        found = self._values.get(id(fake))
        return found[1] if found is not None and found[0]() is fake else None

    def set(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        """Say what a fake tensor holds."""
        key = id(fake)
        self._values[key] = (weakref.ref(fake, lambda _: self._values.pop(key, None)), value)

    def drop(self, fake: torch.Tensor) -> None:
        """Say that it is no longer known what a fake tensor holds."""
        self._values.pop(id(fake), None)

    def compute(self, func: Any, args: Any, kwargs: Any, fakes: Iterable[FakeTensor]) -> Any:
        """Return an op's result on real tensors, None where an input is not known or the op fails on the CPU."""
        taken = list(fakes)
        if not self._values or any(self.get(one) is None for one in taken):
            return None
        if sum(one.numel() for one in taken) > MOST_ENTRIES:
            return None
        real_args, real_kwargs = pytree.tree_map(self._real, (args, kwargs))
        return _run(func, real_args, real_kwargs)

    def made(self, func: Any, args: Any, kwargs: Any, reals: list[torch.Tensor]) -> Any:
        """Return what an op without fake inputs puts on the device: numbers of a factory, or a copy from the host."""
        if func is aten._to_copy.default and is_counted(reals[0]):
            return reals[0].to(kwargs.get("dtype") or reals[0].dtype, copy=True)
        if func in _FACTORIES and kwargs.get("dtype", torch.int64) in (*_INTEGERS, None):
            found = _run(func, args, {**kwargs, "device": "cpu"})
            return found if isinstance(found, torch.Tensor) and is_counted(found) else None
        return None

    def filled(self, func: Any, args: Any, out: Any) -> torch.Tensor | None:
        """Return what a tensor of another one's shape is filled with."""
        if func in _FILLED and is_counted(out):
            return torch.full(out.shape, _FILLED[func](args), dtype=out.dtype)
        return None

    def chosen(self, func: Any, args: Any, out: Any) -> None:
        """Say what an op chooses whose choice depends on data: experts in turn, else the first."""
        if func is aten.topk.default:
            experts = args[0].shape[args[2] if len(args) > 2 else -1]
            self.set(out[1], self._experts(experts, out[1].numel()).reshape(out[1].shape))
        elif func in (aten.argmax.default, aten.multinomial.default):
            self.set(out, torch.zeros(out.shape, dtype=out.dtype))

    def _experts(self, experts: int, choices: int) -> torch.Tensor:
        """Return which expert each choice takes: in turn, or as many as the loads say."""
        if not self._loads:
            return torch.arange(choices) % experts
        if len(self._loads) != experts:
            raise ConfigError(f"splits gives loads of {len(self._loads)} experts; the program chooses among {experts}")
        return torch.repeat_interleave(torch.arange(experts), torch.tensor(counts_of(self._loads, choices)))

    def _real(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            return self.get(value)
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def is_counted(tensor: torch.Tensor) -> bool:
    """Return whether values of a tensor are kept."""
    return tensor.dtype in _INTEGERS and tensor.numel() <= MOST_ENTRIES


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    try:
        with _disable_current_modes():
            return func(*args, **kwargs)
    except Exception:
        return None  # the CPU may lack what the device has: the value is then unknown
