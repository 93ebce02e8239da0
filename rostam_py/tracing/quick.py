"""What a call makes, from an equal call before it: stand-ins of the same form in place of a run on fake tensors.

Only forms are read of what a watched program computes (tracing/stream.py). What a call returns has a form that follows
from its function, arguments, the forms of its tensors and the state of autograd, so it runs once. Calls whose results
say more than a form, laws of their entries (tracing/balance.py) among it, always run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils._mode_utils import no_dispatch

# What a stand-in cannot say: it has neither a history nor memory of its own.
_HISTORY = frozenset(
    {
        "is_leaf", "grad_fn", "grad", "_base", "_version", "output_nr", "retains_grad", "_is_view", "data_ptr",
        "untyped_storage", "storage", "storage_offset", "_backward_hooks", "_post_accumulate_grad_hooks",
    }
)  # fmt: skip


class NeedsRunError(Exception):
    """The program asks a stand-in for what it has not: every call must run."""


def asks_for_history(name: str) -> bool:
    """Say whether a call or an attribute is about a tensor's history or memory."""
    return name in _HISTORY


def steady_key(name: str, args: Any, integers: Sequence[int]) -> Any:
    """Return what of a call's integers its results' forms depend on: places that are picked do not change them."""
    if name == "select" and len(args) == 3 and all(type(a) is int for a in args[1:]):
        size = args[0].shape[args[1]] if -args[0].dim() <= args[1] < args[0].dim() else 0
        return ("select", args[1]) if -size <= args[2] < size else tuple(integers)
    if name in ("__getitem__", "__setitem__") and isinstance(args[0], torch.Tensor):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if len(integers) == sum(type(part) is int for part in index) and _is_inside(args[0], index):
            return "picked"
    return tuple(integers)


def _is_inside(tensor: torch.Tensor, index: tuple[Any, ...]) -> bool:
    """Say whether whole dims and places are picked, and there are such places."""
    dim = 0
    for part in index:
        if part is None:
            continue
        if dim >= tensor.dim() or not (type(part) is int or part == slice(None)):
            return False
        if type(part) is int and not -tensor.shape[dim] <= part < tensor.shape[dim]:
            return False
        dim += 1
    return True


def picked(mode: FakeTensorMode, func: Any, tensor: FakeTensor, *places: Any) -> torch.Tensor | None:
    """Run aten::select on a plain fake tensor; None leaves it to torch."""
    if tensor.constant is not None or not all(type(place) is int for place in places):
        return None
    with in_kernel_invocation_manager(mode):
        view = func(tensor, *places)
    return FakeTensor(mode, view, tensor.fake_device)


@dataclass(frozen=True, slots=True)
class _Form:
    """A tensor that a call made. read: which of the tensors that it reads it is, None for a new one."""

    read: int | None
    meta: torch.Tensor | None
    device: Any
    requires_grad: bool


class QuickResults:
    """The results of calls that ran, by what they depend on."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: dict[Any, tuple[Any, tuple[_Form, ...]]] = {}

    @staticmethod
    def takes(tensors: Sequence[torch.Tensor]) -> bool:
        """Say whether a call reads plain fake tensors only: of others a form says too little."""
        return all(type(tensor) is FakeTensor for tensor in tensors)

    def find(self, key: Any, tensors: Sequence[torch.Tensor]) -> tuple[bool, Any]:
        """Return (whether an equal call ran, what this one returns)."""
        known = self._known.get(key)
        if known is None:
            return False, None
        made = iter([self._make(form, tensors) for form in known[1]])
        return True, _filled(known[0], made)

    def keep(self, key: Any, tensors: Sequence[torch.Tensor], result: Any, made: Sequence[torch.Tensor]) -> None:
        """Keep what a call returned, if its forms say all of it."""
        pattern = _pattern(result)
        if pattern is _OTHER:
            return
        forms = []
        for tensor in made:
            read = next((place for place, t in enumerate(tensors) if t is tensor), None)
            if read is None and (type(tensor) is not FakeTensor or tensor.layout is not torch.strided):
                return
            meta = None
            if read is None:
                with no_dispatch():
                    meta = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")
            forms.append(_Form(read, meta, tensor.device, tensor.requires_grad))
        self._known[key] = (pattern, tuple(forms))

    def _make(self, form: _Form, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        if form.read is not None:
            return tensors[form.read]
        with no_dispatch():
            made = FakeTensor(self._mode, form.meta, form.device)
        return made.requires_grad_() if form.requires_grad else made


_OTHER = object()


def _pattern(result: Any) -> Any:
    """Return how a result nests tensors, _OTHER if there is anything else in it."""
    if result is None or isinstance(result, torch.Tensor):
        return None if result is None else torch.Tensor
    if type(result) in (tuple, list):
        parts = [_pattern(item) for item in result]
        return _OTHER if _OTHER in parts else (type(result), *parts)
    return _OTHER


def _filled(pattern: Any, made: Any) -> Any:
    if pattern is None:
        return None
    return next(made) if pattern is torch.Tensor else pattern[0](_filled(part, made) for part in pattern[1:])
