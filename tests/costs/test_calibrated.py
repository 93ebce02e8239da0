"""Calibrated costs: shapes after splits, the rule of sources, what is borrowed, and what the notes say."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from rostam_py.costs import make_cost_model, optimizer_call
from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.families import CAST
from rostam_py.costs.kernel_kinds import GROUPED_STAGES, KERNEL_KINDS, LAYOUTS
from rostam_py.costs.kernel_shapes import KernelQuestion, question_of
from rostam_py.costs.kernel_surface import Fit
from rostam_py.costs.kernel_table import HeldOut, KernelSeries, KernelTable, MeasuredDevice, shipped_table
from rostam_py.costs.limits import ROOFLINE_RESIDUAL, Speeds
from rostam_py.costs.model import KernelCall
from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, Op, OperatorGraph, Split, Tensor
from tests.costs.conftest import build_linear_graph

PEAK, BANDWIDTH = 989.4e12, 3350e9  # h100_80gb


def call_of(op, batch, precision="bf16_mixed", degree=1, kind="", share=1.0):
    flops, moved = op.flops.at(batch) * share, (op.bytes_read + op.bytes_written).at(batch) / 2
    return KernelCall(
        ops=(op,),
        flops=flops,
        bytes_read=moved,
        bytes_written=0.0,
        batch=batch,
        precision=precision,
        degree=degree,
        split_kind=kind,
    )


def series(seconds, source, shapes=((1, 1024, 1024, 1024, 0, 2), (1, 4096, 4096, 4096, 0, 2)), kind="product"):
    """Two products whose times are given, so that the surface passes through them."""
    columns = {
        name: np.array([shape[at] for shape in shapes], float) for at, name in enumerate(KERNEL_KINDS[kind].fields)
    }
    num_scales = KERNEL_KINDS[kind].spaces["shape"](columns, 132).shape[1]
    fit = Fit("shape", (8.0,) * num_scales, 1e-9, 0.0)
    device = MeasuredDevice("h100", PEAK, BANDWIDTH, 132)
    return KernelSeries(
        kind=kind,
        precision="bf16",
        source=source,
        device=device,
        element_bytes=2,
        columns=columns,
        seconds=np.asarray(seconds),
        fit=fit,
    )


def own_table(tmp_path, *found, accelerator="h100_80gb"):
    path = tmp_path / "own.json"
    KernelTable(accelerator, {}, found).save(path)
    return str(path)


def model(graph, table="", accelerator="h100_80gb", **settings):
    return make_cost_model("calibrated", accelerator, graph=graph, table=table, **settings)


def square(size):
    graph = build_linear_graph(size, size)
    return graph, call_of(graph.ops[0], size)


def test_measured_shape_takes_its_measured_time(tmp_path):
    graph, call = square(1024)
    cost = model(graph, own_table(tmp_path, series([20e-6, 300e-6], "one")))
    assert cost.duration_s(call) == pytest.approx(20e-6, rel=1e-3)
    assert cost.notes() == ["calibrated matmul kernels: 1 interpolated"]


def test_between_measured_shapes_the_efficiency_is_between(tmp_path):
    graph, call = square(2048)
    times = [2 * 1024**3 / (0.4 * PEAK), 2 * 4096**3 / (0.8 * PEAK)]
    duration = model(graph, own_table(tmp_path, series(times, "one"))).duration_s(call)
    # Half-way in every coordinate: the geometric mean of 40% and 80%, as the surface is symmetric about its median.
    assert duration == pytest.approx(2 * 2048**3 / (np.sqrt(0.4 * 0.8) * PEAK), rel=1e-3)


def test_beyond_the_measured_shapes_the_nearest_efficiency_holds(tmp_path):
    graph, call = square(16384)
    times = [2 * 1024**3 / (0.4 * PEAK), 2 * 4096**3 / (0.8 * PEAK)]
    cost = model(graph, own_table(tmp_path, series(times, "one")))
    assert cost.duration_s(call) == pytest.approx(2 * 16384**3 / (0.8 * PEAK), rel=1e-3)
    assert cost.notes() == ["calibrated matmul kernels: 1 extrapolated"]


def test_median_of_sources_counts_and_their_spread_is_told(tmp_path):
    graph, call = square(1024)
    found = (series([times, 300e-6], str(times)) for times in (10e-6, 20e-6, 25e-6))
    cost = model(graph, own_table(tmp_path, *found))
    assert cost.duration_s(call) == pytest.approx(20e-6, rel=1e-3)
    assert cost.notes() == ["calibrated matmul kernels: 1 interpolated; sources differ by 150% (median)"]


def test_source_that_measured_around_the_shape_counts_alone(tmp_path):
    graph, call = square(1024)
    far = series([1e-3, 2e-3], "far", shapes=((1, 8192, 8192, 8192, 0, 2), (1, 16384, 8192, 8192, 0, 2)))
    cost = model(graph, own_table(tmp_path, series([20e-6, 300e-6], "near"), far))
    assert cost.duration_s(call) == pytest.approx(20e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "output", "expected"),
    [("sample", 0, (1, 64, 128, 256)), ("column", 1, (1, 256, 32, 256)), ("row", -1, (1, 256, 128, 64))],
)
def test_split_divides_the_size_that_it_splits(kind, output, expected):
    # 256 rows of a 256 -> 128 layer over 4 members: rows, columns, or the contraction.
    graph = build_linear_graph(256, 128)
    op = graph.ops[0]
    split = Op(
        **{name: getattr(op, name) for name in op.__slots__}
        | {"splits": (Split(kind, (None, None), (output,), Affine(256)),)}
    )
    asked = question_of(call_of(split, 256, degree=4, kind=kind, share=0.25), split, graph)
    assert asked.sizes[:4] == expected
    assert 2 * np.prod(asked.sizes[:4]) == asked.flops


def test_layouts_follow_the_pass():
    graph = build_linear_graph(256, 128)
    forward, gradient = graph.ops[0], graph.ops[4]
    assert LAYOUTS[int(question_of(call_of(forward, 8), forward, graph).sizes[4])] == "TN"
    asked = question_of(call_of(gradient, 8), gradient, graph)
    # The weights' gradient is 256 x 128 over the 8 rows, added into what is there.
    assert (LAYOUTS[int(asked.sizes[4])], asked.sizes[1:4], asked.sizes[5]) == ("NT", (256, 128, 8), 4)


def attention(is_causal):
    """Queries (B, 16, 2048, 128) on 4 key heads."""

    def shape(heads):
        return (Affine(0, 1), Affine(heads), Affine(2048), Affine(128))

    inputs = (Tensor(at, shape(heads), "float32", "input") for at, heads in enumerate((16, 4, 4)))
    tensors = (*inputs, Tensor(3, shape(16), "float32", "activation", producer=0))
    flops = Affine(0, 4.0 * 16 * 2048**2 * 128)
    arguments = {"args": [{"tensor": 0}, {"tensor": 1}, {"tensor": 2}, None, 0.0, is_causal, None], "kwargs": {}}
    op = Op(
        id=0,
        name="sdpa",
        module="",
        phase="forward",
        op_type="rostam.scaled_dot_product_attention.default",
        inputs=(0, 1, 2),
        outputs=(3,),
        arguments=arguments,
        flops=flops,
        bytes_read=Affine(0, 1e6),
        bytes_written=Affine(0, 1e6),
        role="attention",
    )
    return OperatorGraph("attention", (op,), tensors)


def test_causal_attention_does_half_of_the_work():
    for is_causal, share in ((True, 0.5), (False, 1.0)):
        graph = attention(is_causal)
        asked = question_of(call_of(graph.ops[0], 2), graph.ops[0], graph)
        assert asked.kind == "attention_forward"
        assert asked.sizes == pytest.approx((2, 2048, 16, 4, 128, 128))
        assert asked.flops == pytest.approx(share * 2 * 4.0 * 16 * 2048**2 * 128)


@pytest.mark.parametrize(
    ("phase", "inputs", "output", "stage"),
    [
        ("forward", (0, 1), 2, "forward"),
        ("backward", (0, 1), 2, "input_gradient"),
        ("backward", (0, 2), 1, "weight_gradient"),
    ],
)
def test_grouped_product_counts_rows_of_each_expert(phase, inputs, output, stage):
    # 8 experts of 256 -> 512, 128 rows a sample: at 4 samples 64 rows each, and as many where 2 members hold 4 each.
    shapes = ((Affine(0, 128), Affine(256)), (Affine(8), Affine(256), Affine(512)), (Affine(0, 128), Affine(512)))
    tensors = tuple(
        Tensor(at, shape, "float32", "activation" if at == output else "input", producer=0 if at == output else None)
        for at, shape in enumerate(shapes)
    )
    flops = Affine(0, 2.0 * 128 * 256 * 512)
    op = Op(
        id=0,
        name="experts",
        module="",
        phase=phase,
        op_type="rostam._grouped_mm.default",
        inputs=inputs,
        outputs=(output,),
        flops=flops,
        role="product",
        bytes_read=Affine(0, 1e6),
        bytes_written=Affine(0, 1e6),
    )
    graph = OperatorGraph("experts", (op,), tensors)
    for degree, groups in ((1, 8), (2, 4)):
        call = call_of(op, 4, degree=degree, kind="expert" if degree > 1 else "", share=1 / degree)
        asked = question_of(call, op, graph)
        # Of an input's gradient 256 is what is summed over, the forward product's columns.
        n, k = (256, 512) if stage == "input_gradient" else (512, 256)
        assert (asked.kind, asked.sizes[:4]) == ("grouped_product", (groups, 64, n, k))
        assert GROUPED_STAGES[asked.sizes[4]] == stage
    # Spread over 4 ranks of expert parallelism each has 2 of them, with the 64 rows that each of the 4 routes to it.
    asked = question_of(replace(call_of(op, 4), spread=4), op, graph)
    assert asked.sizes[:4] == (2, 256, n, k)


def grouped(groups, rows, n, k, stage="forward", precision="bf16", width=2.0):
    """What a table is asked about groups of rows x k times k x n."""
    out_bytes = width if stage != "weight_gradient" else 2 * width
    sizes = (float(groups), float(rows), float(n), float(k), float(GROUPED_STAGES.index(stage)), out_bytes)
    columns = {name: np.array([size]) for name, size in zip(KERNEL_KINDS["grouped_product"].fields, sizes, strict=True)}
    kind = KERNEL_KINDS["grouped_product"]
    return KernelQuestion(
        kind=kind.name,
        sizes=sizes,
        precision=precision,
        flops=kind.flops(columns)[0],
        traffic=kind.traffic(columns, width)[0],
    )


def plain(rows, n, k, precision="bf16", width=2.0, layout="TN"):
    sizes = (1.0, float(rows), float(n), float(k), float(LAYOUTS.index(layout)), width)
    moved = width * (rows * k + k * n + rows * n)
    return KernelQuestion(kind="product", sizes=sizes, precision=precision, flops=2.0 * rows * n * k, traffic=moved)


def answers(accelerator):
    graph, _ = square(1024)
    return model(graph, accelerator=accelerator).answers.answer


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("accelerator", ["h100_80gb", "h200_141gb"])
def test_grouped_products_that_nobody_measured_take_their_groups_products(accelerator, precision):
    width = {"bf16": 2.0, "fp8": 1.0}[precision]
    answer = answers(accelerator)
    for groups, rows in ((4, 8192), (16, 2048), (32, 512)):
        found = answer(grouped(groups, rows, 768, 2048, precision=precision, width=width)).seconds
        assert found == pytest.approx(groups * answer(plain(rows, 768, 2048, precision, width)).seconds, rel=1e-3)


@pytest.mark.parametrize("accelerator", ["b200_180gb", "gb200_186gb", "gb300_288gb", "a100_80gb"])
def test_grouped_products_beyond_what_was_measured_are_multiples_of_their_groups_products(accelerator):
    # Measured: 20 to 256 groups on B200, 20 and 40 on A100; expert parallelism leaves 1 to 16.
    answer = answers(accelerator)
    for stage, layout in (("forward", "TN"), ("weight_gradient", "NT")):
        for groups in (1, 2, 4, 8):
            shape = (8192, 2048, 7168) if stage == "forward" else (2048, 7168, 8192)
            each = answer(plain(*shape, layout=layout)).seconds
            multiple = answer(grouped(groups, 8192, 2048, 7168, stage)).seconds / (groups * each)
            assert (0.99 if groups == 1 else 0.85) < multiple < (1.01 if groups == 1 else 1.5), (stage, groups)


def test_grouped_products_are_measured_ones_where_they_were_measured():
    # SimuMax's B200, 64 experts of 512 rows: 0.3635 of 2,250 TFLOP/s (grouped_gemm_b200_simumax.csv), its own row.
    found = answers("b200_180gb")(grouped(64, 512, 4096, 7168))
    assert found.seconds == pytest.approx(2 * 64 * 512 * 4096 * 7168 / (0.365 * 2250e12), rel=0.03)
    assert found.how == "interpolated"


@pytest.mark.parametrize("accelerator", ["h100_80gb", "b200_180gb", "gb300_288gb", "a100_80gb"])
def test_groups_are_never_faster_than_one_product_of_their_rows(accelerator):
    answer = answers(accelerator)
    for groups, rows, n, k in ((2, 300, 1000, 900), (8, 1200, 3072, 5120), (16, 4096, 1536, 2048), (300, 64, 512, 512)):
        one = answer(plain(groups * rows, n, k)).seconds
        assert answer(grouped(groups, rows, n, k)).seconds >= 0.999 * one


def test_grouped_products_of_8_bits_have_the_multiple_of_16_bits():
    answer = answers("b200_180gb")
    for rows in (128, 512, 2048):
        wide, narrow = (
            answer(grouped(32, rows, 1536, 4096, precision=precision, width=width)).seconds
            / answer(plain(rows, 1536, 4096, precision, width)).seconds
            for precision, width in (("bf16", 2.0), ("fp8", 1.0))
        )
        assert narrow == pytest.approx(wide, rel=0.05)


@pytest.mark.parametrize(
    ("groups", "width", "hidden", "precision", "forward_ms", "backward_ms"),
    [
        (1, 4096, 14336, "bf16", 4.262, 7.825),
        (4, 7168, 2048, "bf16", 5.246, 8.846),
        (1, 4096, 14336, "fp8", 3.676, 6.641),
        (4, 7168, 2048, "fp8", 5.001, 7.716),
    ],
)
def test_expert_layers_on_h100_take_little_more_than_their_products(
    groups, width, hidden, precision, forward_ms, backward_ms
):
    # Megatron-LM's own times of a whole layer of experts on 8 H100, ep 8, 8,192 rows for each of a rank's experts, the
    # fastest way to send them (tests/functional_tests/test_cases/common/moe_perf/baseline.json at 32f2c9cf; 8 bits in
    # blocks): routing, sending and activations take the rest. Devices rest between its repetitions.
    size = {"bf16": 2.0, "fp8": 1.0}[precision]
    answer = answers("h100_80gb")

    def milliseconds(*stages):
        shapes = ((hidden, width), (hidden, width), (width, hidden))  # n, k of gate, up and down
        asked = [grouped(groups, 8192, n, k, one, precision, size) for one in stages for n, k in shapes]
        return 1e3 * sum(answer(one).seconds for one in asked)

    assert 0.4 * forward_ms < milliseconds("forward") < forward_ms
    assert 0.5 * backward_ms < milliseconds("input_gradient", "weight_gradient") < 1.04 * backward_ms


def test_h200_borrows_what_only_others_measured():
    # Softmax no Hopper and no Blackwell has rows of: the nearest bandwidth lends, 2,039 GB/s of an A100 to 4,800.
    graph = build_linear_graph(4096, 4096)
    relu = graph.ops[1]
    cost = model(graph, accelerator="h200_141gb")
    moved = 2.0**28
    seconds = cost.duration_s(
        KernelCall(ops=(relu,), flops=0.0, bytes_read=moved, bytes_written=0.0, batch=8, precision="bf16_mixed")
    )
    assert moved / 4800e9 < seconds < 1.5 * moved / 4800e9
    assert cost.notes()[0].startswith("calibrated elementwise kernels: 1 interpolated by rows of kind cast")
    rows = KernelQuestion(kind="softmax", sizes=(8192.0, 4096.0), precision="", flops=0.0, traffic=moved)
    lent, own = cost.seconds(rows), make_cost_model("calibrated", "a100_80gb", graph=graph).seconds(rows)
    assert lent == pytest.approx(own * 2039 / 4800, rel=0.1)


@pytest.mark.parametrize(
    ("accelerator", "moved", "seconds"),
    # cub::DeviceTransform of NVIDIA/cccl, timed with cold caches, less what the smallest takes longer so than in a row
    # (events and launch: 6.17 and 2.00 us). Pull 7391, B200, two fp16 vectors added: 2^16, 2^24 and 2^28 elements.
    [("b200_180gb", 6 * 2**16, 2.00e-6), ("b200_180gb", 6 * 2**24, 18.86e-6), ("b200_180gb", 6 * 2**28, 235.5e-6),
     # Pull 2086, H200, bytes times a number: 2^28 (nothing taken off) and 16 bytes of 2^28 added to 16 others.
     ("h200_141gb", 2 * 2**28, 134.8e-6), ("h200_141gb", 48 * 2**28, 2.907e-3)],
)  # fmt: skip
def test_element_wise_kernels_take_what_others_measured(accelerator, moved, seconds):
    cost = model(build_linear_graph(), accelerator=accelerator)
    found = cost.seconds(
        KernelQuestion(kind="elementwise", sizes=(float(moved),), precision="", flops=0.0, traffic=float(moved))
    )
    assert found == pytest.approx(seconds, rel=0.15)


def weight_gradient(gradient_bytes, *, adds):
    """A layer's weight gradient, 4,096 x 12,288 over 8,192 tokens, and a call that writes it, or adds into it."""
    tensors = tuple(
        Tensor(at, shape, "float32", "input") for at, shape in
        enumerate([(Affine(4096), Affine(0, 1)), (Affine(0, 1), Affine(12288))])
    )  # fmt: skip
    made = Tensor(2, (Affine(4096), Affine(12288)), "float32", "activation", producer=0)
    flops = Affine(0, 2.0 * 4096 * 12288)
    op = Op(
        id=0,
        name="mm",
        module="",
        phase="backward",
        op_type="aten.mm.default",
        inputs=(0, 1),
        outputs=(2,),
        flops=flops,
        role="product",
    )
    graph = OperatorGraph("linear", (op,), (*tensors, made))
    written = float(gradient_bytes * 4096 * 12288)
    read = 2.0 * 8192 * (4096 + 12288) + (written if adds else 0.0)
    return graph, KernelCall(
        ops=(op,), flops=op.flops.at(8192), bytes_read=read, bytes_written=written, batch=8192, precision="bf16_mixed"
    )


