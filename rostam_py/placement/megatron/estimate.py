"""Estimate a plan's iteration time without simulating it.

Model: every template is run once through its own dependencies over one compute stream and one stream an axis, each
collective taking its alpha-beta time on the real routes (``AxisCosts``). The pipeline then plays whole templates:
an instance starts when its stage is free and its messages have come, and keeps its inner times. Where tp and dp
collectives, or gathers of weights and reductions of gradients, overlap on one link, the overlap counts for both. What a
micro-batch still reduces when the next one begins is in its way; stages that reduce behind every micro-batch share
links throughout, each to the extent of its own share. Ignores other sharing of links, that collectives of other kinds
may hold up those of the next instance, and stragglers within a stage.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from rostam_py.costs.power import level_w, power_model
from rostam_py.fabrics.fabric import Fabric
from rostam_py.placement.axis_costs import ALL_STAGES, AxisCosts
from rostam_py.placement.megatron.played_pipeline import NEVER, Lag, Pipeline, TemplateTiming
from rostam_py.placement.placer import Estimate
from rostam_py.placement.schedule import stage_program
from rostam_py.plan import Plan, Program, Stage, Task
from rostam_py.plan.phases import BACKWARD, FORWARD, chunk_of, is_first, is_last, phase_of, template_name
from rostam_py.plan.strategy_names import SCHEDULES
from rostam_py.plan.work import launch_bound_s


@dataclass(frozen=True, slots=True)
class _Row:
    """One task, ready to be played: stream 0 is compute, others by process group and peer."""

    kind: str
    stream: int
    deps: tuple[int, ...]
    duration_s: float
    group: str
    collective: str
    num_bytes: int
    channel: str
    peer: int


# Longer than any template takes; differences of times near it are exact to 0.2 ps.
_LONG_S = 1e3

_MEETING = "collective"
_SENT = {"all_reduce": 2.0}  # bytes that a rank sends for each of a collective (MODEL A4), 1 of others

_Span = tuple[float, float, _Row]  # a collective: begin, end, task


@dataclass(slots=True)
class _Streams:
    """Where streams stand when a template begins at 0: when each is free, and the latest of the state's collectives."""

    free: list[float]
    latest: dict[int, _Span] = field(default_factory=dict)

    def pass_time(self, seconds: float) -> None:
        """Let the next template begin so much later."""
        self.free[:] = [max(0.0, end - seconds) for end in self.free]
        self.latest = {s: (start - seconds, end - seconds, row) for s, (start, end, row) in self.latest.items()}


@dataclass(frozen=True, slots=True)
class CompiledStage:
    """A stage's templates as rows, kernel times added up.

    compute_s: of one iteration. seconds, watts: of its kernels in one, above idle, float arrays (kernels,).
    """

    templates: dict[str, tuple[_Row, ...]]
    num_streams: int
    compute_s: float
    seconds: np.ndarray
    watts: np.ndarray


def compile_stages(plan: Plan) -> list[CompiledStage]:
    """Return the plan's stages with kernel times added up; they depend on no fabric."""
    return [_compile_stage(stage) for stage in plan.stages]


def _compile_stage(stage: Stage) -> CompiledStage:
    streams: dict[str, int] = {}
    templates = {}
    for name, tasks in stage.templates.items():
        templates[name] = tuple(_row(task, streams) for task in tasks)
    work = {name: sum(row.duration_s for row in rows) for name, rows in templates.items()}
    counts = stage.program.counts()
    compute_s = sum(work[name] * count for name, count in counts.items())
    drawn: dict[float, float] = {}  # by what is drawn: repeated blocks draw the same
    for name, count in counts.items():
        for kernel in (one for task in stage.templates[name] for one in task.kernels):
            drawn[kernel.watts] = drawn.get(kernel.watts, 0.0) + count * kernel.duration_s
    seconds, watts = np.array(list(drawn.values())), np.array(list(drawn))
    return CompiledStage(templates, 1 + len(streams), compute_s, seconds, watts)


