"""Halos of convolutions and pooling split along space: what they say suffices, and nothing less does.

A member is run on whole tensors of which everything outside its own part and its halo is unknown (not a number): its
own part of the result must be known, and right. With one slice less it must not be.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rostam_py.graph import PARTIAL, Halo, Op, OperatorGraph, Split
from rostam_py.tracing import trace

CONVOLUTIONS = [  # kernel, stride, padding, dilation, groups
    (3, 1, 1, 1, 1), (1, 1, 0, 1, 1), (1, 2, 0, 1, 1), (3, 2, 1, 1, 1), (5, 1, 2, 1, 2), (7, 2, 3, 1, 1),
    (3, 1, 2, 2, 1), (2, 2, 0, 1, 1), (4, 2, 1, 1, 1), (4, 4, 0, 1, 4), (3, 1, 1, 1, 4), (5, 4, 2, 1, 1),
    (3, 2, 2, 2, 1), (2, 4, 0, 1, 1),
]  # fmt: skip
SIDE = 16


def convolution(case: tuple[int, ...]) -> OperatorGraph:
    kernel, stride, padding, dilation, groups = case
    # The first layer's input needs no gradient, the second's does.
    module = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups=groups), nn.Flatten()
    )
    return trace(module, torch.zeros(2, 3, SIDE, SIDE), name="convolution")


def transposed(case: tuple[int, ...]) -> OperatorGraph:
    kernel, stride, padding, output_padding = case
    layer = nn.ConvTranspose2d(4, 6, kernel, stride, padding, output_padding)
    return trace(
        nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.Flatten()), torch.zeros(2, 3, SIDE, SIDE), name="transposed"
    )


def pooling(layer: nn.Module) -> OperatorGraph:
    dims = 3 if "3d" in type(layer).__name__ else 2
    first = nn.Conv3d(3, 4, 1) if dims == 3 else nn.Conv2d(3, 4, 1)
    shape = (2, 3) + (SIDE,) * dims
    return trace(nn.Sequential(first, layer, nn.Flatten()), torch.zeros(shape), name="pooling")


def name_of(op: Op) -> str:
    return op.op_type.split(".")[1]


def spatial(graph: OperatorGraph, name: str) -> list[tuple[Op, Split]]:
    ops = [op for op in graph.ops if name_of(op) == name]
    return [(op, split) for op in ops[-1:] for split in op.splits if split.kind == "spatial"]


def values(graph: OperatorGraph, op: Op) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn([int(d.at(2)) for d in graph.tensors[t].shape], dtype=torch.float64) for t in op.inputs]


def call(op: Op, tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    def built(value: Any) -> Any:
        if isinstance(value, dict):
            return tensors[value["tensor"]] if "tensor" in value else int(value["affine"][0] + 2 * value["affine"][1])
        return [built(v) for v in value] if isinstance(value, list) else value

    packet, overload = op.op_type.split(".")[1:]
    result = getattr(getattr(torch.ops.aten, packet), overload)(*built(op.arguments["args"]))
    return [result] if isinstance(result, torch.Tensor) else list(result)


def part(extent: int, degree: int, rank: int, before: int = 0, after: int = 0) -> slice:
    size = extent // degree
    return slice(max(0, rank * size - before), min(extent, (rank + 1) * size + after))


def masked(tensor: torch.Tensor, dim: int, kept: slice, filler: float) -> torch.Tensor:
    result = torch.full_like(tensor, filler)
    index = (slice(None),) * dim + (kept,)
    result[index] = tensor[index]
    return result


def halo_of(split: Split, place: int) -> Halo | None:
    return next((halo for halo in split.halos if halo.place == place), None)


def slices_of(split: Split, place: int) -> tuple[int, int]:
    halo = halo_of(split, place)
    return (0, 0) if halo is None else (halo.before, halo.after)


def degrees(split: Split) -> list[int]:
    return [d for d in (2, 4) if int(split.size.at(2)) % d == 0]


def fewer(before: int, after: int) -> list[tuple[int, int]]:
    return [(before - 1, after)] * (before > 0) + [(before, after - 1)] * (after > 0)


def inner_rank(degree: int, slices: tuple[int, int]) -> int:
    """Return a member that has a neighbour where slices are missing: the last (first) one before (after) it."""
    return degree - 1 if slices[0] else 0


def check_own_part(
    op: Op, split: Split, tensors: list[torch.Tensor], place: int, output: int, run: Callable[..., Any] = call
) -> None:
    """Check that with a halo of one input each member knows its part of one output, and with less one does not."""
    whole = run(op, tensors)[output]
    in_dim, out_dim = split.input_dims[place], split.output_dims[0]
    assert None not in (in_dim, out_dim, whole)
    before, after = slices_of(split, place)
    for degree in degrees(split):

        def own(rank: int, slices: tuple[int, int], degree: int = degree) -> tuple[torch.Tensor, torch.Tensor]:
            known = part(tensors[place].shape[in_dim], degree, rank, *slices)
            changed = [*tensors]
            changed[place] = masked(tensors[place], in_dim, known, float("nan"))
            mine = (slice(None),) * out_dim + (part(whole.shape[out_dim], degree, rank),)
            return run(op, changed)[output][mine], whole[mine]

        for rank in range(degree):
            torch.testing.assert_close(*own(rank, (before, after)))
        for less in fewer(before, after):
            rank = inner_rank(degree, (before - less[0], after - less[1]))
            assert own(rank, less)[0].isnan().any(), (op.op_type, split.halos, less)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_needs_its_halos_and_no_more(case: tuple[int, ...]) -> None:
    graph = convolution(case)
    found = spatial(graph, "convolution")
    assert len(found) == 2
    for op, split in found:
        check_own_part(op, split, values(graph, op), 0, 0)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_gradients_of_a_convolution_need_halos_of_the_gradient_and_of_the_kept_input(case: tuple[int, ...]) -> None:
    graph = convolution(case)
    op = next(op for op in graph.ops if name_of(op) == "convolution_backward")
    found = [(op, split) for split in op.splits if split.kind == "spatial"]
    assert len(found) == 2
    for op, split in found:
        tensors = values(graph, op)
        check_own_part(op, split, tensors, 0, 0)
        check_weight_gradient(op, split, tensors)


def check_weight_gradient(op: Op, split: Split, tensors: list[torch.Tensor]) -> None:
    """Check that members' weight gradients, of their own outputs and the inputs these read, sum to the whole."""
    dim = split.input_dims[0]
    assert split.output_dims == (dim, PARTIAL, PARTIAL)
    dy, x = tensors[:2]
    before, after = slices_of(split, 1)
    assert all(halo.is_kept for halo in split.halos if halo.place == 1)

    def of_member(degree: int, rank: int, slices: tuple[int, int]) -> list[torch.Tensor | None]:
        own = masked(dy, dim, part(dy.shape[dim], degree, rank), 0.0)
        read = masked(x, dim, part(x.shape[dim], degree, rank, *slices), 0.0)
        return call(op, [own, read, *tensors[2:]])[1:]

    whole = call(op, tensors)[1:]
    for degree in degrees(split):
        members = [of_member(degree, rank, (before, after)) for rank in range(degree)]
        for output, expected in enumerate(whole):
            torch.testing.assert_close(sum(member[output] for member in members), expected)
        for less in fewer(before, after):
            rank = inner_rank(degree, (before - less[0], after - less[1]))
            assert not torch.allclose(of_member(degree, rank, less)[0], members[rank][0])


