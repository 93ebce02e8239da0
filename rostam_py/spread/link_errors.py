"""How far times of communication may be off, from what the constants of link classes miss of rows not fitted.

Example:
    residual_of("nvlink4", "all_reduce").high       # by what share the true time may lie above the predicted one
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from rostam_py.costs.limits import Residual
from rostam_py.fabrics.link_classes import HeldOutCollective, held_out_of
from rostam_py.plan.tasks import Task
from rostam_py.simulation.job_result import JobResult

# Tables know these collectives; others go by messages, or as the halves of an all_reduce.
_MEASURED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_AS = {"broadcast": "all_gather", "reduce": "reduce_scatter"}


@cache
def residual_of(name: str, collective: str) -> Residual | None:
    """Return the error of a link class, over all of its tables' rows that were not fitted; None where none measured it.

    Model: means over rows. Rivals, tables that measured the same links by other means, are the spread.
    Args: name: of the class. collective: anything without a table of its own is a point-to-point message.
    """
    known = _AS.get(collective, collective if collective in _MEASURED else "permute")
    stated = [one for one in held_out_of(name) if one.collective == known]
    own, rivals = ([one for one in stated if one.is_rival == is_rival] for is_rival in (False, True))
    # Constants of messages are fitted on a rival's permutes: what they miss there is their residual.
    own, rivals = (own, rivals) if own else (rivals, [])
    if not own:
        return None
    return Residual(
        _mean(own, lambda one: one.signed), _mean(own, lambda one: one.absolute),
        _mean(rivals, lambda one: one.absolute) if rivals else 0.0,
    )  # fmt: skip


def _mean(stated: list[HeldOutCollective], value: Callable[[HeldOutCollective], float]) -> float:
    rows = [one.num_even + one.num_held_out for one in stated]
    return sum(value(one) * count for one, count in zip(stated, rows, strict=True)) / sum(rows)


def communication_on_path(result: JobResult) -> list[tuple[str, Residual, bool, float]]:
    """Return the communication on the critical path that has residuals: family, residual, is it verified, seconds.

    Model: inside a server a collective has the residual of its links' class; between servers no table measured it, so
        that it is taken to be as wrong, unverified. On ideal links there is nothing to be wrong about.
    """
    classes = result.fabric.config.link_classes
    if classes.are_ideal:
        return []
    found = []
    for task, seconds in result.communication_on_path():
        collective = task.collective or task.kind
        residual = residual_of(classes.inside.name, collective) or residual_of(classes.inside.name, "all_reduce")
        if residual is not None:
            inside = _is_inside(result, task)
            where = classes.inside.name if inside else "between servers"
            found.append((f"{collective}, {where}", residual, inside, seconds))
    return found


def _is_inside(result: JobResult, task: Task) -> bool:
    """Return whether every group that a task communicates in stays on one server."""
    accelerators = result.job.devices[result.job.group_set(task.group).members]
    servers = accelerators // result.fabric.config.accelerators_per_server
    return bool(np.all(servers == servers[:, :1]))
