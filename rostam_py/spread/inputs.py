"""Inputs: what of a machine a job's time may hang on, each with the change that makes it better by a factor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py.costs.families import HOST_COPY
from rostam_py.costs.limits import KernelLimits, Speeds
from rostam_py.fabrics.levels import link_levels
from rostam_py.plan.tasks import KernelTime
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.task_graph import TaskGraph
from rostam_py.spread.changes import Change, kernel_limits, links_of_classes

# Kinds of inputs. LIMITS and EFFICIENCIES are two views of the kernels' times. NETWORK is all of LINKS and of
# CLASS_RATES at once; CLASS_LATENCIES are a part of one of TIMES.
LIMITS, EFFICIENCIES, NETWORK, LINKS, TIMES = "limits", "efficiencies", "network", "links", "fixed times"
CLASS_RATES, CLASS_LATENCIES = "link classes", "latencies of link classes"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a simulation.

    name: for readers. kind: LIMITS, EFFICIENCIES, NETWORK, LINKS, CLASS_RATES, CLASS_LATENCIES or TIMES. key: the
    family, level or link class, else "". change: a factor, 1.1 being 10% better, to the change.
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

    Args: base: its result; levels of the fabric and link classes that carried nothing are left out.
    """
    kernels = _kernels(graph)
    limits = [found for kernel in kernels if (found := kernel_limits(kernel)) is not None]
    families = sorted({kernel.family for kernel in kernels})
    classes = links_of_classes(base.fabric)
    links, times = _link_inputs(base, classes), _time_inputs(graph, base, limits, list(classes))
    return [*_limit_inputs(limits), *map(_family, families), *links, *times]


def _speed(name: str) -> Callable[[float], Change]:
    def change(factor: float) -> Change:
        speed: dict[str, Any] = {name: factor}
        return Change(speeds=replace(Speeds(), **speed))

    return change


def _family(family: str) -> Input:
    def change(factor: float) -> Change:
        return Change(speeds=Speeds(families={family: factor}))

    words = "waits for copies to and from hosts" if family == HOST_COPY else f"efficiency of {family} kernels"
    return Input(words, EFFICIENCIES, change, family)


def _floor(factor: float) -> Change:
    return Change(speeds=Speeds(floor=factor), collective_floor=factor)


def _rates(levels: Sequence[str], classes: Sequence[str] = ()) -> Callable[[float], Change]:
    return lambda factor: Change(links=dict.fromkeys(levels, factor), class_bandwidth=dict.fromkeys(classes, factor))


def _class_latency(name: str) -> Callable[[float], Change]:
    return lambda factor: Change(class_latency={name: factor})


def _limit_inputs(limits: list[KernelLimits]) -> list[Input]:
    found = []
    if any(one.arithmetic_s for one in limits):
        found.append(Input("peak of the accelerator", LIMITS, _speed("arithmetic")))
    if any(one.memory_s for one in limits):
        found.append(Input("memory bandwidth", LIMITS, _speed("memory")))
    if any(one.arithmetic_fixed_s or one.memory_fixed_s for one in limits):
        found.append(Input("fixed time inside kernels", LIMITS, _speed("fixed")))
    return found


def _link_inputs(base: JobResult, classes: Mapping[str, np.ndarray]) -> list[Input]:
    names, level_of = link_levels(base.fabric)
    used = [name for level, name in enumerate(names) if base.link_bytes[level_of == level].any()]
    if not used:
        return []
    found = [Input("bandwidth of all links", NETWORK, _rates(used, list(classes)))]
    # A level that is all of a class has the class's row, which knows its ends and messages too.
    apart = [
        name for level, name in enumerate(names)
        if name in used and not any(np.array_equal(level_of == level, own) for own in classes.values())
    ]  # fmt: skip
    found += [Input(f"bandwidth: {name}", LINKS, _rates([name]), name) for name in apart if len(used) > 1]
    for name, own in classes.items():
        if base.link_bytes[own].any():
            found.append(Input(f"achieved bandwidth: {name}", CLASS_RATES, _rates([], [name]), name))
            found.append(Input(f"start-ups and hops: {name}", CLASS_LATENCIES, _class_latency(name), name))
    return found


def _time_inputs(graph: TaskGraph, base: JobResult, limits: list[KernelLimits], classes: Sequence[str]) -> list[Input]:
    found = []
    if base.link_bytes.any():

        def latency(factor: float) -> Change:
            return Change(link_latency=factor, class_latency=dict.fromkeys(classes, factor))

        words = "latency of links and switches" + (", start-ups and hops" if classes else "")
        found.append(Input(words, TIMES, latency))
    if graph.machine.launch_latency_s:
        found.append(Input("launch latency", TIMES, lambda factor: Change(launch=factor)))
    if graph.machine.host_launch_s:
        found.append(Input("launches of the host", TIMES, lambda factor: Change(host=factor)))
    if graph.machine.min_kernel_s or any(one.floor_s for one in limits):
        found.append(Input("least time of a kernel or collective", TIMES, _floor))
    return found
