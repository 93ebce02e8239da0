"""RunResult: what a simulated iteration of a plan took, and why."""

from dataclasses import dataclass
from typing import Any

from rostam_py.costs.precision import get_precision
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import Stage, Task
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.stage_memory import StageMemory, stage_memory
from rostam_py.simulation.utilization import UTILIZATIONS, utilization_words
from rostam_py.software.ratios import Expected, Range, Ratios, expected_of
from rostam_py.units import format_count


def _optimizer_tasks(stage: Stage) -> list[Task]:
    """Return the optimizer's tasks of one iteration."""
    once = {name: [task for task in stage.templates[name] if task.is_optimizer] for name in stage.templates}
    return [task for name, count in stage.program.counts().items() for task in once[name] * count]


@dataclass(frozen=True, repr=False)
class RunResult(JobResult):
    """A JobResult of a plan, and what its model, batches and accelerators make of it.

    mfu, mfu_causal, hfu: the model's FLOPs, with half of causal attention, and what kernels run, over peak x devices x
    time (simulation/utilization.py); None where that is not known.
    """

    plan: Plan
    mfu: float
    mfu_causal: float | None
    hfu: float | None

    @property
    def expected(self) -> Expected | None:
        """What measured jobs of the plan's software took, times simulated; None for the ideal one, an upper bound."""
        return expected_of(self.plan)

    @property
    def expected_iteration_s(self) -> Range | None:
        """Iteration time to expect, and what 80% of measured jobs lie between [s]; None as ``expected``."""
        expected = self.expected
        return None if expected is None else expected.of(self.iteration_time_s)

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second."""
        return self.plan.global_batch / self.iteration_time_s

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens trained per second; None for a model whose samples are no sequences of them."""
        return self.samples_per_s * self.plan.sequence_length or None

    @property
    def model_flops_per_s_per_accelerator(self) -> float:
        """The model's FLOPs per second and accelerator, attention whole: MFU times the peak [FLOP/s]."""
        plan = self.plan
        return self.mfu * plan.machine.device.peak(get_precision(plan.precision).matrix_peak)

    @property
    def stage_microbatch_s(self) -> dict[str, float] | None:
        """Time of a pipeline's device for one micro-batch [s], mean over devices; None without a pipeline.

        "compute" (no optimizer step), "launch", "host" and exposed "tp"; sends between stages, the bubble and what
        comes once an iteration are left out. The sum is the time per micro-batch and stage that papers print for deep
        pipelines.
        """
        plan = self.plan
        if plan.strategy.pp == 1:
            return None
        steps = [task.duration_s for stage in plan.stages for task in _optimizer_tasks(stage)]
        kinds = ("compute", "launch", *(["host"] if "host" in self.breakdown else []), "tp")
        spent = {kind: self.breakdown.get(kind, 0.0) for kind in kinds}
        spent["compute"] -= sum(steps) / len(plan.stages)
        return {kind: seconds / plan.num_microbatches for kind, seconds in spent.items()}

    @property
    def highest_measured_mfu(self) -> float | None:
        """The highest MFU that was measured on this accelerator in this precision; None where none was."""
        plan = self.plan
        peak = get_precision(plan.precision).matrix_peak
        return Ratios.shipped().highest_mfu(plan.machine.device.name, peak)

    @property
    def is_upper_bound(self) -> bool:
        """Whether no job is known to have been as fast: of the ideal program, or beyond the highest measured MFU."""
        most = self.highest_measured_mfu
        return self.plan.software.is_ideal or most is None or self.mfu > most

    def memory_over_time(self) -> list[StageMemory]:
        """Return the memory of a recorded device of each stage over the last iteration.

        Raises: InternalError if the highest is not the memory that the plan reports.
        """
        return [] if self.restarts else stage_memory(self.plan, self._names, self._timeline, self._ends_ps)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready summary; equal runs give equal values, to the byte."""
        plan, most = self.plan, self.highest_measured_mfu
        return super().to_dict() | {
            "fabric": plan.machine.fabric.describe(),
            "accelerator": plan.machine.device.name,
            "software": plan.software.settings,
            "is_upper_bound": self.is_upper_bound,
            "highest_measured_mfu": most,
            "expected": self._expected_document(),
            "expected_memory_bytes": self._expected_memory(),
            "strategy": plan.strategy.degrees() | plan.strategy.inner_degrees(),
            "global_batch": plan.global_batch,
            "micro_batch": plan.micro_batch,
            "samples_per_s": self.samples_per_s,
            "tokens_per_s": self.tokens_per_s,
            "model_flops_per_s_per_accelerator": self.model_flops_per_s_per_accelerator,
            "stage_microbatch_s": self.stage_microbatch_s,
            "mfu": self.mfu,
            "mfu_causal": self.mfu_causal,
            "hfu": self.hfu,
            "memory_bytes": plan.memory_bytes,
            "memory_parts_bytes": plan.memory_parts,
            "network_usd": plan.machine.fabric.network_usd,
            **self._upkeep(),
        }

    @property
    def energy_j(self) -> float | None:
        """Energy of one iteration at the most that the machine draws [J], None where that is not known."""
        watts = self.plan.machine.most_watts
        return None if watts is None else watts * self.iteration_time_s

    def _expected_document(self) -> dict[str, Any] | None:
        expected = self.expected
        if expected is None:
            return None
        seconds = dict(zip(("iteration_time_s", "low_s", "high_s"), expected.of(self.iteration_time_s), strict=True))
        return {"ratio": expected.ratios.middle, **seconds, "jobs": expected.num_jobs, "of": expected.whose}

    def _expected_memory(self) -> dict[str, float] | None:
        expected = expected_of(self.plan, "memory")
        if expected is None:
            return None
        return dict(zip(("middle", "low", "high"), expected.of(self.plan.memory_bytes), strict=True))

    def _upkeep(self) -> dict[str, float]:
        machine = self.plan.machine
        known = {
            "machine_watts": machine.most_watts,
            "energy_per_iteration_j": self.energy_j,
            "machine_usd": machine.usd,
        }
        return {key: value for key, value in known.items() if value is not None}

    def _headline(self) -> tuple[str, dict[str, Any]]:
        plan = self.plan
        _, pairs = super()._headline()
        return f"{plan.graph_name} on {plan.machine.fabric.describe()}", pairs | {
            "throughput": throughput_words(self),
            UTILIZATIONS: judged_utilization(self),
            "software": plan.software.describe(),
            "strategy": f"{plan.strategy.describe()}, global batch {plan.global_batch:,} samples",
        }


def throughput_words(result: RunResult, slowdown: float = 1.0) -> str:
    """Return tokens, or samples where there are none, per second, and how many of them an accelerator trains.

    Args: slowdown: of iterations that take this many times as long, in fewer words.
    """
    rate, what = result.tokens_per_s, "tokens/s"
    if rate is None:
        rate, what = result.samples_per_s, "samples/s"
    rate, samples = rate / slowdown, result.samples_per_s / slowdown
    words = f"{format_count(rate)} {what}, {format_count(rate / result.plan.num_devices)} an accelerator"
    return words if what == "samples/s" or slowdown != 1.0 else f"{words}; {format_count(samples)} samples/s"


def judged_utilization(result: RunResult, slowdown: float = 1.0) -> str:
    """Return a result's utilisations, and of simulated ones whether any job is known to have reached so much."""
    words, most = utilization_words(result, slowdown), result.highest_measured_mfu
    if slowdown != 1.0:
        return words if most is None or result.mfu / slowdown <= most else f"{words}; more than was ever measured"
    if most is not None and result.mfu <= most:
        return words
    return f"{words}; an upper bound, " + (
        "no job of this part and precision is known" if most is None else f"the most measured is {most:.1%}"
    )
