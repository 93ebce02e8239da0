"""Kernels by op and shapes: priced as those of a traced model, and by hand under the roofline."""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs.written import OPS, written_op
from rostam_py.errors import ConfigError
from rostam_py.programs import Compute, Kernel, Program, Role
from tests.programs.sample import machine

SHAPES = {
    "matmul": ((4096, 4096), (4096, 12288)),
    "batched_matmul": ((8, 512, 64), (8, 64, 512)),
    "attention": ((2, 16, 2048, 128), (2, 4, 2048, 128), (2, 4, 2048, 128)),
    "causal_attention": ((2, 16, 2048, 128), (2, 16, 2048, 128), (2, 16, 2048, 128)),
    "attention_backward": ((2, 16, 2048, 128), (2, 16, 2048, 128), (2, 16, 2048, 128)),
    "causal_attention_backward": ((2, 16, 2048, 128), (2, 16, 2048, 128), (2, 16, 2048, 128)),
    "layer_norm": ((8192, 4096),), "rms_norm": ((8192, 4096),), "softmax": ((8192, 4096),),
    "elementwise": ((8192, 4096), (8192, 4096)), "copy": ((8192, 4096),), "embedding": ((50257, 768), (8, 1024)),
    "sgd": ((10**8,),), "momentum": ((10**8,),), "adagrad": ((10**8,),), "adam": ((10**8,),),
}  # fmt: skip


def seconds(op, shapes, dtype="bfloat16", cost="roofline", accelerator="h100_80gb", **config):
    return duration(Kernel(op=op, shapes=shapes, dtype=dtype), cost, accelerator, **config)


def duration(kernel, cost="roofline", accelerator="h100_80gb", **config):
    program = Program(
        name="one kernel", num_ranks=1, kernels={"k": kernel},
        roles={"rank": Role(phases={"iteration": (Compute(kernels=("k",)),)})},
    )  # fmt: skip
    placed = program.on(machine(2, accelerator=accelerator), cost=cost, cost_config=config)
    return placed.stages[0].templates["iteration"][0].duration_s


@pytest.mark.parametrize("cost", ["roofline", "calibrated"])
@pytest.mark.parametrize("op", OPS)
def test_every_op_has_a_time(op, cost):
    assert 1e-6 <= seconds(op, SHAPES[op], cost=cost) < 1e-2
    assert set(SHAPES) == set(OPS)


def test_a_product_takes_its_flops_over_the_rate_and_a_copy_its_bytes():
    # Of 989.4 TFLOP/s 80%, and a ramp of 5 us at the peak; of 3.35 TB/s 90%.
    flops, device = 2 * 4096 * 4096 * 12288, machine(2, accelerator="h100_80gb").device
    peak = device.peak("bf16")
    assert seconds("matmul", SHAPES["matmul"]) == pytest.approx((flops / peak + 5e-6) / 0.80, rel=1e-9)
    moved = 2 * 2 * 8192 * 4096
    assert seconds("copy", SHAPES["copy"]) == pytest.approx(moved / (device.memory_bandwidth_bytes_per_s * 0.90))
    assert seconds("adam", ((10**8,),)) == pytest.approx(26e8 / (device.memory_bandwidth_bytes_per_s * 0.90), rel=0.3)


