"""Kernels of image networks: measured convolutions, batch norms, pooling and activations, and what stands in."""

import csv
import itertools
import math

import numpy as np
import pytest

from calibration import images
from calibration.published import MEASURED, read
from rostam_py.costs import make_cost_model
from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.calibrated import CalibratedCost
from rostam_py.costs.convolutions import Convolution
from rostam_py.costs.kernel_kinds import GROUPED_STAGES, kernel_kind
from rostam_py.costs.kernel_shapes import KernelQuestion, question_of, stage_of
from rostam_py.costs.kernel_sources import KernelSources, shipped
from rostam_py.costs.model import KernelCall
from rostam_py.costs.programs import programs_of
from rostam_py.errors import UnknownNameError
from rostam_py.graph import Affine, Op, OperatorGraph, Tensor

EMPTY = OperatorGraph("none", (), ())
F32 = "float32"


def cost_of(accelerator="h100_80gb", **settings):
    return make_cost_model("calibrated", accelerator, graph=EMPTY, **settings)


def rows(kind, program=""):
    (found,) = (one for one in images.measured(read(images.FILE)) if (one.kind, one.program) == (kind, program))
    return dict(zip(map(tuple, found.shapes), found.seconds, strict=True))


def convolution(stage, batch, channels, outputs, side, filter_, stride=1, dims=2):
    positions = batch * (side // stride) ** dims
    one = Convolution(positions, batch * side**dims, outputs, channels, filter_**dims, (stage,), 2.0)
    return stage_of(
        KernelQuestion(kind="product", sizes=(1.0,) * 6, precision="fp16", flops=0.0, traffic=0.0), one, stage
    )


def norm(phase, positions, channels, extra=0.0, *, is_bf16=False):
    kind = f"batch_norm_{phase}"
    moved = (2 if phase == "forward" else 3) * 2.0 * positions * channels
    return KernelQuestion(
        kind=kind, sizes=(positions, channels), precision="", flops=0.0, traffic=moved, extra=extra, is_bf16=is_bf16
    )


def test_rows_by_hand():
    # convolution forward, n16 c128>128 s56 k3 st2: 28 x 28 outputs of 56 x 56 inputs, padded by 1.
    shape = (16.0 * 28**2, 16.0 * 56**2, 128.0, 128.0, 9.0)
    assert rows("convolution_forward")[shape] == pytest.approx(12.27e-6)
    # c3>64 s224 k7 st2: 112 x 112 outputs; CosmoFlow's first layer; batch norm by cuDNN; windows of 3.
    assert rows("convolution_weight_gradient")[400.0 * 112**2, 400.0 * 224**2, 64.0, 3.0, 49.0] == pytest.approx(
        887.9e-6
    )
    assert rows("convolution_input_gradient")[128.0**3, 128.0**3, 32.0, 4.0, 27.0] == pytest.approx(583.1e-6)
    assert rows("batch_norm_backward", "cudnn")[400.0 * 56**2, 64.0] == pytest.approx(272.9e-6)
    assert rows("pool_forward")[16.0 * 112**2, 16.0 * 56**2, 64.0, 9.0, 2.0] > 0
    assert rows("pool_backward")[8.0 * 16**3, 8.0 * 8**3, 256.0, 8.0, 3.0] == pytest.approx(28.94e-6)
    # What a cache serves is left out of activations: 2 x 2 x 400 x 512 x 7^2 bytes are 40 MB.
    assert (2.0 * 2 * 400 * 512 * 49,) not in rows("activation")
    assert rows("activation")[(3 * 2.0 * 400 * 64 * 112**2,)] == pytest.approx(630.35e-6, rel=1e-3)


def test_work_by_hand():
    columns = {
        name: np.array([value])
        for name, value in {"positions": 49.0, "inputs": 196.0, "outputs": 8.0, "channels": 4.0, "taps": 1.0}.items()
    }
    forward, gradient = (kernel_kind(f"convolution_{stage}") for stage in GROUPED_STAGES[:2])
    assert forward.flops(columns)[0] == 2 * 49 * 8 * 4
    # A stride of two reads every fourth input, whose gradients are all written.
    assert forward.traffic(columns, 2.0)[0] == 2 * (49 * 4 + 49 * 8 + 32)
    assert gradient.traffic(columns, 2.0)[0] == 2 * (196 * 4 + 49 * 8 + 32)
    pool = {"inputs": np.array([196.0]), "outputs": np.array([49.0]), "channels": np.array([4.0])}
    assert kernel_kind("pool_forward").traffic(pool, 2.0)[0] == 4 * (2 * (196 + 49) + 8 * 49)


# Channels in and out, side, filter, stride, and how many of them ResNet-50 has (He et al. 2015, Table 1).
RESNET50 = (
    (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 3), (64, 256, 56, 1, 1, 4), (256, 64, 56, 1, 1, 2),
    (256, 128, 56, 1, 1, 1), (128, 128, 56, 3, 2, 1), (128, 512, 28, 1, 1, 4), (256, 512, 56, 1, 2, 1),
    (512, 128, 28, 1, 1, 3), (128, 128, 28, 3, 1, 3), (512, 256, 28, 1, 1, 1), (256, 256, 28, 3, 2, 1),
    (256, 1024, 14, 1, 1, 6), (512, 1024, 28, 1, 2, 1), (1024, 256, 14, 1, 1, 5), (256, 256, 14, 3, 1, 5),
    (1024, 512, 14, 1, 1, 1), (512, 512, 14, 3, 2, 1), (512, 2048, 7, 1, 1, 3), (1024, 2048, 14, 1, 2, 1),
    (2048, 512, 7, 1, 1, 2), (512, 512, 7, 3, 1, 2),
)  # fmt: skip


@pytest.mark.parametrize(("batch", "milliseconds"), [(16, 1.83), (64, 5.11), (400, 25.2)])
def test_convolutions_of_resnet50_take_as_long_as_they_were_measured_to(batch, milliseconds):
    """Measured: the file's rows added up, read with another parser; all but the first layer's input gradient."""
    assert sum(one[-1] for one in RESNET50) == 53
    with (MEASURED / images.FILE).open(encoding="utf-8") as lines:
        found = {
            (one["kind"], one["shape"]): float(one["us"]) * 1e-6
            for one in csv.DictReader(line for line in lines if not line.startswith("#"))
        }
    measured = predicted = 0.0
    cost = cost_of()
    for (channels, outputs, side, filter_, stride, count), stage in itertools.product(RESNET50, GROUPED_STAGES):
        if (channels, stage) == (3, "input_gradient"):
            continue
        name = f"n{batch} c{channels}>{outputs} s{side} k{filter_} st{stride} d2"
        measured += count * found[f"convolution {stage.replace('_', ' ')}", name]
        predicted += count * cost.seconds(convolution(stage, batch, channels, outputs, side, filter_, stride))
    assert measured == pytest.approx(milliseconds * 1e-3, rel=0.02)
    assert predicted == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("accelerator", ["v100_32gb", "a100_80gb", "h100_80gb", "h200_141gb", "b200_180gb"])
def test_any_convolution_is_within_the_data_sheet_and_grows_with_its_batch(accelerator):
    device, cost = ACCELERATORS[accelerator], cost_of(accelerator)
    for sizes, stage in itertools.product(
        ((64, 64, 56, 3, 1), (3, 64, 224, 7, 2), (48, 64, 35, 5, 1), (2048, 8192, 7, 3, 1), (16, 16, 512, 9, 1),
         (256, 128, 56, 1, 1), (1024, 2048, 14, 1, 2)), GROUPED_STAGES,
    ):  # fmt: skip
        longest = 0.0
        for batch in (1, 2, 5, 16, 40, 100, 400, 2000, 20000):
            asked = convolution(stage, batch, *sizes)
            found = cost.seconds(asked)
            least = max(asked.flops / device.peak("fp16"), asked.traffic / device.memory_bandwidth_bytes_per_s)
            assert least * (1 - 1e-12) <= found < 6e-5 + 40 * least
            # Measured ones of one image take longer than of a few (9.2 us of 1, 7.6 of 16): another kernel runs.
            assert found > 0.6 * longest
            longest = max(longest, found)
        assert longest == found


def test_convolutions_without_rows_take_those_of_the_h100():
    assert {one.lender for one in _sources("a100_80gb", "convolution_forward", "bf16")} == {"h100_80gb"}
    assert {one.lender for one in _sources("h100_80gb", "convolution_forward", "bf16")} == {""}
    assert {one.lender for one in _sources("h200_141gb", "convolution_weight_gradient", "fp16")} == {"h100_80gb"}
    assert {one.series.precision for one in _sources("b200_180gb", "convolution_forward", "tf32")} == {"fp16"}
    assert not _sources("a100_80gb", "convolution_forward", "fp32")  # of which no matrix units compute


def _sources(accelerator, kind, precision, programs=None):
    sources = KernelSources(ACCELERATORS[accelerator], shipped(accelerator), programs or programs_of("best"))
    return sources.of(kind, precision)


def test_activations_without_rows_stream_as_element_wise_kernels_and_casts_do():
    assert {one.series.kind for one in _sources("h100_80gb", "activation", "")} == {"activation"}
    assert {one.series.kind for one in _sources("a100_80gb", "activation", "")} == {"elementwise"}
    assert {(one.lender, one.series.kind) for one in _sources("b200_180gb", "activation", "")} == {("", "cast")}


def test_additions_of_two_tensors_take_as_long_as_element_wise_kernels_are_said_to():
    """Rows that no table has: element-wise kernels of an H100 are timed by casts."""
    cost, errors = cost_of(), []
    for one in read(images.FILE):
        positions, channels = images._norm(one) if one["kind"] == "add" else (0, 0)
        moved = 3.0 * 2 * positions * channels
        if moved > 100e6:
            errors.append(
                cost.seconds(KernelQuestion(kind="elementwise", sizes=(moved,), precision="", flops=0.0, traffic=moved))
                / float(one["us"])
                * 1e6
                - 1
            )
    assert len(errors) == 15
    assert abs(np.mean(errors)) < 0.02
    assert np.abs(errors).max() < 0.08


def test_batch_norms_are_those_that_pytorch_chooses():
    size = (400.0 * 28**2, 512.0)
    native, cudnn = (rows("batch_norm_forward", program)[size] for program in ("native", "cudnn"))
    assert (native, cudnn) == (pytest.approx(748.45e-6, rel=1e-3), pytest.approx(375.05e-6, rel=1e-3))
    for choice, is_bf16, measured in (
        ("pytorch", False, cudnn), ("pytorch", True, native), ("cudnn", True, cudnn), ("native", False, native),
    ):  # fmt: skip
        found = cost_of(batch_norms=choice).seconds(norm("forward", *size, is_bf16=is_bf16))
        assert found == pytest.approx(measured, rel=0.05)
    with pytest.raises(UnknownNameError, match=r"cost\.batch_norms is 'apex'; known: pytorch, cudnn, native"):
        CalibratedCost.Config(batch_norms="apex")


def test_what_is_fused_into_a_norm_adds_its_bytes_at_the_rate_of_streams():
    cost, size = cost_of(), (400.0 * 14**2, 1024.0)
    alone, added = norm("forward", *size), 2.0 * math.prod(size)
    fused = cost.seconds(norm("forward", *size, extra=added))
    streams = [
        cost.seconds(KernelQuestion(kind="elementwise", sizes=(b,), precision="", flops=0.0, traffic=b))
        for b in (alone.traffic, alone.traffic + added)
    ]
    assert fused - cost.seconds(alone) == pytest.approx(streams[1] - streams[0])
    # 160 MB more to read, at 0.8 to 0.9 of 3.35 TB/s; a kernel of its own would move twice as much more.
    assert 0.8 < added / 3.35e12 / (fused - cost.seconds(alone)) < 0.95


def _norm_graph(batch_norm, *more):
    """x (B, 8, 4, 4) -> batch norm -> relu."""
    shape = (Affine(0, 1), Affine(8), Affine(4), Affine(4))
    vector = (Affine(8),)
    tensors = (
        Tensor(0, shape, F32, "input"), Tensor(1, vector, F32, "parameter", "w"),
        Tensor(2, shape, F32, "activation", producer=0),
        Tensor(3, shape, F32, "activation", producer=1),
    )  # fmt: skip
    ops = (
        Op(id=0, name="bn", module="", phase="forward", op_type=batch_norm, inputs=(0, 1), outputs=(2,)),
        Op(
            id=1,
            name="relu",
            module="",
            phase="forward",
            op_type="aten.relu.default",
            inputs=(2,),
            outputs=(3,),
            is_elementwise=True,
        ),
    )
    return OperatorGraph("norm", ops, tensors)


def test_questions_of_norms_pools_and_activations():
    graph = _norm_graph("aten._native_batch_norm_legit_functional.default")
    whole = 2.0 * 64 * 8 * 16
    fused = question_of(
        KernelCall(
            ops=graph.ops, flops=0.0, bytes_read=2 * whole, bytes_written=whole, batch=64, precision="fp16_mixed"
        ),
        graph.ops[0],
        graph,
        graph.ops[1:],
    )
    assert (fused.kind, fused.sizes, fused.traffic, fused.extra) == (
        "batch_norm_forward",
        (64.0 * 16, 8.0),
        2 * whole,
        whole,
    )
    assert not fused.is_bf16
    alone = question_of(
        KernelCall(
            ops=graph.ops[:1], flops=0.0, bytes_read=whole + 32, bytes_written=whole, batch=64, precision="bf16_mixed"
        ),
        graph.ops[0],
        graph,
    )
    assert (alone.extra, alone.is_bf16) == (0.0, True)
    relu = question_of(
        KernelCall(
            ops=graph.ops[1:], flops=0.0, bytes_read=whole, bytes_written=whole, batch=64, precision="fp16_mixed"
        ),
        graph.ops[1],
        graph,
    )
    assert (relu.kind, relu.traffic, relu.is_substitute) == ("activation", 2 * whole, False)


@pytest.mark.parametrize("dims", [2, 3])
def test_pools_are_asked_for_by_their_windows(dims):
    channels, sides = Affine(8), ([Affine(16)] * dims, [Affine(8)] * dims)
    large, small = ((Affine(0, 1), channels, *side) for side in sides)
    tensors = (
        Tensor(0, large, F32, "input"), Tensor(1, small, F32, "activation", producer=0),
        Tensor(2, small, "int64", "activation", producer=0),
        Tensor(3, small, F32, "input"), Tensor(4, large, F32, "activation", producer=1),
    )  # fmt: skip
    window, name = [2] * dims, f"aten.max_pool{dims}d_with_indices"
    ops = (
        Op(
            id=0,
            name="pool",
            module="",
            phase="forward",
            op_type=f"{name}.default",
            inputs=(0,),
            outputs=(1, 2),
            arguments={"args": [{"tensor": 0}, window, window], "kwargs": {}},
        ),
        Op(
            id=1,
            name="back",
            module="",
            phase="backward",
            op_type=f"{name}_backward.default",
            inputs=(3, 0, 2),
            outputs=(4,),
            arguments={"args": [{"tensor": 0}, {"tensor": 1}, window, window], "kwargs": {}},
        ),
    )
    graph = OperatorGraph("pool", ops, tensors)
    for op, kind in zip(ops, ("pool_forward", "pool_backward"), strict=True):
        asked = question_of(
            KernelCall(ops=(op,), flops=0.0, bytes_read=1.0, bytes_written=1.0, batch=4, precision="fp16_mixed"),
            op,
            graph,
        )
        assert (asked.kind, asked.sizes) == (kind, (4.0 * 16**dims, 4.0 * 8**dims, 8.0, 2.0**dims, float(dims)))
