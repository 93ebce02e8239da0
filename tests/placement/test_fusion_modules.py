"""fusion=modules: the kernels of a Llama layer as Megatron-Core and Transformer Engine have them, counted by hand."""

import pytest

import rostam_py as rostam


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("llama3_8b")


def kernels_of(graph, fusion, template, **more):
    fabric = rostam.fabric("electrical_flat", num_accelerators=8, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy.of(
        **({"dp": 8, "shard": 3, "fusion": fusion, "precision": "bf16_mixed", "check_memory": False} | more)
    )
    plan = rostam.place(graph, machine, global_batch=8, strategy=strategy, cost="roofline", software="ideal")
    kernels = [k for t in plan.stages[0].templates[template] for k in t.kernels]
    return [k for k in kernels if k.module == "blocks.1" or k.module.startswith("blocks.1.")]


def moved(kernels, part, kind=""):
    """Return the traffic in hidden tensors of 8,192 x 4,096 values of 2 bytes."""
    unit = 2 * 8192 * 4096
    found = [
        (k.call.bytes_read + k.call.bytes_written) / unit
        for k in kernels
        if k.family not in ("matmul", "attention") and k.module.removeprefix("blocks.1").removeprefix(".") == part
    ]
    return sorted(round(one, 2) for one in found)


def test_forward_has_a_kernel_for_each_norm_sum_rotation_and_gated_unit(graph):
    # A norm reads one tensor and writes one, a residual sum reads two and writes one, the gated unit 3 x 3.5 of them.
    # Products are linear_qkv, linear_proj, linear_fc1, linear_fc2. Rotations of queries and keys, and copies of queries
    # and values, read and write as much as the products make of them: 1 and a quarter (8 key heads of 32).
    kernels = kernels_of(graph, "modules", "forward")
    assert len(kernels) == 14
    assert [k.flops / 2 / 8192 / 4096 for k in kernels if k.family == "matmul"] == [6144, 4096, 2 * 14336, 14336]
    assert moved(kernels, "norm1") == moved(kernels, "norm2") == [2]
    assert moved(kernels, "") == [3, 3]
    assert moved(kernels, "mlp") == [10.5]
    assert moved(kernels, "attention") == [0.5, 0.56, 2.0, 2.06]  # with cosines and sines
    # Fused across modules the second norm takes in the sum before it: two read, two written.
    assert moved(kernels_of(graph, "pointwise", "forward"), "norm2") == [4]


def test_backward_adds_the_residuals_gradient_in_a_kernel_and_products_gradients_in_none(graph):
    # A norm's backward reads the gradient and its input and writes one; autograd's sum reads two and writes one. What
    # q, k and v, or gate and up, make of their input's gradient is one product's.
    kernels = kernels_of(graph, "modules", "backward_last")
    assert moved(kernels, "norm1") == moved(kernels, "norm2") == [3, 3]
    assert moved(kernels, "mlp") == [17.5]
    assert moved(kernels, "mlp.gate") == moved(kernels, "attention.key") == moved(kernels, "attention.query") == []


def test_sums_that_tensor_parallelism_reduces_move_nothing(graph):
    # The sum of gate's and up's gradients is what the tp group scatters: one product writes it.
    kernels = kernels_of(graph, "modules", "backward_last", tp=8, dp=1, shard=0, sequence_parallel=True)
    of_products = [k for k in kernels if k.module.endswith(("gate", "up", "key", "query", "value"))]
    joined = [k for k in of_products if "joined" in k.name]
    assert [k.call.bytes_written for k in joined] == [2 * 8 * 8192 * 6144 / 8]  # of queries, keys and values
    of_products = [k for k in of_products if k not in joined]
    assert {k.family for k in of_products} == {"matmul"}
    assert len(of_products) == 4  # gradients of two inputs and of two weights
    sums = [k for k in of_products if any(op.role == "sum" for op in k.call.ops)]
    rows = 8 * 8192  # of all samples, an eighth of the columns
    assert [k.call.bytes_written for k in sums] == [2 * rows * 4096] * 2
    assert [k.call.flops for k in sums] == [2 * rows * 4096 * columns / 8 for columns in (2 * 14336, 6144)]


def test_blocks_alone_may_be_fused_so(graph):
    whole, blocks = (kernels_of(graph, "modules", "forward", fused_part=part) for part in ("everything", "blocks"))
    assert [k.name for k in whole] == [k.name for k in blocks]