@pytest.mark.parametrize(
    ("gradient_bytes", "adds", "out_bytes"), [(4, True, 8.0), (4, False, 4.0), (2, True, 4.0), (2, False, 4.0)]
)
def test_weight_gradients_that_move_fp32_twice_add_into_it(gradient_bytes, adds, out_bytes):
    graph, call = weight_gradient(gradient_bytes, adds=adds)
    assert question_of(call, graph.ops[0], graph).sizes[-1] == out_bytes


@pytest.mark.parametrize(("accelerator", "multiple"), [("h100_80gb", 1.053), ("gb200_186gb", 1.053)])
def test_weight_gradients_that_add_into_fp32_take_as_many_times_as_where_they_were_measured(accelerator, multiple):
    # SimuMax's pairs of one B200: sum of NT products that add into fp32 over that of TN ones of the same sizes. Sources
    # of the others have none; the bytes of fp32 hide behind so much arithmetic.
    graph, adding = weight_gradient(4, adds=True)
    cost = model(graph, accelerator=accelerator, clocks="burst")
    plain = replace(question_of(adding, graph.ops[0], graph), sizes=(1.0, 4096.0, 12288.0, 8192.0, 3.0, 2.0))
    assert cost.duration_s(adding) / cost.seconds(plain) == pytest.approx(multiple, rel=1e-6)


