"""FSDP2's pieces: torch's own, made as they are asked for; a program on very many ranks."""

import importlib

import pytest

from tests.capturing.captured import SCRIPTS, collectives_of, document, steps_of

HIDDEN, WORLD = 1024, 16_384
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("shape", [(10, 3), (16, 4), (3, 5), (1, 1), (0, 4), (17,)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 20])
def test_pieces_are_those_that_torch_makes(shape, count):
    sharding = importlib.import_module("rostam_py.capturing.sharding")
    theirs = importlib.import_module(sharding._SHARDING)._chunk_with_empty
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    for dim in range(len(shape)):
        expected, found = theirs(tensor, count, dim), sharding.Pieces(tensor, count, dim)
        assert len(found) == len(expected)
        for k, one in enumerate(expected):
            assert found[k].shape == one.shape
            assert torch.equal(found[k], one)
        assert torch.equal(found[-1], expected[-1])
        assert [one.shape for one in found[1:3]] == [one.shape for one in expected[1:3]]
        with pytest.raises(IndexError):
            found[count]


@pytest.mark.slow
def test_fsdp2_on_very_many_ranks_sends_padded_parameters():
    """Each parameter is padded to a row a rank: 4 of norms of 1 number, 3 products of 1,024 and one of 4,096."""
    padded = WORLD * (4 * 1 + 3 * HIDDEN + 4 * HIDDEN)
    steps = steps_of(document(SCRIPTS / "fsdp2_blocks.py", WORLD, ranks=(0,)))
    assert [(kind, size) for kind, size, _ in collectives_of(steps) if kind == "all_gather"] == 8 * [
        ("all_gather", 2 * padded)
    ]
    assert [(kind, size) for kind, size, _ in collectives_of(steps) if kind == "reduce_scatter"] == 4 * [
        ("reduce_scatter", 4 * padded)
    ]
