"""Kinds of measured kernels: what a measurement states, the work it stands for, and the space it is interpolated in.

Shape letters: N = measurements. Columns are arrays of shape (N,), one for each field of the kind.
Invariant: this is the one list of kinds; tables, the calibration and the cost model look a kind up here by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rostam_py.errors import UnknownNameError

Array = NDArray[np.float64]
Columns = Mapping[str, Array]
TILE = 128  # rows and columns of the output that one block of a GPU's matrix kernels computes (CUTLASS's usual tile)
CAUSAL_SHARE = 0.5  # of the score matrix that a causal mask leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelKind:
    """One kind of measured kernel.

    fields: what a measurement states besides its time. flops, traffic: of the columns and of the bytes of one
        element; the work that efficiencies refer to. spaces: by name, the coordinates (N, D) in which it may be
        interpolated, on a device of so many multiprocessors; which one serves a table best is chosen when the table
        is made. sizes: the coordinates (N, D) whose box tells what was measured. loop: how many steps (N,) the inner
        loop of each block of the kernel takes, in keys or in elements of the contraction; None for kernels without
        arithmetic. details: fields that a source may hold fixed, or in a fixed ratio to another field ("" for none);
        it is silent about them then, and answers for every value. tolerance: octaves over which a source counts less
        and less that is farther outside its sizes than the nearest one, 0 for not at all. beside: the kind whose own
        measurements, where there are some, another accelerator's of this kind are taken relative to. alike: the kind
        whose rows serve where it has none. least_scale: over which a coordinate's influence fades at least, when a
        table is fitted [octaves].
    """

    name: str
    fields: tuple[str, ...]
    flops: Callable[[Columns], Array]
    traffic: Callable[[Columns, float], Array]
    spaces: Mapping[str, Callable[[Columns, int], Array]]
    sizes: Callable[[Columns], Array]
    loop: Callable[[Columns], Array] | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    beside: str = ""
    alike: str = ""
    tolerance: float = 0.0
    least_scale: float = 0.0

    def silent(self, measured: Columns) -> dict[str, tuple[str, Array]]:
        """Return the fields that measured rows are silent about: their value (1,), or its ratio to another field."""
        found = {}
        for name, other in self.details.items():
            if np.ptp(measured[name]) == 0:
                found[name] = "", measured[name][:1]
            elif other and np.ptp(measured[name] / measured[other]) == 0:
                found[name] = other, (measured[name] / measured[other])[:1]
        return found


def kernel_kind(name: str, where: str = "kind") -> KernelKind:
    """Return the kind called ``name``.

    Raises: UnknownNameError, listing the known ones.
    """
    if name not in KERNEL_KINDS:
        raise UnknownNameError(f"{where} is {name!r}; known: {', '.join(KERNEL_KINDS)}")
    return KERNEL_KINDS[name]


def _stack(*columns: Any) -> Array:
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)


def _padding(length: Array) -> Array:
    """Return the logarithm of how much longer a side is after it is filled up to whole tiles."""
    return np.asarray(np.log2(np.ceil(length / TILE) * TILE / length))


# Products. layout: how the operands lie, LAYOUTS; out_bytes: moved for each element of the output, 8 for adding into
# an fp32 one.
LAYOUTS = ("unknown", "TN", "NN", "NT")


def _layout_columns(c: Columns) -> list[Array]:
    return [(c["layout"] == code).astype(float) for code in range(1, len(LAYOUTS))] + [np.log2(c["out_bytes"])]


def _product_flops(c: Columns) -> Array:
    return np.asarray(2.0 * c["batch"] * c["m"] * c["n"] * c["k"])


def _product_traffic(c: Columns, element: float) -> Array:
    inputs = (c["m"] + c["n"]) * c["k"] * element
    return np.asarray(c["batch"] * (inputs + c["m"] * c["n"] * c["out_bytes"]))


def _contraction(c: Columns) -> Array:
    return c["k"]


def _log_shape(c: Columns) -> list[Array]:
    return [np.log2(c[key]) for key in ("batch", "m", "n", "k")]


def _log_tiles(c: Columns) -> list[Array]:
    """Return a product's outputs, sides and padding, the same for its transpose."""
    short, long = np.minimum(c["m"], c["n"]), np.maximum(c["m"], c["n"])
    outputs = np.log2(c["batch"] * c["m"] * c["n"])
    return [outputs, np.log2(short), np.log2(long), np.log2(c["k"]), _padding(short), _padding(long)]


