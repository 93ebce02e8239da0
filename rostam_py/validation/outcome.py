"""Outcome: one row's measurement next to its prediction, and what the predicted iteration consists of."""

from dataclasses import dataclass, field

from rostam_py.plan.software import Software
from rostam_py.validation.quantities import MEASURES
from rostam_py.validation.rows import Row

HOST = ("launch", "host")  # kinds of a result's breakdown that are the host's
BUBBLE = "bubble"


@dataclass(frozen=True, slots=True)
class Compared:
    """A measured figure and its prediction, both in seconds or bytes. printed: the figure as published."""

    quantity: str
    printed: float
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed error [%]: +5 is a time, or a memory, predicted 5% larger than it was measured."""
        return 100 * (self.predicted / self.measured - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row's prediction.

    compared: by what is measured (MEASURES); empty for a row that is not predicted. failed: why a row that
    should be predicted was not. mfu, mfu_causal, hfu: the run's. families, exposed,
    bubble, host: parts of the predicted iteration [s], mean over devices; they sum to it. spread: error of time [%] by
    label of each feasible alternative. chosen: which of the rule's choices fits. software, accelerator, has_experts: of
    a run's plan. peak: of the accelerator's that MFU is a share of, such as "bf16".
    """

    row: Row
    compared: dict[str, Compared] = field(default_factory=dict)
    mfu: float = 0.0
    mfu_causal: float | None = 0.0
    hfu: float | None = 0.0
    families: dict[str, float] = field(default_factory=dict)
    exposed: dict[str, float] = field(default_factory=dict)
    bubble: float = 0.0
    host: float = 0.0
    iteration_s: float = 0.0
    spread: dict[str, float] = field(default_factory=dict)
    chosen: str = ""
    failed: str = ""
    notes: tuple[str, ...] = ()
    software: Software | None = None
    accelerator: str = ""
    has_experts: bool = False
    peak: str = ""

    @property
    def error(self) -> float | None:
        """Signed error of the first of what was measured, the time before memories [%]; None without a prediction."""
        return next((self.compared[measures].error for measures in MEASURES if measures in self.compared), None)
