"""Play a pipeline of timed templates: whole instances, message by message.

Legend: m = micro-batches, P = stages.
"""

from dataclasses import dataclass

from rostam_py.errors import InternalError
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.placement.megatron.templates import FORWARD_FIRST
from rostam_py.placement.schedule import stage_program
from rostam_py.plan.program import Program

# A long pipeline is played with this many micro-batches beyond its depth; the rest follows at the pace of the last.
_STEADY_MICROBATCHES = 8


@dataclass(slots=True)
class TemplateTiming:
    """A template played from 0 with all messages there: when its streams are free, and what it sends and needs.

    compute_s: compute stream free. end_s: everything done. sends: (tensor, peer offset, bytes, ready).
    recvs: (tensor, peer offset, when first needed).
    """

    compute_s: float
    end_s: float
    sends: list[tuple[str, int, int, float]]
    recvs: list[tuple[str, int, float]]


@dataclass(slots=True)
class _Step:
    """A template ready to be played: channels number (receiving stage, tensor).

    recvs: (channel, when first needed). sends: (channel, ready, seconds on the port, alpha).
    """

    compute_s: float
    recvs: list[tuple[int, float]]
    sends: list[tuple[int, float, float, float]]


class Pipeline:
    """Stages that run their programs of templates in order.

    Model: an instance starts when its stage is free and its messages have come, and keeps its template's inner times.
        A stage sends one message after another through its port.
    Args: timings: template name -> timing, of every stage.
    """

    def __init__(self, schedule: str, timings: list[dict[str, TemplateTiming]], costs: AxisCosts) -> None:
        self.schedule, self.num_stages = schedule, len(timings)
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
        return _Step(timing.compute_s, recvs, sends)

    def _channel(self, receiver: int, tensor: str) -> int:
        return self._channels.setdefault((receiver, tensor), len(self._channels))

    def _program(self, stage: int, num_microbatches: int) -> Program:
        program = stage_program(self.schedule, stage, self.num_stages, num_microbatches)
        return program.with_first("forward", FORWARD_FIRST) if FORWARD_FIRST in self._steps[stage] else program

    def iteration_s(self, num_microbatches: int) -> float:
        """Return the steady-state time of an iteration [s].

        Model: one iteration is played; in the steady state none is shorter than what a stage takes from its first
            forward to its optimizer's end. Beyond P + 8 micro-batches a 1F1B pipeline goes on at the pace of its
            first stage; GPipe's is linear in m, from two plays.
        Cost: 2 P min(m, P + 8) instances.
        """
        if self.num_stages == 1:
            program = self._program(0, num_microbatches)
            return sum(self._steps[0][name].compute_s * count for name, count in program.counts().items())
        few = self.num_stages + _STEADY_MICROBATCHES
        if num_microbatches <= few:
            return self._play(num_microbatches)[0]
        seconds, ends = self._play(few)
        if self.schedule == "gpipe":
            pace = (self._play(few + self.num_stages)[0] - seconds) / self.num_stages
        else:  # ends of the first stage's steady backwards: the last half of them
            half = _STEADY_MICROBATCHES // 2
            pace = (ends[_STEADY_MICROBATCHES] - ends[half]) / (_STEADY_MICROBATCHES - half)
        return seconds + (num_microbatches - few) * pace

    def _play(self, num_microbatches: int) -> tuple[float, list[float]]:
        """Play one iteration; return its steady-state time and the ends of the first stage's backwards."""
        programs = [
            [(self._steps[s][name], m) for name, m in self._program(s, num_microbatches)]
            for s in range(self.num_stages)
        ]
        arrivals: list[list[float | None]] = [[None] * num_microbatches for _ in self._channels]
        players = [_Player(program, arrivals) for program in programs]
        left = sum(len(program) for program in programs)
        while left:
            moved = sum(player.advance() for player in players)
            if not moved:
                raise InternalError("a pipeline program awaits itself")
            left -= moved
        ends = [
            end for (step, _), end in zip(programs[0], players[0].ends, strict=True) if step is not programs[0][0][0]
        ]
        return max(player.ends[-1] - player.begun for player in players), ends


class _Player:
    """One stage at work."""

    def __init__(self, program: list[tuple[_Step, int]], arrivals: list[list[float | None]]) -> None:
        self.program, self.arrivals = program, arrivals
        self.position = 0
        self.free = self.port_free = self.begun = 0.0
        self.ends: list[float] = []

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
            for channel, ready, seconds, alpha in step.sends:
                leaves = start + ready
                if leaves < self.port_free:
                    leaves = self.port_free
                self.port_free = leaves + seconds
                arrivals[channel][microbatch] = leaves + seconds + alpha
            self.free = start + step.compute_s
            self.ends.append(self.free)
            self.position += 1
        return self.position - first