def _filled(c: Columns, units: int, rows: int, columns: int) -> Array:
    """Return the logarithm of the share of whole waves of whole tiles that a product's outputs fill.

    Model: each of ``units`` multiprocessors computes one tile of rows x columns outputs at a time.
    Source: NVIDIA, Matrix Multiplication Background User's Guide, sections on tile and wave quantization.
    """
    tiles = c["batch"] * np.ceil(c["m"] / rows) * np.ceil(c["n"] / columns)
    waves = np.ceil(tiles / max(units, 1))
    return np.asarray(np.log2(c["batch"] * c["m"] * c["n"] / (waves * max(units, 1) * rows * columns)))


def _waves(c: Columns, units: int) -> list[Array]:
    """Return how well large tiles fill the device: square ones, and the better way round of oblong ones."""
    oblong = np.maximum(_filled(c, units, TILE, 2 * TILE), _filled(c, units, 2 * TILE, TILE))
    return [_filled(c, units, TILE, TILE), np.asarray(oblong)]


def _product_shape(c: Columns, units: int) -> Array:
    return _stack(*_log_shape(c), *_layout_columns(c))


def _product_tiles(c: Columns, units: int) -> Array:
    return _stack(*_log_tiles(c), *_layout_columns(c))


def _product_shape_waves(c: Columns, units: int) -> Array:
    return _stack(*_log_shape(c), *_waves(c, units), *_layout_columns(c))


def _product_tile_waves(c: Columns, units: int) -> Array:
    return _stack(*_log_tiles(c), *_waves(c, units), *_layout_columns(c))


def _product_sizes(c: Columns) -> Array:
    return _stack(*_log_tiles(c)[:4], *_layout_columns(c))


# Grouped products, one product of m rows for each of the groups (experts). stage: GROUPED_STAGES; the weights' gradient
# is n x k for each group, the others' output m x n or m x k.
GROUPED_STAGES = ("forward", "input_gradient", "weight_gradient")
# Of one group's product at each stage: its rows, columns and contraction in the group's sizes.
OF_GROUP = dict(zip(GROUPED_STAGES, ("mnk", "mkn", "nkm"), strict=True))


def _is_weight_gradient(c: Columns) -> Array:
    return (c["stage"] == GROUPED_STAGES.index("weight_gradient")).astype(float)


def _grouped_flops(c: Columns) -> Array:
    return np.asarray(2.0 * c["groups"] * c["m"] * c["n"] * c["k"])


def _grouped_traffic(c: Columns, element: float) -> Array:
    weights = np.where(_is_weight_gradient(c) > 0, c["out_bytes"], element)
    return np.asarray(c["groups"] * (c["m"] * (c["n"] + c["k"]) * element + c["n"] * c["k"] * weights))


def _grouped_contraction(c: Columns) -> Array:
    return np.asarray(np.choose(c["stage"].astype(int), [c[OF_GROUP[stage][-1]] for stage in GROUPED_STAGES]))


def _grouped_columns(c: Columns) -> list[Array]:
    is_input = (c["stage"] == GROUPED_STAGES.index("input_gradient")).astype(float)
    return [_is_weight_gradient(c), is_input, np.log2(c["out_bytes"])]


def _grouped_shape(c: Columns, units: int = 0) -> Array:
    return _stack(*(np.log2(c[key]) for key in ("groups", "m", "n", "k")), *_grouped_columns(c))


