"""Play a pipeline of timed templates: whole instances, message by message.

Legend: m = micro-batches, P = stages.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rostam_py.errors import InternalError
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.plan.program import Program

# A long pipeline is played with this many micro-batches beyond its depth; the rest follows at the pace of the last.
_STEADY_MICROBATCHES = 8


NEVER = float("-inf")  # in a ``Lag``: does not wait for the stream


@dataclass(slots=True)
class Lag:
    """How long after a busy stream comes free a template's parts end: its compute, its streams, its sends; or NEVER.

    beside_s: how much later compute ends that overlaps with the busy stream, for collectives that share links with it.
    busy_s: how much longer they keep it busy.
    """

    compute_s: float
    streams_s: list[float]
    sends_s: list[float]
    beside_s: float = 0.0
    busy_s: float = 0.0


@dataclass(slots=True)
class TemplateTiming:
    """A template played from 0 with all messages there: when its streams are free, and what it sends and needs.

    compute_s: compute stream free. end_s: everything done. sends: (tensor, peer offset, bytes, ready).
    recvs: (tensor, peer offset, when first needed). streams_s: when each stream is free. lags: of streams that
    templates before it may have left busy.
    """

    compute_s: float
    end_s: float
    sends: list[tuple[str, int, int, float]]
    recvs: list[tuple[str, int, float]]
    streams_s: list[float] = field(default_factory=list)
    lags: dict[int, Lag] = field(default_factory=dict)


@dataclass(slots=True)
class _Step:
    """A template ready to be played: channels number (receiving stage, tensor).

    recvs: (channel, when first needed). sends: (channel, ready, seconds on the port, alpha). streams_s, lags: as of the
    timing.
    """

    compute_s: float
    recvs: list[tuple[int, float]]
    sends: list[tuple[int, float, float, float]]
    streams_s: list[float]
    lags: dict[int, Lag]


class Pipeline:
    """Stages that run their programs of templates in order.

    Model: an instance starts when its stage is free and its messages have come, and keeps its template's inner times,
        unless streams that instances before it have left busy hold up a part of it: that ends its lag after them.
        A stage sends one message after another through its port.
    Args:
        program: (stage, micro-batches) -> what the stage runs.
        timings: template name -> timing, of every stage.
        least: micro-batches that the program takes.
        group: whole groups of micro-batches go through it, and what is over.
    """

    def __init__(
        self, program: Callable[[int, int], Program], timings: list[dict[str, TemplateTiming]], costs: AxisCosts,
        least: int = 1, group: int | None = None,
    ) -> None:  # fmt: skip
        self.program, self.num_stages, self.least = program, len(timings), least
        self.group = group or len(timings)
        self._channels: dict[tuple[int, str], int] = {}
        self._steps = [
            {name: self._step(s, timing, costs) for name, timing in templates.items()}
            for s, templates in enumerate(timings)
        ]

    def _step(self, stage: int, timing: TemplateTiming, costs: AxisCosts) -> _Step:
        sends = []
        for tensor, offset, num_bytes, ready in timing.sends:
            alpha, beta = costs.message(stage, stage + offset)
            sends.append((self._channel(stage + offset, tensor), ready, beta * num_bytes, alpha))
        recvs = [(self._channel(stage, tensor), need) for tensor, _, need in timing.recvs]
        return _Step(timing.compute_s, recvs, sends, timing.streams_s, timing.lags)

    def _channel(self, receiver: int, tensor: str) -> int:
        return self._channels.setdefault((receiver, tensor), len(self._channels))

    def iteration_s(self, num_microbatches: int) -> float:
        """Return the steady-state time of an iteration [s].

        Model: one iteration is played; in the steady state none is shorter than what a stage takes from its first
            forward to its optimizer's end. Beyond P + 8 micro-batches, rounded up to whole groups less what is over, it
            is linear in m, from two plays that are a group apart.
        Cost: templates of P stages and P + 8 micro-batches and two groups, twice.
        """
        if self.num_stages == 1:
            counts = self.program(0, num_microbatches).counts()
            return sum(self._steps[0][name].compute_s * count for name, count in counts.items())
        over = num_microbatches % self.group
        fewest = max(self.least, self.num_stages + _STEADY_MICROBATCHES)
        few = over + self.group * -(-(fewest - over) // self.group)
        if num_microbatches <= few + self.group:
            return self._play(num_microbatches)
        seconds = self._play(few)
        pace = (self._play(few + self.group) - seconds) / self.group
        return seconds + (num_microbatches - few) * pace

    def _play(self, num_microbatches: int) -> float:
        """Play one iteration; return its steady-state time."""
        programs = [
            [(self._steps[s][name], m) for name, m in self.program(s, num_microbatches)] for s in range(self.num_stages)
        ]
        arrivals: list[list[float | None]] = [[None] * num_microbatches for _ in self._channels]
        players = [_Player(program, arrivals) for program in programs]
        left = sum(len(program) for program in programs)
        while left:
            moved = sum(player.advance() for player in players)
            if not moved:
                raise InternalError("a pipeline program awaits itself")
            left -= moved
        return max(player.free - player.begun for player in players)


class _Player:
    """One stage at work."""

    def __init__(self, program: list[tuple[_Step, int]], arrivals: list[list[float | None]]) -> None:
        self.program, self.arrivals = program, arrivals
        self.position = 0
        self.free = self.port_free = self.begun = 0.0
        self.busy: dict[int, float] = {}  # stream -> when what instances before have left on it ends

    def advance(self) -> int:
        """Run instances until one awaits a message that has not been sent; return how many ran."""
        program, arrivals, first = self.program, self.arrivals, self.position
        while self.position < len(program):
            step, microbatch = program[self.position]
            start = self.free
            for channel, need in step.recvs:
                arrival = arrivals[channel][microbatch]
                if arrival is None:
                    return self.position - first
                if arrival - need > start:
                    start = arrival - need
            if self.position == 0:
                self.begun = start
            held: list[tuple[float, Lag]] = []
            later = 0.0
            for stream, end in self.busy.items():
                if end > start:
                    lag = step.lags[stream]
                    later += min(lag.beside_s, end - start)
                    held.append((end + min(lag.busy_s, end - start), lag))
            for position, (channel, ready, seconds, alpha) in enumerate(step.sends):
                leaves = start + ready + later
                for end, lag in held:
                    if end + lag.sends_s[position] > leaves:
                        leaves = end + lag.sends_s[position]
                if leaves < self.port_free:
                    leaves = self.port_free
                self.port_free = leaves + seconds
                arrivals[channel][microbatch] = leaves + seconds + alpha
            self.free = max([start + step.compute_s + later, *(end + lag.compute_s for end, lag in held)])
            self.busy = {
                stream: max(
                    [start + step.streams_s[stream] + later, *(end + lag.streams_s[stream] for end, lag in held)]
                )
                for stream in step.lags
            }
            self.position += 1
        return self.position - first
