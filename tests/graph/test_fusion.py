"""Which ops share a kernel, on blocks drawn by hand and traced; what the kernels of real layers are.

The counts of the traced layers are those of compiled and hand-fused code: torch.compile's kernels of a Llama layer,
Megatron's of a GPT layer (one scaled masked softmax with dropout, one bias-dropout-add with the norm behind it).
"""

import pytest

import rostam_py as rostam
from rostam_py.costs.families import fused_kind
from rostam_py.errors import InternalError
from rostam_py.graph import OperatorGraph, fuse_neighbours, in_order, kernel_bytes, kernel_traffic

MATRICES = ("mm", "addmm", "bmm", "convolution", "scaled_dot_product_attention")


def kinds_of(graph):
    return [fused_kind(op.op_type, op.role, op.is_elementwise) for op in graph.ops]


def kernels_of(graph, phase, block, **options):
    """Return the op names of the kernels of a block, views left out."""
    fusion = fuse_neighbours(graph, kinds_of(graph), **options)
    ops = [[graph.ops[k] for k in kernel] for kernel in fusion.kernels]
    return [[op.name.rsplit("_", 1)[0] if op.name[-1].isdigit() else op.name for op in kernel]
            for kernel in ops if kernel[0].phase == phase and kernel[0].block == block]  # fmt: skip


def is_matrix(kernel):
    return any(name.startswith(MATRICES) for name in kernel)


@pytest.fixture(scope="module")
def llama():
    return rostam.trace("llama3_8b", num_layers=4)


@pytest.fixture(scope="module")
def megatron():
    return rostam.trace("megatron_1_7b", num_layers=4)


def test_a_llama_layer_has_the_kernels_of_compiled_code(llama):
    forward, backward = (kernels_of(llama, phase, 2) for phase in ("forward", "backward"))
    # 7 products and attention; the first norm, rotations of q and k, residual sum + norm, silu(gate) * up, sum.
    assert sum(map(is_matrix, forward)) == 8
    assert len(forward) == 14
    # 14 products and attention; the unit's gradients, rotations of q's and k's gradients, two norms with the sums of
    # gradients in front of and behind them.
    assert sum(map(is_matrix, backward)) == 15
    assert len(backward) == 20
    assert all(len(kernel) == 1 for kernel in forward + backward if is_matrix(kernel))


def test_the_gated_unit_reads_gate_and_up_once_and_writes_their_product(llama):
    fusion = fuse_neighbours(llama, kinds_of(llama))
    traffics = kernel_traffic(llama, fusion, joins_parts=True)
    for kernel, traffic in zip(fusion.kernels, traffics, strict=True):
        ops = [llama.ops[k] for k in kernel]
        if ops[0].block == 2 and ops[0].phase == "forward" and any("silu" in op.op_type for op in ops):
            assert (len(traffic.reads), len(traffic.writes)) == (2, 1 + _is_kept(llama, kernel))
            return
    raise AssertionError("no gated unit")


def _is_kept(graph, kernel):
    """silu(gate) is saved in the trace; the placer computes it again (graph.derived)."""
    return sum(graph.tensors[t].is_saved for k in kernel[:-1] for t in graph.ops[k].outputs)


def test_the_rotation_reads_a_tensor_and_its_halves_once(llama):
    fusion = fuse_neighbours(llama, kinds_of(llama))
    for joins in (False, True):
        traffics = kernel_traffic(llama, fusion, joins_parts=joins)
        rotations = [
            traffic for kernel, traffic in zip(fusion.kernels, traffics, strict=True)
            if llama.ops[kernel[0]].block == 2 and any("cat" in llama.ops[k].op_type for k in kernel)
            and llama.ops[kernel[0]].phase == "forward"
        ]  # fmt: skip
        read, written = kernel_bytes(llama, rotations[0], 1)
        tables = 2 * 8192 * 128 * 4  # cos and sin; the query is as large as what is written
        assert read - tables == pytest.approx(written * (1 if joins else 2), rel=0.1)


def test_a_megatron_layer_has_the_kernels_of_its_fused_code(megatron):
    forward, backward = (kernels_of(megatron, phase, 2) for phase in ("forward", "backward"))
    softmax = [kernel for kernel in forward if any("softmax" in name for name in kernel)]
    assert [len(kernel) for kernel in softmax] == [4]  # scaled, masked, normalised, dropped out
    dropouts = [kernel for kernel in forward if "native_dropout" in kernel and kernel not in softmax]
    assert any("native_layer_norm" in kernel for kernel in dropouts)  # dropout, residual sum and the second norm
    assert all(len(kernel) == 1 for kernel in forward + backward if is_matrix(kernel))


def test_epilogues_take_the_activation_in(megatron):
    plain, hidden = (kernels_of(megatron, "forward", 2, has_epilogues=flag) for flag in (False, True))
    assert ["gelu"] in plain
    assert ["addmm", "gelu"] in hidden
    assert len(hidden) == len(plain) - 1


@pytest.mark.parametrize("model", ["gpt_125m", "resnet50", "transformer_350m", "dlrm"])
def test_kernels_hold_every_op_once_in_an_order_that_runs(model):
    graph = rostam.trace(model, num_layers=None if model in ("resnet50", "dlrm") else 3)
    fusion = fuse_neighbours(graph, kinds_of(graph))
    assert sorted(k for kernel in fusion.kernels for k in kernel) == [o.id for o in graph.ops if not o.is_metadata]
    assert fusion.num_fused + len(fusion.kernels) + fusion.num_metadata_removed == len(graph.ops)
    made = {t.id for t in graph.tensors if t.producer is None}
    for node in in_order(graph, fusion.kernels):
        own = {t for k in node for t in graph.ops[k].outputs}
        read = {t for k in node for t in graph.ops[k].inputs if graph.view_roots[t] not in own}
        assert read <= made
        made |= own
    for kernel in fusion.kernels:
        ops = [graph.ops[k] for k in kernel]
        assert len({(op.phase, op.block) for op in ops}) == 1
        matrices = [op for op in ops if op.role in ("product", "batched_product", "convolution", "attention")]
        assert len(ops) == 1 or not matrices or len(ops) == 2


def test_nothing_fuses_over_what_is_communicated(llama: OperatorGraph):
    free = fuse_neighbours(llama, kinds_of(llama))
    kernel = next(k for k in free.kernels if len(k) > 3 and llama.ops[k[0]].block == 2)
    barrier = llama.ops[kernel[0]].outputs[0]
    apart = fuse_neighbours(llama, kinds_of(llama), {barrier})
    where = next(k for k in apart.kernels if kernel[0] in k)
    readers = {u for u in llama.readers[barrier] if llama.ops[u].phase == "forward"}
    assert not readers & set(where)


def test_ops_of_other_classes_share_no_kernel(llama: OperatorGraph):
    classes = {op.id: op.id % 2 for op in llama.ops}
    fusion = fuse_neighbours(llama, kinds_of(llama), classes=classes)
    assert all(len({k % 2 for k in kernel}) == 1 for kernel in fusion.kernels)


def test_kernels_that_wait_for_one_another_are_an_error(llama: OperatorGraph):
    fusion = fuse_neighbours(llama, kinds_of(llama))
    first, last = fusion.kernels[0], fusion.kernels[-1]
    rest = [k for k in fusion.kernels if k not in (first, last)]
    with pytest.raises(InternalError, match="wait for one another"):
        in_order(llama, [first + last, *rest])
