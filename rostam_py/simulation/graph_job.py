"""GraphJob: one job of a task graph, as data: what its devices run in an iteration, and with which peers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.plan import Plan
from rostam_py.plan.program import Program
from rostam_py.plan.strategy_names import SCHEDULES
from rostam_py.plan.tasks import Task
from rostam_py.plan.traffic import ScheduleKey, rank_orders
from rostam_py.programs.placed import PlacedProgram


@dataclass(frozen=True, slots=True)
class StageTasks:
    """What the devices of one class run.

    templates: name -> tasks. program: one iteration. takes_turns: forwards and backwards behind them run part by part
    in turn (simulation/interleaving.py). joins_pairs: they receive and send together.
    """

    index: int
    templates: dict[str, tuple[Task, ...]]
    program: Program
    takes_turns: bool = False
    joins_pairs: bool = False

    @property
    def compute_s(self) -> float:
        """What the kernels take in one iteration [s]."""
        counts = self.program.counts().items()
        return sum(count * sum(task.duration_s for task in self.templates[name]) for name, count in counts)


@dataclass(frozen=True, eq=False)
class GraphJob:
    """One job of a task graph.

    devices: accelerator of every device, int array (n,). stage_of: index into ``stages``, int array (n,).
    groups: sets of process groups, as rows of device numbers in rank order. schedules: (group label, collective,
    bytes) -> what runs. orders: label -> the devices of its groups in the order in which schedules number them, int
    array (groups, ranks); rank order for labels that are left out. start_ps: when its devices begin.
    """

    name: str
    devices: np.ndarray
    stage_of: np.ndarray
    stages: tuple[StageTasks, ...]
    groups: tuple[GroupSet, ...]
    schedules: dict[tuple[str, str, int], ScheduleKey]
    orders: Mapping[str, np.ndarray] = field(default_factory=dict)
    start_ps: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan | PlacedProgram, start_ps: int = 0) -> "GraphJob":
        """Return the job that a plan, or a program on a machine, is, its algorithms chosen."""
        orders = {}
        for label in dict.fromkeys(label for label, _, _ in plan.schedules):
            found = _in_schedule_order(plan, label)
            if not np.array_equal(found, plan.group_set(label).members):
                orders[label] = found
        takes_turns = isinstance(plan, Plan) and plan.strategy.rules.ep_overlap
        joins = isinstance(plan, Plan) and SCHEDULES.get(plan.strategy.schedule).joins_pairs
        stages = tuple(StageTasks(one.index, one.templates, one.program, takes_turns, joins) for one in plan.stages)
        name = plan.graph_name if isinstance(plan, Plan) else plan.name
        return cls(
            name, plan.devices, plan.stage_of, stages, plan.groups, plan.schedules, orders, start_ps, plan.notes
        )  # fmt: skip

    @property
    def num_devices(self) -> int:
        """Devices that the job uses."""
        return len(self.devices)

    def group_set(self, label: str) -> GroupSet:
        """Return the set of process groups with a label. Raises: ConfigError, with the labels there are."""
        for one in self.groups:
            if one.label == label:
                return one
        raise ConfigError(f"group is {label!r}; it must be one of: {', '.join(one.label for one in self.groups)}")

    def ordered(self, label: str) -> np.ndarray:
        """Return the devices of groups in the order of schedules, int array (groups, ranks)."""
        return self.orders[label] if label in self.orders else self.group_set(label).members


def _in_schedule_order(plan: Plan | PlacedProgram, label: str) -> np.ndarray:
    """Return the devices of groups in the order in which schedules number their ranks, int array (groups, ranks)."""
    members = plan.group_set(label).members
    accelerators = plan.devices[members]
    ordered = rank_orders(plan, label, plan.schedules)
    if np.array_equal(ordered, accelerators):
        return members
    place = np.argsort(accelerators, axis=1)
    found = np.array([np.searchsorted(row[p], want) for row, p, want in zip(accelerators, place, ordered, strict=True)])
    return np.take_along_axis(members, np.take_along_axis(place, found, axis=1), axis=1)
