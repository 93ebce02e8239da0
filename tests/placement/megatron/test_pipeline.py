"""Pipeline cuts: balance, and the order in which gradients are summed."""

import itertools

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.placement.accumulation import regroup_gradient_sums
from rostam_py.placement.megatron.pipeline import _best_cuts, assign_stages


def slowest(seconds, bounds):
    """Return the work of the slowest stage."""
    ends = [0, *bounds, len(seconds)]
    return max(sum(seconds[a:b]) for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_cuts_are_as_balanced_as_the_best_of_all(seed, num_stages):
    rng = np.random.default_rng(seed)
    seconds = rng.integers(1, 20, 12).astype(float)
    cuts = sorted(rng.choice(np.arange(1, 12), 7, replace=False).tolist())
    live = rng.integers(1, 9, len(cuts)).astype(float).tolist()
    found = _best_cuts(seconds, cuts, live, num_stages)
    best = min(
        (slowest(seconds, c), sum(live[cuts.index(i)] for i in c)) for c in itertools.combinations(cuts, num_stages - 1)
    )
    assert slowest(seconds, found) == pytest.approx(best[0])


def test_equally_fast_cuts_take_the_one_with_fewest_live_bytes():
    # four unit ops, two stages: cutting at 2 is forced; with a free op in the middle 2 and 3 are equal
    assert _best_cuts(np.array([1.0, 1.0, 0.0, 1.0, 1.0]), [1, 2, 3, 4], [9.0, 5.0, 4.0, 9.0], 2) == [3]


def test_stages_follow_the_forward_order_and_backward_returns(encoder_decoder):
    weights = [0.0 if op.is_metadata else 1.0 for op in encoder_decoder.ops]
    stages = assign_stages(encoder_decoder, 4, weights, 2)
    forward = [
        stages.op_stages[op.id]
        for op in encoder_decoder.ops
        if op.phase == "forward" and not op.is_metadata and not all(stages.is_local[t] for t in op.outputs)
    ]
    assert forward == sorted(forward)
    assert set(forward) == {0, 1, 2, 3}
    for op in encoder_decoder.ops:
        if op.phase == "backward" and op.forward_op is not None and not op.is_metadata:
            assert stages.op_stages[op.id] <= stages.op_stages[op.forward_op]


@pytest.mark.parametrize("model", ["llama3_8b", "mixtral_8x7b"])
def test_tables_of_positions_are_held_by_each_stage_and_sent_to_none(model):
    # Cosines and sines of positions depend on no sample and no weight; two of 4,096 x 128 beside an activation of
    # 4,096 x 4,096 were 3% of what a stage sent. Megatron-Core keeps them (lru_cache of RotaryEmbedding.forward).
    graph = rostam.trace(model, num_layers=4)
    tables = [t for op in graph.ops if op.op_type in ("aten.cos.default", "aten.sin.default") for t in op.outputs]
    stages = assign_stages(graph, 4, [1.0] * len(graph.ops), 1)
    assert len(tables) == 2
    assert all(stages.is_local[t] for t in tables)
    for sent in stages.up[:-1]:
        (root,) = sent
        batch, rows, width = graph.tensors[root].shape
        assert batch.per_sample == 1
        assert (rows.at(1), width.at(1)) == (graph.tensors[tables[0]].shape[0].at(1), 4096)


def test_table_of_samples_is_sent():
    # A table computed from samples, not positions, differs from micro-batch to micro-batch.
    graph = rostam.trace("llama3_8b", num_layers=4)
    stages = assign_stages(graph, 4, [1.0] * len(graph.ops), 1)
    embedded = next(op for op in graph.ops if op.op_type == "aten.embedding.default")
    assert not any(stages.is_local[t] for t in embedded.outputs)


def test_gradient_of_a_tensor_many_blocks_read_is_summed_block_by_block(encoder_decoder):
    graph = regroup_gradient_sums(encoder_decoder)
    assert len(graph.ops) == len(encoder_decoder.ops)
    before, after = sum_leaves(encoder_decoder), sum_leaves(graph)
    assert before == after, "the same parts are summed"
    made = set()
    for op in graph.ops:
        for t in op.inputs:
            assert graph.tensors[t].producer is None or t in made
        made.update(op.outputs)
    block_sums = [
        op
        for op in graph.ops
        if op.is_accumulation
        and len({block for t in op.inputs for block in [block_of(graph, t)]}) == 1
        and all(graph.ops[graph.tensors[t].producer].is_metadata for t in op.inputs)
    ]
    assert len(block_sums) >= 3 + 2  # keys with values of three decoder layers


def block_of(graph, tensor):
    """Return the block of a tensor's producer."""
    return graph.ops[graph.tensors[tensor].producer].block


def sum_leaves(graph):
    """Return for every final sum of gradients the tensors it is made of."""
    parts = {}
    inner = set()
    for op in graph.ops:
        if op.is_accumulation:
            leaves = set()
            for t in op.inputs:
                leaves |= parts.get(t, {t})
                inner.add(t)
            parts[op.outputs[0]] = frozenset(leaves)
    return {t: leaves for t, leaves in parts.items() if t not in inner}


def test_graph_without_such_sums_is_left_alone(gpt):
    assert regroup_gradient_sums(gpt) is gpt
