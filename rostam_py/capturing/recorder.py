"""Recorder: what one rank sends to its device in the order in which it does, as rows; off outside the recorded steps.

Rows, each a tuple whose first entry is its kind; streams, events, collectives and kernels are numbers:
    ("kernel", stream, kernel)              kernel: of ``kernels``
    ("comm", stream, communication)         of ``communications``; one on a stream of its own waits for the stream
    ("record", stream, event)               an event is recorded
    ("wait", stream, event)                 the stream waits for it
    ("join", stream, communication)         the stream waits for a collective on a stream of its own
    ("host", stream, event)                 the host waits: for an event, else (-1) for a stream, else (-1) for all
    ("region", stream, name), ("region_end", stream, "")   a compiled region
    ("optimizer", stream, name), ("optimizer_end", stream, "")   an optimizer's step
"""

import sys
import sysconfig
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rostam_py.capturing.streams import FakeDevice

Row = tuple[Any, ...]
_TORCH = "/site-packages/torch/"
_PACKAGES = "/site-packages/"
_OURS = str(Path(__file__).parent)
_PYTHON = sysconfig.get_path("stdlib")


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What tells kernels apart.

    op: as torch prints it. shapes: of tensors that it reads. writes: of those that it makes, or changes. dtypes: of
    both, in this order.
    arguments: flags and lists of integers that say what it does, a stride for example. is_causal: attention under a
    causal mask.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    writes: tuple[tuple[int, ...], ...]
    arguments: tuple[Any, ...] = ()
    is_causal: bool = False


@dataclass(frozen=True, slots=True)
class Communication:
    """A collective or message. kind: as rostam calls it. num_bytes: MODEL A4. group: number of the process group.

    is_own: it runs on the communicator's stream. peer: rank of the other end of a message. root: place in the group of
    one that has a root. send_bytes: to each place of an unequal all-to-all. batch: messages that start together share
    its number, 0 alone.
    """

    kind: str
    num_bytes: int
    group: int
    is_own: bool = False
    peer: int | None = None
    root: int = 0
    send_bytes: tuple[int, ...] | None = None
    tag: int = 0
    batch: int = 0


@dataclass(slots=True)
class Recorder:
    """Rows of the steps that are recorded. is_on: rows are kept.

    kernels: what rows of kind "kernel" number; sources: the line of the program at which each is met first.
    event_streams: on which each event was recorded last.
    communications: all of them, also those that no row is kept of. unknown: reads of unknown values, by line.
    """

    device: FakeDevice
    is_on: bool = False
    rows: list[Row] = field(default_factory=list)
    kernels: dict[KernelKey, int] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    communications: list[Communication] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    event_streams: dict[int, int] = field(default_factory=dict)

    def kernel(self, key: KernelKey) -> None:
        """Note a kernel on the current stream."""
        number = self.kernels.get(key)
        if number is None:
            number = self.kernels[key] = len(self.kernels)
            self.sources.append(program_line())
        self.rows.append(("kernel", self.device.stream_id, number))

    def communicate(self, one: Communication) -> int:
        """Note a collective or message; returns its number."""
        number = len(self.communications)
        self.communications.append(one)
        if self.is_on:
            self.rows.append(("comm", self.device.stream_id, number))
        return number

    def join(self, number: int) -> None:
        """Note that the current stream waits for a collective."""
        if self.is_on and self.communications[number].is_own:
            self.rows.append(("join", self.device.stream_id, number))

    def told(self, kind: str, event: int, stream: int) -> None:
        """Note what the device tells of events and streams."""
        if kind == "record":
            self.event_streams[event] = stream
        if self.is_on:
            self.rows.append((kind, stream, event))

    def host_waits(self) -> None:
        """Note that the host reads a value that the current stream makes."""
        if self.is_on:
            self.rows.append(("host", self.device.stream_id, -1))

    def mark(self, kind: str, name: str) -> None:
        """Note where a compiled region or an optimizer's step begins or ends."""
        if self.is_on:
            self.rows.append((kind, self.device.stream_id, name))

    def read_unknown(self) -> None:
        """Note that the program reads a value that depends on data."""
        if self.is_on:
            self.unknown[program_line()] += 1


def program_line() -> str:
    """Return "file:line" of the innermost frame that is the program's."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_program(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def is_program(file: str) -> bool:
    """Return whether a file is neither torch's, rostam's nor the interpreter's."""
    if _PACKAGES in file:
        return _TORCH not in file
    return not file.startswith((_OURS, _PYTHON, "<"))
