"""A plan as a program: stages are roles, templates phases, and kernels keep the times that the plan has for them."""

from collections import defaultdict
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.plan.expert_groups import EXPERTS
from rostam_py.plan.plan import Plan
from rostam_py.plan.program import Program as Order
from rostam_py.plan.strategy_names import SCHEDULES
from rostam_py.plan.tasks import MEMORY_PARTS, KernelTime, MemoryBytes, Stage, Task
from rostam_py.plan.traffic import AUTO
from rostam_py.programs.groups import RankGroups
from rostam_py.programs.kernels import Kernel
from rostam_py.programs.ranks import written_ranks
from rostam_py.programs.roles import Repeat, Role, Written
from rostam_py.programs.steps import Collective, Compute, Receive, Send, Step, Wait


def fields_of(plan: Plan) -> dict[str, Any]:
    """Return the fields of the program that a plan is; see ``Program.of``."""
    _check_sayable(plan)
    writer = _Writer(plan)
    roles = {f"stage {stage.index}": writer.role(stage) for stage in plan.stages}
    return {
        "name": plan.graph_name,
        "num_ranks": plan.num_devices,
        "description": f"{plan.strategy.describe()}, global batch {plan.global_batch}, {plan.precision}",
        "groups": {one.label: RankGroups.of(one, plan.num_devices) for one in plan.groups},
        "kernels": {name: Kernel.of(kernel, name) for kernel, name in writer.kernels.items()},
        "roles": roles,
    }


def _check_sayable(plan: Plan) -> None:
    rules = plan.strategy.rules
    if rules.ep_overlap:
        raise ConfigError("software.rules.ep_overlap has micro-batches take turns, which a program cannot say yet")
    if SCHEDULES.get(plan.strategy.schedule).joins_pairs:
        raise ConfigError(
            f"strategy.schedule {plan.strategy.schedule} has a forward and a backward send together, which a program"
            " cannot say yet"
        )
    if rules.servers_per_token is not None and any(one.kind == EXPERTS for one in plan.groups):
        raise ConfigError(
            "software.rules.servers_per_token has rows of experts sent once to each server, which a program cannot say"
            " yet"
        )
    if plan.max_circuit_degree is not None or plan.strategy.max_circuit_degree is not None:
        raise ConfigError("a limit on circuits (max_circuit_degree) decides algorithms, which a program cannot say yet")
    tasks = (task for stage in plan.stages for tasks in stage.templates.values() for task in tasks)
    if any(task.is_routed or task.multiprocessors for task in tasks):
        raise ConfigError(
            "collectives that hosts read, or that hold multiprocessors of their own, cannot be said by a program yet"
        )


class _Writer:
    """Writes the roles of a plan. kernels: those it has met, with names of their own."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernels: dict[KernelTime, str] = {}
        self._taken: set[str] = set()
        self._counts: defaultdict[str, int] = defaultdict(lambda: 1)

    def role(self, stage: Stage) -> Role:
        """Return what a stage's devices run."""
        return Role(
            phases={name: tuple(map(self._step, tasks)) for name, tasks in stage.templates.items()},
            iteration=_iteration(stage.program),
            ranks=written_ranks(self.plan.devices_of(stage.index)),
            memory=_memory(stage.memory),
        )

    def _step(self, task: Task) -> Step:
        said: dict[str, Any] = {"name": task.name, "after": task.deps}
        if task.kind == "compute":
            if not task.kernels:
                return Wait(**said)
            return Compute(
                **said, kernels=tuple(self._kernel(one) for one in task.kernels), is_optimizer=task.is_optimizer
            )
        said |= {"group": task.group, "num_bytes": task.num_bytes, "stream": task.stream}
        if task.kind == "collective":
            algorithm = self.plan.algorithms.get(task.collective, AUTO)
            return Collective(**said, collective=task.collective, algorithm=algorithm)
        kind = Send if task.kind == "send" else Receive
        return kind(**said, channel=task.channel, peer=task.peer)

    def _kernel(self, kernel: KernelTime) -> str:
        """Return the name of a kernel: its own, with a number behind where several are called so."""
        if kernel not in self.kernels:
            name = kernel.name
            while name in self._taken:
                self._counts[kernel.name] += 1
                name = f"{kernel.name} #{self._counts[kernel.name]}"
            self._taken.add(name)
            self.kernels[kernel] = name
        return self.kernels[kernel]


def _iteration(order: Order) -> tuple[Written | Repeat, ...]:
    found: list[Written | Repeat] = []
    for segment in order.segments:
        if segment.count == 1:
            found += segment.entries
        else:
            found.append(Repeat(run=segment.entries, times=segment.count, stride=segment.stride))
    return tuple(found)


def _memory(memory: MemoryBytes) -> dict[str, int]:
    return {part: int(getattr(memory, part)) for part in MEMORY_PARTS if getattr(memory, part)}
