"""ATen names as kernels, against what torch says the ops are: names exist, shapes of results, FLOPs, bytes."""

import itertools
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from rostam_py.costs.written import moved_op, written_op
from rostam_py.tracing import aten_kernels
from rostam_py.tracing.aten_kernels import is_aten_name, kernel_of, runs_no_kernel

# Of other libraries, or of torch's private ones that a CPU build registers in other places.
_ELSEWHERE = {
    "all_gather_copy_in", "chunk_cat", "split_copy", "flex_attention", "flex_attention_backward", "expand_copy",
    "layer_norm_backward", "rms_norm_backward", "_fused_rms_norm_backward", "scaled_dot_product_attention_backward",
    "polar", "dropout",
}  # fmt: skip


def listed():
    kinds = [names for names, _ in aten_kernels._KINDS]
    return sorted({*itertools.chain(*kinds), *aten_kernels._SPECIAL} - _ELSEWHERE)


@pytest.mark.parametrize("name", listed())
def test_every_name_of_the_table_is_an_op_of_torch(name):
    assert any(hasattr(torch.ops.aten, name + mark) for mark in ("", "_")), name


def called(op, *tensors, **arguments):
    """Return what torch makes of an op, and what the table does."""
    result = op(*tensors, **arguments)
    made = result if isinstance(result, tuple | list) else (result,)
    given = [one for t in tensors for one in (t if isinstance(t, list) else [t]) if isinstance(one, torch.Tensor)]
    return made, kernel_of(str(op), tuple(tuple(one.shape) for one in given))


A = torch.ops.aten
X, W = torch.ones(6, 4), torch.ones(4, 5)


@pytest.mark.parametrize(
    ("op", "tensors", "arguments"),
    [
        (A.mm.default, (X, W), {}), (A.addmm.default, (torch.ones(5), X, W), {}),
        (A.bmm.default, (X[None], W[None]), {}), (A.baddbmm.default, (torch.ones(1, 6, 5), X[None], W[None]), {}),
    ],
)  # fmt: skip
def test_products_have_the_flops_that_torch_counts(op, tensors, arguments):
    with FlopCounterMode(display=False) as counter:
        made, found = called(op, *tensors, **arguments)
    written = written_op(found.written, found.reads, "float32")
    assert written.flops == counter.get_total_flops() == 2 * 6 * 4 * 5
    assert written.writes == (tuple(made[0].shape),)


@pytest.mark.parametrize(
    ("op", "tensors", "arguments"),
    [
        (A.silu.default, (X,), {}), (A.add.Tensor, (X, torch.ones(4)), {}), (A.where.self, (X > 0, X, X), {}),
        (A._softmax.default, (X, -1, False), {}), (A.cat.default, ([X, X],), {}), (A.sum.default, (X,), {}),
        (A.cumsum.default, (X, 0), {}), (A.clone.default, (X,), {}),
        (A.native_layer_norm.default, (X, [4], None, None, 1e-5), {}),
        (A.index_select.default, (X, 0, torch.tensor([1, 2])), {}),
        (A.gather.default, (X, 1, torch.zeros(6, 2).long()), {}),
        (A.copy_.default, (torch.ones(6, 4), X), {}), (A._foreach_mul.Scalar, ([X, X], 2.0), {}),
        (A._foreach_add.List, ([X, X], [X, X]), {}), (A._foreach_addcmul.Scalar, ([X], [X], [X]), {}),
    ],
)  # fmt: skip
def test_results_have_the_entries_that_torch_makes(op, tensors, arguments):
    made, found = called(op, *tensors, **arguments)
    outputs = made[:1] if op is A.native_layer_norm.default else made
    assert found.written == ""
    assert sum(map(math.prod, found.writes)) == sum(max(1, one.numel()) for one in outputs)


def test_bytes_are_those_of_the_tensors():
    # add reads two tensors of 24 entries and writes one; copy_ reads its source alone; zero_ reads nothing.
    def moved(name, *shapes, writes=()):
        found = kernel_of(name, shapes, writes)
        return [sum(map(math.prod, tensors)) for tensors in (found.reads, found.writes)]

    assert moved("aten.add.Tensor", (6, 4), (6, 4)) == [48, 24]
    assert moved("aten.add_.Tensor", (6, 4), (4,)) == [28, 24]
    assert moved("aten.copy_.default", (6, 4), (6, 4)) == [24, 24]
    assert moved("aten.zero_.default", (6, 4)) == [0, 24]
    assert moved("fsdp.chunk_cat", (6, 4), (8,)) == [32, 32]
    # The shard of each weight is copied to its place in what all ranks gather, which is returned as well.
    assert moved("fsdp.all_gather_copy_in", (6, 4), (8,), (256,), writes=((32,), (256,))) == [32, 32]
    assert moved("aten.embedding_dense_backward", (10, 4), (10,)) == [90, 40]
    assert moved("aten.sum.dim_IntList", (6, 4), writes=((4,),)) == [24, 4]
    assert moved("aten._foreach_norm.Scalar", (6, 4), (8,)) == [32, 2]
    assert moved("aten._foreach_copy_.default", (6, 4), (6, 4)) == [24, 24]
    # A sort passes 8 times over keys and places.
    assert moved("aten.sort.default", (6, 4)) == [8 * 2 * 24] * 2


