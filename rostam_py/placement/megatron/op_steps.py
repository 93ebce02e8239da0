"""OpStep: an op that runs in several steps, kernels and collectives, instead of as one kernel; data only."""

from dataclasses import dataclass

from rostam_py.plan.tasks import KernelTime


@dataclass(frozen=True, slots=True)
class OpStep:
    """One kernel (``time``) or one collective of ``num_bytes`` over the groups with a label.

    reads: tensors that it needs besides. after: places of earlier steps that must end first; kernels run in their order
    anyway. makes: tensors that are there when it ends.
    """

    name: str
    time: KernelTime | None = None
    collective: str = ""
    group: str = ""
    num_bytes: int = 0
    reads: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
