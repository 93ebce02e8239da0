"""Variability of a step: simulations of fleets whose parts are drawn, and what their steps take.

Example:
    found = rostam.variability(plan, devices=0.05, kernels="2%", samples=50)
    found.p50_s, found.p95_s

Model: a sample is a fleet. Every accelerator's kernels take a factor of their own, every cable's bandwidth is divided
by one, and every run of every kernel takes one more; each of mean 1, from the distribution. Kernels that run without
communication between them are one task, whose factor has the deviation of the sum of independent kernels. Device,
cable and kernel factors come from streams named after what varies and the number of the sample, so a sample is the same
whatever else is simulated, wherever. Nothing is folded, for nothing is alike. Hosts, latencies and NVLS-like switches
do not vary; planes that are alike vary alike; a host that limits launches its kernels as if they took their mean.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rostam_py.checks import check_seed
from rostam_py.errors import ConfigError
from rostam_py.html import html_pairs
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.variability import Variability
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.simulate import simulate
from rostam_py.simulation.task_graph import TaskGraph
from rostam_py.simulation.variation import KernelVariation, check_distribution, draw_factors
from rostam_py.units import format_time

# CPU time of a task or message of an unfolded simulation [s]: 0.3 to 3.3 us measured on one core of a server, for a
# GPT of 1.3 B parameters on 64 to 1,024 accelerators, pp 1 and 4, ring and halving-doubling; the upper end.
SECONDS_PER_EVENT = 3e-6


@dataclass(frozen=True, slots=True)
class StepSample:
    """One fleet.

    step_s: its step [s]. slowest: the accelerator whose kernels were longest in relation to nominal. slowest_share: of
    the step, by how much that one's kernels outlast those of the mean accelerator, which waits meanwhile.
    """

    step_s: float
    slowest: int
    slowest_share: float


@dataclass(frozen=True)
class StepVariability:
    """What a step takes over sampled fleets.

    nominal_s: without variability [s]. predicted_cpu_s: what the samples were predicted to take [s].
    """

    nominal_s: float
    given: Variability
    samples: tuple[StepSample, ...]
    predicted_cpu_s: float

    @property
    def steps_s(self) -> np.ndarray:
        """Every sample's step [s], float array (samples,)."""
        return np.array([one.step_s for one in self.samples])

    @property
    def p50_s(self) -> float:
        """The median [s]."""
        return float(np.percentile(self.steps_s, 50))

    @property
    def p95_s(self) -> float:
        """What 95% of the fleets stay below [s], interpolated between samples."""
        return float(np.percentile(self.steps_s, 95))

    @property
    def mean_s(self) -> float:
        """The mean [s]."""
        return float(self.steps_s.mean())

    @property
    def slowest_share(self) -> float:
        """Mean share of a step by which the slowest accelerator's kernels outlast the mean one's."""
        return float(np.mean([one.slowest_share for one in self.samples]))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready document; equal runs give equal values, to the byte."""
        varied = {key: value for key, value in asdict(self.given).items() if key != "max_cpu"}
        return varied | {
            "nominal_s": self.nominal_s, "p50_s": self.p50_s, "p95_s": self.p95_s, "mean_s": self.mean_s,
            "slowest_share": self.slowest_share, "steps_s": self.steps_s.tolist(),
            "slowest": [one.slowest for one in self.samples],
        }  # fmt: skip

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        pairs = {"nominal": self.nominal_s, "p50": self.p50_s, "p95": self.p95_s, "mean": self.mean_s}
        shown: dict[str, Any] = {key: format_time(seconds) for key, seconds in pairs.items()}
        return html_pairs(f"step of {len(self.samples)} fleets", shown | {"slowest": f"{self.slowest_share:.0%}"})


def variability(
    plan: Plan | TaskGraph,
    *,
    options: SimulationOptions | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **given: Any,
) -> StepVariability:
    """Simulate a step of sampled fleets whose accelerators, cables and kernels vary.

    Args:
        plan: or a task graph of one job.
        options: of the simulations; ``seed`` is that of all samples, and ``fold`` is of the nominal one alone.
        progress: called with a line of text before each simulation, the first of which tells how long all take.
        given: fields of Variability: devices, links, kernels, distribution, samples, max_cpu.
    Raises: ConfigError for a bad deviation, no variation, several jobs, or more CPU time than max_cpu.
    Cost: one unfolded simulation for each sample: SECONDS_PER_EVENT for each task and message, on every accelerator.
    Source: own; tests/spread/test_variabilities.py against order statistics.
    """
    wanted = Variability(**given)
    check_distribution(wanted.distribution, "variability.distribution")
    if wanted.is_none:
        raise ConfigError("variability got no variation; give devices, links or kernels, for example devices=5%")
    chosen = (options or SimulationOptions()).but(timeline=False)
    seed = check_seed("seed", chosen.seed or 0)
    graph = plan if isinstance(plan, TaskGraph) else TaskGraph.of(plan, seed=seed)
    if len(graph.jobs) > 1:
        raise ConfigError(f"variability got a task graph of {len(graph.jobs)} jobs; it takes one")
    nominal: JobResult = simulate(graph, options=chosen)
    iterations = max(2, len(nominal.iteration_times_s))
    cpu_s = _predicted_cpu_s(graph, nominal, iterations) * wanted.samples
    if cpu_s > wanted.max_cpu_s:
        raise ConfigError(
            f"variability.samples is {wanted.samples} on {graph.num_devices:,} accelerators, about {format_time(cpu_s)}"
            f" of CPU; variability.max_cpu allows {format_time(wanted.max_cpu_s)}: take fewer samples, micro-batches or"
            " accelerators, or raise it"
        )
    each = chosen.but(fold=False, shortcuts=True, min_iterations=iterations, max_iterations=iterations)
    samples = []
    for number in range(wanted.samples):
        progress(f"variability: sample {number + 1} of {wanted.samples}, about {format_time(cpu_s)} in all")
        samples.append(_sample(graph, nominal, wanted, each, seed, number))
    return StepVariability(nominal.iteration_time_s, wanted, tuple(samples), cpu_s)


def _sample(
    graph: TaskGraph, nominal: JobResult, wanted: Variability, options: SimulationOptions, seed: int, number: int
) -> StepSample:
    """Return what a step of one fleet takes."""
    machine = _drawn(graph.machine, wanted, seed, number)
    kernels = KernelVariation(wanted.distribution, wanted.kernels, f"kernels {number}") if wanted.kernels else None
    result: JobResult = simulate(TaskGraph(machine, graph.jobs), options=options, variation=kernels)
    compute = list(result.breakdown).index("compute")
    busy, usual = result.breakdown_by_device[:, compute], nominal.breakdown_by_device[:, compute]
    ratios = np.divide(busy, usual, out=np.ones_like(busy), where=usual > 0)
    slowest, total_s = int(np.argmax(ratios)), result.iteration_time_s
    share = float((ratios[slowest] - ratios.mean()) * usual.mean() / total_s)
    return StepSample(total_s, int(result.devices[slowest]), share)


def _drawn(machine: Machine, wanted: Variability, seed: int, number: int) -> Machine:
    """Return the machine of a sample: every accelerator and every cable with its factor."""
    slow, fabric = dict(machine.slow), machine.fabric
    if wanted.devices:
        factors = draw_factors(
            wanted.distribution, wanted.devices, seed=seed, stream=f"devices {number}", count=machine.num_accelerators
        )
        slow = {a: machine.slow.get(a, 1.0) / factor for a, factor in enumerate(factors.tolist())}
    if wanted.links:
        cables = fabric.links["cable"]
        factors = draw_factors(
            wanted.distribution, wanted.links, seed=seed, stream=f"links {number}", count=int(cables.max()) + 1
        )
        fabric = fabric.with_factors(1 / factors[cables])
    return replace(machine, fabric=fabric, slow=slow)


def _predicted_cpu_s(graph: TaskGraph, nominal: JobResult, iterations: int) -> float:
    """Return what one unfolded simulation takes [s]: its tasks and messages, on every accelerator."""
    tasks = 0
    for job in graph.jobs:
        of_stage = np.bincount(job.stage_of, minlength=len(job.stages)).tolist()
        for stage, count in zip(job.stages, of_stage, strict=True):
            runs = stage.program.counts().items()
            tasks += count * sum(times * len(stage.templates[name]) for name, times in runs)
    planes = len(nominal.fabric.plane_classes) / nominal.fabric.planes  # that are simulated
    messages = sum(nominal.num_messages.values()) * planes
    return math.ceil(tasks + messages) * iterations * SECONDS_PER_EVENT
