"""Which programs' kernels a run's software calls: what ``cost.attention`` and ``cost.norms`` choose from.

Model: several programs compute fused attention, or a norm by rows, on one device at rates that differ by a factor of
two. A series of a kernel table says whose kernels it timed; inference engines, which say nothing, call the newest.
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
NORM_PROGRAMS: dict[str, tuple[str, ...]] = {
    "fused": ("liger", "inductor", "cudnn"),  # one pass over each row: Triton's, cuDNN's, and Transformer Engine's
    "aten": ("aten",),  # PyTorch's own layer_norm and rms_norm
}
Programs = Mapping[str, Sequence[str]]  # first word of a kind -> programs asked for; kinds without an entry have none


def programs_of(attention: str, norms: str = "fused") -> Programs:
    """Return the programs that two choices stand for.

    Raises: UnknownNameError, listing the known choices.
    """
    for key, choice, known in (("attention", attention, ATTENTION_PROGRAMS), ("norms", norms, NORM_PROGRAMS)):
        if choice not in known:
            raise UnknownNameError(f"cost.{key} is {choice!r}; known: {', '.join(known)}")
    return {"attention": ATTENTION_PROGRAMS[attention], "normalization": NORM_PROGRAMS[norms]}


def of_programs(series: Sequence[KernelSeries], programs: Programs) -> list[KernelSeries]:
    """Return the series of some programs; kinds that have none to choose from keep all."""
    return [one for one in series if one.program in programs.get(one.kind.split("_")[0], (one.program,))]