@pytest.mark.parametrize(
    ("accelerator", "rows", "us"), [("h100_80gb", 8192, 52.0), ("h100_80gb", 2048, 18.9), ("b200_180gb", 8192, 29.0)]
)
def test_norms_take_what_another_program_was_measured_at(accelerator, rows, us):
    # RMSNorm of 4,096 columns in bf16 by CuTe DSL kernels (linkedin/Liger-Kernel, pull 1462), a few us of events in it.
    moved = 4.0 * rows * 4096
    cost = model(build_linear_graph(), accelerator=accelerator)
    found = cost.seconds(
        KernelQuestion(kind="normalization", sizes=(float(rows), 4096.0), precision="", flops=0.0, traffic=moved)
    )
    assert 0.8 * us * 1e-6 < found < 1.15 * us * 1e-6


def test_norms_of_pytorchs_own_kernels_are_slower():
    moved = 4.0 * 4096 * 4096 * 2  # fp32, H100 NVL: 63.008 us against 45.536 and 44.736 by Triton's
    asked = KernelQuestion(kind="normalization", sizes=(4096.0, 4096.0), precision="", flops=0.0, traffic=moved)
    ratio = model(build_linear_graph(), norms="aten").seconds(asked) / model(build_linear_graph()).seconds(asked)
    assert ratio == pytest.approx(63.008 / np.sqrt(45.536 * 44.736), rel=0.1)