def _grouped_tokens(c: Columns, units: int = 0) -> Array:
    weights = c["n"] * c["k"]
    return _stack(
        np.log2(c["m"]), np.log2(c["groups"] * c["m"]), np.log2(weights), np.log2(c["n"] / c["k"]), *_grouped_columns(c)
    )


# Fused attention of as many queries as keys under a causal mask. head_size, value_size: of a key and a value head.
def _attention_flops(num_products: float) -> Callable[[Columns], Array]:
    """Return the useful FLOPs of ``num_products`` products of the score matrix with a matrix of head vectors."""

    def flops(c: Columns) -> Array:
        scores = c["batch"] * c["heads"] * c["sequence"] ** 2
        return np.asarray(CAUSAL_SHARE * num_products * scores * (c["head_size"] + c["value_size"]))

    return flops


def _attention_traffic(times: float) -> Callable[[Columns, float], Array]:
    """Return the bytes of queries, keys, values and output, each moved ``times``."""

    def traffic(c: Columns, element: float) -> Array:
        sizes = c["head_size"] + c["value_size"]
        return np.asarray(times * element * c["batch"] * c["sequence"] * (c["heads"] + c["kv_heads"]) * sizes)

    return traffic


def _keys(c: Columns) -> Array:
    return c["sequence"]


def _attention_shape(c: Columns, units: int = 0) -> Array:
    heads, shared = np.log2(c["batch"] * c["heads"]), np.log2(c["heads"] / c["kv_heads"])
    return _stack(np.log2(c["sequence"]), heads, shared, np.log2(c["head_size"] + c["value_size"]))


def _attention_work(c: Columns, units: int = 0) -> Array:
    work = 2 * np.log2(c["sequence"]) + np.log2(c["batch"] * c["heads"])
    return _stack(work, np.log2(c["head_size"] + c["value_size"]))


def _attention_length(c: Columns, units: int = 0) -> Array:
    return _stack(np.log2(c["sequence"]), np.log2(c["head_size"] + c["value_size"]))


def is_of_one_size(c: Columns) -> bool:
    """Say whether rows of attention all have as many tokens of one width: lengths and heads go together in them."""
    if "sequence" not in c:
        return False
    return float(np.ptp(c["batch"] * c["sequence"])) == 0 and float(np.ptp(c["heads"] * c["head_size"])) == 0


BY_LENGTH = "length"  # the space for such rows
_ATTENTION_FIELDS = ("batch", "sequence", "heads", "kv_heads", "head_size", "value_size")
_GRID_STEP = 1.0  # octave: lengths, heads and samples of the engines' rows are powers of two
# Kernels do the same work whatever the number of key heads: rows that all have one, or as many as query heads, say so.
_ATTENTION_DETAILS = {"kv_heads": "heads"}
_ATTENTION_SPACES = {"shape": _attention_shape, "work": _attention_work, BY_LENGTH: _attention_length}


# Memory-bound kernels: bytes that each tensor moves once; norms and softmax by the rows they reduce over.
def _no_flops(c: Columns) -> Array:
    return np.zeros_like(next(iter(c.values())))


def _stated_bytes(c: Columns, element: float) -> Array:
    return np.asarray(c["num_bytes"], dtype=float)


def _log_bytes(c: Columns, units: int = 0) -> Array:
    return _stack(np.log2(c["num_bytes"]))


def _row_bytes(c: Columns, element: float) -> Array:
    return np.asarray(2.0 * element * c["rows"] * c["columns"])


def _row_shape(c: Columns, units: int = 0) -> Array:
    return _stack(np.log2(c["rows"]), np.log2(c["columns"]))


# Of kernels of images, whose programs run other kernels from shape to shape, and whose measured batches are two octaves
# apart: a surface whose coordinates fade sooner follows each of them, and says nothing in between. Own choice; it costs
# convolutions less than a hundredth of the error of rows left out, but weights' gradients (12.6% to 13.8%).
_IMAGE_SCALE = 2.0

