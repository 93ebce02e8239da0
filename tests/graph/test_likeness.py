"""Which repeated blocks are alike: those that do the same with the same around them, and no others."""

from collections import Counter
from dataclasses import replace

import pytest

import rostam_py as rostam
from rostam_py.graph import Affine
from rostam_py.graph.likeness import runs_of


def any_kind(block):
    return None


@pytest.fixture(scope="module")
def llama():
    return rostam.trace("llama3_8b", num_layers=12)


def with_changed_block(graph, block, **changes):
    """Return the graph with one product of a block's forward changed."""
    first = next(op for op in graph.ops if op.block == block and op.role == "product")
    return replace(graph, ops=tuple(replace(op, **changes) if op is first else op for op in graph.ops))


def test_all_blocks_but_the_first_and_the_last_are_alike(llama):
    # The first reads embeddings, the last is read by the head; behind the reach nothing of that is seen.
    assert llama.likeness.kinds(any_kind, 0) == (0, *[1] * 10, 11)
    assert llama.likeness.kinds(any_kind, 1) == (0, 1, *[2] * 8, 10, 11)
    assert llama.likeness.kinds(any_kind, 3) == (0, 1, 2, 3, *[4] * 4, 8, 9, 10, 11)


@pytest.mark.parametrize(
    "changes", [{"flops": Affine(1.0)}, {"op_type": "aten.bmm.default"}, {"splits": ()}, {"arguments": {"args": []}}]
)
def test_a_block_with_another_op_is_like_no_other(llama, changes):
    kinds = with_changed_block(llama, 5, **changes).likeness.kinds(any_kind, 0)
    assert kinds == (0, 1, 1, 1, 1, 5, 1, 1, 1, 1, 1, 11)


def test_blocks_around_another_one_are_of_other_kinds(llama):
    kinds = with_changed_block(llama, 5, flops=Affine(1.0)).likeness.kinds(any_kind, 1)
    assert kinds == (0, 1, 2, 2, 4, 5, 6, 2, 2, 2, 10, 11)


def test_a_property_tells_blocks_apart(llama):
    kinds = llama.likeness.kinds(lambda block: block < 6, 0)
    assert kinds == (0, *[1] * 5, *[6] * 5, 11)


@pytest.mark.slow
def test_windows_of_attention_in_every_other_block_make_two_kinds():
    kinds = rostam.trace("gpt_oss_20b", num_layers=12).likeness.kinds(any_kind, 1)
    counts = Counter(kinds).most_common(2)
    assert [count for _, count in counts] == [4, 4]
    assert {block % 2 for block in range(12) if kinds[block] == counts[0][0]} != {0, 1}


def test_references_name_counterparts(llama):
    likeness = llama.likeness
    for one, other in zip(likeness.ops[4], likeness.ops[7], strict=True):
        for t, u in zip(llama.ops[one].inputs, llama.ops[other].inputs, strict=True):
            reference = likeness.reference(4, t)
            assert reference == likeness.reference(7, u)
            assert likeness.referred(4, reference) == t
            assert likeness.referred(7, reference) == u


def test_runs_are_of_one_block_each_and_hold_all_ops(llama):
    runs = runs_of(llama.ops)
    assert [op for run in runs for op in run] == list(llama.ops)
    assert all(len({op.block for op in run}) == 1 for run in runs)
    assert all(one[0].block != other[0].block for one, other in zip(runs, runs[1:], strict=False))