def test_small_kernels_take_a_launch_on_every_device():
    bounds = {"a100_80gb": (3e-6, 4e-6), "h100_80gb": (1e-6, 2e-6), "gb300_288gb": (2e-6, 2.5e-6)}
    for name, (least, most) in bounds.items():
        cost = model(build_linear_graph(), accelerator=name)
        for moved in (16.0, 1e4):
            assert (
                least
                < cost.seconds(
                    KernelQuestion(kind="elementwise", sizes=(moved,), precision="", flops=0.0, traffic=moved)
                )
                < most
            )


def cast(num_elements, reads=1, copies=1):
    op = Op(
        id=0, name="up (cast)", module="", phase="forward", op_type=CAST, inputs=(), outputs=(), is_elementwise=True
    )
    return KernelCall(
        ops=(op,),
        flops=0.0,
        bytes_read=2.0 * reads * num_elements,
        bytes_written=float(copies * num_elements),
        batch=1,
        precision="bf16_mixed",
    )


@pytest.mark.parametrize(
    ("accelerator", "milliseconds"),
    [("b200_180gb", (0.13776, 0.13795, 0.13788, 0.11844, 0.11629, 0.12631)),
     ("h100_80gb", (0.26452, 0.26348, 0.26314, 0.26285, 0.26403, 0.27228))],
)  # fmt: skip
def test_casts_take_the_times_of_measured_ones(accelerator, milliseconds):
    # 2^28 elements by TensorRT-LLM and vLLM (scale_matrix_perf): 32768 x 8192, 16384 x 16384, 4096 x 65536.
    cost = model(build_linear_graph(), accelerator=accelerator)
    seconds = cost.duration_s(cast(2**28))
    assert seconds == pytest.approx(1e-3 * np.median(milliseconds), rel=0.03)
    assert cost.notes()[0].startswith("calibrated elementwise kernels: 1 interpolated; sources differ by")
    # A second read takes as long for each byte, and none beats the memory.
    assert cost.duration_s(cast(2**28, reads=2)) == pytest.approx(seconds * 5 / 3, rel=0.1)
    for size in 2.0 ** np.arange(10, 34):
        took = cost.duration_s(cast(size))
        assert took >= max(3 * size / cost.accelerator.memory_bandwidth_bytes_per_s, 1e-6)


