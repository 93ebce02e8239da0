"""What a call makes is known from an equal call before it: the same stream of calls as when each call runs."""

from typing import Any

import pytest
import torch
from torch import nn

from rostam_py.tracing import folding, trace
from rostam_py.tracing.balance import BalancedMode
from rostam_py.tracing.quick import NeedsRunError, steady_key
from rostam_py.tracing.sources import user_subject
from rostam_py.tracing.stream import Stream
from tests.tracing.test_repeats import MODELS, RECURRENCES, WIDTH, Stack, _blocks

CASES = [
    *((name, torch.zeros(4, WIDTH)) for name in ("equal", "alternating", "checkpointed", "tied pairs", "constants",
      "changed in place", "half under autocast", "one without gradient", "own backward", "buffers")),
    *((name, torch.zeros(2, 20, 4)) for name in RECURRENCES),
]  # fmt: skip


def _stream(model: nn.Module, x: torch.Tensor, is_quick: bool) -> Stream:
    return folding.watch(user_subject(model, x, None, None, "model", None), 2, is_quick)


@pytest.mark.parametrize(("name", "x"), CASES, ids=[name for name, _ in CASES])
def test_a_quick_run_sees_the_calls_that_a_full_run_sees(name: str, x: torch.Tensor) -> None:
    model = {**MODELS, **RECURRENCES}[name][0]()
    quick, full = (_stream(model, x, is_quick) for is_quick in (True, False))
    assert len(full.calls) > 20
    for a, b in zip(quick.calls, full.calls, strict=True):
        assert a == b
    assert quick.names == full.names


class _Asking(nn.Module):
    """Doubles what a gradient comes to; one block changes its input in place."""

    def __init__(self, is_in_place: bool) -> None:
        super().__init__()
        self.linear, self.is_in_place = nn.Linear(WIDTH, WIDTH), is_in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.is_in_place:
            return y.add_(1)
        return y * 2 if y.grad_fn is not None else y


@pytest.mark.parametrize("is_in_place", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_program_that_asks_for_history_is_run_in_full(is_in_place: bool) -> None:
    model = Stack([*_blocks(), _Asking(is_in_place), _Asking(is_in_place)])
    x = torch.zeros(4, WIDTH)
    if not is_in_place:
        with pytest.raises(NeedsRunError):
            _stream(model, x, is_quick=True)
    assert trace(model, x) == trace(model, x, replicate_blocks=False)


@pytest.mark.parametrize(
    ("name", "places", "is_steady"),
    [
        ("select", (1, 2), True),
        ("select", (1, 3), False),  # outside: the call raises
        ("__getitem__", (slice(None), 1), True),
        ("__getitem__", (slice(None), 4), False),
        ("__getitem__", (None, 1, -1), True),
        ("__getitem__", (0, 0, 0, 0), False),
        ("__getitem__", (slice(0, 1),), False),
        ("__setitem__", (1,), True),
        ("narrow", (1, 0, 1), False),
    ],
)
def test_places_that_are_picked_do_not_change_forms(name: str, places: tuple[Any, ...], is_steady: bool) -> None:
    args = (torch.zeros(2, 3, 4), *(places if name in ("select", "narrow") else (places,)))
    integers = [n for p in places for n in ((p.start, p.stop) if isinstance(p, slice) else (p,)) if type(n) is int]
    key = steady_key(name, args, integers)
    assert (key != tuple(integers)) == is_steady


def test_a_place_is_picked_as_torch_picks_it() -> None:
    with BalancedMode() as mode, torch.device("cpu"):
        x = torch.empty(2, 5, 3).transpose(0, 1)
        view = x.select(0, 3)
    with mode:
        like = torch.empty(2, 5, 3).transpose(0, 1)[3:4].squeeze(0)
    assert (view.shape, view.stride(), view.storage_offset()) == (like.shape, like.stride(), like.storage_offset())
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert view.device == x.device
    assert mode.law(view) is None
