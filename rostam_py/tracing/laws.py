"""Laws: what is known of the entries of tensors that have none, and how ops pass it on (balance.py).

Known     the entries, computed on the side from ``arange``, constants and arithmetic on them
Choice    each entry is one of n alternatives, k different ones in a row: the indices of a topk
Mean      entries (0 and 1, or counts) have this mean: of ``choice == 3`` it is 1/n
Shares    as Mean, and the means differ from place to place (shares.py)
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from rostam_py.tracing.shares import Mean, Shares, shared


@dataclass(frozen=True)
class Known:
    """The entries are these."""

    value: torch.Tensor


@dataclass(frozen=True)
class Choice:
    """Entries are drawn evenly from 0 .. num - 1."""

    num: int
    per_row: int


Law = Known | Choice | Mean | Shares


class UnevenBatchError(Exception):
    """Tokens do not divide evenly over experts at this batch; they do at ``factor`` times it."""

    def __init__(self, factor: int) -> None:
        super().__init__(f"tokens divide evenly over experts at {factor} times the batch")
        self.factor = factor


class Facts(Protocol):
    """Who knows the laws of tensors."""

    def law(self, tensor: Any) -> Law | None:
        """Return the known facts about a tensor's entries."""

    def count(self, law: Law | None, tensor: torch.Tensor) -> int | None:
        """Return how many entries of a mask are not zero, None if that is not known."""


Rule = Callable[[Facts, Any, Any, list[torch.Tensor]], Law | None]  # None says that nothing is known


def whole(count: Fraction) -> int:
    """Return a number of rows. Raises: UnevenBatchError for one that is not whole at this batch."""
    if count.denominator != 1:
        raise UnevenBatchError(count.denominator)
    return int(count)


def passed_on(facts: Facts, func: Any, name: str, inputs: Any, num_results: int) -> list[Law | None]:
    """Return the laws of the results of an op that moves the entries of its first tensor."""
    first, *_ = leaves = [t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]
    law = facts.law(first)
    if isinstance(law, Shares):
        known = {id(t): other.value for t in leaves[1:] if isinstance(other := facts.law(t), Known)}
        return list(law.reordered(func, name, inputs, known) or (None,) * num_results)
    if not isinstance(law, (Choice, Mean)):
        return [None] * num_results
    return [law, None] if name == "sort" else [law] * num_results


def moves_entries(name: str) -> bool:
    """Tell whether the entries of an op's results are those of its first tensor."""
    return name in _REORDERS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_REORDERS = _names(
    """
    view reshape _unsafe_view permute transpose t expand select slice squeeze unsqueeze clone detach alias _to_copy
    unbind split split_with_sizes chunk index index_select gather sort flip roll contiguous lift_fresh
    """
)


