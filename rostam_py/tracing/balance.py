"""A fake tensor mode that answers questions about values: tokens are spread evenly over experts, masks are computed.

A trace has shapes and no data, yet programs look at values: which experts were hit, which rows go to expert 3, whether
a mask is all ones. What can be known is followed from op to op as a *law* of a tensor:
    Known     the entries, computed on the side from ``arange``, constants and arithmetic on them
    Choice    each entry is one of n alternatives, k different ones in a row: the indices of a topk
    Mean      entries (0 and 1, or counts) have this mean: of ``choice == 3`` it is 1/n
so that ``nonzero`` of a mask of mean 1/n returns the n-th part of the rows. Where nothing is known torch's own error
stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from rostam_py.tracing.op_properties import op_name
from rostam_py.tracing.quick import picked


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_KNOWN = 2**22  # entries of a tensor that is computed on the side: four samples of a million tokens
_REORDERS = _names(
    """
    view reshape _unsafe_view permute transpose t expand select slice squeeze unsqueeze clone detach alias _to_copy
    unbind split split_with_sizes chunk index index_select gather sort flip roll contiguous lift_fresh
    """
)
_MAKERS = _names("arange zeros ones full scalar_tensor eye tril_indices triu_indices")


@dataclass(frozen=True)
class Known:
    """The entries are these."""

    value: torch.Tensor


@dataclass(frozen=True)
class Choice:
    """Entries are drawn evenly from 0 .. num - 1."""

    num: int
    per_row: int


@dataclass(frozen=True)
class Mean:
    """The mean of the entries, which are equal, or 0 and 1."""

    value: Fraction


Law = Known | Choice | Mean


class UnevenBatchError(Exception):
    """Tokens do not divide evenly over experts at this batch; they do at ``factor`` times it."""

    def __init__(self, factor: int) -> None:
        super().__init__(f"tokens divide evenly over experts at {factor} times the batch")
        self.factor = factor


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
        if not isinstance(law, Mean):
            return None
        share = min(Fraction(1), law.value)
        is_share = 0 < share < 1
        self.has_capacity |= is_share
        return _whole(share * tensor.numel() * (self._capacity if is_share else 1))

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
        law: Any = None
        if name in _REORDERS and laws:
            law = laws[0] if isinstance(laws[0], (Choice, Mean)) else None
            results = results[:1] if name == "sort" else results
        elif name in _RULES:
            law = _RULES[name](self, args, kwargs, results)
            results = results[1:] if name in ("topk", "max", "min") else results[:1]
        if law is not None:
            for result in results:
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


def _whole(count: Fraction) -> int:
    if count.denominator != 1:
        raise UnevenBatchError(count.denominator)
    return int(count)


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
    return float(law.value) if tensor.is_floating_point() else _whole(law.value)


def _nonzero(mode: BalancedMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, law = args[0], mode.law(args[0])
    if isinstance(law, Mean) and law.value >= 1 and tensor.numel() <= _MOST_KNOWN:
        with no_dispatch():
            law = Known(torch.ones(tuple(tensor.shape), dtype=torch.bool))
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
    dtype = torch.int64 if weights is None else torch.float64
    mean = Mean(Fraction(args[0].numel(), law.num)) if weights is None else None
    return mode.fake((max(law.num, least),), dtype, mean)


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
    if size is None and isinstance(law, Mean):
        size = _whole(law.value * args[0].numel())
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


# Laws of results. None says that nothing is known.


def _topk(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    return Choice(args[0].shape[dim], args[1])


def _argmax(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return None if dim is None else Choice(args[0].shape[dim], 1)


def _multinomial(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    return Choice(args[0].shape[-1], args[1])


def _compared(share: Callable[[int, Any], Fraction], of_mean: Callable[[Fraction, Any], Fraction | None]) -> Any:
    def rule(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
        laws = [mode.law(a) for a in args[:2]]
        other = args[1]
        if isinstance(laws[1], Choice) and not isinstance(laws[0], Choice):
            laws.reverse()
            other = args[0]
        if isinstance(laws[0], Choice):
            return Mean(share(laws[0].num, other))
        if isinstance(laws[0], Mean) and isinstance(other, (int, float)):
            value = of_mean(laws[0].value, other)
            return None if value is None else Mean(value)
        return None

    return rule


def _below(num: int, limit: Any) -> Fraction:
    """Share of the alternatives that are less than ``limit``; half of them where the limit is a tensor."""
    return Fraction(min(max(ceil(limit), 0), num), num) if isinstance(limit, (int, float)) else Fraction(1, 2)


def _hit(value: Fraction, limit: Any) -> Fraction | None:
    """Share of entries above 0 for entries of this mean."""
    return min(Fraction(1), value) if limit == 0 else None


def _one(num: int, other: Any) -> Fraction:
    return Fraction(1, num)


def _reduced(is_sum: bool) -> Any:
    def rule(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
        law = mode.law(args[0])
        if not isinstance(law, Mean):
            return None
        total = law.value * Fraction(args[0].numel(), max(1, results[0].numel()))
        return Mean(total if is_sum else min(Fraction(1), total))

    return rule


def _cumsum(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    law = mode.law(args[0])
    if not isinstance(law, Mean) or args[0].dim() != 1 or results[0].is_floating_point():
        return None
    step = _whole(law.value)
    with no_dispatch():
        return Known((torch.arange(args[0].numel()) + 1).mul(step).to(results[0].dtype))


def _histc(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    law = mode.law(args[0])
    return Mean(Fraction(args[0].numel(), results[0].numel())) if isinstance(law, Choice) else None


def _scatter(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    base, index = mode.law(args[0]), mode.law(args[2])
    is_empty = base == Mean(Fraction(0)) or (isinstance(base, Known) and mode.count(base, args[0]) == 0)
    if not is_empty or not isinstance(index, Choice) or args[0].shape[args[1]] != index.num:
        return None
    return Mean(Fraction(args[2].numel(), args[0].numel()))


def _constant(value: int) -> Any:
    return lambda mode, args, kwargs, results: Mean(Fraction(value))


def _not(mode: BalancedMode, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    law = mode.law(args[0])
    return Mean(1 - law.value) if isinstance(law, Mean) and law.value <= 1 and results[0].dtype == torch.bool else None


_RULES: dict[str, Callable[[BalancedMode, Any, Any, list[torch.Tensor]], Law | None]] = {
    "topk": _topk, "argmax": _argmax, "max": _argmax, "min": _argmax, "multinomial": _multinomial,
    "eq": _compared(_one, lambda value, other: 1 - min(Fraction(1), value) if other == 0 else None),
    "ne": _compared(lambda n, other: 1 - Fraction(1, n), _hit),
    "lt": _compared(_below, lambda value, other: None),
    "ge": _compared(lambda n, limit: 1 - _below(n, limit), lambda value, other: _hit(value, other - 1)),
    "gt": _compared(lambda n, limit: 1 - _below(n, limit) if not isinstance(limit, int) else 1 - _below(n, limit + 1),
                    _hit),
    "any": _reduced(is_sum=False), "amax": _reduced(is_sum=False), "sum": _reduced(is_sum=True),
    "cumsum": _cumsum, "histc": _histc, "scatter": _scatter, "scatter_add": _scatter,
    "zeros": _constant(0), "zeros_like": _constant(0), "new_zeros": _constant(0),
    "ones": _constant(1), "ones_like": _constant(1), "new_ones": _constant(1),
    "logical_not": _not, "bitwise_not": _not,
}  # fmt: skip
