"""Fusion on a graph drawn by hand, and its invariants on a traced one.

w --t--> wt
x, wt --mm--> a --gelu--> b --view--> c --add(r)--> d --mm(v)--> e      r: a constant
"""

import pytest
import torch
from torch import nn

from rostam_py.graph import Affine, Op, OperatorGraph, Tensor, fuse, kernel_bytes, kernel_traffic
from rostam_py.models import gpt
from rostam_py.tracing import trace

X, W, WT, A, B, C, R, D, V, E = range(10)


def _tensor(index: int, producer: int | None, kind: str = "activation", is_saved: bool = False) -> Tensor:
    return Tensor(index, (Affine(0, 4), Affine(4)), "float32", kind, producer=producer, is_saved=is_saved)


def _op(index: int, op_type: str, inputs: tuple[int, ...], output: int, flag: str = "", block: int = -1) -> Op:
    return Op(
        id=index,
        name=f"op_{index}",
        module="",
        phase="forward",
        op_type=f"aten.{op_type}.default",
        inputs=inputs,
        outputs=(output,),
        is_metadata=flag == "metadata",
        is_elementwise=flag == "elementwise",
        block=block,
    )


def _graph(is_a_saved: bool = False, add_block: int = -1) -> OperatorGraph:
    ops = (
        _op(0, "t", (W,), WT, "metadata"),
        _op(1, "mm", (X, WT), A),
        _op(2, "gelu", (A,), B, "elementwise"),
        _op(3, "view", (B,), C, "metadata"),
        _op(4, "add", (C, R), D, "elementwise", add_block),
        _op(5, "mm", (D, V), E),
    )
    producers = {WT: 0, A: 1, B: 2, C: 3, D: 4, E: 5}
    kinds = {X: "input", W: "parameter", V: "parameter", R: "constant", E: "loss"}
    tensors = tuple(
        _tensor(i, producers.get(i), kinds.get(i, "activation"), is_saved=is_a_saved and i == A) for i in range(10)
    )
    return OperatorGraph("drawn", ops, tensors)


SIZE = 4 * 4 * 4.0  # bytes of every tensor at batch 1


def test_chain_fuses_through_views_into_its_producer() -> None:
    fusion = fuse(_graph())
    assert fusion.kernels == ((1, 2, 4), (5,))
    assert (fusion.num_metadata_removed, fusion.num_fused) == (2, 2)


@pytest.mark.parametrize(("barrier", "kernels"), [(A, ((1,), (2, 4), (5,))), (B, ((1, 2), (4,), (5,)))])
def test_nothing_fuses_across_a_barrier(barrier: int, kernels: tuple[tuple[int, ...], ...]) -> None:
    assert fuse(_graph(), frozenset({barrier})).kernels == kernels


def test_barrier_on_a_view_stops_fusion_too() -> None:
    assert fuse(_graph(), frozenset({C})).kernels == ((1, 2), (4,), (5,))


def test_nothing_fuses_across_a_block_boundary() -> None:
    assert fuse(_graph(add_block=0)).kernels == ((1, 2), (4,), (5,))


def test_only_external_tensors_are_moved() -> None:
    graph = _graph()
    first, second = kernel_traffic(graph, fuse(graph))
    assert (first.reads, first.writes) == ((X, WT, R), (D,))
    assert kernel_bytes(graph, first, 1) == (3 * SIZE, SIZE)
    assert kernel_bytes(graph, second, 2) == (4 * SIZE, 2 * SIZE)


def test_saved_and_kept_tensors_are_written_though_read_inside() -> None:
    graph = _graph(is_a_saved=True)
    assert kernel_traffic(graph, fuse(graph))[0].writes == (A, D)
    graph = _graph()
    assert kernel_traffic(graph, fuse(graph), kept={C})[0].writes == (B, D)


@pytest.fixture(scope="module")
def traced() -> OperatorGraph:
    config = gpt.Config(num_layers=2, width=64, num_heads=4, sequence_length=32, vocabulary=128)
    return trace(gpt.build("tiny", config))


def test_kernels_partition_the_ops_in_a_valid_order(traced: OperatorGraph) -> None:
    outputs = [t.id for t in traced.tensors if t.producer is not None]
    for barriers in (frozenset(), frozenset(outputs[::3])):
        fusion = fuse(traced, barriers)
        computing = sorted(op.id for op in traced.ops if not op.is_metadata)
        assert sorted(op for kernel in fusion.kernels for op in kernel) == computing
        assert len(fusion.kernels) + fusion.num_fused + fusion.num_metadata_removed == len(traced.ops)
        done = {t.id for t in traced.tensors if t.producer is None}
        for kernel in fusion.kernels:
            for index in kernel:
                assert all(_is_ready(traced, v, done) for v in traced.ops[index].inputs)
                done.update(traced.ops[index].outputs)


def _is_ready(graph: OperatorGraph, tensor: int, done: set[int]) -> bool:
    producer = graph.tensors[tensor].producer
    if producer is None or not graph.ops[producer].is_metadata:
        return tensor in done
    return all(_is_ready(graph, v, done) for v in graph.ops[producer].inputs)


def test_fusion_never_moves_more_bytes(traced: OperatorGraph) -> None:
    fusion = fuse(traced)
    for kernel, traffic in zip(fusion.kernels, kernel_traffic(traced, fusion), strict=True):
        read, written = kernel_bytes(traced, traffic, 4)
        assert read <= sum(traced.ops[i].bytes_read.at(4) for i in kernel)
        assert written <= sum(traced.ops[i].bytes_written.at(4) for i in kernel)
        if len(kernel) == 1:
            assert (read, written) == (
                traced.ops[kernel[0]].bytes_read.at(4),
                traced.ops[kernel[0]].bytes_written.at(4),
            )


@pytest.mark.parametrize("hotness", [1, 20])
def test_a_pooled_lookup_reads_the_rows_of_all_its_ids(hotness: int) -> None:
    # 20 rows of 8 float32 a sample are read and one is written; the ids, 8 bytes each, are read as well, and so are the
    # offsets of the samples.
    rows, width, batch = 1000, 8, 4
    graph = trace(nn.EmbeddingBag(rows, width, mode="sum"), torch.zeros(batch, hotness, dtype=torch.int64))
    fusion = fuse(graph)
    lookups = [
        kernel_bytes(graph, traffic, batch)[0]
        for kernel, traffic in zip(fusion.kernels, kernel_traffic(graph, fusion), strict=True)
        if graph.ops[kernel[0]].role == "embedding" and graph.ops[kernel[0]].phase == "forward"
    ]
    assert lookups == [pytest.approx(batch * (hotness * (4 * width + 8) + 8))]
