"""Every split rule against the real op: run the members' parts with torch, join them, compare."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from rostam_py.graph import PARTIAL, WHOLE, Affine, Op, OperatorGraph, Split
from rostam_py.tracing import trace

BATCH, DEGREE = 4, 2
FAMILIES = ("gpt", "llama", "t5", "transformer", "resnet", "cosmoflow", "dlrm")
WITH_EXPERTS_AND_ADAPTERS = ("gpt_oss", "lora", "mixtral", "deepseek")
# Ops whose arguments hold shapes or offsets that a member would adapt; checked apart or by hand.
ADAPTED = ("_embedding_bag", "arange", "max_pool", "select_backward", "new_", "zeros", "ones", "full", "repeat")
VIEWS = ("view", "_unsafe_view", "expand", "slice_backward")
MEANS = ("mean", "nll_loss_forward", "mse_loss", "binary_cross_entropy_with_logits")


def _name(op: Op) -> str:
    return op.op_type.split(".")[1]


def _arguments(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        if "affine" in value:
            return value["affine"][0] + value["affine"][1] * BATCH
        return getattr(torch, next(iter(value.values())))
    return [_arguments(v, tensors) for v in value] if isinstance(value, list) else value


def _attention(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: Any) -> Any:
    key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value))  # grouped queries
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if mask is None else scores + mask
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril().logical_not(), float("-inf"))
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *others: Any) -> Any:
    mask, _, _, dropout, causal, scale = others
    inputs = [t.detach().requires_grad_() for t in (query, key, value)]
    output, _ = _attention(*inputs, mask, dropout, causal, scale)
    return torch.autograd.grad(output, inputs, gradient)


def _attention_mask_backward(gradient: Any, query: Any, key: Any, value: Any, mask: Any, *others: Any) -> Any:
    _, _, dropout, causal, scale = others
    inputs = [t.detach().requires_grad_() for t in (query, key, value, mask)]
    output, _ = _attention(*inputs, dropout, causal, scale)
    return torch.autograd.grad(output, inputs, gradient)


NEUTRAL = {
    "rostam.scaled_dot_product_attention.default": _attention,
    "rostam.scaled_dot_product_attention_backward.default": _attention_backward,
    "rostam.scaled_dot_product_attention_mask_backward.default": _attention_mask_backward,
}


def _call(op: Op, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    _, packet, overload = op.op_type.split(".")
    target = NEUTRAL.get(op.op_type) or getattr(getattr(torch.ops.aten, packet), overload)
    kwargs = {k: _arguments(v, tensors) for k, v in op.arguments["kwargs"].items()}
    result = target(*_arguments(op.arguments["args"], tensors), **kwargs)
    result = [result] if isinstance(result, torch.Tensor) else list(result)
    return [t for t in result if isinstance(t, torch.Tensor)]


def _random_inputs(graph: OperatorGraph, op: Op) -> list[torch.Tensor]:
    torch.manual_seed(op.id)
    made: dict[int, torch.Tensor] = {}
    for value in op.inputs:
        shape = [int(dim.at(BATCH)) for dim in graph.tensors[value].shape]
        dtype = getattr(torch, graph.tensors[value].dtype)
        is_floating = dtype.is_floating_point
        made[value] = torch.randn(shape, dtype=torch.float64) if is_floating else torch.randint(0, 16, shape)
        made[value] = made[value] > 7 if dtype is torch.bool else made[value]
    return [made[value] for value in op.inputs]


def _owned(split: Split, side: str, place: int, extent: int, rank: int) -> torch.Tensor:
    """Return which entries of a split dimension a member holds: an even part of every stretch of the axis.

    An axis that nothing cuts is one stretch; cuts end where parts begin and end. A dimension is ``outer`` x part of the
    axis x the rest.
    """
    size = int(split.size.at(BATCH))
    edges = {0, size}
    for part in (*split.input_parts, *split.output_parts):
        if part is not None and part.length != Affine():
            edges |= {int(part.start.at(BATCH)), int((part.start + part.length).at(BATCH))}
    held = torch.zeros(size, dtype=torch.bool)
    for begin, end in itertools.pairwise(sorted(edges)):
        share = (end - begin) // DEGREE
        held[begin + rank * share : begin + (rank + 1) * share] = True
    parts = getattr(split, f"{side}_parts")
    part = parts[place] if parts else None
    outer, start, length = 1, 0, size
    if part is not None:
        outer, start = int(part.outer.at(BATCH)), int(part.start.at(BATCH))
        length = int(part.length.at(BATCH)) or size
    inner = extent // (outer * length)
    return held[start : start + length].repeat_interleave(inner).repeat(outer).nonzero().flatten()


def _part(split: Split, side: str, place: int, tensor: torch.Tensor, rank: int) -> torch.Tensor:
    dim = getattr(split, f"{side}_dims")[place]
    if dim is WHOLE or dim == PARTIAL:
        return tensor
    return tensor.index_select(dim, _owned(split, side, place, tensor.shape[dim], rank))


def _member(
    op: Op, split: Split, inputs: list[torch.Tensor], whole: list[torch.Tensor], rank: int
) -> list[torch.Tensor]:
    parts = [_part(split, "input", k, t, rank) for k, t in enumerate(inputs)]
    shapes = [list(_part(split, "output", k, t, rank).shape) for k, t in enumerate(whole)]
    if _name(op) in VIEWS:
        if _name(op) == "expand":
            return [parts[0].expand(shapes[0])]
        if _name(op) == "slice_backward":
            dim, start, step = (*op.arguments["args"][2:4], (*op.arguments["args"], 1)[5])
            if step > 1 and split.output_dims[0] == dim:
                return [torch.zeros(shapes[0]).index_copy(dim, torch.arange(start, shapes[0][dim], step), parts[0])]
            if split.output_dims[0] == dim:
                start = int((_owned(split, "output", 0, whole[0].shape[dim], rank) < start).sum())
            result = torch.zeros(shapes[0], dtype=parts[0].dtype)
            result.narrow(dim, start, parts[0].shape[dim]).copy_(parts[0])
            return [result]
        return [parts[0].reshape(shapes[0])]
    if split.has_parts and _name(op) in ("slice", "split", "split_with_sizes"):
        dim, mine = split.input_dims[0], _owned(split, "input", 0, inputs[0].shape[split.input_dims[0]], rank)
        starts = [0 if p is None else int(p.start.at(BATCH)) for p in split.output_parts]
        return [parts[0].narrow(dim, int((mine < start).sum()), shape[dim])
                for start, shape in zip(starts, shapes, strict=True)]  # fmt: skip
    has_bias = _name(op) in ("addmm", "convolution") and PARTIAL in split.output_dims
    if has_bias and rank > 0:  # the bias of a row split is added by one member only
        bias = 0 if _name(op) == "addmm" else 2
        if bias < len(parts):
            parts[bias] = torch.zeros_like(parts[bias])
    return _call(op, parts)


def _assert_legal(op: Op, split: Split, inputs: list[torch.Tensor]) -> None:
    whole = _call(op, inputs)
    members = [_member(op, split, inputs, whole, rank) for rank in range(DEGREE)]
    message = f"{op.op_type} {split}"
    for place, (dim, expected) in enumerate(zip(split.output_dims, whole, strict=True)):
        outputs = [member[place] for member in members]
        if dim == PARTIAL:
            joined = sum(outputs[1:], outputs[0]) / (DEGREE if _name(op) in MEANS else 1)
            if _name(op) == "nll_loss_forward" and place == 1:
                joined = joined * DEGREE  # the total weight is a plain sum
            torch.testing.assert_close(joined, expected, rtol=1e-6, atol=1e-6, msg=message)
            continue
        for rank, output in enumerate(outputs):
            mine = _part(split, "output", place, expected, rank)
            if _name(op) == "mse_loss_backward" and dim is not WHOLE:
                mine = mine * DEGREE  # the mean stays that of all samples
            torch.testing.assert_close(output, mine, rtol=1e-6, atol=1e-6, equal_nan=True, msg=message)


def _is_checkable(op: Op, split: Split) -> bool:
    name = _name(op)
    for part in (*split.input_parts, *split.output_parts):
        if part is not None and (part.start.at(BATCH) % DEGREE or part.length.at(BATCH) % DEGREE):
            return False
    if name.startswith(ADAPTED) or split.comm_kind or split.halos or split.size.at(BATCH) % DEGREE:
        return False
    if "dot_product" in name and split.kind == "head" and split.input_dims[2 if "backward" in name else 1] is WHOLE:
        return False  # a member takes the key heads of its queries
    if name == "nll_loss_forward" and split.kind == "column":
        return False  # a member skips targets outside its classes
    if name == "nll_loss_backward" and split.kind == "column":
        return False
    if name == "embedding_dense_backward" and split.kind == "embedding_row":
        return False
    if name == "embedding" and split.kind == "embedding_row":
        return False
    return not (name == "_native_batch_norm_legit_functional" and split.kind != "column")


@pytest.mark.parametrize("family", FAMILIES)
def test_splits_join_to_the_unsplit_result(family: str, small_graphs: Mapping[str, OperatorGraph]) -> None:
    graph = small_graphs[family]
    seen = set()
    num_checked = 0
    for op in graph.ops:
        shapes = [[int(d.at(BATCH)) for d in graph.tensors[v].shape] for v in op.inputs]
        key = json.dumps([op.op_type, shapes, op.arguments])
        if key in seen:
            continue
        seen.add(key)
        splits = [split for split in op.splits if _is_checkable(op, split)]
        if splits:
            inputs = _random_inputs(graph, op)
            for split in splits:
                _assert_legal(op, split, inputs)
                num_checked += 1
    assert num_checked > 30


@pytest.mark.parametrize("family", FAMILIES)
def test_every_op_with_a_batch_dim_can_split_samples(family: str, small_graphs: Mapping[str, OperatorGraph]) -> None:
    graph = small_graphs[family]
    for op in graph.ops:
        if any(dim.per_sample for value in op.inputs for dim in graph.tensors[value].shape):
            assert any(split.kind == "sample" for split in op.splits), op.op_type


@pytest.mark.parametrize("family", [*FAMILIES, *WITH_EXPERTS_AND_ADAPTERS])
def test_split_lists_align_with_inputs_and_outputs(family: str, small_graphs: Mapping[str, OperatorGraph]) -> None:
    graph = small_graphs[family]
    for op in graph.ops:
        for split in op.splits:
            assert len(split.input_dims) == len(op.inputs)
            assert len(split.output_dims) == len(op.outputs)
            for value, dim in zip((*op.inputs, *op.outputs), (*split.input_dims, *split.output_dims), strict=True):
                assert dim in (WHOLE, PARTIAL) or 0 <= dim < len(graph.tensors[value].shape)


def test_heads_of_gpt_split_through_the_attention_block(small_graphs: Mapping[str, OperatorGraph]) -> None:
    # Megatron: a column split of qkv must arrive at the attention as a head split, and its output at
    # proj as a split of the inner dim; follow the dims from op to op.
    graph = small_graphs["gpt"]
    sharded = {}
    for op in graph.ops:
        if op.module == "blocks.0.attention.qkv" and op.op_type == "aten.addmm.default":
            sharded[op.outputs[0]] = 1
            continue
        dims = tuple(sharded.get(v, WHOLE) for v in op.inputs)
        if all(d is WHOLE for d in dims) or op.phase == "backward":
            continue
        if op.op_type == "aten.addmm.default":
            assert op.module == "blocks.0.attention.proj"
            assert dims == (WHOLE, 1, WHOLE)
            assert any(s.input_dims == (WHOLE, 1, 0) and s.output_dims == (PARTIAL,) for s in op.splits)
            return
        split = next(s for s in op.splits if s.input_dims == dims)
        assert split.size.at(1) % 4 == 0  # four heads
        sharded.update(zip(op.outputs, split.output_dims, strict=True))
    pytest.fail("the split never reached proj")


def test_split_vocabulary_all_reduces_softmax_statistics(small_graphs: Mapping[str, OperatorGraph]) -> None:
    graph = small_graphs["gpt"]
    softmax = next(op for op in graph.ops if op.op_type == "aten._log_softmax.default")
    column = next(s for s in softmax.splits if s.kind == "column")
    assert column.comm_kind == "all_reduce"
    assert column.comm_bytes.at(3) == 3 * 32 * 2 * 4  # maximum and sum of 32 tokens a sample, fp32


def test_group_norm_along_space_needs_two_sums_per_sample_and_group() -> None:
    """Members on halves of the rows: y and dx are the whole's with summed statistics, weight gradients sum to it."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.GroupNorm(2, 8), torch.nn.Flatten())
    graph = trace(module, torch.zeros(2, 3, 4, 6), name="group_norm")
    forward = next(op for op in graph.ops if _name(op) == "native_group_norm")
    backward = next(op for op in graph.ops if _name(op) == "native_group_norm_backward")
    spatial = [[split for split in op.splits if split.kind == "spatial"] for op in (forward, backward)]
    assert [[split.input_dims[0] for split in found] for found in spatial] == [[2, 3]] * 2
    assert all(split.comm_bytes.at(BATCH) == 2 * 4 * BATCH * 2 for found in spatial for split in found)
    assert spatial[0][0].output_dims == (2, WHOLE, WHOLE)
    assert spatial[1][0].output_dims == (2, PARTIAL, PARTIAL)

    dy, x, mean, rstd, weight = _random_inputs(graph, backward)
    y, mean, rstd = _call(forward, [x, weight, torch.zeros_like(weight)])
    dx, dweight, dbias = _call(backward, [dy, x, mean, rstd, weight])
    shape = (BATCH, 2, 4, 4, 6)
    inputs, gradients, scales = x.view(shape), dy.view(shape), weight.view(1, 2, 4, 1, 1)
    halves = [(inputs[..., rows, :], gradients[..., rows, :]) for rows in (slice(0, 2), slice(2, 4))]
    count, inner = 4 * 4 * 6, (2, 3, 4)
    total = sum(half.sum(inner) for half, _ in halves)
    squares = sum(half.square().sum(inner) for half, _ in halves)
    own_mean = total / count
    own_rstd = (squares / count - own_mean**2 + 1e-5).rsqrt()
    normal = [(half - own_mean[..., None, None, None]) * own_rstd[..., None, None, None] for half, _ in halves]
    torch.testing.assert_close(torch.cat([half * scales for half in normal], 3).reshape(y.shape), y)
    scaled = [gradient * scales for _, gradient in halves]
    first = sum(one.sum(inner) for one in scaled)[..., None, None, None] / count
    second = (
        sum((one * half).sum(inner) for one, half in zip(scaled, normal, strict=True))[..., None, None, None] / count
    )
    found = [(one - first - half * second) * own_rstd[..., None, None, None]
             for one, half in zip(scaled, normal, strict=True)]  # fmt: skip
    torch.testing.assert_close(torch.cat(found, 3).reshape(dx.shape), dx)
    weights = [(half[1] * one).sum((0, 3, 4)).flatten() for half, one in zip(halves, normal, strict=True)]
    torch.testing.assert_close(sum(weights), dweight)
    torch.testing.assert_close(sum(half[1].sum((0, 3, 4)).flatten() for half in halves), dbias)


