"""Collectives and traffic of a plan: which algorithm runs over which ranks, and what every pair exchanges."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from rostam_py.collectives.predicted_time import choose_algorithm
from rostam_py.collectives.rank_groups import group_size, needs_grid, place_on_grid, unit_size
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic, schedule_traffic
from rostam_py.plan.data import PlanData

# Collective, algorithm, ranks, ranks of a "server" (hierarchical), (rows, columns) of the ranks: what a schedule takes.
ScheduleKey = tuple[str, str, int, int, tuple[int, int]]


def schedule_of(plan: PlanData, label: str, collective: str, num_bytes: int) -> ScheduleKey:
    """Return the schedule that a collective of ``num_bytes`` over a plan's groups runs.

    Model: the strategy's algorithm; "auto" takes the one with the least predicted time for these bytes over the
        first of the groups, on circuit-switched fabrics the ring, which needs one circuit.
    Raises: ConfigError for an algorithm that needs a grid where the groups fill none.
    """
    groups = plan.members(label)
    ranks, fabric = groups[0], plan.machine.fabric
    algorithm = plan.algorithms.get(collective, "ring")
    if algorithm == "auto":
        algorithm = _fastest(fabric, collective, num_bytes, ranks)
    unit = group_size(len(ranks), _density(plan, label, fabric)) if algorithm == "hierarchical" else 1
    grid = (0, 0)
    if needs_grid(collective, algorithm) and len(ranks) > 1:
        shapes = {place_on_grid(fabric, group, None).shape for group in groups}
        if len(shapes) > 1:
            raise ConfigError(
                f"strategy.algorithms.{collective} is {algorithm!r}, but the {label} groups lie on grids of"
                f" different shapes: {sorted(shapes)}; choose another algorithm"
            )
        rows, columns = shapes.pop()
        grid = (int(rows), int(columns))
    return collective, algorithm, len(ranks), unit, grid


def _density(plan: PlanData, label: str, fabric: Fabric) -> int:
    """Return how many ranks of a group are on one unit of consecutive accelerators, were devices mapped in order."""
    members = plan.group_set(label).members[0]
    stride = int(members[1] - members[0]) if len(members) > 1 else 1
    return max(1, unit_size(fabric) // max(1, stride))


def _fastest(fabric: Fabric, collective: str, num_bytes: int, ranks: np.ndarray) -> str:
    if fabric.is_circuit_switched:
        return {"all_to_all": "direct", "broadcast": "binomial_tree"}.get(collective, "ring")
    return choose_algorithm(fabric, collective, num_bytes, ranks)


def schedules_of(plan: PlanData, volumes: "Volumes") -> dict[tuple[str, str, int], ScheduleKey]:
    """Return what every collective, by (group, name, bytes), runs on the plan's machine, "auto" resolved."""
    keys = dict.fromkeys((label, name, size) for label, _, name, size in volumes.collectives)
    return {key: schedule_of(plan, *key) for key in keys}


def rank_orders(
    plan: PlanData, label: str, schedules: dict[tuple[str, str, int], ScheduleKey], stage: int | None = None
) -> np.ndarray:
    """Return the accelerators of groups in the order in which schedules number them, int array (groups, ranks).

    Model: the plan's rank order; row-major on the fabric's grid if an algorithm of the groups needs one.
    Args: schedules: of the plan. stage: only groups whose first rank runs that stage, which speaks for them.
    """
    sets = plan.group_set(label)
    rows = sets.members if stage is None else sets.members[plan.stage_of[sets.members[:, 0]] == stage]
    groups = plan.devices[rows]
    if not any(key[4] != (0, 0) for (of_label, _, _), key in schedules.items() if of_label == label):
        return groups
    placed = [place_on_grid(plan.machine.fabric, group, None).reshape(-1) for group in groups]
    return np.stack(placed) if placed else groups


@dataclass(frozen=True, slots=True)
class Volumes:
    """What the devices of every stage send in one iteration.

    sends: (group, stage, peer's rank less the own) -> bytes. collectives: (group, stage, collective, bytes of one) ->
    how many; those of groups that span stages count at the stage of their first rank.
    """

    sends: dict[tuple[str, int, int], int]
    collectives: dict[tuple[str, int, str, int], int]


def plan_volumes(plan: PlanData) -> Volumes:
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


def plan_traffic(plan: PlanData, volumes: Volumes, schedules: dict[tuple[str, str, int], ScheduleKey]) -> Traffic:
    """Return what every pair of accelerators exchanges in one iteration.

    Cost: pairs of every group, and stages x peers for messages between stages.
    """
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for (label, stage, peer), size in volumes.sends.items():
        src, dst = pairs_of(plan, label, stage, peer)
        columns.append((plan.devices[src], plan.devices[dst], np.full(src.shape, float(size))))
    for (label, stage, collective, size), count in volumes.collectives.items():
        key = schedules[label, collective, size]
        src_rank, dst_rank, moved = schedule_traffic(*key[:4], size, key[4])
        for members in rank_orders(plan, label, schedules, stage):
            columns.append((members[src_rank], members[dst_rank], moved * float(count)))
    if not columns:
        empty = np.empty(0, np.int64)
        return Traffic.from_messages(plan.machine.num_accelerators, empty, empty, empty.astype(float))
    src, dst, num_bytes = (np.concatenate([column[i] for column in columns]) for i in range(3))
    return Traffic.from_messages(plan.machine.num_accelerators, src, dst, num_bytes)


def pairs_of(plan: PlanData, label: str, stage: int, peer: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the devices that run a stage and those they send to, ``peer`` ranks further in the same groups.

    Raises: ConfigError where a group has no such rank.
    """
    members = plan.group_set(label).members
    rows, ranks = np.nonzero(plan.stage_of[members] == stage)
    targets = ranks + peer
    if not len(rows) or targets.min() < 0 or targets.max() >= members.shape[1]:
        raise ConfigError(f"a task of stage {stage} has peer {peer:+d} in groups {label!r}, which have no such rank")
    return members[rows, ranks], members[rows, targets]
