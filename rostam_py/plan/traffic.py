"""Collectives and traffic of a plan: which algorithm runs over which ranks, and what every pair exchanges."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rostam_py.collectives import row_exchanges
from rostam_py.collectives.direct_links import MOST_RANKS, are_joined, direct_links, direct_rings, spanning_trees
from rostam_py.collectives.group_costs import schedule_costs
from rostam_py.collectives.predicted_time import default_algorithm, schedule_of_ranks
from rostam_py.collectives.rank_groups import (
    ScheduleKey,
    algorithm_names,
    arrange,
    boxes_of,
    in_grid_order,
    in_server_order,
    needs_grid,
)
from rostam_py.collectives.transport import is_bandwidth_model, is_tuned
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic
from rostam_py.plan.data import PlanData
from rostam_py.plan.expert_groups import EXPERTS, INSIDE
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.machine import Machine
from rostam_py.plan.program import Program
from rostam_py.plan.tasks import Task

AUTO = "auto"


def schedule_of(plan: PlanData, label: str, collective: str, num_bytes: int) -> ScheduleKey:
    """Return the schedule that a collective of ``num_bytes`` over a plan's groups runs.

    Model: as ``schedule_of_groups``, of the strategy's algorithm. Rows of experts that go once to each rank
        (software.rules.servers_per_token) go as their library's do.
    Raises: ConfigError for an algorithm that needs a grid where the groups fill none.
    """
    groups, fabric = plan.members(label), plan.machine.fabric
    is_limited = plan.max_circuit_degree is not None or plan.strategy.max_circuit_degree is not None
    found = schedule_of_groups(
        fabric, groups, collective, num_bytes, algorithm=plan.algorithms.get(collective, AUTO), is_limited=is_limited,
        label=label,
    )  # fmt: skip
    is_rows = collective == "all_to_all" and plan.group_set(label).kind == EXPERTS
    if not is_rows or plan.strategy.rules.servers_per_token is None or fabric.config.link_classes.are_ideal:
        return found
    is_inside = len(np.unique(groups[0] // fabric.config.accelerators_per_server)) == 1
    place = row_exchanges.RELAY if label == INSIDE else row_exchanges.INSIDE if is_inside else row_exchanges.BETWEEN
    return found._replace(protocol=row_exchanges.row_protocol(plan.strategy.rules.dispatcher, place))


def schedule_of_groups(
    fabric: Fabric,
    groups: np.ndarray,
    collective: str,
    num_bytes: int,
    *,
    algorithm: str = AUTO,
    is_limited: bool = False,
    label: str = "",
) -> ScheduleKey:
    """Return the schedule that a collective of ``num_bytes`` runs over groups of accelerators at once.

    Model: "auto" takes the algorithm with the least predicted time for these bytes over the
        first of the groups, on fabrics whose circuits are set once, or with a limit on circuits, the ring.
        Algorithms on a grid take part if all groups fill boxes of one shape. Of groups that stand on servers in
        different ways all run the schedule of the one with the fewest ranks on a server, or the fewest rings over
        direct links; over direct links that no servers order, rings and trees along links that all of them have.
    Args: groups: int array (groups, ranks), in rank order. is_limited: circuits of the job are. label: for errors.
    Raises: ConfigError for an algorithm that needs a grid where the groups fill none.
    """
    joined = _on_direct_links(fabric, groups)
    if algorithm == AUTO:
        algorithm = _chosen(fabric, groups, collective, num_bytes, joined=joined, is_limited=is_limited)
    is_model = is_bandwidth_model(collective, algorithm)
    unlike = joined if len(joined) else _unlike(fabric, groups, is_model)
    if needs_grid(collective, algorithm):
        unlike = _unlike_boxes(fabric, groups)
    shapes = {arrange(fabric, collective, algorithm, group)[1]: group for group in unlike}
    if len({shape.grid for shape in shapes}) > 1:
        raise ConfigError(
            f"strategy.algorithms.{collective} is {algorithm!r}, but the {label} groups lie on grids of"
            f" different shapes: {sorted(shape.grid for shape in shapes)}; choose another algorithm"
        )
    # One channel (group size 1) serves groups inside a server as well, so those that span servers decide.
    several = [shape for shape in shapes if shape.group_size != 1] or list(shapes)
    least = min(several, key=lambda shape: (shape.least_ranks, len(shape.rings)))
    found = schedule_of_ranks(fabric, collective, algorithm, num_bytes, shapes[least])[1]
    if len(shapes) > 1 and len(joined):
        return _along_common_links(fabric, found, joined)
    if found.rings and fabric.config.numberings() and not _are_alike_boxes(fabric, groups):
        return found._replace(rings=())
    return found


def _chosen(
    fabric: Fabric, groups: np.ndarray, collective: str, num_bytes: int, *, joined: np.ndarray, is_limited: bool
) -> str:
    """Return the algorithm that "auto" takes. Args: joined: ``_on_direct_links`` of the groups."""
    names = None
    if not _are_alike_boxes(fabric, groups):
        names = [name for name in algorithm_names(collective) if not needs_grid(collective, name)]
    if len(joined) > 1:
        names = _that_run(fabric, collective, names or algorithm_names(collective), joined)
    return default_algorithm(fabric, collective, num_bytes, groups[0], has_few_peers=is_limited, allowed=names)


def _on_direct_links(fabric: Fabric, groups: np.ndarray) -> np.ndarray:
    """Return a group of each arrangement of direct links between ranks, the first one last; none with servers' own."""
    is_searched = groups.shape[1] <= MOST_RANKS and not fabric.config.has_direct_links
    if not (is_searched and are_joined(fabric, groups[0])):
        return groups[:0]
    rates = np.stack([direct_links(fabric, group).ravel() for group in groups])
    return groups[np.sort(np.unique(rates, axis=0, return_index=True)[1])[::-1]]


