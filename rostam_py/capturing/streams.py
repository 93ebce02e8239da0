"""Streams and events of the fake device, as a program sees them in torch.cuda; the recorder is told what it does.

The current stream is the library's, one for each thread, so that what autograd switches is seen as well.
"""

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import torch

DEFAULT_STREAM = 0
ALL_STREAMS = -1  # of a host that waits for the device
_KINDS = {1: "record", 2: "wait", 3: "host"}  # as fake_device.cpp numbers them
Told = Callable[[str, int, int], None]  # what happened, event, stream


class FakeDevice:
    """The library's side of the fake device: its current stream and device.

    told: is told of "record" (event on stream), "wait" (of a stream for an event), "host" (the host waits for an event,
    or where that is -1 for a stream, -1 for all), and "free" (a block is used on a stream, which no one waits for).
    """

    def __init__(self, library: ctypes.CDLL, num_devices: int, index: int) -> None:
        self._library = library
        self._streams: dict[int, Stream] = {}
        self._stream_numbers = itertools.count(DEFAULT_STREAM)
        self._event_numbers = itertools.count(1)
        self.told: Told = lambda kind, event, stream: None
        self.num_devices = num_devices
        library.rostam_set_num_devices(num_devices)
        library.rostam_set_device(index)
        made = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        self._callback = made(lambda kind, event, stream: self.told(_KINDS[kind], event, stream))  # ctypes keeps none
        library.rostam_set_callback(self._callback)
        Stream.of_device = Event.of_device = StreamContext.of_device = self
        self.default_stream = Stream()

    @property
    def stream_id(self) -> int:
        """Number of the current stream."""
        return int(self._library.rostam_stream())

    @property
    def stream(self) -> "Stream":
        """The current stream."""
        return self._streams[self.stream_id]

    def set_stream(self, stream: "Stream") -> None:
        """Make a stream the current one."""
        self._library.rostam_set_stream(stream.stream_id)

    @property
    def index(self) -> int:
        """Number of the current device."""
        return int(self._library.rostam_device())

    def set_index(self, index: Any) -> None:
        """Make a device the current one. Args: index: a number, a text or a torch.device."""
        if not isinstance(index, int):
            index = torch.device(index).index or 0
        if index >= 0:
            self._library.rostam_set_device(index)

    def add_stream(self, stream: "Stream") -> int:
        """Return the number of a new stream."""
        number = next(self._stream_numbers)
        self._streams[number] = stream
        return number

    def next_event(self) -> int:
        """Return a number for what an event records."""
        return next(self._event_numbers)


class Stream:
    """torch.cuda.Stream."""

    of_device: FakeDevice

    def __init__(self, device: Any = None, priority: int = 0, **others: Any) -> None:
        self.stream_id = self.cuda_stream = self.of_device.add_stream(self)
        self.device_index, self.device_type, self.priority = self.of_device.index, 1, priority

    @property
    def device(self) -> torch.device:
        """The device that it is of."""
        return torch.device("cuda", self.device_index)

    def wait_event(self, event: "Event") -> None:
        """Let what follows on this stream wait for an event; one that was never recorded is over."""
        if event.number is not None:
            self.of_device.told("wait", event.number, self.stream_id)

    def wait_stream(self, stream: "Stream") -> None:
        """Let what follows on this stream wait for what is on another one."""
        self.wait_event(stream.record_event())

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event, a new one by default, behind what is on this stream."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Let the host wait for what is on this stream."""
        self.of_device.told("host", -1, self.stream_id)

    def query(self) -> bool:
        """Say that it is idle."""
        return True

    def is_capturing(self) -> bool:
        """Say that no graph is made of it."""
        return False

    def __enter__(self) -> "Stream":
        self._before = self.of_device.stream
        self.of_device.set_stream(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self.of_device.set_stream(self._before)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return self.stream_id


class Event:
    """torch.cuda.Event. number: of its latest record, None before the first."""

    of_device: FakeDevice

    def __init__(self, *arguments: Any, **others: Any) -> None:
        self.number: int | None = None
        self.device = torch.device("cuda", self.of_device.index)

    def record(self, stream: Stream | None = None) -> "Event":
        """Record it behind what is on a stream, the current one by default."""
        stream = self.of_device.stream if stream is None else stream
        self.number = self.of_device.next_event()
        self.of_device.told("record", self.number, stream.stream_id)
        return self

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream, the current one by default, wait for it."""
        (self.of_device.stream if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        """Let the host wait for it."""
        if self.number is not None:
            self.of_device.told("host", self.number, ALL_STREAMS)

    def query(self) -> bool:
        """Say that it is over."""
        return True

    def elapsed_time(self, end: "Event") -> float:
        """Return a time [ms] that no program should read anything from: nothing runs."""
        return 1.0


class StreamContext:
    """torch.cuda.stream(stream): a stream is the current one inside; None changes nothing."""

    of_device: FakeDevice

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> Stream | None:
        self._before = self.of_device.stream
        if self.stream is not None:
            self.of_device.set_stream(self.stream)
        return self.stream

    def __exit__(self, *error: Any) -> None:
        self.of_device.set_stream(self._before)
