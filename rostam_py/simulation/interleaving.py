"""Forwards and backwards of two micro-batches that run part by part in turn, so that rows of experts travel meanwhile.

Model: where a program runs a forward and then a backward of an earlier micro-batch, each is cut in front of the kernels
that wait for rows of experts; their parts take turns on the device, spread evenly where they are not equally many, the
backward's first. What a part sends, it sends behind its kernels as before, while the other's next part computes.
Source: Megatron-Core's overlap_moe_expert_parallel_comm (its combined_1f1b schedule), DeepSeek-V3's overlapped pairs
(arXiv 2412.19437, section 3.2.1). Ignores that copies take multiprocessors, and weight gradients put off behind them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rostam_py.plan.pairs import Pair
from rostam_py.plan.tasks import Task


@dataclass(frozen=True, slots=True)
class Turn:
    """A task of a pair. template: it is of. index: there. ahead: micro-batches of its own ahead of the pair's."""

    task: Task
    template: str
    index: int
    ahead: int


def take_turns(
    pair: Pair, forward: Sequence[Task], backward: Sequence[Task], is_exchange: Callable[[Task], bool]
) -> list[Turn]:
    """Return the tasks of a pair in the order in which the device comes to them.

    Args: is_exchange: tells exchanges of experts' rows.
    """
    each = ((pair.backward, 0, backward), (pair.forward, pair.ahead, forward))
    parts = [
        (at / len(found), side, part)
        for side, (_, _, tasks) in enumerate(each)
        for found in [_parts(tasks, is_exchange)]
        for at, part in enumerate(found)
    ]
    turns: list[Turn] = []
    place: tuple[dict[int, int], dict[int, int]] = {}, {}
    for _, side, part in sorted(parts, key=lambda one: one[:2]):
        name, ahead, tasks = each[side]
        for index in part:
            place[side][index] = len(turns)
            deps = tuple(place[side][dep] for dep in tasks[index].deps)
            turns.append(Turn(replace(tasks[index], deps=deps), name, index, ahead))
    return turns


def _parts(tasks: Sequence[Task], is_exchange: Callable[[Task], bool]) -> list[list[int]]:
    """Return the tasks in stretches, a new one in front of kernels that wait for an exchange which none waited for."""
    parts: list[list[int]] = [[]]
    awaited: set[int] = set()
    for index, task in enumerate(tasks):
        if task.kind == "compute":
            found = {dep for dep in task.deps if is_exchange(tasks[dep])} - awaited
            if found:
                parts.append([])
                awaited |= found
        parts[-1].append(index)
    return parts