def test_an_input_without_gradient_needs_no_halo_of_the_output_gradient() -> None:
    graph = trace(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten()), torch.zeros(2, 3, SIDE, SIDE), name="first"
    )
    ((_, first), (_, second)) = spatial(graph, "convolution_backward")
    assert first.halos == second.halos == (Halo(1, 1, 1, is_kept=True),)
    assert first.exchanged_halos == ()


@pytest.mark.parametrize("case", [(2, 2, 0, 0), (3, 1, 1, 0), (4, 2, 1, 0), (3, 2, 1, 1), (6, 2, 2, 0)])
def test_a_transposed_convolution_needs_its_halos_and_no_more(case: tuple[int, ...]) -> None:
    graph = transposed(case)
    for name in ("convolution", "convolution_backward"):
        found = spatial(graph, name) if name == "convolution" else [
            (op, split) for op in [next(op for op in graph.ops if name_of(op) == name)] for split in op.splits
            if split.kind == "spatial"
        ]  # fmt: skip
        assert len(found) == 2
        for op, split in found:
            tensors = values(graph, op)
            check_own_part(op, split, tensors, 0, 0)
            if name == "convolution_backward":
                check_transposed_weight_gradient(op, split, tensors)


def check_transposed_weight_gradient(op: Op, split: Split, tensors: list[torch.Tensor]) -> None:
    dim = split.input_dims[0]
    assert dim is not None
    dy, x = tensors[:2]
    for degree in degrees(split):
        members = []
        for rank in range(degree):
            read = masked(dy, dim, part(dy.shape[dim], degree, rank, *slices_of(split, 0)), 0.0)
            own = masked(x, dim, part(x.shape[dim], degree, rank), 0.0)
            members.append(call(op, [read, own, *tensors[2:]])[1])
        torch.testing.assert_close(sum(members), call(op, tensors)[1])