def _row(task: Task, streams: dict[str, int]) -> _Row:
    stream = 0
    if task.kind in ("collective", "send"):
        key = task.group if task.kind == "collective" else f"send {task.peer}"
        stream = streams.setdefault(key, 1 + len(streams))
    return _Row(
        task.kind, stream, task.deps, task.duration_s, task.group, task.collective, task.num_bytes, task.channel,
        task.peer,
    )  # fmt: skip


def estimate_plan(plan: Plan, costs: AxisCosts, stages: list[CompiledStage] | None = None) -> Estimate:
    """Return the estimated steady-state iteration time: at least what the busiest host takes to launch it.

    Args: costs: of the plan on its fabric. stages: what ``compile_stages`` returned, to be shared between fabrics.
    Cost: tasks of all templates, plus the instances that ``Pipeline`` plays.
    """
    compiled = compile_stages(plan) if stages is None else stages
    strategy = plan.strategy
    clock = _Clock(plan.machine.launch_latency_s, plan.machine.min_kernel_s, costs)
    own = _slowdowns(plan)
    slow = _at_power(plan, clock, compiled, own)
    compute = max(stage.compute_s * factor for stage, factor in zip(compiled, own, strict=True))
    launched_s = launch_bound_s(plan.stages, plan.machine.host_costs)
    if len(compiled) == 1 and plan.strategy.state_sharding.reduces_every_microbatch:
        return Estimate(max(launched_s, clock.play_program(plan.stages[0].program, compiled[0], slow[0])), compute)

    group = strategy.rules.microbatch_group_size

    def program(stage: int, num_microbatches: int) -> Program:
        made = stage_program(
            strategy.schedule,
            stage,
            len(compiled),
            num_microbatches,
            strategy.virtual_stages,
            strategy.num_ahead,
            group=group,
        )
        for name in filter(is_first, compiled[stage].templates):
            made = made.with_first(template_name(FORWARD, chunk_of(name)), name)
        return made

    timings = clock.play_stages(compiled, slow)
    least = SCHEDULES.get(strategy.schedule).least_microbatches(len(compiled))
    seconds = Pipeline(program, timings, costs, least, group or len(compiled)).iteration_s(plan.num_microbatches)
    return Estimate(max(launched_s, seconds), compute)


def micro_batch_s(plan: Plan, costs: AxisCosts | None, stages: list[CompiledStage]) -> float:
    """Return the time of one forward and one backward of an unpipelined plan [s]; kernels alone without ``costs``."""
    often = {name: rows for name, rows in stages[0].templates.items() if not (is_first(name) or is_last(name))}
    rows = list(often.values())
    if costs is None:
        return sum(row.duration_s for template in rows for row in template)
    clock = _Clock(plan.machine.launch_latency_s, plan.machine.min_kernel_s, costs)
    return sum(clock.play(0, template, stages[0].num_streams, 1.0).compute_s for template in rows)


def stage_times(plan: Plan, costs: AxisCosts, stage: CompiledStage) -> tuple[float, float, float]:
    """Return what an unpipelined plan takes for a forward, for a backward, and for its optimizer's kernels [s]."""
    clock = _Clock(plan.machine.launch_latency_s, plan.machine.min_kernel_s, costs)
    last = template_name(BACKWARD, is_last=True)
    forward, backward = (
        clock.play(0, stage.templates[n], stage.num_streams, 1.0).compute_s for n in (FORWARD, BACKWARD)
    )
    work = {name: sum(row.duration_s for row in stage.templates[name]) for name in (BACKWARD, last)}
    return forward, backward, max(0.0, work[last] - work[BACKWARD])