def test_casts_of_accelerators_without_their_rows_borrow_them():
    cost = model(build_linear_graph(), accelerator="h100_96gb")
    assert cost.duration_s(cast(2**28)) > 3 * 2**28 / cost.accelerator.memory_bandwidth_bytes_per_s
    assert "interpolated from h" in cost.notes()[0]


def test_optimizer_streams_and_says_that_nobody_measured_it():
    cost = model(build_linear_graph(), accelerator="a100_80gb")
    call = optimizer_call("adam", 1e8, "bf16_mixed")
    ideal = (call.bytes_read + call.bytes_written) / 2039e9
    assert ideal < cost.duration_s(call) < 1.4 * ideal
    assert "as the nearest measured kind, unverified" in cost.notes()[0]
    assert not any("roofline" in note for note in cost.notes())


def test_unmeasured_kind_is_the_rooflines():
    op = Op(
        id=0,
        name="conv",
        module="",
        phase="forward",
        op_type="aten.convolution.default",
        inputs=(),
        outputs=(),
        flops=Affine(0, 1e12),
        role="convolution",
    )
    graph = OperatorGraph("conv", (op,), ())
    call = KernelCall(ops=(op,), flops=1e12, bytes_read=1e6, bytes_written=1e6, batch=1, precision="bf16_mixed")
    cost = model(graph)
    assert cost.duration_s(call) == make_cost_model("roofline", "h100_80gb").duration_s(call)
    assert cost.notes()[0] == "calibrated convolution kernels: 1 by roofline, unverified"