POOLS = [
    nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 1, 1), nn.MaxPool3d(2), nn.MaxPool2d(5, 1, 2),
    nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.AvgPool3d(2),
]  # fmt: skip


@pytest.mark.parametrize("layer", POOLS, ids=str)
def test_pooling_needs_its_halos_and_no_more(layer: nn.Module) -> None:
    graph = pooling(layer)
    forward = next(op for op in graph.ops if op.phase == "forward" and "pool" in op.op_type)
    backward = next(op for op in graph.ops if op.phase == "backward" and "pool" in op.op_type)
    dims = graph.tensors[forward.inputs[0]].shape[2:]
    for op in (forward, backward):
        found = [split for split in op.splits if split.kind == "spatial"]
        assert len(found) == len(dims)
        for split in found:
            tensors = values(graph, op)
            if op is forward or len(tensors) == 2:
                check_own_part(op, split, tensors, 0, 0)
            else:
                places = call(forward, [tensors[1]])[1]
                assert places is not None
                check_places(op, split, [*tensors[:2], places])


def check_places(op: Op, split: Split, tensors: list[torch.Tensor]) -> None:
    """Check max pooling's backward: gradients and places outside the halo are unknown; their entries go elsewhere."""
    dim = split.input_dims[0]
    assert dim is not None
    dy, x, places = tensors
    whole = call(op, tensors)[0]
    assert whole is not None
    assert slices_of(split, 0) == slices_of(split, 2)
    before, after = slices_of(split, 0)
    for degree in degrees(split):

        def own(rank: int, slices: tuple[int, int], degree: int = degree) -> tuple[torch.Tensor, torch.Tensor]:
            known = part(dy.shape[dim], degree, rank, *slices)
            elsewhere = 0 if rank else x[0, 0].numel() - 1  # in the first member's part, or the last one's
            changed = [masked(dy, dim, known, float("nan")), x, masked(places, dim, known, elsewhere)]
            mine = (slice(None),) * dim + (part(x.shape[dim], degree, rank),)
            return call(op, changed)[0][mine], whole[mine]  # type: ignore[index]

        for rank in range(degree):
            torch.testing.assert_close(*own(rank, (before, after)))
        for less in fewer(before, after):
            rank = inner_rank(degree, (before - less[0], after - less[1]))
            assert not torch.equal(*own(rank, less))


def test_space_is_split_where_strides_fill_it() -> None:
    # 16 inputs make 14 outputs without padding, 7 by pooling 3 with stride 2 unpadded: parts would not be alike.
    graph = trace(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2), nn.Flatten()), torch.zeros(2, 3, 16, 16), name="valid"
    )
    kinds = [split.kind for op in graph.ops if name_of(op).startswith(("conv", "max_pool")) for split in op.splits]
    assert "spatial" not in kinds


def test_halos_of_a_small_kernel_are_those_drawn_by_hand() -> None:
    # Kernel 3, stride 2, padding 1: output j reads inputs 2j-1, 2j, 2j+1, so that a member with outputs a to b-1 needs
    # input 2a-1 of the one before it and none of the one after; input 2b-1 is read by output b, of the one after.
    graph = convolution((3, 2, 1, 1, 1))
    _, forward = spatial(graph, "convolution")[0]
    assert forward.halos == (Halo(0, 1, 0),)
    backward = next(op for op in graph.ops if name_of(op) == "convolution_backward")
    assert backward.splits[-1].halos == (Halo(0, 0, 1, share=0.5), Halo(1, 1, 0, is_kept=True, share=0.5))
    pairs = itertools.pairwise(split.kind for split in backward.splits)
    assert ("spatial", "spatial") in pairs
