"""Which programs' kernels a run's software calls: what ``cost.attention``, ``norms`` and ``batch_norms`` choose from.

Model: several programs compute fused attention, a norm by rows or of channels, on one device at rates that differ by a
factor of two. A series of a kernel table says whose kernels it timed; inference engines, which say nothing, call the
newest.
"""

from collections.abc import Mapping, Sequence

from rostam_py.costs.kernel_table import KernelSeries
from rostam_py.errors import UnknownNameError

UNNAMED = ""  # rows of sources that do not tell whose kernels they timed: engines, which call the newest
# Choice -> programs of series that answer for it, the median of them.
ATTENTION_PROGRAMS: dict[str, tuple[str, ...]] = {
    "best": (UNNAMED, "flash3", "cudnn"),  # what Transformer Engine and inference engines call on Hopper and later
    "flash3": ("flash3",),
    "cudnn": ("cudnn",),
    "flash2": ("flash2",),  # what PyTorch's scaled_dot_product_attention calls by default
}
PYTORCHS_NORMS = "aten"
NORM_PROGRAMS: dict[str, tuple[str, ...]] = {
    "fused": ("liger", "inductor", "cudnn"),  # one pass over each row: Triton's, cuDNN's, and Transformer Engine's
    PYTORCHS_NORMS: ("aten",),  # PyTorch's own layer_norm and rms_norm
}
NATIVE, CUDNN = "native", "cudnn"
# Norms over the positions of each channel. PyTorch runs cuDNN's, but of bf16 its own (_select_batch_norm_backend in
# aten/src/ATen/native/Normalization.cpp; of 16-bit inputs with weights in fp32, as autocast has them).
BATCH_NORM_PROGRAMS: dict[str, tuple[str, ...]] = {
    "pytorch": (CUDNN,),  # and native, of bf16
    "cudnn": (CUDNN,),
    "native": (NATIVE,),
}
Programs = Mapping[str, Sequence[str]]  # kind without direction -> programs asked for; others have none to choose


def programs_of(
    attention: str, norms: str = "fused", batch_norms: str = "pytorch", *, is_bf16: bool = False
) -> Programs:
    """Return the programs that three choices stand for.

    Args: is_bf16: the run computes in bf16, of which PyTorch calls its own batch norms.
    Raises: UnknownNameError, listing the known choices.
    """
    for key, choice, known in (
        ("attention", attention, ATTENTION_PROGRAMS), ("norms", norms, NORM_PROGRAMS),
        ("batch_norms", batch_norms, BATCH_NORM_PROGRAMS),
    ):  # fmt: skip
        if choice not in known:
            raise UnknownNameError(f"cost.{key} is {choice!r}; known: {', '.join(known)}")
    of_channels = (NATIVE,) if batch_norms == "pytorch" and is_bf16 else BATCH_NORM_PROGRAMS[batch_norms]
    return {
        "attention": ATTENTION_PROGRAMS[attention], "normalization": NORM_PROGRAMS[norms], "batch_norm": of_channels,
    }  # fmt: skip


def family_of_programs(kind: str) -> str:
    """Return what of a kind's name its programs go by: all but the direction."""
    return kind.removesuffix("_forward").removesuffix("_backward")


def of_programs(series: Sequence[KernelSeries], programs: Programs) -> list[KernelSeries]:
    """Return the series of some programs; kinds that have none to choose from keep all."""
    return [one for one in series if one.program in programs.get(family_of_programs(one.kind), (one.program,))]
