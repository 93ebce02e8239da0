"""Rows of ranks as a program of rostam: a document of the format that docs/how-to/my_program.md describes.

Model: a stream's rows follow each other; one that waits for an event, or for a collective on a stream of its own,
names the latest step of the other stream at the record. Kernels that follow each other on a stream are one step. What
the rows refer to in an earlier step of the program is all that lies on that stream before.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.capturing.grouping import GroupSets
from rostam_py.capturing.records import MESSAGES, Kernel, Record, Row
from rostam_py.errors import ConfigError
from rostam_py.programs import Kernel as ProgramKernel
from rostam_py.tracing.aten_kernels import typed_place

COMPUTE = "compute"  # what the default stream is called
FORMAT, VERSION = "rostam-program", 2
_MOST_TOLD = 8  # kernels without a cost that an error lists
Step = dict[str, Any]


class KernelNames:
    """Kernels of all ranks under one name each. used: kernel -> how often ranks of the program launch it."""

    def __init__(self) -> None:
        self._names: dict[tuple[Any, ...], str] = {}
        self._counts: Counter[str] = Counter()
        self.kernels: dict[str, Kernel] = {}
        self.used: Counter[str] = Counter()

    def name_of(self, kernel: Kernel) -> str:
        """Return the name of a kernel."""
        key = kernel.key
        if key not in self._names:
            short = re.sub(r"^aten[.:]+", "", kernel.op)
            self._counts[short] += 1
            self._names[key] = f"{short} {self._counts[short]}"
            self.kernels[self._names[key]] = kernel
        self.used[self._names[key]] += 1
        return self._names[key]

    def records(self, assumed: Sequence[str]) -> dict[str, Any]:
        """Return the kernels as a program has them.

        Args: assumed: ops that are priced by their bytes, with or without their overload.
        Raises: ConfigError for ops that have no cost, each with shapes, count and the line of the program.
        """
        found = {name: _kernel_record(one, _is_assumed(one.op, assumed)) for name, one in self.kernels.items()}
        refused = [name for name, record in found.items() if not _has_cost(record)]
        if refused:
            raise ConfigError(self._words(refused))
        return found

    def _words(self, names: Sequence[str]) -> str:
        lines = [
            f"{self.kernels[name].words}, {self.used[name]} in a step (at {self.kernels[name].source or 'torch'})"
            for name in names[:_MOST_TOLD]
        ]
        more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
        ops = ",".join(dict.fromkeys(self.kernels[name].op for name in names))
        return (
            f"{len(names)} kernels have no cost: {'; '.join(lines)}{more}. --assume-bandwidth {ops} prices them by the"
            " bytes that they read and write, and says so"
        )


def _is_assumed(op: str, assumed: Sequence[str]) -> bool:
    return op in assumed or op.rpartition(".")[0] in assumed


def _has_cost(record: Mapping[str, Any]) -> bool:
    try:
        ProgramKernel(**record)
    except ConfigError:
        return False
    return True


def _kernel_record(kernel: Kernel, is_assumed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"op": kernel.op, "shapes": [list(one) or [1] for one in kernel.shapes if 0 not in one]}
    read, written = kernel.dtypes[: len(kernel.shapes)], kernel.dtypes[len(kernel.shapes) :]
    if kernel.dtypes:
        found["dtype"] = read[_typed(kernel)] if read else written[0]
    if written and written[0] != found["dtype"]:
        found["write_dtype"] = written[0]
    if kernel.writes:
        found["writes"] = [list(one) or [1] for one in kernel.writes if 0 not in one]
    if kernel.is_causal:
        found["is_causal"] = True
    return found | ({"assume": "bandwidth"} if is_assumed else {})


def _typed(kernel: Kernel) -> int:
    """Return the place of the tensor whose type is that of what a kernel reads: most of it has that."""
    place = typed_place(kernel.op, len(kernel.shapes))
    return max(range(len(kernel.shapes)), key=lambda k: math.prod(kernel.shapes[k])) if place is None else place


@dataclass(slots=True)
class _Stream:
    """A stream of a role. last: its latest step. pending: steps that its next one waits for. is_open: kernels join."""

    last: int | None = None
    pending: set[int] = field(default_factory=set)
    is_open: bool = False


class RoleWriter:
    """Writes the steps of one rank."""

    def __init__(self, record: Record, sets: GroupSets, kernels: KernelNames) -> None:
        self.steps: list[Step] = []
        self._record, self._sets, self._kernels = record, sets, kernels
        self._streams: dict[str, _Stream] = {}
        self._events: dict[int, int] = {}
        self._joined: dict[int, int] = {}  # communication -> step
        self._channels: Counter[tuple[str, str, int]] = Counter()
        self._is_optimizer = False

    def write(self) -> list[Step]:
        """Return the steps."""
        rows = self._record.rows
        place = 0
        while place < len(rows):
            batch = self._batch_at(rows, place)
            if batch:
                self._write_batch(batch)
                place += len(batch)
                continue
            kind, stream, what = rows[place]
            self._write_row(kind, stream, what)
            place += 1
        return self.steps

    def _write_row(self, kind: str, stream: int, what: Any) -> None:
        if kind == "kernel":
            self._write_kernel(stream_name(stream), self._kernels.name_of(self._record.kernels[what]))
        elif kind == "comm":
            self._write_communication(what, stream)
        elif kind == "record":
            self._events[what] = self._point(stream_name(stream))
        elif kind == "wait":
            self._wait(stream_name(stream), self._event(what))
        elif kind == "join":
            self._wait(stream_name(stream), self._end_of(what))
        elif kind == "host":
            self._host_waits(stream, what)
        elif kind in ("optimizer", "optimizer_end"):
            self._is_optimizer = kind == "optimizer"
            for one in self._streams.values():
                one.is_open = False

    def _stream(self, name: str) -> _Stream:
        return self._streams.setdefault(name, _Stream())

    def _add(self, name: str, step: Step, after: Sequence[int] = ()) -> int:
        """Add a step to a stream, behind what the stream waits for."""
        stream = self._stream(name)
        waits = sorted((stream.pending | set(after)) - {stream.last})
        if waits:
            step["after"] = waits
        stream.pending = set()
        stream.is_open = False
        stream.last = len(self.steps)
        self.steps.append(step)
        return stream.last

    def _write_kernel(self, name: str, kernel: str) -> None:
        stream = self._stream(name)
        if stream.is_open and stream.last == len(self.steps) - 1 and not stream.pending:
            self.steps[-1]["kernels"].append(kernel)
            return
        step: Step = {"kind": "compute", "kernels": [kernel]} | _on(name)
        self._add(name, step | ({"is_optimizer": True} if self._is_optimizer else {}))
        stream.is_open = True

    def _write_communication(self, number: int, stream: int) -> None:
        one = self._record.communications[number]
        issuing = stream_name(stream)
        label = self._sets.label_of(self._record, one["group"])
        if one["kind"] in MESSAGES:
            step = {"kind": one["kind"], "group": label, **self._message(one, label)}
            own = f"{label} {step['peer']:+d}"
        else:
            step = {"kind": "collective", "collective": one["kind"], "group": label, **_bytes(one)}
            own = label
        if one["is_own"]:
            self._joined[number] = self._add(own, step, [self._point(issuing)])
        else:
            self._joined[number] = self._add(issuing, step | {"stream": issuing})

    def _batch_at(self, rows: Sequence[Row], place: int) -> list[Row]:
        """Return the messages of the batch that begins at a row, none if it begins none."""
        found: list[Row] = []
        for row in rows[place:]:
            one = self._record.communications[row[2]] if row[0] == "comm" else None
            if one is None or not one["batch"]:
                break
            if found and one["batch"] != self._record.communications[found[0][2]]["batch"]:
                break
            found.append(row)
        return found if len(found) > 1 else []

    def _write_batch(self, rows: Sequence[Row]) -> None:
        communications = [self._record.communications[what] for _, _, what in rows]
        label = self._sets.label_of(self._record, communications[0]["group"])
        messages = [{"kind": one["kind"], **self._message(one, label)} for one in communications]
        step: Step = {"kind": "batch", "group": label, "messages": messages}
        index = self._add(label, step, [self._point(stream_name(rows[0][1]))])
        self._joined |= {what: index for _, _, what in rows}

    def _message(self, one: Mapping[str, Any], label: str) -> Step:
        """Return an end of a message: both ends count those of a direction in the same order."""
        offset = self._record.peer_offset(dict(one))
        way = offset if one["kind"] == "send" else -offset
        key = (label, one["kind"], way)
        self._channels[key] += 1
        return {"channel": f"{way:+d} number {self._channels[key]}", "num_bytes": one["num_bytes"], "peer": offset}

    def _point(self, name: str) -> int:
        """Return the step behind which a stream is now; a wait of no time where it has none, or waits for others."""
        stream = self._stream(name)
        if stream.last is None or stream.pending:
            return self._add(name, {"kind": "wait"} | _on(name))
        stream.is_open = False
        return stream.last

    def _event(self, event: int) -> int:
        if event not in self._events:
            self._events[event] = self._point(stream_name(self._record.event_streams.get(event, 0)))
        return self._events[event]

    def _end_of(self, number: int) -> int:
        if number not in self._joined:  # of an earlier step of the program
            one = self._record.communications[number]
            self._joined[number] = self._point(self._sets.label_of(self._record, one["group"]))
        return self._joined[number]

    def _wait(self, name: str, step: int) -> None:
        stream = self._stream(name)
        if stream.last != step:
            stream.pending.add(step)
            stream.is_open = False

    def _host_waits(self, stream: int, event: int) -> None:
        if event != -1:
            name, after = COMPUTE, [self._event(event)]
        elif stream == -1:
            name = COMPUTE
            after = [one.last for one in self._streams.values() if one.last is not None]
        else:
            name, after = stream_name(stream), []
        self._add(name, {"kind": "wait", "host": True} | _on(name), after)


def stream_name(number: int) -> str:
    """Return what a stream is called: the default one "compute", others by their number."""
    return f"stream {number}" if number else COMPUTE


def _on(name: str) -> Step:
    return {} if name == COMPUTE else {"stream": name}


def _bytes(one: Mapping[str, Any]) -> Step:
    if one["send_bytes"] is not None:
        return {"send_bytes": one["send_bytes"]}
    return {"num_bytes": one["num_bytes"]} | ({"root": one["root"]} if one["root"] else {})


def group_records(sets: GroupSets) -> dict[str, Any]:
    """Return the process groups as a program has them."""
    return {
        label: {"kind": one.kind, "ranks": [written_ranks(ranks) for ranks in one.ranks]}
        for label, one in sets.sets.items()
    }


def written_ranks(ranks: Sequence[int]) -> list[int | str]:
    """Return ranks as a person writes them: those that follow each other as one text."""
    return list(_runs(ranks))


def _runs(ranks: Sequence[int]) -> Iterator[int | str]:
    first = 0
    for k in range(1, len(ranks) + 1):
        if k == len(ranks) or ranks[k] != ranks[k - 1] + 1:
            yield ranks[first] if k - first == 1 else f"{ranks[first]}-{ranks[k - 1]}"
            first = k