def _that_run(fabric: Fabric, collective: str, names: Sequence[str], groups: np.ndarray) -> list[str] | None:
    """Return those of the algorithms that have routes in every group, along links of all; None if there is none."""

    def runs(name: str) -> bool:
        try:
            schedule = arrange(fabric, collective, name, groups[0])[1]
            schedule_costs(fabric, _along_common_links(fabric, schedule, groups), groups)
        except NoRouteError:
            return False
        return True

    known = [name for name in names if all(is_tuned(fabric, collective, name, group) for group in groups)]
    return [name for name in known if runs(name)] or None


def _along_common_links(fabric: Fabric, schedule: ScheduleKey, groups: np.ndarray) -> ScheduleKey:
    """Return a schedule whose rings, or trees, run along links that every group has."""
    if schedule.rings:
        return schedule._replace(rings=direct_rings(fabric, groups))
    if schedule.trees:
        return schedule._replace(trees=spanning_trees(fabric, schedule.collective, groups))
    return schedule


def _are_alike_boxes(fabric: Fabric, groups: np.ndarray) -> bool:
    sides = boxes_of(fabric, groups)[1]
    return bool(sides.all() and (sides == sides[0]).all())


def _unlike_boxes(fabric: Fabric, groups: np.ndarray) -> np.ndarray:
    """Return a group of each shape of box, those that fill none among them."""
    first = np.unique(boxes_of(fabric, groups)[1], axis=0, return_index=True)[1]
    return groups[np.sort(first)[::-1]]


def _unlike(fabric: Fabric, groups: np.ndarray, is_model: bool) -> np.ndarray:
    """Return groups of which no two stand alike on servers, the first one last.

    Model: with direct links inside servers the places of the ranks count, elsewhere only which of them share a server.
    Args: is_model: of an algorithm to which servers count that share a NIC among their accelerators.
    """
    nics = fabric.config.nics_per_server
    if nics == 1 and is_model:
        nics = fabric.config.accelerators_per_server
    if nics == 1:
        return groups[:1]
    servers = groups // nics
    stand = servers - servers[:, :1]
    if fabric.config.has_direct_links:
        stand = np.concatenate([stand, groups % nics], axis=1)
    first = np.unique(stand, axis=0, return_index=True)[1]
    return groups[np.sort(first)[::-1]]


def schedules_of(plan: PlanData, volumes: "Volumes") -> dict[tuple[str, str, int], ScheduleKey]:
    """Return what every collective, by (group, name, bytes), runs on the plan's machine, "auto" resolved."""
    keys = dict.fromkeys((label, name, size) for label, _, name, size in volumes.collectives)
    return {key: schedule_of(plan, *key) for key in keys}


