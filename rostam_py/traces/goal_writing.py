"""GOAL written: one text of all ranks, with collectives as the messages of the schedules that are simulated here.

Model: a kernel is a calc of whole nanoseconds, rounded up and at least 1. A step of a schedule waits for what came
    in the step before. Every step of the program ends with one label; that of a wait or a collective is a calc of 0 ns.
Source: the grammar of GOAL as LogGOPSim reads it; the schedules are the core's.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rostam_py.documents import write_text
from rostam_py.errors import ConfigError
from rostam_py.plan.tasks import COMPUTE_STREAM
from rostam_py.plan.traffic import rank_orders
from rostam_py.programs import Collective, Compute, PlacedProgram, Receive, Send
from rostam_py.programs.steps import Step
from rostam_py.traces.picoseconds import whole_ps
from rostam_py.traces.unrolled import Unrolled, unrolled

_MOST_LINES = 2**24
_Messages = list[
    tuple[list[tuple[int, int]], list[tuple[int, int]]]
]  # of each step: sends and receives (place, chunks)


def write_goal(program: PlacedProgram, path: str | Path) -> list[Path]:
    """Write a program on a machine as a GOAL text; return its file.

    Raises: ConfigError for batches, unequal collectives, switches that reduce, and too long a text.
    """
    roles = [unrolled(program, name) for name in program.program.roles]
    groups = _Groups(program)
    tags: dict[str, int] = {}
    lines = [f"num_ranks {program.num_devices}"]
    for rank, role in enumerate(program.stage_of.tolist()):
        lines += ["", f"rank {rank} {{", *_Rank(groups, rank, tags).lines(roles[role]), "}"]
        if len(lines) > _MOST_LINES:
            raise ConfigError(f"the text has more than {_MOST_LINES} lines; export fewer ranks or micro-batches")
    write_text(path, "\n".join(lines) + "\n")
    return [Path(path)]


class _Groups:
    """Ranks of collectives, in the order of schedules, and what each of them sends and receives."""

    def __init__(self, program: PlacedProgram) -> None:
        self.program = program
        rank_of = {device: rank for rank, device in enumerate(program.devices.tolist())}
        self.orders = {
            label: np.vectorize(rank_of.__getitem__)(rank_orders(program, label, program.schedules))
            for label in {label for label, _, _ in program.schedules}
        }
        self._messages: dict[tuple[str, str, int], tuple[int, list[_Messages]]] = {}

    def messages(self, step: Collective) -> tuple[int, list[_Messages]]:
        """Return the bytes of a chunk, and what every place of a group sends and receives in each step."""
        key = (step.group, step.collective, step.size_bytes)
        if key not in self._messages:
            schedule = self.program.schedules[key].schedule()
            steps, ranks = range(schedule.num_steps), range(schedule.num_ranks)
            if any(schedule.region_transfers(rank, k) for k in steps for rank in ranks):
                raise ConfigError(
                    f"{step.words} runs {self.program.schedules[key].algorithm}, where switches reduce or copy, which"
                    " GOAL cannot say; give the step an algorithm such as ring"
                )
            found: list[_Messages] = [[([], []) for _ in steps] for _ in ranks]
            for k in steps:
                _, senders, receivers, chunks = schedule.messages_of(k)
                for source, target, count in zip(senders, receivers, chunks, strict=True):
                    found[source][k][0].append((int(target), int(count)))
                    found[target][k][1].append((int(source), int(count)))
            self._messages[key] = -(-step.size_bytes // max(1, schedule.num_chunks)), found
        return self._messages[key]


class _Rank:
    """Writes one rank's block. tags: number of everything that messages are told by, shared by all ranks."""

    def __init__(self, groups: _Groups, rank: int, tags: dict[str, int]) -> None:
        self.groups, self.rank, self.tags = groups, rank, tags
        self.found: list[str] = []
        self.count = 0
        self.calls: defaultdict[str, int] = defaultdict(int)

    def lines(self, steps: Iterable[Unrolled]) -> list[str]:
        """Return the lines of all steps."""
        ends: list[int] = []
        last: dict[str, int] = {}  # of each stream
        for one in steps:
            stream = _stream(one.step)
            after = {ends[k] for k in one.after} | ({last[stream]} if stream in last else set())
            ends.append(self._step(one, sorted(after)))
            last[stream] = ends[-1]
        return self.found

    def _line(self, words: str, after: Iterable[int]) -> int:
        self.count += 1
        self.found.append(f"l{self.count}: {words}")
        self.found += [f"l{self.count} requires l{one}" for one in after]
        return self.count

    def _step(self, one: Unrolled, after: list[int]) -> int:
        step = one.step
        if isinstance(step, Collective):
            return self._collective(step, after)
        if isinstance(step, Send | Receive):
            groups = self.groups.program.group_set(step.group).members
            row, place = (int(found[0]) for found in (groups == self.rank).nonzero())
            tag = self._tag(f"{step.group} {step.channel}")
            return self._message(
                isinstance(step, Send), step.size_bytes, int(groups[row, place + step.peer]), tag, after
            )
        time_ps = sum(whole_ps(kernel.duration_s) for kernel in one.kernels)
        return self._line(f"calc {max(1, -(-time_ps // 1000)) if isinstance(step, Compute) else 0}", after)

    def _tag(self, key: str) -> int:
        return self.tags.setdefault(key, len(self.tags))

    def _message(self, sends: bool, size: int, peer: int, tag: int, after: Iterable[int]) -> int:
        return self._line(f"{'send' if sends else 'recv'} {size}b {'to' if sends else 'from'} {peer} tag {tag}", after)

    def _collective(self, step: Collective, after: list[int]) -> int:
        order = self.groups.orders[step.group]
        row, place = (int(found[0]) for found in (order == self.rank).nonzero())
        chunk, messages = self.groups.messages(step)
        self.calls[step.group] += 1
        begin, arrived, ends = after, after, []
        for k, (sends, receives) in enumerate(messages[place]):
            tag = self._tag(f"{step.group} call {self.calls[step.group]} step {k}")
            peers = order[row]
            ends += [self._message(True, chunk * n, int(peers[to]), tag, arrived) for to, n in sends]
            came = [self._message(False, chunk * n, int(peers[source]), tag, begin) for source, n in receives]
            arrived = came or arrived
            ends += came
        return self._line("calc 0", ends or after)


def _stream(step: Step) -> str:
    if isinstance(step, Send | Receive):
        return step.stream or f"{step.kind} {step.group} {step.peer}"
    return step.stream or (step.group if isinstance(step, Collective) else COMPUTE_STREAM)
