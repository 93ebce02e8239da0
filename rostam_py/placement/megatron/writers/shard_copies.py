"""Copies of units whose parameters are cut one by one: out of what was gathered, and into what is reduced.

Model: a gather brings the ranks' parts of all parameters of a unit, rank by rank; a kernel of the compute stream, in
front of the first that uses the unit, copies each parameter together. Behind the last gradient of a unit another one
copies gradients apart, rank by rank, in the precision in which they are reduced; it waits until the buffer of the unit
before has been reduced. Copies and casts of a rank's own part before a gather are on a stream of their own, and of
1/d of the unit: nothing.
Source: foreach_all_gather_copy_out (split_with_sizes_copy) and foreach_reduce (_chunk_cat) in
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py of pytorch/pytorch, and post_backward in _fsdp_param_group.py
there: the current stream waits for the reduce-scatter before.
"""

from rostam_py.costs.families import MAP
from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import get_precision
from rostam_py.graph import Affine, Op
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.plan.tasks import KernelTime


def copied_out(builder: KernelBuilder, name: str, phase: str, num_bytes: int) -> KernelTime:
    """Return the copy of a unit's weights out of what was gathered. Args: num_bytes: that were gathered."""
    return _copy(builder, f"{name} (copied out)", phase, num_bytes, num_bytes)


def copied_in(builder: KernelBuilder, name: str, num_parameters: int, num_bytes: int, is_summed: bool) -> KernelTime:
    """Return the copy of a unit's gradients into what is reduced.

    Args: num_bytes: that are reduced. is_summed: gradients of several micro-batches lie there as wide as those.
    """
    made = num_parameters * get_precision(builder.rules.precision).tensor_bytes
    return _copy(builder, f"{name} (copied in)", "backward", num_bytes if is_summed else made, num_bytes)


def _copy(builder: KernelBuilder, name: str, phase: str, read: float, written: float) -> KernelTime:
    op = Op(
        id=0, name=name, module="", phase=phase, op_type=MAP, inputs=(), outputs=(), is_elementwise=True,
        bytes_read=Affine(read), bytes_written=Affine(written),
    )  # fmt: skip
    call = KernelCall(
        ops=(op,),
        flops=0.0,
        bytes_read=read,
        bytes_written=written,
        batch=1,
        precision=get_precision(builder.rules.precision).others,
    )
    return KernelTime.of(builder.cost, call)
