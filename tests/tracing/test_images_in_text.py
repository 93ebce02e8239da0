"""Models of text and images: checks of entries are passed over, images taken apart are joined as they were.

Legend: images of 3 x 8 x 8 in P = 4 patches of D features, texts of S tokens, whose image tokens they replace.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rostam_py.errors import TracingError
from rostam_py.graph import Affine, OperatorGraph
from rostam_py.tracing import trace

BATCH, P, D, S, IMAGE_TOKEN = 2, 4, 16, 8, 5
TOWER = 2 * (3 * 4 * 4) * D * P + 2 * P * D * D


class Captions(nn.Module):
    """As LLaVA: features of each image are a list's entry, joined, counted against image tokens, and put in place."""

    def __init__(self, check: str = "torch._check_tensor_all_with") -> None:
        super().__init__()
        self.check = check
        self.patches, self.tower = nn.Conv2d(3, D, 4, 4, bias=False), nn.Linear(D, D, bias=False)
        self.words, self.head = nn.Embedding(32, D), nn.Linear(D, 32, bias=False)

    def forward(self, ids: Tensor, images: Tensor) -> Tensor:
        features = self.tower(self.patches(images).flatten(2).transpose(1, 2))
        rows = torch.cat(list(features), dim=0)
        mask, x = ids == IMAGE_TOKEN, self.words(ids)
        fits = mask.sum() * D == rows.numel()
        if self.check == "torch._check_tensor_all_with":
            torch._check_tensor_all_with(ValueError, fits, lambda: f"{mask.sum()} image tokens")
        elif self.check == "torch._assert":
            torch._assert(fits, "image tokens")
        elif not fits:
            raise ValueError
        return self.head(x.masked_scatter(mask[..., None], rows))


def _traced(module: nn.Module, num_images: int, **told: Any) -> OperatorGraph:
    ids = torch.zeros(BATCH, S, dtype=torch.int64)
    return trace(module, (ids, torch.zeros(num_images, 3, 8, 8)), **told)


def _tower(graph: OperatorGraph) -> Affine:
    names = ("mm", "convolution")
    ops = [op for op in graph.ops if op.phase == "forward" and op.module in ("patches", "tower")]
    return sum((op.flops for op in ops if any(n in op.op_type for n in names)), Affine())


@pytest.mark.parametrize("check", ["torch._check_tensor_all_with", "torch._assert"])
def test_the_tower_grows_with_the_samples(check: str) -> None:
    graph = _traced(Captions(check), BATCH)
    assert graph.route == "joint"
    assert _tower(graph) == Affine(0, TOWER)
    assert not any(name in op.op_type for op in graph.ops for name in (".unbind.", ".cat."))


def test_several_images_for_each_text() -> None:
    assert _tower(_traced(Captions(), 3 * BATCH, batch_dims={0: 0, 1: 0})) == Affine(0, 3 * TOWER)


def test_a_branch_on_what_is_not_known_is_refused() -> None:
    with pytest.raises(TracingError, match="_local_scalar_dense"):
        _traced(Captions("if"), BATCH)


def test_a_check_of_what_is_known_is_made() -> None:
    class Checked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            torch._check_tensor_all_with(ValueError, torch.arange(4) < 3, lambda: "too many")
            return super().forward(x)

    with pytest.raises(TracingError, match="ValueError: too many"):
        trace(Checked(8, 8), torch.zeros(2, 8))


class Joined(nn.Linear):
    """Takes rows apart and joins them: all, in another order, some, or changed."""

    def __init__(self, how: str) -> None:
        super().__init__(D, D)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        pieces = list(y.unbind() if "unbind" in self.how else y)
        if "reversed" in self.how:
            pieces.reverse()
        if "changed" in self.how:
            pieces = [2 * piece for piece in pieces]
        if "some" in self.how:
            pieces = pieces[1:]
        return torch.stack(pieces) if "stack" in self.how else torch.cat(pieces)


@pytest.mark.parametrize("how", ["cat", "stack", "cat of unbind", "stack of unbind"])
def test_all_pieces_in_order_are_the_tensor(how: str) -> None:
    graph = trace(Joined(how), torch.zeros(BATCH, S, D))
    assert not any(name in op.op_type for op in graph.ops for name in ("cat", "stack", "unbind", "select"))


@pytest.mark.parametrize("how", ["reversed cat", "changed cat", "some cat", "some stack"])
def test_other_joins_are_those_of_the_program(how: str) -> None:
    with pytest.raises(TracingError, match="the module's structure depends on the batch"):
        trace(Joined(how), torch.zeros(BATCH, S, D))
