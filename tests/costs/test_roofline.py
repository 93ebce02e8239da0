import pytest

from rostam_py.costs import KernelCall, get_accelerator, make_cost_model, optimizer_call
from rostam_py.costs.families import op_family
from rostam_py.costs.roofline import MEMORY_EFFICIENCY
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.graph import Op

A100 = get_accelerator("a100_80gb")


def kernel(op_type="aten.mm.default", flops=0.0, num_bytes=0.0, precision="bf16_mixed"):
    op = Op(id=0, name="op", module="", phase="forward", op_type=op_type, inputs=(), outputs=())
    return KernelCall(ops=(op,), flops=flops, bytes_read=num_bytes, bytes_written=0.0, batch=1, precision=precision)


def test_large_matmul_takes_flops_over_peak_times_efficiency_plus_ramp():
    # t / (t + r) saturation with a ramp of r = 5 us: flops / (p e t/(t+r)) = (t + r) / e with t = flops / p
    flops = 2.0 * 8192**3
    expected = (flops / 312e12 + 5e-6) / 0.74
    assert make_cost_model("roofline", A100).duration_s(kernel(flops=flops)) == pytest.approx(expected, rel=1e-12)


def test_small_matmul_is_less_efficient_than_a_large_one():
    cost = make_cost_model("roofline", A100)
    assert cost.compute_rate("matmul", "bf16_mixed", 1e9) < 0.5 * cost.compute_rate("matmul", "bf16_mixed", 1e12)


@pytest.mark.parametrize(
    ("precision", "peak"), [("fp32", 19.5e12), ("tf32", 156e12), ("bf16_mixed", 312e12), ("fp16_mixed", 312e12)]
)
def test_precision_selects_the_matrix_peak(precision, peak):
    cost = make_cost_model("roofline", A100, ramp_time=0.0, compute_efficiency={"matmul": 1.0})
    assert cost.duration_s(kernel(flops=1e15, precision=precision)) == pytest.approx(1e15 / peak, rel=1e-12)


def test_vector_kernels_run_at_the_fp32_vector_peak_in_every_precision():
    cost = make_cost_model("roofline", A100, compute_efficiency={"elementwise": 1.0})
    assert cost.duration_s(kernel("aten.gelu.default", flops=1e13)) == pytest.approx(1e13 / 19.5e12, rel=1e-12)


def test_elementwise_kernel_takes_bytes_over_bandwidth():
    expected = 1e9 / (2039e9 * MEMORY_EFFICIENCY["elementwise"].value)
    assert make_cost_model("roofline", A100).duration_s(kernel("aten.add.Tensor", num_bytes=1e9)) == pytest.approx(
        expected
    )


def test_adam_step_is_bound_by_memory():
    call = optimizer_call("adam", 1e9, "bf16_mixed")  # reads gradients of 4 bytes, states and master copies
    expected = (16e9 + 14e9) / (2039e9 * MEMORY_EFFICIENCY["optimizer"].value)
    assert make_cost_model("roofline", A100).duration_s(call) == pytest.approx(expected)


def test_no_kernel_is_shorter_than_min_kernel_time():
    assert make_cost_model("roofline", A100).duration_s(kernel()) == 1e-6
    assert make_cost_model("roofline", A100, min_kernel_time="7 us").duration_s(kernel(num_bytes=8)) == 7e-6
    assert make_cost_model("roofline", A100, min_kernel_time=0.0).duration_s(kernel()) == 0.0


def test_precision_without_a_peak_is_refused():
    with pytest.raises(ConfigError, match="no tf32 peak"):
        make_cost_model("roofline", "v100_32gb").duration_s(kernel(flops=1.0, precision="tf32"))


def test_unverified_figures_are_listed():
    cost = make_cost_model("roofline", A100)
    cost.duration_s(kernel("aten.embedding.default", num_bytes=1e6))
    assert cost.notes() == [
        "accelerator a100_80gb, from memory, unverified: memory_bytes",
        "roofline, from memory, unverified: memory efficiency of embedding, ramp_time",
    ]


@pytest.mark.parametrize(
    ("op_type", "family"),
    [
        ("aten.addmm.default", "matmul"),
        ("aten.convolution_backward.default", "convolution"),
        ("rostam.scaled_dot_product_attention.default", "attention"),
        ("aten.native_batch_norm_backward.default", "normalization"),
        ("aten._log_softmax_backward_data.default", "reduction"),
        ("aten.max_pool2d_with_indices.default", "reduction"),
        ("aten.embedding_dense_backward.default", "embedding"),
        ("aten.mul.Tensor", "elementwise"),
        ("optimizer.adam", "optimizer"),
    ],
)
def test_op_types_belong_to_their_family(op_type, family):
    assert op_family(op_type) == family


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"compute_efficiency": {"matmul": 0.0}}, "cost.compute_efficiency.matmul is 0.0"),
        ({"compute_efficiency": {"matmul": "half"}}, "cost.compute_efficiency.matmul is 'half'"),
        ({"compute_efficiency": 0.5}, "for example cost.compute_efficiency.matmul=0.8"),
        ({"memory_efficiency": {"mat": 0.5}}, "cost.memory_efficiency.mat is no family of ops"),
        ({"min_kernel_time": "1"}, "cost.min_kernel_time is '1', a number without a unit"),
        ({"ramp_time": -1.0}, "cost.ramp_time is -1.0"),
        ({"floor": 1}, "'floor'"),
    ],
)
def test_bad_settings_are_refused(config, said):
    with pytest.raises(ConfigError, match=said):
        make_cost_model("roofline", A100, **config)


def test_unknown_cost_model_and_accelerator_list_the_known_ones():
    with pytest.raises(UnknownNameError, match="constant, profiled, roofline"):
        make_cost_model("rooflines", A100)
    with pytest.raises(UnknownNameError, match="known: v100_32gb"):
        make_cost_model("roofline", "tpu")
