"""Calibrated costs: shapes after splits, the rule of sources, what is borrowed, and what the notes say."""

import json

import numpy as np
import pytest

from rostam_py.costs import make_cost_model, optimizer_call
from rostam_py.costs.kernel_kinds import GROUPED_STAGES, KERNEL_KINDS, LAYOUTS
from rostam_py.costs.kernel_shapes import question_of
from rostam_py.costs.kernel_surface import Fit
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, MeasuredDevice
from rostam_py.costs.model import KernelCall
from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, Op, OperatorGraph, Split, Tensor
from tests.costs.conftest import build_linear_graph

PEAK, BANDWIDTH = 989.4e12, 3350e9  # h100_80gb


def call_of(op, batch, precision="bf16_mixed", degree=1, kind="", share=1.0):
    flops, moved = op.flops.at(batch) * share, (op.bytes_read + op.bytes_written).at(batch) / 2
    return KernelCall((op,), flops, moved, 0.0, batch, precision, degree, kind)


def series(seconds, source, shapes=((1, 1024, 1024, 1024, 0, 2), (1, 4096, 4096, 4096, 0, 2)), kind="product"):
    """Two products whose times are given, so that the surface passes through them."""
    columns = {
        name: np.array([shape[at] for shape in shapes], float) for at, name in enumerate(KERNEL_KINDS[kind].fields)
    }
    num_scales = KERNEL_KINDS[kind].spaces["shape"](columns).shape[1]
    fit = Fit("shape", (8.0,) * num_scales, 1e-9, 0.0)
    device = MeasuredDevice("h100", PEAK, BANDWIDTH)
    return KernelSeries(kind, "bf16", source, device, 2, columns, np.asarray(seconds), fit)


def own_table(tmp_path, *found, accelerator="h100_80gb"):
    path = tmp_path / "own.json"
    KernelTable(accelerator, {}, found).save(path)
    return str(path)


def model(graph, table="", accelerator="h100_80gb"):
    return make_cost_model("calibrated", accelerator, graph=graph, table=table)


def square(size):
    graph = build_linear_graph(size, size)
    return graph, call_of(graph.ops[0], size)


def test_measured_shape_takes_its_measured_time(tmp_path):
    graph, call = square(1024)
    cost = model(graph, own_table(tmp_path, series([20e-6, 300e-6], "one")))
    assert cost.duration_s(call) == pytest.approx(20e-6, rel=1e-3)
    assert cost.notes() == ["calibrated matmul: kernels 1 interpolated"]


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
    assert cost.notes() == ["calibrated matmul: kernels 1 extrapolated"]


def test_median_of_sources_counts_and_their_spread_is_told(tmp_path):
    graph, call = square(1024)
    found = (series([times, 300e-6], str(times)) for times in (10e-6, 20e-6, 25e-6))
    cost = model(graph, own_table(tmp_path, *found))
    assert cost.duration_s(call) == pytest.approx(20e-6, rel=1e-3)
    assert cost.notes() == ["calibrated matmul: kernels 1 interpolated; sources differ by 150% (median)"]


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
        0,
        "sdpa",
        "",
        "forward",
        "rostam.scaled_dot_product_attention.default",
        (0, 1, 2),
        (3,),
        arguments,
        flops,
        Affine(0, 1e6),
        Affine(0, 1e6),
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
        0,
        "experts",
        "",
        phase,
        "rostam._grouped_mm.default",
        inputs,
        (output,),
        flops=flops,
        role="product",
        bytes_read=Affine(0, 1e6),
        bytes_written=Affine(0, 1e6),
    )
    graph = OperatorGraph("experts", (op,), tensors)
    for degree, groups in ((1, 8), (2, 4)):
        call = call_of(op, 4, degree=degree, kind="expert" if degree > 1 else "", share=1 / degree)
        asked = question_of(call, op, graph)
        assert (asked.kind, asked.sizes[:4]) == ("grouped_product", (groups, 64, 512, 256))
        assert GROUPED_STAGES[asked.sizes[4]] == stage


def test_h200_borrows_what_only_others_measured():
    # Of kernels without arithmetic the nearest memory bandwidth lends: 2,039 GB/s of an A100 80 GB to 4,800.
    graph = build_linear_graph(4096, 4096)
    relu = graph.ops[1]
    cost = model(graph, accelerator="h200_141gb")
    moved = 2.0**28
    seconds = cost.duration_s(KernelCall((relu,), 0.0, moved, 0.0, 8, "bf16_mixed"))
    assert moved / 4800e9 < seconds < 1.5 * moved / 4800e9
    assert cost.notes()[0].startswith("calibrated elementwise: kernels 1 interpolated from a100_80gb")


def test_optimizer_streams_and_says_that_nobody_measured_it():
    cost = model(build_linear_graph(), accelerator="a100_80gb")
    call = optimizer_call("adam", 1e8, "bf16_mixed")
    ideal = (call.bytes_read + call.bytes_written) / 2039e9
    assert ideal < cost.duration_s(call) < 1.4 * ideal
    assert "as the nearest measured kind, unverified" in cost.notes()[0]
    assert not any("roofline" in note for note in cost.notes())


def test_unmeasured_kind_is_the_rooflines():
    op = Op(0, "conv", "", "forward", "aten.convolution.default", (), (), flops=Affine(0, 1e12), role="convolution")
    graph = OperatorGraph("conv", (op,), ())
    call = KernelCall((op,), 1e12, 1e6, 1e6, 1, "bf16_mixed")
    cost = model(graph)
    assert cost.duration_s(call) == make_cost_model("roofline", "h100_80gb").duration_s(call)
    assert cost.notes()[0] == "calibrated convolution: kernels 1 by roofline, unverified"


def test_shipped_h100_product_is_near_the_library_measurement():
    # 8192^3 bf16: the median of the three inference engines in aiconfigurator-core 0.12.0 is 713 TFLOP/s.
    graph, call = square(8192)
    assert call.flops / model(graph).duration_s(call) == pytest.approx(713e12, rel=0.08)


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
        (lambda one: one["rows"][0].__setitem__(-1, 0), r"a time of 0"),
        (lambda one: one["fit"].update(space="size"), r"fit.space is 'size'; it must be one of shape, tiles"),
        (lambda one: one["fit"].update(scales=[1.0]), r"needs one above 0 for each coordinate"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, change, message):
    path = own_table(tmp_path, series([20e-6, 300e-6], "one"))
    with open(path) as file:
        document = json.load(file)
    change(document["series"][0])
    with open(path, "w") as file:
        json.dump(document, file)
    with pytest.raises(ConfigError, match=message):
        KernelTable.load(path)