def test_a_written_product_and_attention_take_as_long_as_traced_ones():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4096, 12288, bias=False)

        def forward(self, x):
            return self.up(x)

    graph = rostam.trace(Block(), torch.empty(8, 512, 4096), loss_fn=lambda y: y.sum(), name="block")
    one = rostam.Machine(fabric=machine(2).fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy(dp=2, precision="bf16_mixed")
    plan = rostam.place(graph, one, global_batch=16, strategy=strategy, software="ideal")
    forward = [kernel for task in plan.stages[0].templates["forward"] for kernel in task.kernels]
    product = next(kernel for kernel in forward if kernel.role == "product")
    assert plan.micro_batch == 8
    written_s = seconds("matmul", ((8, 512, 4096), (4096, 12288)), cost="calibrated")
    assert written_s == pytest.approx(product.duration_s, rel=1e-6)


def test_kernels_of_which_only_the_time_is_known_have_a_family_of_their_own():
    steps = (Compute(kernels=("known", "unknown")), Compute(time="3 ms"))
    program = Program(
        name="two", num_ranks=2, roles={"rank": Role(phases={"iteration": steps})},
        kernels={"known": Kernel(time="2 ms", op="aten.mm.default"), "unknown": Kernel(time="1 ms")},
    )  # fmt: skip
    families = rostam.simulate(program.on(machine(2))).compute_by_family
    assert families == pytest.approx({"unnamed": 4e-3, "matmul": 2e-3})


def test_causal_attention_does_half_the_work():
    whole, half = (written_op(op, SHAPES["causal_attention"], "bfloat16") for op in ("attention", "causal_attention"))
    assert whole.flops == half.flops == 4 * 2 * 16 * 2048**2 * 128
    times = [seconds(op, SHAPES["causal_attention"], cost="calibrated") for op in ("attention", "causal_attention")]
    assert 1.5 < times[0] / times[1] < 2.2


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "said"),
    [
        ("matmul", ((2, 3), (4, 5)), "bfloat16", r"shapes of matmul are \[\[2, 3\], \[4, 5\]\]; they must be"),
        ("matmul", ((2, 3),), "bfloat16", "shapes of matmul are"),
        ("matmul", ((2, 0), (0, 5)), "bfloat16", r"shapes of matmul hold \[2, 0\]; a shape is a list of integers >= 1"),
        ("copy", ((2**40, 2**40),), "bfloat16", "whose product is at most 2\\^48"),
        ("matmul", SHAPES["matmul"], "int8", "dtype is 'int8'; it must be one of: bfloat16, float16, float32, tf32"),
        ("attention", ((1, 3, 8, 8), (1, 2, 8, 8), (1, 2, 8, 8)), "bfloat16", "with h a multiple of g"),
        ("sort", ((2, 3),), "bfloat16", "op is 'sort'; an op without a time must be one of: matmul, "),
    ],
)
def test_what_has_no_price_is_refused(op, shapes, dtype, said):
    with pytest.raises(ConfigError, match=said):
        Kernel(op=op, shapes=shapes, dtype=dtype)


def test_an_accelerator_without_the_precision_refuses_it():
    with pytest.raises(ConfigError, match="bf16"):
        seconds("matmul", SHAPES["matmul"], accelerator="v100_32gb")
    with pytest.raises(ConfigError, match="no setting 'clocks'"):
        seconds("matmul", SHAPES["matmul"], clocks="burst")


def test_aten_names_take_as_long_as_the_ops_they_are():
    assert seconds("aten.mm.default", SHAPES["matmul"]) == seconds("matmul", SHAPES["matmul"])
    assert seconds("aten.addmm", ((12288,), *SHAPES["matmul"])) == seconds("matmul", SHAPES["matmul"])
    x = (8192, 4096)
    # Bound by memory: a sum of two tensors reads two and writes one, at the 90% of element-wise kernels.
    rate = machine(2, accelerator="h100_80gb").device.memory_bandwidth_bytes_per_s * 0.90
    assert seconds("aten.add.Tensor", (x, x)) == pytest.approx(3 * 2 * 8192 * 4096 / rate)
    assert seconds("aten._foreach_mul_.Scalar", (x, x)) == pytest.approx(4 * 2 * 8192 * 4096 / rate)
    assert seconds("aten.add.Tensor", (x, x), dtype="int64") == pytest.approx(3 * 8 * 8192 * 4096 / rate)


def test_an_op_without_a_formula_is_refused_or_takes_its_bytes_and_says_so():
    with pytest.raises(
        ConfigError, match=r"op is 'triton.swiglu', of shapes \[\[8, 4\]\], for which there is no formula"
    ):
        Kernel(op="triton.swiglu", shapes=((8, 4),))
    with pytest.raises(ConfigError, match=r"op is 'aten.view', which only describes or allocates memory"):
        Kernel(op="aten.view", shapes=((8, 4),))
    with pytest.raises(ConfigError, match=r"assume is 'flops'; it must be 'bandwidth', or left out"):
        Kernel(op="triton.swiglu", shapes=((8, 4),), assume="flops")
    with pytest.raises(ConfigError, match=r"shapes of triton.swiglu are empty"):
        Kernel(op="triton.swiglu", assume="bandwidth")
    x = (8192, 4096)
    kernel = Kernel(op="triton.swiglu", shapes=(x, x), writes=(x,), assume="bandwidth")
    program = Program(
        name="assumed", num_ranks=1, kernels={"k": kernel},
        roles={"rank": Role(phases={"iteration": (Compute(kernels=("k",)),)})},
    )  # fmt: skip
    placed = program.on(machine(2, accelerator="h100_80gb"), cost="roofline")
    rate = placed.machine.device.memory_bandwidth_bytes_per_s * 0.90
    assert placed.stages[0].templates["iteration"][0].duration_s == pytest.approx(3 * 2 * 8192 * 4096 / rate)
    assert any("1 ops without a formula take the time of their tensors' bytes" in note for note in placed.notes)
    assert any(note.endswith("as the program says: triton.swiglu") for note in placed.notes)


