"""Our own measurements of the kernels of image networks, in fp16: kernels_h100_own.csv (calibration/on_gpu.py)."""

import re
from collections.abc import Callable, Iterator

from calibration.measurements import Measurements, collected
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.costs.kernel_kinds import GROUPED_STAGES
from rostam_py.costs.kernel_table import MeasuredDevice

FILE = "kernels_h100_own.csv"
_ACCELERATOR, _DEVICE, _PRECISION, _BYTES = "h100_80gb", "NVIDIA H100 80GB HBM3", "fp16", 2
Record = dict[str, str]
Shape = tuple[float, ...]
_SIZES = re.compile(r"([a-z]+)([0-9]+)(?:>([0-9]+))?")
# Kind and program of the product's -> kind in the table, and the label of the row of errors.
_CONVOLUTIONS = {f"convolution_{stage}": f"convolution {stage.replace('_', ' ')}" for stage in GROUPED_STAGES}
_NORMS = {
    (f"batch_norm_{phase}", program): f"batch norm {phase}, {program}"
    for phase in ("forward", "backward") for program in ("native", "cudnn")
}  # fmt: skip
_POOLS = {"pool_forward": "max pool forward", "pool_backward": "max pool backward"}
_ACTIVATIONS = {"relu": 2, "relu backward": 3}  # tensors that each moves
# Smaller ones are timed from a cache that the call before has warmed, above the memory's rate: kept are those that move
# twice the H100's 50 MB of L2 (NVIDIA's data sheet) or more, and those of next to nothing, which say what such a kernel
# takes behind another one.
_LEAST_BYTES, _NEXT_TO_NOTHING = 2 * 50e6, 5e5


def measured(records: list[Record]) -> Iterator[Measurements]:
    """Yield a series for each kind of kernel, and each program of norms."""
    for kind, name in _CONVOLUTIONS.items():
        yield _series(kind, records, (name,), _convolution, precision=_PRECISION)
    for (kind, program), name in _NORMS.items():
        yield _series(kind, records, (name,), _norm, program=program)
    for kind, name in _POOLS.items():
        yield _series(kind, records, (name,), _pool)
    yield _series("activation", records, tuple(_ACTIVATIONS), _activation)


def _series(
    kind: str, records: list[Record], names: tuple[str, ...], shape_of: Callable[[Record], Shape], precision: str = "",
    program: str = "",
) -> Measurements:  # fmt: skip
    """Return the rows of some names as one kind."""
    known = get_accelerator(_ACCELERATOR)
    device = MeasuredDevice(
        _DEVICE, known.peak(precision) if precision else 0.0, known.memory_bandwidth_bytes_per_s, known.multiprocessors
    )
    pairs = [(shape_of(one), float(one["us"]) * 1e-6) for one in records if one["kind"] in names]
    if kind == "activation":
        pairs = [pair for pair in pairs if not _NEXT_TO_NOTHING < pair[0][0] < _LEAST_BYTES]
    source = f"{FILE} (rostam), {' and '.join(names)}"
    return Measurements(
        _ACCELERATOR, kind, names[0], precision, source, device, _BYTES, collected(pairs), program
    )  # fmt: skip


def _sizes(one: Record) -> dict[str, int]:
    """Return a shape's numbers by letter: n batch, c channels in and out, s side, k filter, st stride, d dimensions."""
    sizes = {}
    for letter, first, second in _SIZES.findall(one["shape"]):
        sizes[letter] = int(first)
        if second:
            sizes["out"] = int(second)
    return sizes


def _outputs_side(sizes: dict[str, int], padding: int) -> int:
    return (sizes["s"] + 2 * padding - sizes["k"]) // sizes["st"] + 1


def _convolution(one: Record) -> Shape:
    at = _sizes(one)
    positions, inputs = (at["n"] * side ** at["d"] for side in (_outputs_side(at, at["k"] // 2), at["s"]))
    return positions, inputs, at["out"], at["c"], at["k"] ** at["d"]


def _norm(one: Record) -> Shape:
    at = _sizes(one)
    return at["n"] * at["s"] ** at["d"], at["c"]


def _pool(one: Record) -> Shape:
    """Windows of 3 are padded by 1 on each side, those of 2 are not (on_gpu.kernel_rows)."""
    at = _sizes(one)
    sides = at["s"], _outputs_side(at, 1 if at["k"] == 3 else 0)
    inputs, outputs = (at["n"] * side ** at["d"] for side in sides)
    return inputs, outputs, at["c"], at["k"] ** at["d"], at["d"]


def _activation(one: Record) -> Shape:
    positions, channels = _norm(one)
    return (_ACTIVATIONS[one["kind"]] * _BYTES * positions * channels,)
