"""A fake tensor mode that answers questions about values: tokens are spread evenly over experts, masks are computed.

A trace has shapes and no data, yet programs look at values: which experts were hit, which rows go to expert 3, whether
a mask is all ones. What can be known is followed from op to op as a *law* of a tensor (laws.py), so that ``nonzero`` of
a mask of mean 1/n returns the n-th part of the rows. Where nothing is known torch's own error stands.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from rostam_py.tracing.laws import (
    RULES,
    Choice,
    Known,
    Law,
    Mean,
    Shares,
    certain,
    counted,
    moves_entries,
    passed_on,
    whole,
)
from rostam_py.tracing.op_properties import op_name
from rostam_py.tracing.quick import picked


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_KNOWN = 2**22  # entries of a tensor that is computed on the side: four samples of a million tokens
_MAKERS = _names("arange zeros ones full scalar_tensor eye tril_indices triu_indices")


class BalancedMode(FakeTensorMode):
    """A FakeTensorMode that follows laws.

    capacity_factor: rows an expert is given, over the mean; None gives it what is routed to it. has_capacity: some
    expert was given rows by it.
    """

    def __init__(self, capacity_factor: float | None = None) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.capacity_factor, self.has_capacity = capacity_factor, False
        self._capacity = Fraction(1) if capacity_factor is None else Fraction(str(capacity_factor))
        self._writes: dict[int, int] = {}  # storage -> writes so far; a law holds until its tensor is written

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one op on fake tensors; see FakeTensorMode."""
        kwargs = kwargs or {}
        name = op_name(func)
        answer = _ANSWERS.get(name)
        out = answer(self, func, args, kwargs) if answer is not None else None
        if out is None:
            out = super().dispatch(func, types, args, kwargs)
        if not hasattr(func, "_schema"):
            return out
        if func._schema.is_mutable:
            self._written(func, args, kwargs)
        else:
            self._learn(func, name, args, kwargs, out)
        return out

    def law(self, tensor: Any) -> Law | None:
        """Return the known facts about a fake tensor's entries."""
        if isinstance(tensor, torch.Tensor) and not hasattr(tensor, "_rostam_law"):
            constant = getattr(tensor, "constant", None)
            return Known(constant) if constant is not None else None
        law, writes = getattr(tensor, "_rostam_law", (None, 0))
        return law if law is not None and self._writes.get(_storage(tensor), 0) == writes else None

    def teach(self, tensor: torch.Tensor, law: Law | None) -> torch.Tensor:
        """Set a fake tensor's law and return the tensor."""
        if law is not None:
            tensor._rostam_law = (law, self._writes.get(_storage(tensor), 0))  # type: ignore[attr-defined]
        return tensor

    def fake(self, shape: tuple[int, ...], dtype: torch.dtype, law: Law | None = None) -> torch.Tensor:
        """Return a new fake tensor."""
        with self:
            return self.teach(torch.empty(shape, dtype=dtype, device="cpu"), law)

    def known(self, value: torch.Tensor) -> torch.Tensor:
        """Return a new fake tensor of known entries."""
        return self.fake(tuple(value.shape), value.dtype, Known(value))

    def count(self, law: Law | None, tensor: torch.Tensor) -> int | None:
        """Return how many entries of a mask are not zero, None if that is not known."""
        if isinstance(law, Known):
            with no_dispatch():
                return int(law.value.count_nonzero())
        if not isinstance(law, (Mean, Shares)):
            return None
        total = Fraction(0)
        for value, num_entries in [(law.value, tensor.numel())] if isinstance(law, Mean) else law.values():
            is_share = 0 < value < 1
            self.has_capacity |= is_share
            total += min(Fraction(1), value) * num_entries * (self._capacity if is_share else 1)
        return whole(total)

    def _written(self, func: Any, args: Any, kwargs: Any) -> None:
        for argument, value in (*zip(func._schema.arguments, args, strict=False), *_named(func, kwargs)):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in pytree.tree_leaves(value):
                    if isinstance(tensor, torch.Tensor):
                        key = _storage(tensor)
                        self._writes[key] = self._writes.get(key, 0) + 1

    def _learn(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        results = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        if not results or any(self._has_own(t) for t in results):
            return
        leaves = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        laws = [self.law(t) for t in leaves]
        if self._learn_known(func, name, (args, kwargs), out, laws):
            return
        if moves_entries(name) and laws:
            for result, law in zip(results, passed_on(self, func, name, (args, kwargs), len(results)), strict=True):
                self.teach(result, law)
        elif name in RULES:
            law = RULES[name](self, args, kwargs, results)
            for result in results[1:] if name in ("topk", "max", "min") else results[:1]:
                self.teach(result, law)

    def _learn_known(self, func: Any, name: str, inputs: Any, out: Any, laws: list[Law | None]) -> bool:
        """Compute integers and masks on the side where all inputs are known."""
        results = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        if any(t.is_floating_point() or t.is_complex() or t.numel() > _MOST_KNOWN for t in results):
            return False
        if (not laws and name not in _MAKERS) or not all(isinstance(law, Known) for law in laws):
            return False
        if torch.Tag.nondeterministic_seeded in func.tags:
            return False
        with no_dispatch():
            values = pytree.tree_map_only(torch.Tensor, lambda t: self.law(t).value, inputs)  # type: ignore[union-attr]
            args, kwargs = values
            kwargs = {key: torch.device("cpu") if key == "device" else value for key, value in kwargs.items()}
            value = func(*args, **kwargs)
        for result, known in zip(results, pytree.tree_leaves(value), strict=True):
            self.teach(result, Known(known))
        return True

    def _has_own(self, tensor: torch.Tensor) -> bool:
        return getattr(tensor, "_rostam_law", None) is not None and self.law(tensor) is not None


def knows(tensor: torch.Tensor) -> bool:
    """Say whether the entries of a tensor of a running trace are known, so that a program may branch on them."""
    with torch._C.DisableTorchFunction():  # this is no call of the program
        while isinstance(tensor, torch._subclasses.functional_tensor.FunctionalTensor):
            tensor = torch._from_functional_tensor(tensor.elem)
        mode = getattr(tensor, "fake_mode", None)
        return isinstance(mode, BalancedMode) and isinstance(mode.law(tensor), Known)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _named(func: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    return [(argument, kwargs[argument.name]) for argument in func._schema.arguments if argument.name in kwargs]


# Ops whose result, or its shape, depends on values. None leaves the op to torch.


def _item(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, law = args[0], mode.law(args[0])
    if isinstance(law, Known):
        with no_dispatch():
            return law.value.item()
    if not isinstance(law, Mean):
        return None
    if tensor.dtype == torch.bool:
        return law.value > 0 if law.value in (0, 1) else None
    return float(law.value) if tensor.is_floating_point() else whole(law.value)


def _nonzero(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, law = args[0], mode.law(args[0])
    if isinstance(law, (Mean, Shares)) and tensor.numel() <= _MOST_KNOWN:
        law = certain(law, tensor) or law
    if isinstance(law, Known):
        with no_dispatch():
            places = law.value.nonzero()
        return mode.known(places)
    count = mode.count(law, tensor)
    return None if count is None else mode.fake((count, tensor.dim()), torch.int64)


def _index(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    indices = []
    for index in args[1]:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            indices.append(index)
            continue
        count = mode.count(mode.law(index), index)
        if count is None:
            return None
        indices += [mode.fake((count,), torch.int64) for _ in range(index.dim())]
    if len(indices) == len(args[1]) and all(a is b for a, b in zip(indices, args[1], strict=True)):
        return None
    with mode:
        return func(args[0], indices)


def _masked_select(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    count = mode.count(mode.law(args[1]), args[1])
    return None if count is None else mode.fake((count,), args[0].dtype)


def _bincount(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    law = mode.law(args[0])
    if not isinstance(law, Choice):
        return None
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    dtype, size = torch.int64 if weights is None else torch.float64, max(law.num, least)
    return mode.fake((size,), dtype, counted(args[0].numel(), law.num, size) if weights is None else None)


def _unique(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    law = mode.law(args[0])
    if not isinstance(law, Choice):
        return None
    with no_dispatch():
        values = torch.arange(law.num, dtype=args[0].dtype)
    counts = Mean(Fraction(args[0].numel(), law.num))
    inverse = mode.fake(tuple(args[0].shape), torch.int64, law)
    return mode.known(values), inverse, mode.fake((law.num,), torch.int64, counts)


def _repeat_interleave(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    law = mode.law(args[0])
    size = kwargs.get("output_size") or (args[1] if len(args) > 1 else None)
    if size is None and isinstance(law, Known):
        with no_dispatch():
            size = int(law.value.sum())
    if size is None and isinstance(law, (Mean, Shares)):
        total = law.summed((args[0],), {}) if isinstance(law, Shares) else Mean(law.value * args[0].numel())
        size = whole(total.value) if isinstance(total, Mean) else None
    return None if size is None else mode.fake((size,), args[0].dtype)


def _select(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Pick a place: torch keeps each place as another call of its cache, and misses it in recurrences."""
    return None if kwargs or type(args[0]) is not FakeTensor else picked(mode, func, *args)


_ANSWERS: dict[str, Callable[[BalancedMode, Any, Any, Any], Any]] = {
    "select": _select,
    "_local_scalar_dense": _item,
    "nonzero": _nonzero,
    "index": _index,
    "masked_select": _masked_select,
    "bincount": _bincount,
    "_unique2": _unique,
    "repeat_interleave": _repeat_interleave,
}