def _topk(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    return Choice(args[0].shape[dim], args[1])


def _argmax(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return None if dim is None else Choice(args[0].shape[dim], 1)


def _multinomial(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    return Choice(args[0].shape[-1], args[1])


_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _compared(name: str) -> Rule:
    """Return the law of a choice, or of a mean, that is compared with something."""

    def rule(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
        law, other = facts.law(args[0]), args[1]
        of = facts.law(other)
        if isinstance(law, Choice):
            return _choice_compared(name, law.num, of.value if isinstance(of, Known) else other, results[0])
        if isinstance(of, Choice):
            known = law.value if isinstance(law, Known) else args[0]
            return _choice_compared(_MIRRORED[name], of.num, known, results[0])
        if isinstance(law, (Mean, Shares)) and isinstance(other, (int, float)):
            return _mapped(law, lambda value: _mean_compared(name, value, other))
        return None

    return rule


def _choice_compared(name: str, num: int, other: Any, result: torch.Tensor) -> Law:
    """Return which share of ``num`` alternatives compares so with a number, with each of known entries or with any."""
    with no_dispatch():
        if isinstance(other, torch.Tensor) and not isinstance(other, FakeTensor):
            entries = other.double()
        elif isinstance(other, (int, float)):
            entries = torch.tensor(float(other), dtype=torch.float64)
        else:
            return Mean({"eq": Fraction(1, num), "ne": 1 - Fraction(1, num)}.get(name, Fraction(1, 2)))
        equal = (entries >= 0) & (entries < num) & (entries == entries.floor())
        below = entries.ceil().clamp(0, num)
        counts = {
            "eq": equal, "ne": num - 1.0 * equal, "lt": below, "le": below + equal, "ge": num - below,
            "gt": num - below - 1.0 * equal,
        }  # fmt: skip
        law = shared(counts[name].long(), num)
        return Shares(law.numerators.expand(result.shape), num) if isinstance(law, Shares) else law


def _mean_compared(name: str, value: Fraction, other: float) -> Fraction | None:
    """Return the mean of a comparison of entries, 0 and 1 or counts, of which those above 0 are ``hit``."""
    hit = min(Fraction(1), value)
    least = {"ne": 0, "gt": 0, "ge": 1}.get(name)
    if name == "eq" and other == 0:
        return 1 - hit
    return hit if least is not None and other == least else None


def _mapped(law: Mean | Shares, function: Callable[[Fraction], Fraction | None]) -> Mean | Shares | None:
    if isinstance(law, Shares):
        return law.mapped(function)
    value = function(law.value)
    return None if value is None else Mean(value)


def _reduced(is_sum: bool) -> Rule:
    def rule(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
        law = facts.law(args[0])
        if isinstance(law, Shares):
            law = law.summed(args, kwargs)
        elif isinstance(law, Mean):
            law = Mean(law.value * Fraction(args[0].numel(), max(1, results[0].numel())))
        else:
            return None
        return law if is_sum else _mapped(law, lambda total: min(Fraction(1), total))

    return rule


def _cumsum(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    law = facts.law(args[0])
    if not isinstance(law, (Mean, Shares)) or args[0].dim() != 1 or results[0].is_floating_point():
        return None
    if isinstance(law, Mean):
        step = whole(law.value)
        with no_dispatch():
            return Known((torch.arange(args[0].numel()) + 1).mul(step).to(results[0].dtype))
    for value, _ in law.values():
        whole(value)
    with no_dispatch():
        return Known((law.numerators // law.denominator).cumsum(0).to(results[0].dtype))


def _histc(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    """Rows in each bin: of as many for each alternative."""
    law = facts.law(args[0])
    if not isinstance(law, Choice):
        return None
    with no_dispatch():
        classes = torch.arange(law.num, dtype=torch.float64).histc(*args[1:], **kwargs).long()
    return shared(classes * args[0].numel(), law.num)


def _scatter(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    """Ones, or weights, at the places that were chosen, among zeros."""
    base, index = facts.law(args[0]), facts.law(args[2])
    is_empty = base == Mean(Fraction(0)) or (isinstance(base, Known) and facts.count(base, args[0]) == 0)
    size = args[0].shape[args[1]]
    if not is_empty or not isinstance(index, Choice) or size < index.num:
        return None
    each = Fraction(args[2].numel() * size, args[0].numel() * index.num)
    with no_dispatch():
        places = torch.arange(size).view(*(size if d == args[1] % args[0].dim() else 1 for d in range(args[0].dim())))
        law = shared((places < index.num) * each.numerator, each.denominator)
        return Shares(law.numerators.expand(args[0].shape), law.denominator) if isinstance(law, Shares) else law


def counted(num_rows: int, num: int, size: int) -> Mean | Shares:
    """Return how many rows chose each of ``size`` classes, the first ``num`` of which there are."""
    with no_dispatch():
        return shared((torch.arange(size) < num) * num_rows, num)


def certain(law: Mean | Shares, tensor: torch.Tensor) -> Known | None:
    """Return the entries of a mask that are 0 or not whatever is chosen, None where some depend on that."""
    if isinstance(law, Mean):
        if law.value < 1:
            return None
        with no_dispatch():
            return Known(torch.ones(tuple(tensor.shape), dtype=torch.bool))
    if any(0 < value < 1 for value, _ in law.values()):
        return None
    with no_dispatch():
        return Known(law.numerators > 0)


def _constant(value: int) -> Rule:
    return lambda facts, args, kwargs, results: Mean(Fraction(value))


def _not(facts: Facts, args: Any, kwargs: Any, results: list[torch.Tensor]) -> Law | None:
    law = facts.law(args[0])
    if not isinstance(law, (Mean, Shares)) or results[0].dtype != torch.bool:
        return None
    return _mapped(law, lambda value: 1 - value if value <= 1 else None)


RULES: dict[str, Rule] = {
    "topk": _topk, "argmax": _argmax, "max": _argmax, "min": _argmax, "multinomial": _multinomial,
    **{name: _compared(name) for name in _MIRRORED},
    "any": _reduced(is_sum=False), "amax": _reduced(is_sum=False), "sum": _reduced(is_sum=True),
    "cumsum": _cumsum, "histc": _histc, "scatter": _scatter, "scatter_add": _scatter,
    "zeros": _constant(0), "zeros_like": _constant(0), "new_zeros": _constant(0),
    "ones": _constant(1), "ones_like": _constant(1), "new_ones": _constant(1),
    "logical_not": _not, "bitwise_not": _not,
}  # fmt: skip