# Convolutions, as the product that computes each of their stages without copies. positions, inputs: of outputs and of
# inputs, all samples. outputs, channels: their channels. taps: of the filter, all dimensions.
_CONVOLUTION_FIELDS = ("positions", "inputs", "outputs", "channels", "taps")


def _convolution_flops(c: Columns) -> Array:
    return np.asarray(2.0 * c["positions"] * c["outputs"] * c["channels"] * c["taps"])


def _convolution_traffic(stage: str) -> Callable[[Columns, float], Array]:
    """Return the bytes of both operands and the result; of inputs those that a window covers, where they are read."""

    def traffic(c: Columns, element: float) -> Array:
        read = np.minimum(c["inputs"], c["positions"] * c["taps"])
        inputs = (c["inputs"] if stage == "input_gradient" else read) * c["channels"]
        weights = c["outputs"] * c["channels"] * c["taps"]
        return np.asarray(element * (inputs + c["positions"] * c["outputs"] + weights))

    return traffic


def _convolution_product(stage: str) -> Callable[[Columns], tuple[Array, Array, Array]]:
    """Return rows, columns and contraction of a stage's product.

    Source: NVIDIA, Convolutional Layers User's Guide ("virtual" GEMM dimensions).
    """

    def sizes(c: Columns) -> tuple[Array, Array, Array]:
        if stage == "forward":
            return c["positions"], c["outputs"], c["channels"] * c["taps"]
        if stage == "input_gradient":
            return c["inputs"], c["channels"], c["outputs"] * c["taps"] * c["positions"] / c["inputs"]
        return c["outputs"], c["channels"] * c["taps"], c["positions"]

    return sizes


def _taps_and_stride(c: Columns) -> list[Array]:
    return [np.log2(c["taps"]), np.log2(c["inputs"] / c["positions"])]


def _convolution_shape(c: Columns, units: int = 0) -> Array:
    return _stack(*(np.log2(c[key]) for key in ("positions", "outputs", "channels")), *_taps_and_stride(c))


def _convolution(stage: str) -> KernelKind:
    product = _convolution_product(stage)

    def as_product(c: Columns, units: int = 0) -> Array:
        return _stack(*map(np.log2, product(c)), *_taps_and_stride(c))

    return KernelKind(
        name=f"convolution_{stage}", fields=_CONVOLUTION_FIELDS, flops=_convolution_flops,
        traffic=_convolution_traffic(stage),
        spaces={"shape": _convolution_shape, "product": as_product}, sizes=_convolution_shape,
        loop=lambda c: product(c)[2],
        least_scale=_IMAGE_SCALE,
    )  # fmt: skip


# Norms over all positions of each channel, in training. Backward reads the gradient and the input.
def _channel_bytes(num_tensors: float) -> Callable[[Columns, float], Array]:
    def traffic(c: Columns, element: float) -> Array:
        return np.asarray(num_tensors * element * c["positions"] * c["channels"])

    return traffic


def _channel_shape(c: Columns, units: int = 0) -> Array:
    return _stack(np.log2(c["positions"]), np.log2(c["channels"]))


def _channel_size(c: Columns, units: int = 0) -> Array:
    return _stack(np.log2(c["positions"] * c["channels"]), np.log2(c["channels"]))


# Largest values of windows, whose places are kept in 8 bytes. inputs, outputs: positions, all samples. taps: of a
# window. dims: of the images.
_PLACE_BYTES = 8


def _pool_traffic(c: Columns, element: float) -> Array:
    return np.asarray(c["channels"] * (element * (c["inputs"] + c["outputs"]) + _PLACE_BYTES * c["outputs"]))


def _pool_shape(c: Columns, units: int = 0) -> Array:
    elements, covered = c["inputs"] * c["channels"], c["inputs"] / c["outputs"]
    return _stack(np.log2(elements), np.log2(c["channels"]), np.log2(covered), np.log2(c["taps"]), c["dims"])


