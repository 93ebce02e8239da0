"""Convolutions as tiles: what they multiply and load, by hand, and when their loads bound them."""

import math

import pytest

from rostam_py.costs import make_cost_model
from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.convolutions import FORWARD, INPUT_GRADIENT, TILES, WEIGHT_GRADIENT, Convolution, tilings
from rostam_py.costs.kernel_shapes import KernelQuestion, question_of
from rostam_py.costs.model import KernelCall
from rostam_py.graph import Affine, Op, OperatorGraph, Tensor

# CosmoFlow's second layer on one sample: 64^3 positions, 32 to 64 channels, 27 taps.
SECOND = Convolution(64.0**3, 64.0**3, 64.0, 32.0, 27.0, (FORWARD,), 2.0)


def of_tile(one, stage, tile, multiprocessors=132):
    return dict(zip(TILES, tilings(one, stage, multiprocessors), strict=True))[tile]


def test_forward_by_hand():
    # 1,024 tiles of 256 positions by 64 channels, each of (256 + 64) x 27 x 32 elements of 2 bytes.
    found = of_tile(SECOND, FORWARD, (256, 64))
    assert found.flops == 2 * 64**3 * 64 * 864
    assert found.cache_bytes == 1024 * 320 * 864 * 2
    assert (found.outputs, found.contraction) == (64**4, 864)
    # Of 128 columns half of a tile is outside: twice the work.
    assert of_tile(SECOND, FORWARD, (128, 128)).flops == 2 * found.flops


def test_gradient_of_the_input_by_hand():
    # 32 input channels fill half of 64 columns; 64 x 27 output channels and taps are contracted.
    found = of_tile(SECOND, INPUT_GRADIENT, (256, 64))
    assert found.flops == 2 * (2 * 64**3 * 64 * 864)
    assert found.cache_bytes == 1024 * 320 * 1728 * 2
    # Half as many positions each way: a window of the stride's covers an eighth of the taps for each input.
    strided = Convolution(32.0**3, 64.0**3, 64.0, 32.0, 27.0, (INPUT_GRADIENT,), 2.0)
    assert of_tile(strided, INPUT_GRADIENT, (256, 64)).contraction == 1728 / 8


def test_gradient_of_the_weight_shares_positions_among_blocks():
    # 64 x 864 outputs are 4 tiles of 64 x 256, the last of which holds 96 columns; 33 blocks share each of them.
    found = of_tile(SECOND, WEIGHT_GRADIENT, (64, 256))
    assert found.flops == 2 * 4 * 64 * 256 * 64**3
    assert found.cache_bytes == 4 * 320 * 64**3 * 2 + 33 * 64 * 864 * 8
    assert of_tile(SECOND, WEIGHT_GRADIENT, (64, 256), 4).cache_bytes == 4 * 320 * 64**3 * 2


@pytest.mark.parametrize(
    ("channels", "element", "filled"),
    [(1, 2.0, 4), (3, 2.0, 4), (4, 2.0, 4), (5, 2.0, 8), (12, 2.0, 16), (64, 2.0, 64), (6, 4.0, 8), (9, 1.0, 16)],
)
def test_channels_fill_whole_loads(channels, element, filled):
    one = Convolution(4096.0, 4096.0, 64.0, float(channels), 9.0, (FORWARD,), element)
    assert of_tile(one, FORWARD, (64, 64)).contraction == 9 * filled


