"""Forwards and backwards of two micro-batches as one: part by part in turn, so that rows of experts travel meanwhile.

Model: where a program runs a forward and then a backward of an earlier micro-batch, each is cut in front of the kernels
that wait for rows of experts; their parts take turns on the device, spread evenly where they are not equally many, the
backward's first. What a part sends, it sends behind its kernels as before, while the other's next part computes. Rows
whose numbers the host reads (Task.is_routed) the forward sends behind the kernels of the backward's next part: the host
launches these first, so that the device has work while it waits (TransformerLayerSchedulePlan.run: mlp.backward of the
one, then moe_dispatch.forward of the other, whose token_dispatch waits for the copy of numbers that post_attn began).
DualPipe also has a pair await all its messages, and send what it makes when it is done.
Source: Megatron-Core's overlap_moe_expert_parallel_comm (its combined_1f1b schedule), DeepSeek-V3's overlapped pairs
(arXiv 2412.19437, section 3.2.1), _forward_backward_chunk in dualpipe/dualpipev.py of deepseek-ai/DualPipe. Ignores
that copies take multiprocessors, and weight gradients put off behind them.
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
    in_turn = [(side, part) for _, side, part in sorted(parts, key=lambda one: one[:2])]
    for side, part in _held_up(in_turn, forward, backward, is_exchange):
        name, ahead, tasks = each[side]
        for index in part:
            place[side][index] = len(turns)
            deps = tuple(place[side][dep] for dep in tasks[index].deps)
            turns.append(Turn(replace(tasks[index], deps=deps), name, index, ahead))
    return turns


def one_behind_the_other(pair: Pair, forward: Sequence[Task], backward: Sequence[Task]) -> list[Turn]:
    """Return the tasks of a pair, the forward's first."""
    turns = [Turn(task, pair.forward, index, pair.ahead) for index, task in enumerate(forward)]
    for index, task in enumerate(backward):
        deps = tuple(len(forward) + dep for dep in task.deps)
        turns.append(Turn(replace(task, deps=deps), pair.backward, index, 0))
    return turns


def with_joint_messages(turns: Sequence[Turn]) -> list[Turn]:
    """Return a pair's tasks with its receipts in front of all else, and its sends, and what awaits them, at the end."""
    first, rest, ends = list[int](), list[int](), list[int]()
    for place, turn in enumerate(turns):
        awaits_send = not set(ends).isdisjoint(turn.task.deps)
        where = first if turn.task.kind == "recv" else ends if turn.task.kind == "send" or awaits_send else rest
        where.append(place)
    order = [*first, *rest, *ends]
    place_of = {place: at for at, place in enumerate(order)}
    computes = [place for place in rest if turns[place].task.kind == "compute"]
    found = []
    for place in order:
        task = turns[place].task
        more = first if place == computes[0] else computes[-1:] if task.kind == "send" else []
        deps = tuple(sorted({place_of[dep] for dep in (*task.deps, *more)}))
        found.append(replace(turns[place], task=replace(task, deps=deps)))
    return found


def _held_up(
    in_turn: Sequence[tuple[int, list[int]]],
    forward: Sequence[Task],
    backward: Sequence[Task],
    is_exchange: Callable[[Task], bool],
) -> list[tuple[int, list[int]]]:
    """Return parts, (0 of the backward or 1, tasks), with a forward's routed exchanges behind the backward's kernels.

    They move from the end of their part into the backward's next one, in front of the first exchange there, and with
    them what is behind them in their part and needs them, or travels as well. Behind a last backward's part none moves.
    """
    found: list[tuple[int, list[int]]] = []
    held: list[int] = []
    for at, (side, part) in enumerate(in_turn):
        if side == 0:
            first = next((k for k, index in enumerate(part) if is_exchange(backward[index])), len(part))
            found += [(0, part[:first]), (1, held), (0, part[first:])] if held else [(0, part)]
            held = []
            continue
        if at + 1 < len(in_turn) and in_turn[at + 1][0] == 0:
            held = _routed(part, forward, is_exchange)
        found.append((1, [index for index in part if index not in held]))
    return found


def _routed(part: Sequence[int], tasks: Sequence[Task], is_exchange: Callable[[Task], bool]) -> list[int]:
    """Return a part's routed exchanges, exchanges behind them and what needs either."""
    found: list[int] = []
    for index in part:
        task = tasks[index]
        if task.is_routed or (found and (is_exchange(task) or not set(found).isdisjoint(task.deps))):
            found.append(index)
    return found


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
