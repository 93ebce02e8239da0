"""Work: how the compute of an iteration is spread over the devices of a plan.

Example:
    plan.work_spread.describe()    # "work on 16 devices: busiest 11.3 ms of compute, 1.07 x the mean"
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rostam_py.plan.host import HostCosts
from rostam_py.plan.program import Program
from rostam_py.plan.tasks import KernelTime, Stage, Task
from rostam_py.units import format_time


@dataclass(frozen=True, slots=True)
class WorkSpread:
    """Compute of one iteration: of the busiest device and on average [s]. num_idle: devices that compute nothing."""

    num_devices: int
    num_idle: int
    busiest_s: float
    mean_s: float

    @property
    def imbalance(self) -> float:
        """Work of the busiest device over the mean; 1 if all have as much, or none any."""
        return self.busiest_s / self.mean_s if self.mean_s > 0 else 1.0

    def describe(self) -> str:
        """Return the spread in words; idle devices are named."""
        idle = f"; {self.num_idle:,} of them compute nothing" if self.num_idle else ""
        devices = f"{self.num_devices:,} device{'' if self.num_devices == 1 else 's'}"
        busiest = f"busiest {format_time(self.busiest_s)} of compute, {self.imbalance:.2f} x the mean"
        return f"work on {devices}: {busiest}{idle}"


def seconds_by_family(templates: Mapping[str, Sequence[Task]], program: Program) -> dict[str, float]:
    """Return what the kernels of a class of devices take in one iteration [s], by op family, the longest first."""
    return seconds_by(lambda kernel: kernel.family, templates, program)


def seconds_by(
    part_of: Callable[[KernelTime], str], templates: Mapping[str, Sequence[Task]], program: Program
) -> dict[str, float]:
    """Return what the kernels of a class of devices take in one iteration [s], by ``part_of``, the longest first.

    Model: replays of recomputation count with their parts; slow parts of a machine are not counted.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for name, count in program.counts().items():
        for task in templates[name]:
            for kernel in task.kernels:
                found[part_of(kernel)] += count * kernel.duration_s
    return {part: seconds for part, seconds in sorted(found.items(), key=lambda item: -item[1]) if seconds > 0}


def launch_bound_s(stages: Sequence[Stage], host: HostCosts) -> float:
    """Return what the busiest host takes to launch an iteration."""
    if not host.launch_s:
        return 0.0
    found = []
    for stage in stages:
        each = {
            name: math.fsum(_issue_s(task, host) for task in stage.templates[name]) for name in stage.program.counts()
        }
        found.append(sum(each[name] * count for name, count in stage.program.counts().items()))
    return max(found, default=0.0)


def _issue_s(task: Task, host: HostCosts) -> float:
    if task.kind != "compute":
        return host.launch_s if host.loop is None else host.loop.node_s
    return math.fsum(one for kernel in task.kernels for one in host.issues_s(kernel, task.is_optimizer))


def work_spread(stages: Sequence[Stage], num_devices: Sequence[int]) -> WorkSpread:
    """Return how work is spread over stages, each run by so many devices.

    Model: all kernels of an iteration, the optimizer's among them; slow parts of a machine are not counted.
    Cost: tasks of all templates.
    """
    seconds = []
    for stage in stages:
        each = {name: sum(t.duration_s for t in stage.templates[name] if t.kernels) for name in stage.program.counts()}
        seconds.append(sum(each[name] * count for name, count in stage.program.counts().items()))
    total = sum(num_devices)
    work = sum(s * n for s, n in zip(seconds, num_devices, strict=True))
    idle = sum(n for s, n in zip(seconds, num_devices, strict=True) if s == 0)
    return WorkSpread(total, idle, max(seconds, default=0.0), work / total if total else 0.0)