def network(channels, outputs, side, taps, phase="forward", stride=1, groups=1, gradients=2):
    """One 2-D convolution in 16 bits, padded; a backward op has the gradients of its weight and its input, or one."""
    small = side // stride
    shapes = (
        (Affine(0, 1), Affine(channels), Affine(side), Affine(side)),
        (Affine(outputs), Affine(channels // groups), Affine(taps), Affine(taps)),
        (Affine(0, 1), Affine(outputs), Affine(small), Affine(small)),
    )
    inputs, made = ((0, 1), 2) if phase == "forward" else ((2, 0, 1), 3)
    given = [Tensor(at, shape, "float32", "input") for at, shape in enumerate(shapes[: 2 if made == 2 else 3])]
    tensors = (*given, Tensor(made, shapes[2 if made == 2 else 0], "float32", "activation", producer=0))
    flops = 2.0 * small**2 * outputs * channels // groups * taps**2
    count = 1 if phase == "forward" else gradients
    name = "aten.convolution.default" if phase == "forward" else "aten.convolution_backward.default"
    op = Op(
        id=0,
        name="convolution",
        module="",
        phase=phase,
        op_type=name,
        inputs=inputs,
        outputs=(made,),
        flops=Affine(0, count * flops),
        role="convolution",
    )
    return OperatorGraph("convolution", (op,), tensors)


def call_of(graph, batch=32):
    op = graph.ops[0]
    sizes = [math.prod(dim.at(batch) for dim in graph.tensors[t].shape) for t in (*op.inputs, *op.outputs)]
    return KernelCall(
        ops=(op,),
        flops=op.flops.at(batch),
        bytes_read=2.0 * sum(sizes[:-1]),
        bytes_written=2.0 * sizes[-1],
        batch=batch,
        precision="bf16_mixed",
    )


def asked_of(graph):
    return question_of(call_of(graph), graph.ops[0], graph).convolution


def test_questions_tell_a_convolutions_own_sizes():
    positions = 32.0 * 56**2
    assert asked_of(network(64, 128, 56, 3)) == Convolution(positions, positions, 128, 64, 9, (FORWARD,), 2)
    both = asked_of(network(64, 128, 112, 3, "backward", stride=2))
    assert both == Convolution(positions, 4 * positions, 128, 64, 9, (WEIGHT_GRADIENT, INPUT_GRADIENT), 2)
    assert asked_of(network(64, 128, 56, 3, "backward", gradients=1)).stages == (WEIGHT_GRADIENT,)
    # One tap is a product as it stands where there are no rows of convolutions; groups are products of their own.
    assert asked_of(network(64, 128, 56, 1)) == Convolution(positions, positions, 128, 64, 1, (FORWARD,), 2)
    assert asked_of(network(64, 128, 56, 3, groups=64)) is None


def seconds(graph, accelerator="h100_80gb"):
    cost = make_cost_model("calibrated", accelerator, graph=graph)
    return cost.duration_s(call_of(graph)), cost.notes()[0]


def test_narrow_convolutions_without_rows_are_bound_by_the_loads_of_their_tiles():
    graph = network(64, 64, 56, 3)
    asked = question_of(call_of(graph), graph.ops[0], graph)
    found = make_cost_model("calibrated", "h100_80gb", graph=graph).answers._in_tiles(asked, asked.convolution)
    assert found.seconds == pytest.approx(32 * 56**2 / 256 * 320 * 576 * 2 / 6.65e12, rel=1e-9)
    assert found.how == "by loads of tiles from the cache, unverified"
    # 2 FLOPs for 2 bytes of a column's 64 and a row's 256 elements: 340 TFLOP/s, where the matrix units do 989.
    assert 2.0 * 32 * 56**2 * 64 * 576 / found.seconds == pytest.approx(6.65e12 / (1 / 64 + 1 / 256), rel=1e-9)
    # cuDNN's kernels of 16 to 400 images reach a third to a half of that rate (calibration/measured).
    assert 1.1 * found.seconds < seconds(graph)[0] < 1.7 * found.seconds


def test_both_gradients_take_the_sum_of_their_stages():
    alone = [seconds(network(256, 256, 28, 3, "backward", gradients=1))[0], seconds(network(256, 256, 28, 3))[0]]
    # As many channels in as out and as many positions: the input's gradient is as long as the forward product.
    assert seconds(network(256, 256, 28, 3, "backward"))[0] == pytest.approx(sum(alone), rel=0.02)


@pytest.mark.parametrize("accelerator", ["v100_32gb", "a100_80gb", "h100_80gb", "b200_180gb", "gb300_288gb"])
def test_convolutions_are_never_faster_than_the_peak_or_the_memory(accelerator):
    device = ACCELERATORS[accelerator]
    precision = "fp16_mixed" if accelerator.startswith("v100") else "bf16_mixed"
    for channels, outputs, side in ((3, 64, 224), (1, 1, 4), (64, 64, 56), (512, 2048, 7), (2048, 512, 14)):
        for phase in ("forward", "backward"):
            graph = network(channels, outputs, side, 3, phase)
            call = call_of(graph)
            call = KernelCall(
                ops=call.ops,
                flops=call.flops,
                bytes_read=call.bytes_read,
                bytes_written=call.bytes_written,
                batch=call.batch,
                precision=precision,
            )
            found = make_cost_model("calibrated", accelerator, graph=graph).duration_s(call)
            moved_s = (call.bytes_read + call.bytes_written) / device.memory_bandwidth_bytes_per_s
            peak_s = call.flops / device.peak("fp16")
            assert max(peak_s, moved_s) <= found < 1e-4 + 60 * peak_s + 4 * moved_s


def test_a_product_that_computes_nothing_of_the_kind_is_asked_for_as_before():
    asked = KernelQuestion(
        kind="product",
        sizes=(1.0, 4096.0, 4096.0, 4096.0, 1.0, 2.0),
        precision="bf16",
        flops=2 * 4096.0**3,
        traffic=1e8,
    )
    assert asked.convolution is None