class Pieces(torch.nn.Module):
    """Thirds, stretches and joins of one dimension, and heads merged with samples, with rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.product = torch.nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        fused = self.product(x)
        q, k, v = fused.chunk(3, -1)
        first, rest = fused[..., :16], fused[..., 16:]
        q, k = (torch.cat((-part[..., 8:], part[..., :8]), -1) for part in (q, k))
        heads = fused.view(b, s, 3, 4, 4).permute(2, 0, 3, 1, 4).reshape(3, b * 4, s, 4)
        y = torch.bmm(heads[0], heads[1].transpose(1, 2)) @ heads[2]
        joined = torch.cat((q * first, k * v), -1) * rest
        return joined.flatten(1) + y.view(b, 4, s, 4).transpose(1, 2).reshape(b, -1).repeat(1, 2)


def test_cuts_joins_and_merged_dimensions_join_to_the_unsplit_result() -> None:
    graph = trace(Pieces(), torch.zeros(BATCH, 8, 16), name="pieces")
    checked = set()
    for op in graph.ops:
        splits = [split for split in op.splits if split.has_parts and _is_checkable(op, split)]
        for split in splits:
            _assert_legal(op, split, _random_inputs(graph, op))
            checked.add(_name(op))
    assert {"view", "cat", "slice", "slice_backward"} <= checked
    assert checked & {"split", "split_with_sizes"}


class Interleaved(torch.nn.Module):
    """Every other entry of a dimension, a selected group of heads, and a tensor that is filled by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.product = torch.nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fused = self.product(x)
        y = torch.sigmoid(fused[..., ::2]) * fused[..., 1::2]
        heads = fused.view(*x.shape[:2], 4, 3, 4)
        query, key = heads[:, :, :, :-1], heads[:, :, :, [-1]]
        filled = query.new_empty(*query.shape[:-1], 6)
        filled[..., :4] = query * key
        filled[..., 4:] = key[..., :2]
        return y.flatten(1).sum(1) + filled.flatten(1).sum(1)


def test_strides_selections_and_assignments_join_to_the_unsplit_result() -> None:
    graph = trace(Interleaved(), torch.zeros(BATCH, 8, 16), name="interleaved")
    wanted = {("slice", 2), ("slice_backward", 2), ("index", 2), ("index_put", 2), ("slice_scatter", 2)}
    for op in graph.ops:
        for split in op.splits:
            dims = {d for d in split.output_dims if isinstance(d, int)}
            if _name(op) in {name for name, _ in wanted} and dims == {2} and _is_checkable(op, split):
                inputs = [t if t.is_floating_point() else t % 3 for t in _random_inputs(graph, op)]
                _assert_legal(op, split, inputs)
                wanted.discard((_name(op), 2))
    assert not wanted
    made = next(op for op in graph.ops if _name(op) == "new_empty")
    assert {s.input_dims: s.output_dims for s in made.splits}[(2,)] == (2,)  # heads, as what it is made beside
    assert (WHOLE,) in {s.input_dims for s in made.splits}  # the dimension that differs
