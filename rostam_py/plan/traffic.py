"""Collectives and traffic of a plan: which algorithm runs over which ranks, and what every pair exchanges.

Legend: ids: accelerators of a plan, int array (D, P, T).
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rostam_py.collectives.predicted_time import choose_algorithm
from rostam_py.collectives.rank_groups import group_size, needs_grid, place_on_grid, unit_size
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic, schedule_traffic

if TYPE_CHECKING:
    from rostam_py.plan.plan import Plan

# Collective, algorithm, ranks, ranks of a "server" (hierarchical), (rows, columns) of the ranks: what a schedule takes.
ScheduleKey = tuple[str, str, int, int, tuple[int, int]]


def schedule_of(plan: "Plan", axis: str, collective: str, num_bytes: int) -> ScheduleKey:
    """Return the schedule that a collective of ``num_bytes`` over a plan's axis runs.

    Model: the strategy's algorithm; "auto" takes the one with the least predicted time for these bytes over the
        first group of the axis, on circuit-switched fabrics the ring, which needs one circuit.
    Raises: ConfigError for an algorithm that needs a grid where the groups fill none.
    """
    ranks = plan.groups(axis)[0]
    fabric = plan.machine.fabric
    algorithm = plan.algorithms.get(collective, "ring")
    if algorithm == "auto":
        algorithm = _fastest(fabric, collective, num_bytes, ranks)
    # Of a unit's consecutive accelerators a group holds as many as its axis is dense there.
    stride = {"tp": 1, "dp": plan.accelerators.shape[1] * plan.accelerators.shape[2]}.get(axis, 1)
    unit = group_size(len(ranks), max(1, unit_size(fabric) // stride)) if algorithm == "hierarchical" else 1
    grid = (0, 0)
    if needs_grid(collective, algorithm) and len(ranks) > 1:
        shapes = {place_on_grid(fabric, group, None).shape for group in plan.groups(axis)}
        if len(shapes) > 1:
            raise ConfigError(
                f"strategy.algorithms.{collective} is {algorithm!r}, but the {axis} groups lie on grids of"
                f" different shapes: {sorted(shapes)}; choose another algorithm"
            )
        rows, columns = shapes.pop()
        grid = (int(rows), int(columns))
    return collective, algorithm, len(ranks), unit, grid


def _fastest(fabric: Fabric, collective: str, num_bytes: int, ranks: np.ndarray) -> str:
    if fabric.is_circuit_switched:
        return {"all_to_all": "direct", "broadcast": "binomial_tree"}.get(collective, "ring")
    return choose_algorithm(fabric, collective, num_bytes, ranks)


def group_order(plan: "Plan", axis: str, group: np.ndarray) -> np.ndarray:
    """Return a group's accelerators in rank order: row-major on the grid if an algorithm of the axis needs one."""
    if any(key[4] != (0, 0) for (of_axis, _, _), key in plan.schedules.items() if of_axis == axis):
        return place_on_grid(plan.machine.fabric, group, None).reshape(-1)
    return group


@dataclass(frozen=True, slots=True)
class Volumes:
    """What the devices of every stage send in one iteration.

    sends: (stage, peer's stage less this one) -> bytes. collectives: (axis, stage, collective, bytes of one) -> how
    many; a tied set counts at its first stage.
    """

    sends: dict[tuple[int, int], int]
    collectives: dict[tuple[str, int, str, int], int]


def plan_volumes(plan: "Plan") -> Volumes:
    """Add up the messages and collectives of a plan's templates. Cost: tasks of all templates."""
    sends: Counter[tuple[int, int]] = Counter()
    collectives: Counter[tuple[str, int, str, int]] = Counter()
    for stage in plan.stages:
        for name, count in Counter(name for name, _ in stage.program).items():
            for task in stage.templates[name]:
                if task.kind == "send":
                    sends[stage.index, task.stage_offset] += count * task.num_bytes
                elif task.kind == "collective" and _speaks_for(plan, task.axis, stage.index):
                    collectives[task.axis, stage.index, task.collective, task.num_bytes] += count
    return Volumes(dict(sends), dict(collectives))


def plan_traffic(plan: "Plan") -> Traffic:
    """Return what every pair of accelerators exchanges in one iteration.

    Cost: pairs of every group, and stages x peers for messages between stages.
    """
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    ids = plan.accelerators
    for (stage_index, offset), size in plan.volumes.sends.items():
        src, dst = ids[:, stage_index].reshape(-1), ids[:, stage_index + offset].reshape(-1)
        columns.append((src, dst, np.full(src.shape, float(size))))
    for (axis, stage_index, collective, size), count in plan.volumes.collectives.items():
        key = plan.schedules[axis, collective, size]
        src_rank, dst_rank, moved = schedule_traffic(*key[:4], size, key[4])
        for group in plan.groups(axis, stage_index):
            members = group_order(plan, axis, group)
            columns.append((members[src_rank], members[dst_rank], moved * float(count)))
    if not columns:
        empty = np.empty(0, np.int64)
        return Traffic.from_messages(plan.machine.num_accelerators, empty, empty, empty.astype(float))
    src, dst, num_bytes = (np.concatenate([column[i] for column in columns]) for i in range(3))
    return Traffic.from_messages(plan.machine.num_accelerators, src, dst, num_bytes)


def _speaks_for(plan: "Plan", axis: str, stage: int) -> bool:
    """Tell whether a stage's tasks stand for the groups of an axis: of a tied set, which spans stages, the first."""
    return not axis.startswith("tied") or plan.tied[int(axis[4:])][0] == stage