def test_shipped_h100_product_is_near_the_library_measurement():
    # 8192^3 bf16: the median of SGLang's two versions and TensorRT-LLM in aiconfigurator-core 0.12.0 is 703 TFLOP/s.
    graph, call = square(8192)
    assert call.flops / model(graph).duration_s(call) == pytest.approx(703e12, rel=0.08)


def test_residual_is_of_held_out_errors_and_spread(tmp_path):
    graph, call = square(1024)
    one = replace(series([10e-6, 300e-6], "one"), held_out=HeldOut(4, 0.05, 0.03, 0.1), source_spread=0.06)
    # Errors about their mean: sqrt(0.05^2 - 0.03^2) = 0.04; half of the spread 0.03; together 0.05; 3% too slow.
    residual = model(graph, own_table(tmp_path, one)).limits(call).residual
    assert (residual.low, residual.high) == pytest.approx((0.08, 0.02))


def test_series_of_too_few_rows_to_judge_has_the_rooflines_error(tmp_path):
    graph, call = square(1024)
    limits = model(graph, own_table(tmp_path, series([10e-6, 300e-6], "one"))).limits(call)
    assert (limits.residual.signed, limits.residual.absolute) == (0.0, ROOFLINE_RESIDUAL.absolute)


def test_limits_at_unchanged_speeds_give_the_duration_of_half_of_causal_attention():
    graph = attention(True)
    call = call_of(graph.ops[0], 64)
    half = make_cost_model("roofline", "h100_80gb", causal_share=0.5)
    assert half.limits(call).duration_s(Speeds()) == pytest.approx(half.duration_s(call), rel=1e-12)
    cost = model(graph)
    assert cost.limits(call).duration_s(Speeds()) == pytest.approx(cost.duration_s(call), rel=1e-12)


def test_other_accelerators_table_is_refused(tmp_path):
    graph, _ = square(64)
    path = own_table(tmp_path, series([20e-6, 300e-6], "one"))
    with pytest.raises(ConfigError, match="measured on h100_80gb, the machine has a100_80gb"):
        model(graph, path, "a100_80gb")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.update(kind="gemm"), r"kind is 'gemm'; known: product"),
        (lambda one: one["rows"][0].pop(), r"rows must be at least one, each of 7 numbers"),
        (
            lambda one: one["rows"][0].__setitem__(-1, 0),
            r"own.json.*series\[0\]: rows\[0\] has microseconds 0; it must",
        ),
        (lambda one: one["rows"][1].__setitem__(-1, math.nan), r"rows\[1\] has microseconds nan"),
        (
            lambda one: one["rows"][1].__setitem__(-1, -3.0),
            r"rows\[1\] has microseconds -3; it must be a number above 0",
        ),
        (lambda one: one["rows"][1].__setitem__(1, 0), r"rows\[1\] has m 0; it must be a number above 0"),
        (lambda one: one["rows"][0].__setitem__(2, 1e300), r"rows\[0\] has n 1e\+300; .* at most 1e\+15"),
        (lambda one: one["rows"][0].__setitem__(4, 7), r"rows\[0\] has layout 7; it must be 0 to 3 \(unknown, TN"),
        (
            lambda one: one["device"].update(peak_flops_per_s=0),
            r"device.peak_flops_per_s is 0.0; it must be a number above",
        ),
        (
            lambda one: one["device"].update(memory_bandwidth_bytes_per_s=math.nan),
            r"memory_bandwidth_bytes_per_s is nan",
        ),
        (lambda one: one["device"].pop("multiprocessors"), r"device.multiprocessors is None"),
        (lambda one: one.update(element_bytes=-1), r"element_bytes is -1"),
        (lambda one: one["fit"].update(noise=math.nan), r"fit.noise is nan"),
        (lambda one: one["fit"].update(space="size"), r"fit.space is 'size'; it must be one of shape, tiles"),
        (lambda one: one["fit"].update(scales=[1.0]), r"needs one above 0 for each coordinate"),
        (lambda one: one["fit"].update(share=0), r"fit.share is 0.*a share is above 0 and at most 1"),
        (lambda one: one["fit"].update(lost=-1), r"fit.lost -1.*a number of steps at least 0"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, change, message):
    path = own_table(tmp_path, series([20e-6, 300e-6], "one"))
    with open(path) as file:
        document = json.load(file)
    change(document["series"][0])
    with open(path, "w") as file:
        json.dump(document, file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match=message):
            KernelTable.load(path)


def test_gpu_without_a_table_borrows_and_others_take_the_roofline():
    graph, call = square(4096)
    cost, own = (
        make_cost_model("calibrated", name, graph=graph, clocks="burst") for name in ("h100_96gb", "h100_80gb")
    )
    assert cost.duration_s(call) == pytest.approx(own.duration_s(call), rel=1e-9)  # same peak, bound by it
    assert (
        cost.notes()[0]
        == "calibrated matmul kernels: 1 interpolated from h100_80gb, h200_141gb; sources differ by "
        + (cost.notes()[0].rpartition("by ")[2])
    )
    cost = model(graph, accelerator="tpu_v4_32gb")
    assert cost.duration_s(call) == make_cost_model("roofline", "tpu_v4_32gb").duration_s(call)


