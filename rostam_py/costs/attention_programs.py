"""Which programs' attention kernels a run's software calls: what ``cost.attention`` chooses from.

Model: several programs compute fused attention on one device at rates that differ by a factor of two. A series of a
kernel table says whose kernels it timed; inference engines, which say nothing, call the newest.
"""

from collections.abc import Sequence

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


def programs_of(choice: str) -> tuple[str, ...]:
    """Return the programs that a choice stands for.

    Raises: UnknownNameError, listing the known choices.
    """
    if choice not in ATTENTION_PROGRAMS:
        raise UnknownNameError(f"cost.attention is {choice!r}; known: {', '.join(ATTENTION_PROGRAMS)}")
    return ATTENTION_PROGRAMS[choice]


def of_programs(series: Sequence[KernelSeries], programs: Sequence[str]) -> list[KernelSeries]:
    """Return the series of some programs; kernels other than attention have none to choose from."""
    return [one for one in series if not one.kind.startswith("attention") or one.program in programs]
