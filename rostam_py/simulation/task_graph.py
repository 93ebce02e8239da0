"""TaskGraph: everything that a session runs, as data: jobs on a machine whose circuits, if any, are set.

Example:
    graph = rostam.TaskGraph.of(plan, seed=3)          # or of several plans that share a fabric
    graph.save("tasks.json.gz")
    rostam.simulate(rostam.TaskGraph.load("tasks.json.gz"), seed=3).iteration_time_s       # as that of the plan

It knows nothing of models, strategies and batches. What one writes by hand is a program (rostam_py/programs).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rostam_py.documents import refused
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.programs.placed import PlacedProgram
from rostam_py.simulation.graph_job import GraphJob
from rostam_py.simulation.graph_storage import read_graph_file, save_graph_file
from rostam_py.simulation.network import list_of
from rostam_py.simulation.picoseconds import seconds_to_ps
from rostam_py.units import parse_time

Placed = Plan | PlacedProgram  # what a job is made of


@dataclass(frozen=True, eq=False, repr=False)
class TaskGraph:
    """Jobs that share a machine, each on accelerators of its own.

    machine: with circuits set where its fabric has some. jobs: in the order of the results.
    """

    machine: Machine
    jobs: tuple[GraphJob, ...]

    def __post_init__(self) -> None:
        if not self.jobs:
            raise ConfigError("simulate got no plan")
        owner: dict[int, int] = {}
        for number, job in enumerate(self.jobs):
            for accelerator in job.devices.tolist():
                other = owner.setdefault(accelerator, number)
                if other != number:
                    raise DegreeError(
                        f"plans {other} and {number} both use accelerator {accelerator}; give each its own"
                    )

    @classmethod
    def of(
        cls, plan: Placed | Sequence[Placed], *, seed: int = 0, start_times: Sequence[str | float] | None = None
    ) -> "TaskGraph":
        """Return the task graph of one plan, or program on a machine, or of several that share a fabric.

        Args:
            seed: of the circuits, where the fabric needs some.
            start_times: of each plan [s or text].
        Raises: ConfigError if plans are on different fabrics or machines that start work differently; DegreeError if
            they share an accelerator.
        """
        plans = [plan] if isinstance(plan, Plan | PlacedProgram) else list(plan)
        if not plans:
            raise ConfigError("simulate got no plan")
        if len({id(one.machine.fabric) for one in plans}) > 1:
            raise ConfigError("the plans of one simulation must share one fabric object; use plan.on(machine)")
        _check_agreement(plans)
        starts = [0] * len(plans)
        if start_times is not None:
            given = list_of("start_times", start_times, len(plans), "plans")
            starts = [seconds_to_ps(parse_time(value, "start_times")) for value in given]
        jobs = tuple(GraphJob.of(one, start) for one, start in zip(plans, starts, strict=True))
        slow = {a: one.machine.slow[a] for one in plans for a in one.devices.tolist() if a in one.machine.slow}
        graph = cls(replace(plans[0].machine, slow=slow), jobs)
        fabric = _fabric_of(plans, seed)
        return graph if fabric is graph.machine.fabric else cls(replace(graph.machine, fabric=fabric), jobs)

    @cached_property
    def num_devices(self) -> int:
        """Devices of all jobs."""
        return sum(job.num_devices for job in self.jobs)

    def save(self, path: str | Path) -> None:
        """Write the graph, its machine included, to a file: JSON, gzip-compressed if the name ends in .gz.

        Raises: ConfigError if the file cannot be written.
        """
        save_graph_file(self.machine, self.jobs, path)

    @classmethod
    def load(cls, path: str | Path) -> "TaskGraph":
        """Return a saved graph; it simulates to an equal result.

        Raises: ConfigError for a damaged file, with the place, or one of an unknown version.
        """
        machine, jobs = read_graph_file(path)
        with refused(f"{path}: the task graph is refused"):
            return cls(machine, jobs)

    def __repr__(self) -> str:
        jobs = ", ".join(job.name for job in self.jobs[:3]) + (", ..." if len(self.jobs) > 3 else "")
        return f"TaskGraph({jobs}: {self.num_devices:,} devices on {self.machine.fabric.describe()})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: which jobs there are, and on what."""
        tasks = sum(len(tasks) for job in self.jobs for one in job.stages for tasks in one.templates.values())
        pairs: dict[str, Any] = {
            "jobs": ", ".join(job.name for job in self.jobs),
            "accelerators": f"{self.num_devices:,} of {self.machine.num_accelerators:,}",
            "tasks in templates": f"{tasks:,}",
        }
        return html_pairs(f"task graph on {self.machine.fabric.describe()}", pairs)


def _fabric_of(plans: Sequence[Placed], seed: int) -> Any:
    """Return the fabric that plans run on: with circuits for the traffic of all of them where it needs circuits."""
    if len(plans) == 1:
        return plans[0].fabric_with_circuits(seed)
    fabric = plans[0].machine.fabric
    if not fabric.is_circuit_switched or fabric.circuits is not None:
        return fabric
    return fabric.with_circuits(Traffic.total([plan.traffic for plan in plans]), seed=seed)


def _check_agreement(plans: Sequence[Placed]) -> None:
    """Raise ConfigError where the machines of one simulation differ in what the session has once."""
    for key in dict.fromkeys(key for plan in plans for key in plan.machine.physics):
        values = [plan.machine.physics.get(key, 0.0) for plan in plans]
        value = values[0]
        if any(other != value for other in values):
            raise ConfigError(f"machine.{key} differs between the plans of one simulation: {values}; set one value")
