"""Sensitivities: how an iteration's time changes with each input of the machine, by simulating it again.

Example:
    found = rostam.sensitivity(plan)
    found.rows[0].name, found.rows[0].better_s      # what helps most, and by how much 10% of it helps [s]
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.html import html_pairs, html_table
from rostam_py.plan.plan import Plan
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.simulate import simulate
from rostam_py.simulation.task_graph import TaskGraph
from rostam_py.spread.inputs import inputs_of
from rostam_py.units import format_time

STEP = 0.10  # by which an input is made better and worse
HELD_FIXED = (
    "strategy, splits, stages, schedules, algorithms of collectives, circuits and routes as placed; only times change"
)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What an iteration's time is sensitive to in one input.

    kind, key: as of Input. better_s, worse_s: change of the iteration's time where the input is 10% better (a rate
        multiplied by 1.1, a time divided by it) or 10% worse [s]; usually below and above 0, but sharing of
        links has anomalies (MODEL F20).
    """

    name: str
    kind: str
    key: str
    better_s: float
    worse_s: float

    @property
    def size_s(self) -> float:
        """The larger of the two changes [s]."""
        return max(abs(self.better_s), abs(self.worse_s))


@dataclass(frozen=True)
class Sensitivities:
    """What an iteration's time is sensitive to, the most important input first.

    iteration_time_s: as simulated without a change [s]. rows: one for each input that has a part in it.
    """

    iteration_time_s: float
    rows: tuple[Sensitivity, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready document."""
        return {"step": STEP, "held_fixed": HELD_FIXED, "rows": [asdict(row) for row in self.rows]}

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = [(row.name, *_signed(row, self.iteration_time_s)) for row in self.rows]
        head = html_pairs("sensitivity", {"iteration time": format_time(self.iteration_time_s), "held": HELD_FIXED})
        return head + html_table("change of the iteration's time", rows, ("input", "10% better", "10% worse"))


def _signed(row: Sensitivity, total_s: float) -> tuple[str, str]:
    better, worse = (f"{change / total_s:+.2%}" for change in (row.better_s, row.worse_s))
    return better, worse


def sensitivity(
    plan: Plan | TaskGraph,
    *,
    options: SimulationOptions | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Sensitivities:
    """Simulate a plan again with each input 10% better and 10% worse.

    Model: the accelerator's peak and memory bandwidth, efficiency by family of ops, bandwidth by level of the fabric,
        what each link class achieves and what it takes to start, latencies. What is held fixed: HELD_FIXED. Peak and
        memory bandwidth are there where the cost model knows what bounds its kernels: not for a plan read from a file,
        nor for published times.
    Args:
        plan: or a task graph of one job.
        options: of the simulations; their timeline is not recorded.
        progress: called with a line of text before each simulation, the first of which tells their number and time.
    Raises: ConfigError for several jobs; what ``simulate`` raises.
    Cost: two simulations for each input, about 20 in all; each takes as long as the plan's own.
    """
    chosen = (options or SimulationOptions()).but(timeline=False)
    graph = plan if isinstance(plan, TaskGraph) else TaskGraph.of(plan, seed=chosen.seed or 0)
    if len(graph.jobs) > 1:
        raise ConfigError(f"sensitivity got a task graph of {len(graph.jobs)} jobs; it takes one")
    begun = perf_counter()
    base: JobResult = simulate(graph, options=chosen)
    taken_s = perf_counter() - begun
    inputs, total_s = inputs_of(graph, base), base.iteration_time_s
    rows = []
    for number, one in enumerate(inputs):
        words = f"sensitivity: {2 * (len(inputs) - number)} simulations of about {format_time(taken_s)} to go"
        progress(f"{words} ({one.name})")
        changed = [
            simulate(one.change(factor).of(graph), options=chosen).iteration_time_s - total_s
            for factor in (1 + STEP, 1 / (1 + STEP))
        ]
        rows.append(Sensitivity(one.name, one.kind, one.key, *changed))
    return Sensitivities(total_s, tuple(sorted(rows, key=lambda row: -row.size_s)))
