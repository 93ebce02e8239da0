"""What a search found: candidates, best first, with their estimates, simulations and refusals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rostam_py.html import html_table
from rostam_py.plan import Plan, Strategy
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.searched_axes import SEARCHED_AXES
from rostam_py.simulation import RunResult
from rostam_py.software.ratios import Range, expected_of, may_not_fit
from rostam_py.units import format_size, format_time


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Candidate:
    """One strategy and global batch.

    estimate_s, simulated_s: iteration time [s], None where not computed. iterations: to the curve's target, None
    without a curve. reason: why it was not estimated (does not fit, degree too high, cannot win), else "".
    bound_s: iteration time that its compute alone takes, or None. exposed_s: communication that the simulation left
    exposed, mean over devices [s].
    """

    strategy: Strategy
    global_batch: int
    micro_batch: int | None = None
    num_microbatches: int | None = None
    estimate_s: float | None = None
    simulated_s: float | None = None
    bound_s: float | None = None
    memory_bytes: int | None = None
    circuit_degree: int | None = None
    iterations: float | None = None
    exposed_s: float | None = None
    reason: str = ""
    plan: Plan | None = field(default=None, repr=False, compare=False)
    result: RunResult | None = field(default=None, repr=False, compare=False)

    @property
    def iteration_time_s(self) -> float | None:
        """Simulated iteration time, or else the estimate [s]."""
        return self.estimate_s if self.simulated_s is None else self.simulated_s

    @property
    def time_to_accuracy_s(self) -> float | None:
        """Iteration time x iterations [s]; None without a curve or a time."""
        seconds = self.iteration_time_s
        return None if seconds is None or self.iterations is None else seconds * self.iterations

    @property
    def expected_s(self) -> Range | None:
        """Iteration time to expect [s] by measured jobs of the same software; None of the ideal, or without a time."""
        expected = None if self.plan is None else expected_of(self.plan)
        seconds = self.iteration_time_s
        return None if expected is None or seconds is None else expected.of(seconds)

    @property
    def may_not_fit(self) -> bool:
        """Whether it fits as simulated, and not by the upper bound of what measured jobs held: it is ranked last."""
        return self.plan is not None and may_not_fit(self.plan)

    @property
    def rank(self) -> tuple[bool, float]:
        """What candidates with a time are ordered by, least first."""
        return self.may_not_fit, self.objective(self.iteration_time_s or 0.0)

    @property
    def estimate_error(self) -> float | None:
        """Estimate / simulated - 1."""
        if self.estimate_s is None or self.simulated_s is None:
            return None
        return self.estimate_s / self.simulated_s - 1

    def objective(self, seconds: float) -> float:
        """Return the minimised quantity, for an iteration of ``seconds``: time-to-accuracy, or time per sample [s]."""
        return seconds * (self.iterations if self.iterations is not None else 1 / self.global_batch)

    @property
    def algorithms(self) -> str | None:
        """The algorithms that its collectives ran, in words; None where it was not simulated."""
        return None if self.result is None else algorithm_words(self.result.algorithms)

    @property
    def degrees(self) -> dict[str, int]:
        """Parallelism degrees that its placer uses."""
        return self.strategy.degrees() | self.strategy.inner_degrees()

    def __repr__(self) -> str:
        seconds = self.estimate_s if self.simulated_s is None else self.simulated_s
        said = self.reason or "not estimated" if seconds is None else f"{format_time(seconds)} an iteration"
        return f"Candidate({self.describe()}, batch {self.global_batch:,}: {said})"

    def describe(self) -> str:
        """Return its degrees in words: "dp 32 x tp 4 x pp 2"."""
        return ", ".join([self.strategy.describe(), *(f"{name} {value}" for name, value in self._settings().items())])

    def _settings(self) -> dict[str, Any]:
        """Return the searched axes that are used, beyond the degrees and the micro-batch."""
        degrees = {**self.strategy.degrees(), **self.strategy.inner_degrees(), "micro_batch": None}
        values = {name: self.strategy.value(name) for name in SEARCHED_AXES if name not in degrees}
        return {name: value for name, value in values.items() if value != SEARCHED_AXES[name].neutral}

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "placer": self.strategy.placer, **self.degrees, **self._settings(), "recompute": self.strategy.recompute,
            "global_batch": self.global_batch, "micro_batch": self.micro_batch,
            "num_microbatches": self.num_microbatches, "estimate_s": self.estimate_s, "simulated_s": self.simulated_s,
            "estimate_error": self.estimate_error, "expected_s": self.expected_s,
            "software": None if self.plan is None else self.plan.software.settings, "algorithms": self.algorithms,
            "exposed_communication_s": self.exposed_s,
            "memory_bytes": self.memory_bytes, "may_not_fit": self.may_not_fit,
            "circuit_degree": self.circuit_degree, "iterations": self.iterations,
            "time_to_accuracy_s": self.time_to_accuracy_s, "compute_bound_s": self.bound_s, "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchResult:
    """Ranked candidates of one machine.

    candidates: those simulated first, then those estimated, then those refused; best first in each.
    left_out: (reason, how many) of strategies that cannot be, numbers in a reason written N where they differ.
    convergence: name of the curve, None if time per sample was minimised. cpu_s: what the search took.
    prices: of the machine in words, such as "network price" to "227,360 USD of switches and cables". network_usd,
    machine_usd: its dollars, None where they are not known. accelerator_usd_per_hour: as given.
    """

    model: str
    fabric: str
    accelerator: str
    num_accelerators: int
    candidates: tuple[Candidate, ...]
    convergence: str | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()
    cpu_s: float = field(default=0.0, compare=False)
    prices: Mapping[str, str] = field(default_factory=dict)
    network_usd: float | None = None
    machine_usd: float | None = None
    accelerator_usd_per_hour: float | None = None

    def training_usd(self, candidate: Candidate) -> float | None:
        """Return what training costs: accelerators x hours to the target x price; None without a target or a price."""
        seconds, price = candidate.time_to_accuracy_s, self.accelerator_usd_per_hour
        return None if seconds is None or price is None else self.num_accelerators * seconds / 3600 * price

    @property
    def best(self) -> Candidate:
        """The first candidate."""
        return self.candidates[0]

    @property
    def simulated(self) -> tuple[Candidate, ...]:
        """Those that were simulated, best first."""
        return tuple(c for c in self.candidates if c.simulated_s is not None)

    @property
    def estimated(self) -> tuple[Candidate, ...]:
        """Those that have an estimate, best first."""
        return tuple(c for c in self.candidates if c.estimate_s is not None)

    @property
    def worst_estimate_error(self) -> float:
        """Largest distance of an estimate from its simulation, relative; 0 without simulations."""
        return max((abs(c.estimate_error) for c in self.simulated if c.estimate_error is not None), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready summary; equal searches give equal values."""
        return {
            "model": self.model, "fabric": self.fabric, "accelerator": self.accelerator,
            "num_accelerators": self.num_accelerators, "convergence": self.convergence,
            "num_candidates": len(self.candidates), "num_estimated": len(self.estimated),
            "num_simulated": len(self.simulated), "worst_estimate_error": self.worst_estimate_error,
            "network_usd": self.network_usd,
            **({} if self.machine_usd is None else {"machine_usd": self.machine_usd}),
            "notes": list(self.notes), "left_out": dict(self.left_out),
            "candidates": [
                c.to_dict() | ({} if usd is None else {"training_usd": usd})
                for c, usd in ((c, self.training_usd(c)) for c in self.candidates)
            ],
        }  # fmt: skip

    def __repr__(self) -> str:
        count = f"{len(self.candidates):,} candidates, {len(self.simulated):,} simulated"
        return f"SearchResult({self.model!r} on {self.fabric}: {count}, best {self.best!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the ten best candidates, with estimates, simulations and memory."""

        def time(seconds: float | None) -> str | None:
            return None if seconds is None else format_time(seconds)

        rows = [
            {
                "rank": rank, "strategy": c.describe(), "global batch": f"{c.global_batch:,}",
                "micro-batch": c.micro_batch,
                "estimate": time(c.estimate_s), "simulated": time(c.simulated_s),
                "time to accuracy": time(c.time_to_accuracy_s),
                "memory": None if c.memory_bytes is None else format_size(c.memory_bytes),
                "algorithms": c.algorithms, "refused": c.reason,
            }
            for rank, c in enumerate(self.candidates[:10], 1)
        ]  # fmt: skip
        counts = f"{len(self.candidates):,} candidates, {len(self.simulated):,} simulated"
        return html_table(f"{self.model} on {self.fabric}, {self.accelerator}: {counts}", rows)
