"""Shares: means of entries that differ from place to place, exact fractions over one denominator.

A mask over more classes than a router has alternatives is one such: a class of padding is chosen by no token.
Numerators keep the strides of what is expanded, so that a mask of millions of entries costs what one row of it does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

_MOST_ENTRIES = 2**24  # that are written out
_VIEWS = frozenset({"view", "_unsafe_view", "reshape"})  # an expanded tensor has no such view: a copy has
_KEPT = frozenset({"_to_copy", "clone", "detach", "alias", "contiguous", "lift_fresh"})


@dataclass(frozen=True)
class Mean:
    """The mean of the entries, which are equal, or 0 and 1."""

    value: Fraction


@dataclass(frozen=True)
class Shares:
    """The mean of each entry, ``numerators / denominator``: at least two of them differ."""

    numerators: torch.Tensor
    denominator: int

    def values(self) -> list[tuple[Fraction, int]]:
        """Return each share, and of how many entries it is."""
        with no_dispatch():
            found, counts = self.numerators.unique(return_counts=True)
            pairs = zip(found.tolist(), counts.tolist(), strict=True)
            return [(Fraction(value, self.denominator), count) for value, count in pairs]

    def mapped(self, function: Callable[[Fraction], Fraction | None]) -> "Mean | Shares | None":
        """Return what ``function`` makes of each share, None if it makes nothing of one."""
        pairs = [(value, function(value)) for value, _ in self.values()]
        made = [new for _, new in pairs if new is not None]
        if len(made) < len(pairs):
            return None
        whole = lcm(*(new.denominator for new in made))
        with no_dispatch():
            numerators = torch.zeros_like(self.numerators)
            for (old, _), new in zip(pairs, made, strict=True):
                numerators[self.numerators == int(old * self.denominator)] = int(new * whole)
        return shared(numerators, whole)

    def summed(self, args: Any, kwargs: Any) -> "Mean | Shares":
        """Return the sums along the dims that a reduction's arguments after the tensor name."""
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        keeps = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        with no_dispatch():
            sums = self.numerators.sum() if dims is None else self.numerators.sum(dims, keepdim=keeps)
        return shared(sums, self.denominator)

    def reordered(
        self, func: Any, name: str, inputs: Any, known: dict[int, torch.Tensor]
    ) -> "list[Mean | Shares] | None":
        """Return the shares of the results of an op that moves entries.

        Args:
            func: the op, called ``name``.
            inputs: its (args, kwargs), the tensor of these shares first.
            known: entries of further tensors, by their ids.
        """
        if name in _KEPT:
            return [self]
        args, kwargs = inputs
        others = [t for t in pytree.tree_leaves((args[1:], kwargs)) if isinstance(t, torch.Tensor)]
        if name == "sort" or any(id(tensor) not in known for tensor in others):
            return None
        if not func.is_view and self.numerators.numel() > _MOST_ENTRIES:
            return None
        rest = pytree.tree_map_only(torch.Tensor, lambda tensor: known[id(tensor)], args[1:])
        with no_dispatch():
            if name in _VIEWS:
                return [shared(self.numerators.reshape(*rest), self.denominator)]
            made = func(self.numerators, *rest, **kwargs)
            return [shared(one, self.denominator) for one in pytree.tree_leaves(made)]


def shared(numerators: torch.Tensor, denominator: int) -> Mean | Shares:
    """Return the law of entries of these means: one Mean where all are equal."""
    with no_dispatch():
        if not numerators.numel():
            return Mean(Fraction(0))
        least, most = (int(end) for end in numerators.aminmax())
    return Mean(Fraction(least, denominator)) if least == most else Shares(numerators, denominator)
