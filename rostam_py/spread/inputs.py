"""Inputs: what of a machine a job's time may hang on, each with the change that makes it better by a factor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rostam_py.costs.limits import KernelLimits, Speeds
from rostam_py.fabrics.levels import link_levels
from rostam_py.plan.tasks import KernelTime
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.task_graph import TaskGraph
from rostam_py.spread.changes import Change, kernel_limits

# Kinds of inputs. LIMITS and EFFICIENCIES are two views of the kernels' times, NETWORK is all of LINKS at once.
LIMITS, EFFICIENCIES, NETWORK, LINKS, TIMES = "limits", "efficiencies", "network", "links", "fixed times"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a simulation.

    name: for readers. kind: LIMITS, EFFICIENCIES, NETWORK, LINKS or TIMES. key: the family or level, else "". change: a
    factor, 1.1 being 10% better, to the change.
    """

    name: str
    kind: str
    change: Callable[[float], Change]
    key: str = ""


def _kernels(graph: TaskGraph) -> list[KernelTime]:
    """Return the kernels of all jobs that take time, each distinct one once."""
    found = {
        id(kernel): kernel
        for job in graph.jobs for stage in job.stages for tasks in stage.templates.values()
        for task in tasks for kernel in task.kernels if kernel.duration_s > 0
    }  # fmt: skip
    return list(found.values())


def inputs_of(graph: TaskGraph, base: JobResult) -> list[Input]:
    """Return the inputs that a simulated graph may hang on: those with something to change.

    Args: base: its result; levels of the fabric that carried nothing are left out.
    """
    kernels = _kernels(graph)
    limits = [found for kernel in kernels if (found := kernel_limits(kernel)) is not None]
    families = sorted({kernel.family for kernel in kernels})
    return [*_limit_inputs(limits), *map(_family, families), *_link_inputs(base), *_time_inputs(graph, base, limits)]


def _speed(name: str) -> Callable[[float], Change]:
    return lambda factor: Change(speeds=Speeds(**{name: factor}))  # type: ignore[arg-type]


def _family(family: str) -> Input:
    def change(factor: float) -> Change:
        return Change(speeds=Speeds(families={family: factor}))

    return Input(f"efficiency of {family} kernels", EFFICIENCIES, change, family)


def _floor(factor: float) -> Change:
    return Change(speeds=Speeds(floor=factor), collective_floor=factor)


def _levels(levels: Sequence[str]) -> Callable[[float], Change]:
    return lambda factor: Change(links=dict.fromkeys(levels, factor))


def _limit_inputs(limits: list[KernelLimits]) -> list[Input]:
    found = []
    if any(one.arithmetic_s for one in limits):
        found.append(Input("peak of the accelerator", LIMITS, _speed("arithmetic")))
    if any(one.memory_s for one in limits):
        found.append(Input("memory bandwidth", LIMITS, _speed("memory")))
    if any(one.arithmetic_fixed_s or one.memory_fixed_s for one in limits):
        found.append(Input("fixed time inside kernels", LIMITS, _speed("fixed")))
    return found


def _link_inputs(base: JobResult) -> list[Input]:
    names, level_of = link_levels(base.fabric)
    used = [name for level, name in enumerate(names) if base.link_bytes[level_of == level].any()]
    if not used:
        return []
    levels = [Input(f"bandwidth: {name}", LINKS, _levels([name]), name) for name in used] if len(used) > 1 else []
    return [Input("bandwidth of all links", NETWORK, _levels(used)), *levels]


def _time_inputs(graph: TaskGraph, base: JobResult, limits: list[KernelLimits]) -> list[Input]:
    found = []
    if base.link_bytes.any():
        found.append(Input("latency of links and switches", TIMES, lambda factor: Change(link_latency=factor)))
    if graph.machine.launch_latency_s:
        found.append(Input("launch latency", TIMES, lambda factor: Change(launch=factor)))
    if graph.machine.host_launch_s:
        found.append(Input("launches of the host", TIMES, lambda factor: Change(host=factor)))
    if graph.machine.min_kernel_s or any(one.floor_s for one in limits):
        found.append(Input("least time of a kernel or collective", TIMES, _floor))
    return found