class MegatronEstimator:
    """Estimates of a plan of stages; its kernel times are added up once."""

    def __init__(self, plan: Plan) -> None:
        self.stages = compile_stages(plan)

    def estimate(self, plan: Plan, fabric: Fabric, costs: AxisCosts) -> Estimate:
        """Return the estimated iteration; the fabric's share is in ``costs``."""
        return estimate_plan(plan, costs, self.stages)

    def micro_batch_s(self, plan: Plan, costs: AxisCosts | None) -> float:
        """Return the time of one forward and one backward of an unpipelined plan [s]; kernels alone without costs."""
        return micro_batch_s(plan, costs, self.stages)


def _slowdowns(plan: Plan, of: Callable[[Iterable[float]], float] = max) -> list[float]:
    """Return how many times as long a stage's devices compute. Args: of: all that the devices of a stage take."""
    slow = plan.machine.slow
    if not slow:
        return [1.0] * len(plan.stages)
    ids = plan.accelerators
    return [of([1 / slow.get(int(a), 1.0) for a in ids[:, s, :].ravel()]) for s in range(ids.shape[1])]


def _at_power(plan: Plan, clock: "_Clock", compiled: list[CompiledStage], slow: list[float]) -> list[float]:
    """Return how many times as long stages compute where they are held at their accelerators' limit of power.

    Model: as ``simulation/power.py`` holds them, but that all of a stage's kernels are slowed by their mean, and that
        waits are those of templates played by themselves; first and last micro-batches wait as those between them.
    """
    model = power_model(plan.machine.device)
    if model is None or not any(one.watts.any() for one in compiled):
        return slow
    held, means = [], _slowdowns(plan, fmean)
    for number, (stage, factor) in enumerate(zip(compiled, slow, strict=True)):
        # What a slow device computes longer counts as waits, as it does in a simulation: the mean of the stage's.
        waits_s, sent = (means[number] - 1) * stage.compute_s, 0.0
        for name, count in plan.stages[number].program.counts().items():
            usual = template_name(phase_of(name), chunk_of(name))
            rows = stage.templates.get(usual, stage.templates[name])
            played_s = clock.play(number, rows, stage.num_streams, factor).compute_s
            waits_s += count * max(0.0, played_s - factor * sum(row.duration_s for row in rows))
            sent += count * sum(_SENT.get(row.collective, 1.0) * row.num_bytes for row in rows if row.kind == _MEETING)
        level = level_w(model, stage.seconds, stage.watts, waits_s, model.messages_j(sent))
        longer = 1.0
        if level is not None:
            factors = np.maximum(1.0, stage.watts / level) ** model.exponent
            longer = float((stage.seconds * factors).sum() / stage.seconds.sum())
        held.append(factor * longer)
    return held


