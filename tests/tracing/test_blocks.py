"""Which children of a stack are repeated blocks."""

import pytest
from torch import nn

from rostam_py.tracing.blocks import find_block_groups


class Block(nn.Module):
    """A product, and ``extra`` modules."""

    def __init__(self, width=8, **extra):
        super().__init__()
        self.up = nn.Linear(width, width)
        for name, module in extra.items():
            setattr(self, name, module)


class Other(Block):
    """Of the same parameters."""


def stack(*blocks):
    """Return a model of one stack."""
    return nn.ModuleDict({"blocks": nn.ModuleList(blocks)})


def names(*places):
    """Return paths of the stack's blocks."""
    return [f"blocks.{place}" for place in places]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_block_with_a_table_more_stands_in_its_group(place):
    blocks = [Block(table=nn.Embedding(4, 2)) if i == place else Block() for i in range(3)]
    assert find_block_groups(stack(*blocks)) == [names(0, 1, 2)]


def test_blocks_of_different_extras_share_what_all_have():
    blocks = [Block(table=nn.Embedding(4, 2)), Block(), Block(scale=nn.LayerNorm(8))]
    assert find_block_groups(stack(*blocks)) == [names(0, 1, 2)]


@pytest.mark.parametrize(
    "other",
    [Other(), Block(16), Block(down=nn.Linear(8, 64)), Block(up=nn.Linear(8, 8, bias=False), out=nn.Linear(8, 2))],
    ids=["class", "width", "most of it", "neither in the other"],
)
def test_unlike_blocks_are_no_group(other):
    assert find_block_groups(stack(Block(), Block(), other)) == [names(0, 1)]
    assert find_block_groups(stack(other, Block(), Block())) == [names(1, 2)]


def test_runs_without_parameters_are_none():
    assert find_block_groups(stack(nn.ReLU(), nn.ReLU())) == []