def test_a_product_of_8_bits_has_one_scale_for_each_input():
    scaled = kernel_of("aten._scaled_mm.default", ((64, 512), (512, 1024), (1,), (1,)))
    assert (scaled.written, scaled.reads) == ("matmul", ((64, 512), (512, 1024)))
    assert kernel_of("aten._scaled_mm.default", ((64, 512), (512, 1024), (64, 1), (1, 1024))) is None
    assert kernel_of("aten._scaled_mm.default", ((64, 512), (512, 1024))) is None


def test_attention_is_that_of_written_ops():
    query, key = (2, 16, 512, 64), (2, 4, 512, 64)
    flash = kernel_of("aten._scaled_dot_product_flash_attention.default", (query, key, key), is_causal=True)
    assert (flash.written, flash.reads) == ("causal_attention", (query, key, key))
    flex = kernel_of("flex_attention", (query, key, key, (1, 1, 4, 4)))
    assert (flex.written, flex.reads) == ("attention", (query, key, key))
    back = kernel_of("aten._scaled_dot_product_flash_attention_backward.default", (query, query, key, key, query))
    assert (back.written, back.reads) == ("attention_backward", (query, key, key))


def test_an_optimizer_step_updates_a_quarter_of_its_entries():
    # Two weights with gradients and two moments each, and their steps.
    sizes = [(100,), (6, 4)] * 4 + [(1,), (1,)]
    found = kernel_of("aten._fused_adamw_.default", tuple(sizes))
    assert (found.written, found.reads) == ("adam", ((124,),))


def test_names_and_what_has_no_formula():
    assert is_aten_name("aten.mm.default")
    assert is_aten_name("fsdp.chunk_cat")
    assert not is_aten_name("matmul")
    assert runs_no_kernel("aten.view.default")
    assert not runs_no_kernel("aten.mm.default")
    assert kernel_of("aten.unknown.default", ((1,),)) is None
    assert kernel_of("aten.mm.default", ((4, 4),)) is None
    assert kernel_of("aten._foreach_addcmul.Scalar", ((4,), (4,))) is None
    assert kernel_of("aten.add.Tensor", ()) is None
    assert moved_op("x.y", ((4,),), ((4,),), "int64").flops == 4


@pytest.mark.parametrize(
    ("inputs", "weights", "arguments"),
    [
        ((2, 6, 9, 9), (4, 6, 3, 3), ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)),
        ((2, 6, 9), (6, 3, 3), ([1], [1], [1], False, [0], 2)),
        ((2, 6, 9, 9), (6, 4, 2, 2), ([2, 2], [0, 0], [1, 1], True, [0, 0], 1)),
    ],
)
def test_convolutions_have_the_flops_that_torch_counts(inputs, weights, arguments):
    x, w = torch.ones(inputs), torch.ones(weights)
    groups = arguments[-1]
    with FlopCounterMode(display=False) as counter:
        out = A.convolution.default(x, w, None, *arguments)
    found = kernel_of("aten.convolution.default", (inputs, weights), (tuple(out.shape),))
    flops = written_op(found.written, found.reads, "float32").flops
    positions = math.prod(inputs if arguments[3] else out.shape) // (inputs[1] if arguments[3] else out.shape[1])
    assert flops == 2 * positions * math.prod(weights)
    if groups == 1:  # torch counts groups several times
        assert flops == counter.get_total_flops()
    shapes = (tuple(out.shape), inputs, weights)
    for writes in ((inputs, weights), (weights,)):
        both = kernel_of("aten.convolution_backward.default", shapes, writes)
        assert written_op(both.written, both.reads, "float32").flops == len(writes) * flops
    assert kernel_of("aten.convolution_backward.default", shapes, ()) is None


def test_scaled_gradients_are_read_and_written_once():
    found = kernel_of("aten._amp_foreach_non_finite_check_and_unscale_.default", ((4, 4), (8,), (), ()))
    assert found.writes == ((4, 4), (8,))


@pytest.mark.parametrize(
    ("left", "right", "flops"),
    [
        ((8, 16), (2, 16, 32), 2 * 8 * 16 * 32), ((16, 8), (8, 32), 2 * 16 * 8 * 32),
        ((2, 4, 16), (16, 8), 2 * 4 * 16 * 8), ((2, 4, 16), (2, 16, 8), 2 * 2 * 4 * 16 * 8),
    ],
)  # fmt: skip
def test_grouped_products_are_those_of_their_groups(left, right, flops):
    """Two groups: of rows, of the contraction, of columns, and a batch."""
    found = kernel_of("aten._grouped_mm.default", (left, right, (2,)))
    assert written_op(found.written, found.reads, "bfloat16").flops == flops