def test_causal_attention_without_measurements_takes_half_of_the_rooflines_arithmetic():
    for is_causal, share in ((True, 0.5), (False, 1.0)):
        graph = attention(is_causal)
        call = call_of(graph.ops[0], 64)
        plain = make_cost_model("roofline", "tpu_v4_32gb", ramp_time="0 s")
        half = make_cost_model("roofline", "tpu_v4_32gb", ramp_time="0 s", causal_share=0.5)
        assert half.duration_s(call) == pytest.approx(share * plain.duration_s(call), rel=1e-9)
        # 60% of 275 TFLOP/s (roofline.COMPUTE_EFFICIENCY), by hand; calibrated adds the ramp of 5 us.
        by_hand = share * 64 * 4.0 * 16 * 2048**2 * 128 / (0.6 * 275e12)
        assert half.duration_s(call) == pytest.approx(by_hand, rel=1e-9)
        ours = model(graph, accelerator="tpu_v4_32gb").duration_s(call)
        assert ours == pytest.approx(by_hand + 5e-6 / 0.6, rel=1e-9)
    with pytest.raises(ConfigError, match=r"cost.causal_share is 0; it must be in \(0, 1\]"):
        make_cost_model("roofline", "tpu_v4_32gb", causal_share=0)


@pytest.mark.parametrize("accelerator", ["a100_80gb", "h100_80gb", "b200_180gb"])
def test_attention_in_tf32_takes_as_many_times_that_in_16_bits_as_its_peak_is_lower(accelerator):
    # By the roofline a model's took 20.7 ms on a B200, where measured kernels of 16 bits take 29.7. Bound by arithmetic
    # both have one ratio to the peak; a fixed time, the same for both, keeps the times a little nearer.
    graph = attention(True)
    calls = [call_of(graph.ops[0], 64, precision=precision) for precision in ("tf32", "bf16_mixed")]
    cost = make_cost_model("calibrated", accelerator, graph=graph, clocks="burst")
    slow, fast = (cost.answers.answer(question_of(call, graph.ops[0], graph)) for call in calls)
    ratio = ACCELERATORS[accelerator].peak("bf16") / ACCELERATORS[accelerator].peak("tf32")
    assert 0.9 * ratio < slow.seconds / fast.seconds <= ratio * (1 + 1e-9)
    assert slow.how == f"{fast.how} as bf16's at the peak of tf32, unverified"
    assert (fast.is_own, slow.is_own) == (True, False)


def test_backward_attention_without_rows_is_its_multiple_of_the_forward_elsewhere():
    # B300 has forward rows alone; B200 lends: SimuMax's backward over SimuMax's forward there, times B300's forward.
    graph = attention(True)
    own, lender = (model(graph, accelerator=name) for name in ("b300_288gb", "b200_180gb"))
    sizes = (4.0, 8192.0, 32.0, 8.0, 128.0, 128.0)
    asked = {}
    for kind in ("attention_forward", "attention_backward"):
        columns = {name: np.array([size]) for name, size in zip(KERNEL_KINDS[kind].fields, sizes, strict=True)}
        flops = float(KERNEL_KINDS[kind].flops(columns)[0])
        moved = float(KERNEL_KINDS[kind].traffic(columns, 2.0)[0])
        asked[kind] = KernelQuestion(kind=kind, sizes=sizes, precision="bf16", flops=flops, traffic=moved)
    found = own.answers.answer(asked["attention_backward"])
    assert found.how == "interpolated from b200_180gb"
    there = {}
    for kind, question in asked.items():
        (one,) = (s for s in lender.answers.own.series if s.kind == kind and "SimuMax" in s.source)
        ideal = max(question.flops / 2250e12, question.traffic / 8000e9)
        there[kind] = one.ratios(question.columns, 148)[0] * (ideal + one.fit.fixed_s)
    expected = (
        own.answers.answer(asked["attention_forward"]).seconds
        * there["attention_backward"]
        / there["attention_forward"]
    )
    assert found.seconds == pytest.approx(expected, rel=1e-9)


def convolution(phase, inputs, outputs, flops):
    """Images (B, 64, 56, 56), 3 x 3 filters to 128 channels, stride 1."""
    shapes = [
        (Affine(0, 1), Affine(64), Affine(56), Affine(56)), (Affine(128), Affine(64), Affine(3), Affine(3)),
        (Affine(0, 1), Affine(128), Affine(56), Affine(56)),
    ]  # fmt: skip
    kinds = ["activation" if at in outputs else "input" for at in range(3)]
    tensors = tuple(
        Tensor(at, shapes[at], "float32", kinds[at], producer=0 if at in outputs else None) for at in range(3)
    )
    name = "aten.convolution.default" if phase == "forward" else "aten.convolution_backward.default"
    op = Op(
        id=0,
        name="conv",
        module="",
        phase=phase,
        op_type=name,
        inputs=inputs,
        outputs=outputs,
        flops=Affine(0, flops),
        role="convolution",
        bytes_read=Affine(0, 1e6),
        bytes_written=Affine(0, 1e6),
    )
    return OperatorGraph("conv", (op,), tensors)


