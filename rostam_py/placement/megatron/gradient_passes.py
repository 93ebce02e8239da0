"""Passes over gradients that training code makes besides adding up and reducing them (software.rules.gradient_buffer).

Model: kernels bound by memory on the compute stream. Zeros are written once an iteration, counted behind the
optimizer's step. A bucket is checked and scaled right before its reduction, which waits for that; gradients that no
replicas share, before the optimizer's step. Where ranks share gradients (ZeRO 2 and 3) zeros are of a rank's share.
Source: NVIDIA/Megatron-LM: zero_grad_buffer in megatron/core/distributed/distributed_data_parallel.py, start_grad_sync
in megatron/core/distributed/param_and_grad_buffer.py (core 0.7); allreduce_gradients in megatron/model/distributed.py
of 2021 and 2022; pytorch/pytorch: copy_grad_to_bucket and finalize_bucket_dense in reducer.cpp of
torch/csrc/distributed/c10d.
"""

from collections.abc import Sequence

from rostam_py.costs.families import MAP, REDUCE
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.precision import get_precision
from rostam_py.graph import Affine, Op
from rostam_py.plan.gradient_buffers import GradientBuffer
from rostam_py.plan.tasks import KernelTime


def zero_pass(cost: CostModel, precision: str, buffer: GradientBuffer, num_bytes: float) -> tuple[KernelTime, ...]:
    """Return the kernel that writes zeros to so many bytes of gradients, nothing where none does."""
    if not buffer.is_zeroed or not num_bytes:
        return ()
    return (_pass(cost, precision, "zero", MAP, 0.0, num_bytes),)


def reduction_passes(
    cost: CostModel, precision: str, buffer: GradientBuffer, num_bytes: float
) -> tuple[KernelTime, ...]:
    """Return the kernels that check and scale so many bytes of gradients before they are reduced."""
    if not num_bytes:
        return ()
    checks = [_pass(cost, precision, "check", REDUCE, num_bytes, 0.0)] * buffer.num_checks
    scalings = [_pass(cost, precision, "scale", MAP, num_bytes, num_bytes)] * buffer.num_scalings
    return (*checks, *scalings)


def copies(
    cost: CostModel, precision: str, buffer: GradientBuffer, sizes: Sequence[int], what: str
) -> tuple[KernelTime, ...]:
    """Return the kernels that copy parameters' gradients of so many bytes each, nothing where none do."""
    if not buffer.is_copied:
        return ()
    return tuple(_pass(cost, precision, what, MAP, size, size) for size in sizes)


def _pass(cost: CostModel, precision: str, what: str, op_type: str, read: float, written: float) -> KernelTime:
    op = Op(
        id=0, name=f"gradients ({what})", module="", phase="backward", op_type=op_type, inputs=(), outputs=(),
        is_elementwise=True, bytes_read=Affine(read), bytes_written=Affine(written),
    )  # fmt: skip
    chosen = get_precision(precision)
    return KernelTime.of(
        cost,
        KernelCall(
            ops=(op,), flops=0.0, bytes_read=read, bytes_written=written, batch=1, precision=chosen.others or precision
        ),
    )
