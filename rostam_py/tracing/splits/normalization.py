"""Splits of layer, group, batch and weight normalisation, forward and backward."""

from math import prod

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.tracing.splits.call import RawSplit, SplitCall


def layer_norm(call: SplitCall) -> list[RawSplit]:
    """native_layer_norm(x, normalized, weight, bias, eps) -> y, mean, rstd: dims that are not normalised."""
    shape = call.inputs[0]
    kept = len(shape) - len(call.args[1])
    return [
        RawSplit("feature", call.dims({0: d}), call.results({0: d, 1: d, 2: d}), shape[d])
        for d in range(kept)
        if shape[d] > 1
    ]


def layer_norm_backward(call: SplitCall) -> list[RawSplit]:
    """(dy, x, normalized, mean, rstd, weight, bias, mask) -> dx, dweight, dbias; the last two are sums."""
    shape = call.inputs[0]
    kept = len(shape) - len(call.args[2])
    return [
        RawSplit("feature", call.dims({0: d, 1: d, 3: d, 4: d}), call.results({0: d, 1: PARTIAL, 2: PARTIAL}), shape[d])
        for d in range(kept)
        if shape[d] > 1
    ]


def rms_norm(call: SplitCall) -> list[RawSplit]:
    """_fused_rms_norm(x, normalized, weight, eps) -> y, rstd."""
    return layer_norm(call)


def rms_norm_backward(call: SplitCall) -> list[RawSplit]:
    """(dy, x, normalized, rstd, weight, mask) -> dx, dweight."""
    shape = call.inputs[0]
    kept = len(shape) - len(call.args[2])
    return [
        RawSplit("feature", call.dims({0: d, 1: d, 3: d}), call.results({0: d, 1: PARTIAL}), shape[d])
        for d in range(kept)
        if shape[d] > 1
    ]


def group_norm(call: SplitCall) -> list[RawSplit]:
    """native_group_norm(x, weight, bias, N, C, HxW, groups, eps) -> y, mean, rstd: samples and groups.

    Along space the sums of entries and of their squares are all-reduced, per sample and group.
    """
    splits = [RawSplit("feature", call.dims({0: 0}), call.results({0: 0, 1: 0, 2: 0}), call.inputs[0][0])]
    channels = {0: 1, 1: 0, 2: 0}
    splits.append(RawSplit("column", call.dims(channels), call.results({0: 1, 1: 1, 2: 1}), call.args[6]))
    num_bytes = 2 * 4 * call.inputs[0][0] * call.args[6]
    for dim, size in enumerate(call.inputs[0][2:], start=2):
        splits.append(RawSplit("spatial", call.dims({0: dim}), call.results({0: dim}), size, "all_reduce", num_bytes))
    return [s for s in splits if s.size > 1]


def group_norm_backward(call: SplitCall) -> list[RawSplit]:
    """(dy, x, mean, rstd, weight, N, C, HxW, groups, mask) -> dx, dweight, dbias.

    Along space two sums per sample and group are all-reduced for dx: of dy w, and of dy w times the normalised input.
    """
    sample = {0: 0, 1: 0, 2: 0, 3: 0}
    channels = {0: 1, 1: 1, 2: 1, 3: 1, 4: 0}
    splits = [
        RawSplit("feature", call.dims(sample), call.results({0: 0, 1: PARTIAL, 2: PARTIAL}), call.inputs[0][0]),
        RawSplit("column", call.dims(channels), call.results({0: 1, 1: 0, 2: 0}), call.args[8]),
    ]
    num_bytes = 2 * 4 * call.inputs[0][0] * call.args[8]
    for dim, size in enumerate(call.inputs[0][2:], start=2):
        made = call.results({0: dim, 1: PARTIAL, 2: PARTIAL})
        splits.append(RawSplit("spatial", call.dims({0: dim, 1: dim}), made, size, "all_reduce", num_bytes))
    return [s for s in splits if s.size > 1]


def batch_norm(call: SplitCall) -> list[RawSplit]:
    """Channels are independent; other dims all-reduce mean and variance (synchronised statistics)."""
    return _batch_norm(call, num_images=1, partial=())


def batch_norm_backward(call: SplitCall) -> list[RawSplit]:
    """(dy, x, weight, ...) -> dx, dweight, dbias; two sums a channel are all-reduced for dx."""
    return _batch_norm(call, num_images=2, partial=(1, 2))


def _batch_norm(call: SplitCall, num_images: int, partial: tuple[int, ...]) -> list[RawSplit]:
    shape = call.inputs[0]
    vectors = [s == (shape[1],) for s in call.inputs]
    splits = []
    for dim, size in enumerate(shape):
        if size <= 1:
            continue
        images = [dim if i < num_images else WHOLE for i in range(len(call.inputs))]
        if dim == 1:
            inputs = tuple(0 if vector else image for vector, image in zip(vectors, images, strict=True))
            outputs = tuple(1 if o == shape else (0 if o == (size,) else WHOLE) for o in call.outputs)
            splits.append(RawSplit("column", inputs, outputs, size))
            continue
        outputs = tuple(
            dim if o == shape else (PARTIAL if p in partial else WHOLE)
            for p, o in zip(call.positions, call.outputs, strict=True)
        )
        kind = "feature" if dim == 0 else "spatial"
        splits.append(RawSplit(kind, tuple(images), outputs, size, "all_reduce", 2 * 4 * prod((shape[1],))))
    return splits


def weight_norm(call: SplitCall) -> list[RawSplit]:
    """_weight_norm_interface(v, g, dim) -> w, norms: rows along dim are independent, else squares are summed."""
    return _weight_norm(call, images=(0,), rows=(1,), made=(0,), dim=call.argument(2, 0))


def weight_norm_backward(call: SplitCall) -> list[RawSplit]:
    """(dw, v, g, norms, dim) -> dv, dg: along other dims than dim the products dw v are summed, one for each row."""
    return _weight_norm(call, images=(0, 1), rows=(2, 3), made=(0,), dim=call.argument(4))


def _weight_norm(
    call: SplitCall, images: tuple[int, ...], rows: tuple[int, ...], made: tuple[int, ...], dim: int
) -> list[RawSplit]:
    """Args: images, made: arguments and results of the weight's shape. rows: arguments of one entry for each row."""
    shape, row = call.inputs[0], dim % len(call.inputs[0])
    splits = []
    for place, size in enumerate(shape):
        inputs = {**dict.fromkeys(images, place), **(dict.fromkeys(rows, place) if place == row else {})}
        outputs = {**dict.fromkeys(made, place), **({1: place} if place == row else {})}
        sums = ("", 0) if place == row else ("all_reduce", 4 * shape[row])
        splits.append(RawSplit("feature", call.dims(inputs), call.results(outputs), size, *sums))
    return [split for split in splits if split.size > 1]