def rank_orders(
    plan: "PlacedJob", label: str, schedules: dict[tuple[str, str, int], ScheduleKey], stage: int | None = None
) -> np.ndarray:
    """Return the accelerators of groups in the order in which schedules number them, int array (groups, ranks).

    Model: the plan's rank order; row-major on the fabric's grid if an algorithm of the groups needs one, else server by
        server where a server has a NIC for each rank.
    Args: schedules: of the plan. stage: only groups whose first rank runs that stage, which speaks for them.
    """
    sets = plan.group_set(label)
    rows = sets.members if stage is None else sets.members[plan.stage_of[sets.members[:, 0]] == stage]
    groups = plan.devices[rows]
    fabric = plan.machine.fabric
    if any(key.grid for (of_label, _, _), key in schedules.items() if of_label == label):
        return in_grid_order(fabric, groups)
    return in_server_order(fabric, groups)


@dataclass(frozen=True, slots=True)
class Volumes:
    """What the devices of every stage send in one iteration.

    sends: (group, stage, peer's rank less the own) -> bytes. collectives: (group, stage, collective, bytes of one) ->
    how many; those of groups that span stages count at the stage of their first rank.
    """

    sends: dict[tuple[str, int, int], int]
    collectives: dict[tuple[str, int, str, int], int]


class _StageTasks(Protocol):
    """A class of devices: its number, templates and program."""

    @property
    def index(self) -> int: ...
    @property
    def templates(self) -> dict[str, tuple[Task, ...]]: ...
    @property
    def program(self) -> Program: ...


class PlacedTasks(Protocol):
    """What a plan, or a job of a task graph, says of its tasks."""

    @property
    def stages(self) -> Sequence[_StageTasks]: ...
    @property
    def stage_of(self) -> np.ndarray: ...
    @property
    def groups(self) -> Sequence[GroupSet]: ...
    def group_set(self, label: str) -> GroupSet: ...


class PlacedJob(PlacedTasks, Protocol):
    """What a plan, or a program on a machine, says of where its tasks run."""

    @property
    def machine(self) -> Machine: ...
    @property
    def devices(self) -> np.ndarray: ...


def plan_volumes(plan: PlacedTasks) -> Volumes:
    """Add up the messages and collectives of a plan's templates. Cost: tasks of all templates."""
    sends: Counter[tuple[str, int, int]] = Counter()
    collectives: Counter[tuple[str, int, str, int]] = Counter()
    speakers = {one.label: set(plan.stage_of[one.members[:, 0]].tolist()) for one in plan.groups}
    for stage in plan.stages:
        for name, count in stage.program.counts().items():
            for task in stage.templates[name]:
                if task.kind == "send":
                    sends[task.group, stage.index, task.peer] += count * task.num_bytes
                elif task.kind == "collective" and stage.index in speakers[plan.group_set(task.group).label]:
                    collectives[task.group, stage.index, task.collective, task.num_bytes] += count
    return Volumes(dict(sends), dict(collectives))


def plan_traffic(plan: PlacedJob, volumes: Volumes, schedules: dict[tuple[str, str, int], ScheduleKey]) -> Traffic:
    """Return what every pair of accelerators exchanges in one iteration.

    Cost: pairs of every group, and stages x peers for messages between stages.
    """
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for (label, stage, peer), size in volumes.sends.items():
        src, dst = pairs_of(plan, label, stage, peer)
        columns.append((plan.devices[src], plan.devices[dst], np.full(src.shape, float(size))))
    for (label, stage, collective, size), count in volumes.collectives.items():
        key = schedules[label, collective, size]
        src_rank, dst_rank, moved = key.traffic(size)
        for members in rank_orders(plan, label, schedules, stage):
            columns.append((members[src_rank], members[dst_rank], moved * float(count)))
    if not columns:
        empty = np.empty(0, np.int64)
        return Traffic.from_messages(plan.machine.num_accelerators, empty, empty, empty.astype(float))
    src, dst, num_bytes = (np.concatenate([column[i] for column in columns]) for i in range(3))
    return Traffic.from_messages(plan.machine.num_accelerators, src, dst, num_bytes)


def pairs_of(plan: PlacedJob, label: str, stage: int, peer: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the devices that run a stage and those they send to, ``peer`` ranks further in the same groups.

    Raises: ConfigError where a group has no such rank.
    """
    members = plan.group_set(label).members
    rows, ranks = np.nonzero(plan.stage_of[members] == stage)
    targets = ranks + peer
    if not len(rows) or targets.min() < 0 or targets.max() >= members.shape[1]:
        raise ConfigError(f"a task of stage {stage} has peer {peer:+d} in groups {label!r}, which have no such rank")
    return members[rows, ranks], members[rows, targets]