def test_convolution_is_asked_for_as_its_product():
    # 56 x 56 positions of 8 images, 128 outputs each, over 64 x 9 inputs; backward is two products of as much work.
    whole = 2.0 * 56 * 56 * 128 * 64 * 9
    forward = convolution("forward", (0, 1), (2,), whole)
    asked = question_of(call_of(forward.ops[0], 8), forward.ops[0], forward)
    assert (asked.kind, asked.sizes[:4], asked.count) == ("product", (1, 8 * 56 * 56, 128, 576), 1)
    assert asked.is_substitute
    backward = convolution("backward", (2, 1), (0,), 2 * whole)
    asked = question_of(call_of(backward.ops[0], 8), backward.ops[0], backward)
    assert (asked.sizes[:4], asked.count, asked.flops) == ((1, 8 * 56 * 56, 128, 576), 2, 8 * whole)
    cost = model(backward)
    two = cost.duration_s(call_of(backward.ops[0], 8))
    assert two > model(forward).duration_s(call_of(forward.ops[0], 8))
    assert "as the nearest measured kind, unverified" in cost.notes()[0]


def test_parts_of_context_parallelism_are_shorter_and_do_their_share():
    # Rings of 4: 16 blocks of the scores, each of 512 x 512 positions; half of each under the causal mask.
    graph = attention(True)
    op = graph.ops[0]
    flops = op.flops.at(2) / 16
    call = KernelCall(
        ops=(op,),
        flops=flops,
        bytes_read=1e6,
        bytes_written=0.0,
        batch=2,
        precision="bf16_mixed",
        degree=16,
        split_kind="feature",
        pieces=16,
    )
    asked = question_of(call, op, graph)
    assert asked.sizes == pytest.approx((2, 512, 16, 4, 128, 128))
    assert asked.flops == pytest.approx(flops / 2)


def written_out_norm(keeps_rows):
    """x (B, 4096): mean of each row (B, 1), rsqrt, and x times it, as one kernel; or the means alone."""
    row, one = (Affine(0, 1), Affine(4096)), (Affine(0, 1), Affine(1))
    tensors = (
        Tensor(0, row, "float32", "input", "x"), Tensor(1, one, "float32", "activation", producer=0),
        Tensor(2, one, "float32", "activation", producer=1), Tensor(3, row, "float32", "activation", producer=2),
    )  # fmt: skip
    ops = (
        Op(id=0, name="mean", module="norm", phase="forward", op_type="aten.mean.dim", inputs=(0,), outputs=(1,)),
        Op(
            id=1,
            name="rsqrt",
            module="norm",
            phase="forward",
            op_type="aten.rsqrt.default",
            inputs=(1,),
            outputs=(2,),
            is_elementwise=True,
        ),
        Op(
            id=2,
            name="mul",
            module="norm",
            phase="forward",
            op_type="aten.mul.Tensor",
            inputs=(0, 2),
            outputs=(3,),
            is_elementwise=True,
        ),
    )
    return OperatorGraph("norm", ops if keeps_rows else ops[:2], tensors if keeps_rows else tensors[:3])


def test_norm_written_out_in_one_kernel_takes_the_time_of_a_measured_norm():
    table = KernelTable.load(shipped_table("a100_80gb"))
    rows = next(one for one in table.series if (one.kind, one.source.split()[-1]) == ("normalization", "ln"))
    place = int(np.flatnonzero(rows.columns["columns"] == 4096)[0])
    batch, graph = float(rows.columns["rows"][place]), written_out_norm(keeps_rows=True)
    moved = 4.0 * batch * 4096  # fp32, as the row was measured: read once and written once
    cost = model(graph, accelerator="a100_80gb", norms="aten")
    seconds = cost.duration_s(
        KernelCall(ops=graph.ops, flops=0.0, bytes_read=moved, bytes_written=moved, batch=batch, precision="fp32")
    )
    # the part that was measured is of 1,935 GB/s (PCIe), the accelerator of 2,039
    bandwidth = rows.device.memory_bandwidth_bytes_per_s
    assert seconds == pytest.approx(rows.seconds[place] * bandwidth / 2039e9, rel=0.03)
    streamed = cost.duration_s(
        KernelCall(ops=graph.ops[2:], flops=0.0, bytes_read=moved, bytes_written=moved, batch=batch, precision="fp32")
    )
    assert seconds != streamed  # that of an element-wise kernel of the same bytes
    families = [note.split(":")[0] for note in cost.notes()]
    assert families == ["calibrated elementwise kernels", "calibrated reduction kernels"]


def test_split_norm_has_its_share_of_rows_and_sums_alone_are_none():
    graph = written_out_norm(keeps_rows=True)
    moved = 4.0 * 1024 * 4096
    asked = question_of(
        KernelCall(
            ops=graph.ops, flops=0.0, bytes_read=moved, bytes_written=moved, batch=4096, precision="fp32", degree=4
        ),
        graph.ops[0],
        graph,
        graph.ops[1:],
    )
    assert (asked.kind, asked.sizes, asked.is_substitute) == ("normalization", (1024, 4096), False)
    graph = written_out_norm(keeps_rows=False)
    call = KernelCall(
        ops=graph.ops, flops=0.0, bytes_read=4.0 * 4096 * 4096, bytes_written=4.0 * 4096, batch=4096, precision="fp32"
    )
    assert question_of(call, graph.ops[0], graph, graph.ops[1:]).kind == "elementwise"
