"""Estimate a plan's iteration time without simulating it.

Model: every template is run once through its own dependencies over one compute stream and one stream an axis, each
collective taking its alpha-beta time on the real routes (``AxisCosts``). The pipeline then plays whole templates:
an instance starts when its stage is free and its messages have come, and keeps its inner times. Ignores that
axes share links, that an instance's collectives may hold up the next one's, and stragglers within a stage.

Legend: m = micro-batches, P = stages.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rostam_py.placement import Plan, Stage, Task
from rostam_py.placement.schedule import stage_program
from rostam_py.searching.axis_costs import AxisCosts
from rostam_py.units import parse_time

# A long pipeline is played with this many micro-batches beyond its depth; the rest follows in proportion.
_EXTRA_MICROBATCHES = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """A plan's estimated iteration. compute_s: kernels of the busiest stage alone, a lower bound."""

    iteration_time_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class _Row:
    """One task, ready to be played: stream 0 is compute, others by axis."""

    kind: str
    stream: int
    deps: tuple[int, ...]
    duration_s: float
    axis: str
    collective: str
    num_bytes: int
    tensor: str
    offset: int


@dataclass(frozen=True, slots=True)
class CompiledStage:
    """A stage's templates as rows, kernel times added up. compute_s: of one iteration."""

    templates: dict[str, tuple[_Row, ...]]
    num_streams: int
    compute_s: float


@dataclass(slots=True)
class _Timing:
    """A template played from 0 with all messages there: when its streams are free, and what it sends and needs.

    compute_s: compute stream free. end_s: everything done. sends: (tensor, peer offset, bytes, ready).
    recvs: (tensor, peer offset, when first needed).
    """

    compute_s: float
    end_s: float
    sends: list[tuple[str, int, int, float]]
    recvs: list[tuple[str, int, float]]


def compile_stages(plan: Plan) -> list[CompiledStage]:
    """Return the plan's stages with kernel times added up; they depend on no fabric."""
    return [_compile_stage(stage) for stage in plan.stages]


def _compile_stage(stage: Stage) -> CompiledStage:
    streams: dict[str, int] = {}
    templates = {}
    for name, tasks in stage.templates.items():
        templates[name] = tuple(_row(task, streams) for task in tasks)
    work = {name: sum(row.duration_s for row in rows) for name, rows in templates.items()}
    return CompiledStage(templates, 1 + len(streams), sum(work[name] for name, _ in stage.program))


def _row(task: Task, streams: dict[str, int]) -> _Row:
    stream = 0
    if task.kind in ("collective", "send"):
        key = task.axis if task.kind == "collective" else f"send {task.stage_offset}"
        stream = streams.setdefault(key, 1 + len(streams))
    return _Row(
        task.kind, stream, task.deps, task.duration_s, task.axis, task.collective, task.num_bytes, task.tensor,
        task.stage_offset,
    )  # fmt: skip


def estimate_plan(plan: Plan, costs: AxisCosts, stages: list[CompiledStage] | None = None) -> Estimate:
    """Return the estimated steady-state iteration time.

    Args: costs: of the plan on its fabric. stages: what ``compile_stages`` returned, to be shared between fabrics.
    Cost: tasks of all templates, plus P x min(m, 3 P) instances.
    """
    compiled = compile_stages(plan) if stages is None else stages
    slow = _slowdowns(plan)
    strategy = plan.strategy
    clock = _Clock(parse_time(strategy.launch_latency), parse_time(strategy.min_kernel_time), costs)
    timings = [
        {name: clock.play(s, rows, stage.num_streams, slow[s]) for name, rows in stage.templates.items()}
        for s, stage in enumerate(compiled)
    ]
    pipeline = _Pipeline(plan, timings, costs)
    compute = max(stage.compute_s * factor for stage, factor in zip(compiled, slow, strict=True))
    return Estimate(_extrapolated(pipeline.iteration_s, plan.num_microbatches, len(compiled)), compute)


def _slowdowns(plan: Plan) -> list[float]:
    slow = plan.machine.slow
    if not slow:
        return [1.0] * len(plan.stages)
    ids = plan.accelerators
    return [max(1 / slow.get(int(a), 1.0) for a in ids[:, s, :].ravel()) for s in range(ids.shape[1])]


def _extrapolated(iteration_s: Callable[[int], float], num_microbatches: int, num_stages: int) -> float:
    """Return iteration_s(m), for large m from two smaller ones: it is linear there."""
    few = 2 * num_stages + _EXTRA_MICROBATCHES
    more = few + num_stages
    if num_microbatches <= more:
        return iteration_s(num_microbatches)
    low, high = iteration_s(few), iteration_s(more)
    return high + (num_microbatches - more) * (high - low) / (more - few)


