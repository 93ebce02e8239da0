"""Change: a task graph on a machine of which some inputs are better or worse; nothing is placed anew.

Example:
    faster = Change(speeds=Speeds(arithmetic=1.1)).of(TaskGraph.of(plan))
    simulate(faster).iteration_time_s

Held fixed: the strategy, every op's split, stages, schedules, buckets, algorithms of collectives, circuits and routes.
On a machine that is bought so another strategy may be the best, and gain more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rostam_py.costs.limits import KernelLimits, Speeds, limits_of
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.levels import link_levels
from rostam_py.fabrics.link_classes import LinkClass
from rostam_py.plan.machine import Machine
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.simulation.graph_job import GraphJob
from rostam_py.simulation.task_graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Change:
    """Factors on a machine's inputs, 1.1 being 10% better: rates are multiplied, times divided.

    speeds: of kernels. links: of the bandwidth of levels of the fabric, 1 where a level is not named. link_latency: of
    links and switches. launch: launch latency. host: what a launch costs the host. collective_floor: the least duration
    of a collective. class_bandwidth: of what link classes achieve, by name: their links, the ends of collectives and
    the rates of messages; these links take no factor of their level besides. class_latency: of their start-ups and
    hops.
    """

    speeds: Speeds = field(default_factory=Speeds)
    links: Mapping[str, float] = field(default_factory=dict)
    link_latency: float = 1.0
    launch: float = 1.0
    host: float = 1.0
    collective_floor: float = 1.0
    class_bandwidth: Mapping[str, float] = field(default_factory=dict)
    class_latency: Mapping[str, float] = field(default_factory=dict)

    def of(self, graph: TaskGraph) -> TaskGraph:
        """Return the graph on the changed machine."""
        jobs = graph.jobs
        if self.speeds != Speeds():
            jobs = tuple(_retimed(job, self.speeds) for job in jobs)
        return TaskGraph(self.of_machine(graph.machine), jobs)

    def of_machine(self, machine: Machine) -> Machine:
        """Return the changed machine."""
        hosts: dict[str, Any] = {}
        if machine.host_launch_s and self.host != 1:
            slowdown = machine.host_slowdown / self.host
            hosts = {"host_launch": machine.host_launch_s / self.host, "host_slowdown": slowdown}
        return replace(
            machine, fabric=self._fabric(machine.fabric), **hosts,
            launch_latency=machine.launch_latency_s / self.launch,
            min_kernel_time=machine.min_kernel_s / self.collective_floor,
        )  # fmt: skip

    def _fabric(self, fabric: Fabric) -> Fabric:
        changed = fabric
        if self.class_bandwidth or self.class_latency:
            changed = fabric.with_link_classes(self._link_class)
        if self.link_latency == 1 and all(factor == 1 for factor in self.links.values()):
            return changed
        names, level_of = link_levels(fabric)
        rates = np.array([self.links.get(name, 1.0) for name in names])[level_of]
        if changed is not fabric:
            rates[_differ(fabric, changed)] = 1.0
        return changed.with_factors(rates, self.link_latency, self.link_latency)

    def _link_class(self, one: LinkClass) -> LinkClass:
        return one.scaled(self.class_bandwidth.get(one.name, 1.0), self.class_latency.get(one.name, 1.0))


def links_of_classes(fabric: Fabric) -> dict[str, np.ndarray]:
    """Return which of ``fabric.links`` are of each class that is not ideal, as booleans (links,), by name."""
    names = dict.fromkeys(one.name for one in fabric.config.link_classes if not one.is_ideal)
    return {name: _differ(fabric, Change(class_bandwidth={name: 2.0})._fabric(fabric)) for name in names}


def _differ(fabric: Fabric, changed: Fabric) -> np.ndarray:
    differ: np.ndarray = fabric.links["bandwidth_bytes_per_s"] != changed.links["bandwidth_bytes_per_s"]
    return differ


def kernel_limits(kernel: KernelTime) -> KernelLimits | None:
    """Return what bounds a kernel; None where only its time is known."""
    if kernel.call is None or kernel.cost is None:
        return None
    limits = limits_of(kernel.cost, kernel.call)
    return limits if limits is None or kernel.stretch == 1 else limits.stretched(kernel.stretch)


def _retimed(job: GraphJob, speeds: Speeds) -> GraphJob:
    """Return the job with its kernels timed at other speeds; kernels of unknown limits know their family's alone."""
    known: dict[int, KernelTime] = {}  # by identity: repeated blocks share kernels, and the job holds them meanwhile

    def kernel_at(kernel: KernelTime) -> KernelTime:
        found = known.get(id(kernel))
        if found is None:
            limits = kernel_limits(kernel)
            efficiency = speeds.families.get(kernel.family, 1.0)
            seconds = kernel.duration_s / efficiency if limits is None else limits.duration_s(speeds)
            found = known[id(kernel)] = kernel.lasting(seconds)
        return found

    def task_at(task: Task) -> Task:
        return replace(task, kernels=tuple(map(kernel_at, task.kernels))) if task.kernels else task

    stages = tuple(
        replace(one, templates={name: tuple(map(task_at, tasks)) for name, tasks in one.templates.items()})
        for one in job.stages
    )
    return replace(job, stages=stages)