_ROWS = ("rows", "columns")
_CHANNELS, _POOL = ("positions", "channels"), ("inputs", "outputs", "channels", "taps", "dims")
_CHANNEL_SPACES = {"shape": _channel_shape, "size": _channel_size}
KERNEL_KINDS = {
    kind.name: kind
    for kind in (
        KernelKind(
            name="product", fields=("batch", "m", "n", "k", "layout", "out_bytes"), flops=_product_flops,
            traffic=_product_traffic,
            spaces={"shape": _product_shape, "tiles": _product_tiles, "shape_waves": _product_shape_waves,
             "tile_waves": _product_tile_waves},
            sizes=_product_sizes, loop=_contraction, details={"layout": "", "out_bytes": ""},
        ),
        KernelKind(
            name="grouped_product", fields=("groups", "m", "n", "k", "stage", "out_bytes"), flops=_grouped_flops,
            traffic=_grouped_traffic,
            spaces={"shape": _grouped_shape, "tokens": _grouped_tokens}, sizes=_grouped_shape,
            loop=_grouped_contraction,
            details={"out_bytes": ""},
        ),
        # Forward: scores and output, 2 FLOPs each; backward: those of queries, keys, values, and scores again.
        KernelKind(
            name="attention_forward", fields=_ATTENTION_FIELDS, flops=_attention_flops(2),
            traffic=_attention_traffic(1), spaces=_ATTENTION_SPACES,
            sizes=_attention_shape, loop=_keys, details=_ATTENTION_DETAILS, tolerance=_GRID_STEP,
        ),
        KernelKind(
            name="attention_backward", fields=_ATTENTION_FIELDS, flops=_attention_flops(5),
            traffic=_attention_traffic(2), spaces=_ATTENTION_SPACES,
            sizes=_attention_shape, loop=_keys, details=_ATTENTION_DETAILS, beside="attention_forward",
            tolerance=_GRID_STEP,
        ),
        KernelKind(
            name="elementwise", fields=("num_bytes",), flops=_no_flops, traffic=_stated_bytes,
            spaces={"size": _log_bytes}, sizes=_log_bytes, alike="cast",
        ),
        KernelKind(
            name="cast", fields=("num_bytes",), flops=_no_flops, traffic=_stated_bytes, spaces={"size": _log_bytes},
            sizes=_log_bytes,
        ),
        KernelKind(
            name="normalization", fields=_ROWS, flops=_no_flops, traffic=_row_bytes, spaces={"shape": _row_shape},
            sizes=_row_shape,
        ),
        KernelKind(
            name="softmax", fields=_ROWS, flops=_no_flops, traffic=_row_bytes, spaces={"shape": _row_shape},
            sizes=_row_shape,
        ),
        *map(_convolution, GROUPED_STAGES),
        KernelKind(
            name="batch_norm_forward", fields=_CHANNELS, flops=_no_flops, traffic=_channel_bytes(2),
            spaces=_CHANNEL_SPACES, sizes=_channel_shape,
            least_scale=_IMAGE_SCALE,
        ),
        KernelKind(
            name="batch_norm_backward", fields=_CHANNELS, flops=_no_flops, traffic=_channel_bytes(3),
            spaces=_CHANNEL_SPACES, sizes=_channel_shape,
            least_scale=_IMAGE_SCALE,
        ),
        KernelKind(
            name="pool_forward", fields=_POOL, flops=_no_flops, traffic=_pool_traffic, spaces={"shape": _pool_shape},
            sizes=_pool_shape,
            least_scale=_IMAGE_SCALE,
        ),
        KernelKind(
            name="pool_backward", fields=_POOL, flops=_no_flops, traffic=_pool_traffic, spaces={"shape": _pool_shape},
            sizes=_pool_shape,
            least_scale=_IMAGE_SCALE,
        ),
        KernelKind(
            name="activation", fields=("num_bytes",), flops=_no_flops, traffic=_stated_bytes,
            spaces={"size": _log_bytes}, sizes=_log_bytes,
            alike="elementwise",
        ),
    )
}  # fmt: skip