class _Clock:
    """Play the tasks of a template over their streams."""

    def __init__(self, launch_s: float, min_collective_s: float, costs: AxisCosts) -> None:
        self.launch_s, self.min_collective_s, self.costs = launch_s, min_collective_s, costs
        # Of collectives of the state, by group: 0 with the stage's own groups only, 1 with equal ones of all.
        self._crowding: dict[str, float] = {}

    def play_stages(self, compiled: list[CompiledStage], slow: list[float]) -> list[dict[str, TemplateTiming]]:
        """Return the timings of all stages' templates.

        Model: stages that reduce or gather every micro-batch share links throughout: of each other stage's time there
            as much as this stage needs itself is in its way.
        """
        num_stages, result = len(compiled), []
        often, last = (
            [self._loads_s(s, stage, is_of_last) for s, stage in enumerate(compiled)] for is_of_last in (False, True)
        )
        last_s = [sum(of.values()) for of in last]
        for s, stage in enumerate(compiled):
            timings: dict[str, TemplateTiming] = {}
            others = [load for of in often[:s] + often[s + 1 :] for load in of.values()]
            met = {group: sum(min(own, load) for load in others) / own for group, own in often[s].items()}
            for name, rows in stage.templates.items():
                self._crowding = {group: share / max(1, num_stages - 1) for group, share in met.items()}
                if num_stages > 1 and is_last(name):
                    base = template_name(phase_of(name), chunk_of(name))
                    crowd = self._crowd(s, rows, timings[base].compute_s, last_s)
                    self._crowding = dict.fromkeys(last[s], crowd)
                timings[name] = self.play(s, rows, stage.num_streams, slow[s])
                if num_stages > 1 and often[s]:
                    timings[name].lags = self._lags(s, stage, rows, slow[s])
            result.append(timings)
        return result

    def _loads_s(self, stage: int, compiled: CompiledStage, is_of_last: bool) -> dict[str, float]:
        """Return group -> how long a stage's collectives of the state take alone: of the last backward, or of others.

        Each group is a stream of its own, so that several of a stage are in the way of others at once.
        """
        loads: dict[str, float] = {}
        for name, rows in compiled.templates.items():
            for row in rows if is_last(name) == is_of_last and not is_first(name) else ():
                if self._is_of_state(row):
                    seconds = self.costs.collective_s(stage, row.group, row.collective, row.num_bytes)
                    loads[row.group] = loads.get(row.group, 0.0) + seconds
        return loads

    def _lags(self, stage: int, compiled: CompiledStage, rows: tuple[_Row, ...], slow: float) -> dict[int, Lag]:
        """Return what of a template waits for streams of the state that templates before have left busy.

        Model: the template is played once more behind a stream that is busy for longer than anything else takes, and
            once more with it, where their collectives share links.
        """
        everything = [row for of in compiled.templates.values() for row in of if self._is_of_state(row)]
        streams = sorted({row.stream for row in everything})
        lags = {}
        for busy in streams:
            left = [_LONG_S if s == busy else 0.0 for s in range(compiled.num_streams)]
            behind = self.play(stage, rows, compiled.num_streams, slow, _Streams(left.copy()))
            lags[busy] = lag = Lag(
                _lag(behind.compute_s), [_lag(end) for end in behind.streams_s],
                [_lag(ready) for *_, ready in behind.sends],
            )  # fmt: skip
            if len(streams) > 1:
                largest = max((row for row in everything if row.stream == busy), key=lambda row: row.num_bytes)
                span = (_LONG_S - self._duration(stage, largest, slow), _LONG_S, largest)  # the last of what is left
                beside = self.play(stage, rows, compiled.num_streams, slow, _Streams(left, {busy: span}))
                lag.beside_s = beside.compute_s - behind.compute_s if lag.compute_s == NEVER else 0.0
                lag.busy_s = beside.streams_s[busy] - behind.streams_s[busy]
        return lags

    def play_program(self, program: Program, compiled: CompiledStage, slow: float) -> float:
        """Return how long a single stage takes for an iteration whose templates leave collectives to the next ones.

        Model: of a stretch that repeats the second time stands for all that follow; the iteration begins on free
            streams, and the optimizer, behind all reductions, ends it.
        """
        self._crowding, streams, total = {}, _Streams([0.0] * compiled.num_streams), 0.0
        for segment in program.segments:
            for repetition in range(min(segment.count, 2)):
                times = segment.count - 1 if repetition else 1
                for name, _ in segment.entries:
                    took = self.play(0, compiled.templates[name], compiled.num_streams, slow, streams).compute_s
                    total += times * took
        return total

    def _crowd(self, stage: int, rows: tuple[_Row, ...], stagger_s: float, loads_s: list[float]) -> float:
        """Return how far a stage's gradients share links with those of the stages behind it.

        Model: stages reach their last backward one ``stagger_s`` after another, the last stage first; what the k
            stages behind have not sent by then is in the way: T = max(own, (k + 1) / P all - k stagger). One with less
            to send than this stage counts for less than one of the k + 1.
        """
        sizes = [(row.group, row.collective, row.num_bytes) for row in rows if self._is_of_state(row)]
        own, whole = (sum(self.costs.collective_s(s, *one) for one in sizes) for s in (stage, ALL_STAGES))
        if whole <= own:
            return 0.0
        behind = loads_s[stage + 1 :]
        shares = 1 + sum(min(1.0, load / loads_s[stage]) for load in behind)
        left = shares / len(loads_s) * whole - len(behind) * stagger_s
        return min(1.0, max(0.0, (left - own) / (whole - own)))

    def play(
        self, stage: int, rows: tuple[_Row, ...], num_streams: int, slow: float, streams: _Streams | None = None
    ) -> TemplateTiming:
        """Return when the parts of a template end, begun at 0.

        Args: streams: what the templates before have left, changed to what this one leaves; by default all are free.
        """
        free = [0.0] * num_streams if streams is None else streams.free
        ends = [0.0] * len(rows)
        timing = TemplateTiming(0.0, 0.0, [], [])
        needed: dict[int, float] = {}
        spans: dict[str, list[_Span]] = {"tp": []}
        latest = {} if streams is None else streams.latest
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
                timing.sends.append((row.channel, row.peer, row.num_bytes, start))
            elif self._is_of_state(row):
                end = self._share(stage, (start, end, row), latest, free)
                ends[index] = free[row.stream] = end
                latest[row.stream] = (start, end, row)
                spans.setdefault(row.group, []).append((start, end, row))
            elif row.group in spans:
                spans[row.group].append((start, end, row))
        longer = self._contention_s(stage, spans)
        timing.compute_s, timing.end_s = free[0] + longer, max(free) + longer
        timing.streams_s = [end + longer for end in free]
        timing.recvs = [(rows[i].channel, rows[i].peer, max(0.0, start)) for i, start in needed.items()]
        if streams is not None:
            streams.pass_time(free[0])
        return timing

    def _duration(self, stage: int, row: _Row, slow: float) -> float:
        if row.kind == "compute":
            return row.duration_s * slow
        if row.kind == "collective":
            seconds = self.costs.collective_s(stage, row.group, row.collective, row.num_bytes)
            crowding = self._crowding.get(row.group, 0.0)
            if crowding:
                whole = self.costs.collective_s(ALL_STAGES, row.group, row.collective, row.num_bytes)
                seconds += crowding * (whole - seconds)
            return max(seconds, self.min_collective_s)
        _, beta = self.costs.message(stage, stage + row.peer)
        return beta * row.num_bytes

    def _is_of_state(self, row: _Row) -> bool:
        return row.kind == "collective" and self.costs.is_of_state(row.group)

    def _share(self, stage: int, span: _Span, latest: dict[int, _Span], free: list[float]) -> float:
        """Return when a collective of the state ends concurrently with other streams, which end later for it too."""
        start, end, row = span
        alone = end - start
        for stream, (since, until, other) in latest.items():
            overlap = min(alone, until - start)
            if stream == row.stream or overlap <= 0:
                continue
            one, two = ((of.group, of.collective, of.num_bytes) for of in (row, other))
            slower = overlap * self.costs.contention(
                stage, (*one, row.num_bytes / alone), (*two, other.num_bytes / (until - since))
            )
            end += slower
            free[stream] += slower
        return end

    def _contention_s(self, stage: int, spans: dict[str, list[_Span]]) -> float:
        """Return how much longer the template takes because tp and the state's collectives overlap on shared links."""
        tp = spans.pop("tp")
        total = 0.0
        for of in spans.values():
            overlap = _overlap_s(tp, of)
            if not overlap:
                continue
            loads = []
            for one in (tp, of):
                largest = max((row for *_, row in one), key=lambda row: row.num_bytes)
                rate = sum(row.num_bytes for *_, row in one) / sum(end - start for start, end, _ in one)
                loads.append((largest.group, largest.collective, largest.num_bytes, rate))
            total += overlap * self.costs.contention(stage, *loads)
        return total


def _lag(end_s: float) -> float:
    """Return how long behind the busy stream something ends that was played with it."""
    return end_s - _LONG_S if end_s >= _LONG_S else NEVER


def _overlap_s(one: list[_Span], other: list[_Span]) -> float:
    """Return how long spans of both lists run at once; each list is in order and does not overlap itself."""
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        total += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total