@pytest.mark.parametrize("cost", ["roofline", "calibrated"])
@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("aten.native_layer_norm_backward", ((8192, 4096), (8192, 4096))), ("aten._log_softmax", ((8192, 4096),)),
        ("aten._foreach_lerp_.Scalar", ((4096, 4096), (4096, 4096))), ("fsdp.chunk_cat", ((4096, 4096), (8192, 4096))),
        ("aten.sort", ((65536,),)), ("aten.index", ((8192, 4096), (1024,))), ("aten.zero_", ((8192, 4096),)),
        ("aten.linalg_vector_norm", ((8192, 4096),)), ("aten._fused_adamw_", ((4096, 4096),) * 4),
        ("aten.embedding_dense_backward", ((8192, 4096), (8192,))), ("aten.nll_loss_forward", ((8192, 4096), (8192,))),
        ("flex_attention", ((2, 16, 2048, 128),) * 3),
    ],
)  # fmt: skip
def test_aten_kernels_of_every_kind_have_a_time(op, shapes, cost):
    assert 1e-6 <= seconds(op, shapes, cost=cost) < 1e-2


@pytest.mark.parametrize(
    ("op", "written", "choice"),
    [
        ("aten._scaled_dot_product_flash_attention.default", "causal_attention", {"attention": "flash2"}),
        ("aten._scaled_dot_product_cudnn_attention.default", "causal_attention", {"attention": "cudnn"}),
    ],
)
def test_an_aten_name_says_whose_attention_it_calls(op, written, choice):
    shapes = ((2, 32, 8192, 128), (2, 8, 8192, 128), (2, 8, 8192, 128))
    kernel = Kernel(op=op, shapes=shapes, is_causal=True)
    assert kernel.written.calls == choice["attention"]
    asked = seconds(written, shapes, cost="calibrated", **choice)
    assert duration(kernel, cost="calibrated") == asked
    assert seconds("aten._fused_rms_norm", ((8192, 4096),), cost="calibrated") == seconds(
        "rms_norm", ((8192, 4096),), cost="calibrated", norms="aten"
    )
    # A setting stands before what the name says.
    best = duration(kernel, cost="calibrated", attention="best")
    assert best == seconds(written, shapes, cost="calibrated", attention="best") != duration(kernel, cost="calibrated")


def test_a_product_of_8_bits_runs_at_their_peak():
    """1,978.9 TFLOP/s on an H100, twice those of bf16; 80% of either, behind a ramp of 5 us at the peak."""
    shapes, device = ((4096, 4096), (4096, 12288), (1,), (1,)), machine(2, accelerator="h100_80gb").device
    ideal = 2 * 4096 * 4096 * 12288 / device.peak("fp8")
    assert seconds("aten._scaled_mm", shapes, dtype="float8_e4m3fn") == pytest.approx((ideal + 5e-6) / 0.80, rel=1e-9)


def test_results_of_another_type_have_its_bytes():
    x = (8192, 4096)
    rate = machine(2, accelerator="h100_80gb").device.memory_bandwidth_bytes_per_s * 0.90
    widened = Kernel(op="aten._to_copy.default", shapes=(x,), writes=(x,), write_dtype="float32")
    assert duration(widened) == pytest.approx((2 + 4) * 8192 * 4096 / rate)
    with pytest.raises(ConfigError, match=r"write_dtype is 'float12'; of aten._to_copy.default it must be one of: bfl"):
        Kernel(op="aten._to_copy.default", shapes=(x,), writes=(x,), write_dtype="float12")
