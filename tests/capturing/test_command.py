"""Command lines: what they run, and on how many ranks."""

import pytest

from rostam_py.capturing.command import Command, parse_command

HERE = __file__


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", HERE, "--lr", "1"], Command(kind="script", target=HERE, arguments=("--lr", "1"))),
        (["/usr/bin/python3.11", "-u", HERE], Command(kind="script", target=HERE)),
        ([HERE, "-x"], Command(kind="script", target=HERE, arguments=("-x",))),
        (["python", "-m", "a.b", "--c"], Command(kind="module", target="a.b", arguments=("--c",))),
        (
            ["torchrun", "--nnodes=4", "--nproc_per_node", "8", "--rdzv-backend", "c10d", "--standalone", HERE, "-m"],
            Command(kind="script", target=HERE, arguments=("-m",), world=32, local_world=8),
        ),
        (
            ["torchrun", "--nnodes", "1:4", "--nproc-per-node", "gpu", "-m", "a.b", "c"],
            Command(kind="module", target="a.b", arguments=("c",), world=32, local_world=8),
        ),
        (
            ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", HERE],
            Command(kind="script", target=HERE, world=2, local_world=2),
        ),
    ],
)
def test_words_are_read_as_their_programs_read_them(words, expected):
    assert parse_command(words) == expected
