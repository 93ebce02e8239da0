"""Numerics of a run: in which precision it computes and keeps gradients, which optimizer steps; their bytes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rostam_py.costs.model import KernelCall
from rostam_py.costs.optimizers import (
    FUSED,
    SINGLE,
    WHOLE_WIDTHS,
    StateWidths,
    optimizer_call,
    optimizer_state_bytes,
    single_calls,
)
from rostam_py.costs.precision import AUTO, get_precision, gradient_bytes, parameter_bytes


@dataclass(frozen=True, slots=True)
class Numerics:
    """Precision, optimizer and precision of gradients, by name; bytes are of one parameter (MODEL D15).

    clips: gradients are scaled to a norm before the step. kernels: of it, of OPTIMIZER_KERNELS. holds_copy: next to
    master parameters lies a copy of them in the precision. writes_copy: the optimizer's step makes it, no reader does.
    widths: of the optimizer's state.
    """

    precision: str
    optimizer: str
    gradient_precision: str = AUTO
    clips: bool = False
    kernels: str = FUSED
    holds_copy: bool = True
    writes_copy: bool = True
    widths: StateWidths = WHOLE_WIDTHS

    @property
    def parameter_bytes(self) -> int:
        """Of a parameter as it is held, or gathered."""
        return parameter_bytes(self.precision)

    @property
    def held_weight_bytes(self) -> int:
        """Of a parameter as it lies on a device all the time, besides the optimizer's state."""
        return self.parameter_bytes if self.holds_copy or not get_precision(self.precision).has_master_parameters else 0

    @property
    def gradient_bytes(self) -> int:
        """Of its gradient, accumulated and reduced."""
        return gradient_bytes(self.precision, self.gradient_precision)

    @property
    def state_bytes(self) -> int:
        """Of the optimizer's state, master parameters included."""
        return optimizer_state_bytes(self.optimizer, self.precision, self.widths)

    @property
    def held_bytes(self) -> int:
        """Of all of these."""
        return self.parameter_bytes + self.gradient_bytes + self.state_bytes

    def optimizer_call(self, num_parameters_local: float) -> KernelCall:
        """Return the optimizer step of a device that updates so many parameters."""
        return optimizer_call(
            self.optimizer, num_parameters_local, self.precision, self.gradient_precision, clips=self.clips,
            kernels=self.kernels, holds_copy=self.holds_copy and self.writes_copy, widths=self.widths,
        )  # fmt: skip

    def optimizer_calls(self, counts: Sequence[int], decayed: Collection[int] = ()) -> list[KernelCall]:
        """Return the kernels of the step of a device that updates parameters of so many elements.

        Args: decayed: places of those that a kernel of their own decays, where parameters are updated one by one.
        """
        if self.kernels != SINGLE:
            return [self.optimizer_call(sum(counts))]
        return single_calls(
            self.optimizer, counts, self.precision, self.gradient_precision, clips=self.clips,
            holds_copy=self.holds_copy and self.writes_copy, decayed=decayed,
        )  # fmt: skip