class _Clock:
    """Play the tasks of a template over their streams."""

    def __init__(self, launch_s: float, min_collective_s: float, costs: AxisCosts) -> None:
        self.launch_s, self.min_collective_s, self.costs = launch_s, min_collective_s, costs

    def play(self, stage: int, rows: tuple[_Row, ...], num_streams: int, slow: float) -> _Timing:
        """Return when the parts of a template end, begun at 0 on free streams."""
        free = [0.0] * num_streams
        ends = [0.0] * len(rows)
        timing = _Timing(0.0, 0.0, [], [])
        needed: dict[int, float] = {}
        for index, row in enumerate(rows):
            if row.kind == "recv":
                needed[index] = -1.0
                continue
            # A dependency that has ended long ago hides the launch; without one it is hidden by the task before.
            ready = max((ends[d] for d in row.deps), default=-self.launch_s)
            start = max(ready + self.launch_s, free[row.stream])
            for d in row.deps:
                if needed.get(d) == -1.0:
                    needed[d] = start - self.launch_s
            ends[index] = end = start + self._duration(stage, row, slow)
            free[row.stream] = end
            if row.kind == "send":
                timing.sends.append((row.tensor, row.offset, row.num_bytes, start))
        timing.compute_s, timing.end_s = free[0], max(free)
        timing.recvs = [(rows[i].tensor, rows[i].offset, max(0.0, start)) for i, start in needed.items()]
        return timing

    def _duration(self, stage: int, row: _Row, slow: float) -> float:
        if row.kind == "compute":
            return row.duration_s * slow
        if row.kind == "collective":
            seconds = self.costs.collective_s(row.axis, row.collective, row.num_bytes)
            return max(seconds, self.min_collective_s)
        _, beta = self.costs.message(stage, stage + row.offset)
        return beta * row.num_bytes


class _Pipeline:
    """Play whole templates of all stages, message by message."""

    def __init__(self, plan: Plan, timings: list[dict[str, _Timing]], costs: AxisCosts) -> None:
        self.plan, self.timings, self.costs = plan, timings, costs

    def iteration_s(self, num_microbatches: int) -> float:
        """Return the time between the ends of a first and a second iteration of so many micro-batches."""
        num_stages = len(self.timings)
        schedule = self.plan.strategy.schedule
        programs = [stage_program(schedule, s, num_stages, num_microbatches) for s in range(num_stages)]
        if num_stages == 1:
            return sum(self.timings[0][name].compute_s for name, _ in programs[0])
        free = [0.0] * num_stages
        ends = []
        for _ in range(2):
            self._play(programs, free)
            ends.append(max(free))
        return ends[1] - ends[0]

    def _play(self, programs: list[tuple[tuple[str, int], ...]], free: list[float]) -> None:
        """Play one iteration; ``free`` is when every stage's compute stream is free, before and after."""
        num_stages = len(programs)
        arrived: dict[tuple[int, str, int], float] = {}  # (stage, tensor, micro-batch) -> time
        wire_free: dict[tuple[int, int], float] = {}
        position = [0] * num_stages
        left = sum(len(program) for program in programs)
        while left:
            before = left
            for s in range(num_stages):
                while position[s] < len(programs[s]):
                    name, microbatch = programs[s][position[s]]
                    timing = self.timings[s][name]
                    if any((s, tensor, microbatch) not in arrived for tensor, _, _ in timing.recvs):
                        break
                    start = free[s]
                    for tensor, _, need in timing.recvs:
                        start = max(start, arrived.pop((s, tensor, microbatch)) - need)
                    free[s] = start + timing.compute_s
                    self._send(s, microbatch, start, timing, arrived, wire_free)
                    position[s] += 1
                    left -= 1
            if left == before:
                raise RuntimeError("unreachable: a pipeline program awaits itself")

    def _send(
        self, stage: int, microbatch: int, start: float, timing: _Timing,
        arrived: dict[tuple[int, str, int], float], wire_free: dict[tuple[int, int], float],
    ) -> None:  # fmt: skip
        for tensor, offset, num_bytes, ready in timing.sends:
            alpha, beta = self.costs.message(stage, stage + offset)
            leaves = max(start + ready, wire_free.get((stage, offset), 0.0)) + beta * num_bytes
            wire_free[stage, offset] = leaves
            arrived[stage + offset, tensor, microbatch] = leaves + alpha
