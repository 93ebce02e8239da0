"""Laws of choices and masks against every entry there can be, one of each."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from rostam_py.tracing.balance import BalancedMode
from rostam_py.tracing.laws import Choice, Known, Mean, Shares

N, ROWS = 4, 8
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def _choice(mode: BalancedMode, *shape: int) -> Tensor:
    return mode.teach(mode.fake(shape, torch.int64), Choice(N, 1))


def _shares(mode: BalancedMode, tensor: Tensor) -> Tensor:
    """Return the mean of each entry, as floats."""
    law = mode.law(tensor)
    if isinstance(law, Mean):
        return torch.full(tuple(tensor.shape), float(law.value), dtype=torch.float64)
    assert isinstance(law, Shares)
    return law.numerators / torch.tensor(float(law.denominator), dtype=torch.float64)


@pytest.mark.parametrize("other", [-1, 0, 1, 2.5, N - 1, N, N + 1])
@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_with_a_number_holds_for_as_many_alternatives(name: str, other: float) -> None:
    mode = BalancedMode()
    expected = getattr(torch, name)(torch.arange(N), other).double().mean()
    assert torch.equal(_shares(mode, getattr(torch, name)(_choice(mode, 3), other)), expected.expand(3))


@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_with_known_entries_is_that_with_each(name: str, is_mirrored: bool) -> None:
    mode, compare = BalancedMode(), getattr(torch, name)
    entries = torch.arange(-1, N + 2)
    pair = (torch.arange(N)[:, None], entries)
    expected = compare(*(reversed(pair) if is_mirrored else pair)).double().mean(0).expand(3, len(entries))
    fakes = (_choice(mode, 3, 1), mode.known(entries))
    made = compare(*(reversed(fakes) if is_mirrored else fakes))
    assert torch.allclose(_shares(mode, made), expected, atol=1e-15)


MOVED: dict[str, Callable[[Tensor], Tensor]] = {
    "permute": lambda mask: mask.permute(1, 0),
    "select": lambda mask: mask[:, N],
    "slice": lambda mask: mask[:, 1:],
    "view": lambda mask: mask.view(-1),
    "sum": lambda mask: mask.sum(0),
    "sum of all": lambda mask: mask.sum(),
    "any of a row": lambda mask: mask.any(1),
    "not": lambda mask: ~mask,
    "unsqueezed and expanded": lambda mask: mask[None].expand(3, -1, -1),
}


@pytest.mark.parametrize("name", MOVED)
def test_shares_follow_ops_as_the_mean_over_all_choices_does(name: str) -> None:
    mode = BalancedMode()
    mask = _choice(mode, ROWS, 1) == mode.known(torch.arange(N + 2))
    # Rows 0 to 7 choose 0, 1, 2, 3, 0, ... in the first case, each one more in the next: all N cases are as likely.
    cases = [((torch.arange(ROWS) + shift)[:, None] % N) == torch.arange(N + 2) for shift in range(N)]
    expected = torch.stack([MOVED[name](case).double() for case in cases]).mean(0)
    assert torch.equal(_shares(mode, MOVED[name](mask)), expected)


def test_classes_that_nobody_chooses_are_not_hit() -> None:
    mode = BalancedMode()
    mask = torch.nn.functional.one_hot(_choice(mode, ROWS, 1), N + 2)
    with mode:
        hit = (mask.sum(dim=(0, 1)) > 0).nonzero()
        rows = mask.nonzero()
    law = mode.law(hit)
    assert isinstance(law, Known)
    assert law.value.flatten().tolist() == [0, 1, 2, 3]
    assert tuple(rows.shape) == (ROWS, 3)


@pytest.mark.parametrize("size", [N, N + 3])
def test_counts_of_classes_are_those_of_an_even_choice(size: int) -> None:
    mode = BalancedMode()
    chosen, even = _choice(mode, ROWS), torch.arange(ROWS) % N
    with mode:
        counted = chosen.bincount(minlength=size)
        binned = chosen.float().histc(bins=size, min=0, max=size - 1)
        places = torch.zeros(ROWS, size).scatter(1, chosen[:, None], 1.0)
        ends = counted.cumsum(0)
    assert torch.equal(_shares(mode, counted), even.bincount(minlength=size).double())
    assert torch.equal(_shares(mode, binned), even.double().histc(size, 0, size - 1))
    assert torch.equal(_shares(mode, places), (torch.arange(size) < N).double().div(N).expand(ROWS, size))
    law = mode.law(ends)
    assert isinstance(law, Known)
    assert torch.equal(law.value, even.bincount(minlength=size).cumsum(0))


def test_an_unknown_other_leaves_half_of_the_alternatives() -> None:
    mode = BalancedMode()
    other = mode.fake((3,), torch.int64)
    assert mode.law(_choice(mode, 3) < other) == Mean(Fraction(1, 2))
    assert mode.law(_choice(mode, 3) == other) == Mean(Fraction(1, N))
