"""JobResult: what one job of a simulated task graph took, and why."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rostam_py.documents import write_whole
from rostam_py.errors import ConfigError, InternalError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.html import html_bars, html_pairs, html_table
from rostam_py.plan.algorithms import collectives_of
from rostam_py.plan.group_kinds import group_kind
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.plan.traffic import plan_volumes
from rostam_py.plan.work import seconds_by
from rostam_py.simulation.arrows import message_arrows
from rostam_py.simulation.changes import Change, Move, changes_of
from rostam_py.simulation.compile import GraphNames
from rostam_py.simulation.critical_path import CriticalPath, Segment
from rostam_py.simulation.graph_job import GraphJob
from rostam_py.simulation.link_counters import LinkCounter
from rostam_py.simulation.messages import COLUMNS, AxisMessages, axis_messages, hidden_times, message_rows
from rostam_py.simulation.network import link_name
from rostam_py.simulation.outage_log import OutageLog
from rostam_py.simulation.picoseconds import PS
from rostam_py.simulation.reconfigurations import Reconfigurations
from rostam_py.simulation.restarts import Restart
from rostam_py.simulation.stage_memory import StageMemory
from rostam_py.simulation.timeline import write_perfetto
from rostam_py.units import format_time

RESULT_VERSION = 1


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """The collectives of one kind in one iteration, as the ranks in them see them: a rank's time is join to end.

    count: ranks x collectives. mean_s, longest_s: of a rank's time [s]. rate_bytes_per_s: bytes that ranks send in
    collectives over the time that they spend in them.
    """

    count: int
    mean_s: float
    longest_s: float
    rate_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Load of one directed link in an iteration.

    name: "source -> destination" vertices. num_bytes: over one plane. busy_fraction: share of the iteration in
    which it carried a flow. utilization: num_bytes / (bandwidth x iteration).
    """

    link: int
    name: str
    num_bytes: float
    busy_fraction: float
    utilization: float


@dataclass(frozen=True, kw_only=True, repr=False)
class JobResult:
    """Times, traffic and their reasons for one job of a task graph.

    iteration_time_s: steady state, the last interval between optimizer-step ends [s] (MODEL B9); of a run that is not
        steady a mean, and so are the breakdown, times on the critical path and loads of links: of the shortest cycle of
        iterations that it went through twice, the first left out, to 0.1% each, or of all iterations but the first.
    first_iteration_s: [s]. iteration_times_s: all simulated ones. is_steady: two successive ones differ by < 0.1%.
    num_averaged: of the last iterations, whose mean an iteration's figures are; 1 where it is steady.
    breakdown: mean over devices [s] of "compute", "launch", "bubble", waits for the "host" (where hosts take time to
        launch kernels) and exposed communication by kind of groups ("tp", "dp", ...); sums to iteration_time_s.
        compute_by_family divides its "compute" further.
    breakdown_by_device: float array (num_devices, len(breakdown)) [s]; rows sum to the iteration.
    bytes_sent, bytes_received, num_messages: of one iteration by kind of groups, all devices and planes.
    collective_times: by kind of groups, of every iteration; kinds without collectives are left out.
    link_bytes, link_busy_s: per directed link of one plane, an iteration's (of the first job, all jobs' bytes).
    checks: conservation checks that ran, all passed.
    restarts: where controllers cut and restarted the job; iterations that were done again count as they ended last.
    controllers: active controllers, each its name and parameters; events come first, as link_bandwidth.
    reconfigurations: of the circuits, the whole run; None where they are set once, or there are none.
    link_counters: load of the busiest links over time, the whole run; none without a timeline.
    moves: messages under way that took other links after a failure or repair, the whole run.
    outage_log: when the job was down or waited for standing messages, and the failures behind it.
    """

    job: GraphJob = field(repr=False)
    fabric: Fabric
    fidelity: str
    routing: str
    seed: int
    iteration_times_s: tuple[float, ...]
    is_steady: bool
    num_averaged: int
    breakdown: dict[str, float]
    breakdown_by_device: np.ndarray
    devices: np.ndarray
    bytes_sent: dict[str, int]
    bytes_received: dict[str, int]
    num_messages: dict[str, int]
    collective_times: dict[str, tuple[CollectiveTimes, ...]]
    link_bytes: np.ndarray
    link_busy_s: np.ndarray
    num_simulated_devices: int
    checks: tuple[str, ...]
    restarts: tuple[Restart, ...]
    notes: tuple[str, ...]
    controllers: tuple[dict[str, Any], ...]
    reconfigurations: Reconfigurations | None
    link_counters: tuple[LinkCounter, ...] = field(repr=False)
    moves: tuple[Move, ...] = field(repr=False)
    outage_log: OutageLog = field(repr=False)
    _path: dict[str, np.ndarray] = field(repr=False)
    _ends_ps: np.ndarray = field(repr=False)
    _timeline: dict[str, np.ndarray] = field(repr=False)
    _names: GraphNames = field(repr=False)
    _number: int = field(repr=False)  # of the job

    @property
    def iteration_time_s(self) -> float:
        """Steady-state time of one iteration [s]; the mean of several where it is not steady."""
        if self.num_averaged == 1:
            return self.iteration_times_s[-1]
        return int(self._ends_ps[-1] - self._ends_ps[-1 - self.num_averaged]) * PS / self.num_averaged

    @property
    def first_iteration_s(self) -> float:
        """Time of the first iteration, from a cold start [s]."""
        return self.iteration_times_s[0]

    @property
    def exposed(self) -> dict[str, float]:
        """Exposed communication by kind of groups, mean over devices [s]."""
        return {kind: self.breakdown[kind] for kind in self._names.categories}

    @cached_property
    def compute_by_family(self) -> dict[str, float]:
        """Compute by op family, mean over devices [s]; sums to ``breakdown["compute"]``."""
        return self.compute_by(lambda kernel: kernel.family)

    def compute_by(self, part_of: Callable[[KernelTime], str]) -> dict[str, float]:
        """Return compute by ``part_of`` its kernels, mean over devices [s], the longest first.

        Model: each device's compute is divided as the durations of its kernels are: what slows a device, a slow part
            or a collective that takes compute away, slows all its kernels alike.
        """
        compute_s = self.breakdown_by_device[:, list(self.breakdown).index("compute")]
        found: dict[str, float] = {}
        for number, stage in enumerate(self.job.stages):
            spent = float(compute_s[self.job.stage_of == number].sum()) / len(compute_s)
            parts = seconds_by(part_of, stage.templates, stage.program)
            total = sum(parts.values())
            for part, seconds in parts.items():
                found[part] = found.get(part, 0.0) + spent * seconds / total
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @cached_property
    def algorithms(self) -> list[dict[str, Any]]:
        """The algorithm that every collective ran: one dict for each group set, collective and size [bytes]."""
        return collectives_of(plan_volumes(self.job), self.job.schedules)

    @cached_property
    def messages_by_axis(self) -> list[AxisMessages]:
        """Communication of the groups of each axis in one iteration: their bytes sum to the bytes sent."""
        begin, end = int(self._ends_ps[-1 - self.num_averaged]), int(self._ends_ps[-1])
        hidden = None if self.restarts else hidden_times(self.job, self._names, self._timeline, begin, end)
        if hidden is not None:
            hidden = {kind: seconds / self.num_averaged for kind, seconds in hidden.items()}
        return axis_messages(self.job, self.algorithms, self.bytes_sent, self.exposed, hidden)

    def critical_path(self) -> CriticalPath:
        """Return the chain of tasks that decided the last iteration's time, earliest first.

        Durations sum to that, which is ``iteration_time_s`` where it is steady: the path is cut at the previous
        iteration's end, and gaps between tasks (launch latency) are segments of their own.
        """
        return CriticalPath(self._segments if self.num_averaged == 1 else self._segments_of(1))

    @cached_property
    def _segments(self) -> list[Segment]:
        """Of all averaged iterations."""
        return self._segments_of(self.num_averaged)

    def _segments_of(self, num_iterations: int) -> list[Segment]:
        """Return the path of the last iterations."""
        begin, end = int(self._ends_ps[-1 - num_iterations]), int(self._ends_ps[-1])
        segments: list[Segment] = []
        cursor = begin
        keys = ("start_ps", "end_ps", "device", "template", "task", "microbatch", "is_host", "is_hold")
        columns = [self._path[key].tolist() for key in keys]
        for start, stop, device, template, task, microbatch, is_host, is_hold in zip(*columns, strict=True):
            if stop <= cursor:
                continue
            start = max(start, cursor)
            info = self._names.templates[template]
            entry = info.tasks[task]
            where = (info.stage, int(self._names.accelerators[device]), microbatch)
            if start > cursor:
                segments.append(Segment("launch", "launch", *where, (cursor - begin) * PS, (start - cursor) * PS))
            kind = "host" if is_host else self._names.kind(template, entry)
            name = f"launches up to {entry.name}" if is_host else entry.name
            if is_hold:
                kind, name = "bubble", "held by a controller"
            segments.append(Segment(kind, name, *where, (start - begin) * PS, (stop - start) * PS))
            cursor = stop
        if cursor != end:
            raise InternalError(f"the critical path ends at {cursor} ps, the iteration at {end} ps")
        return segments

    def critical_path_by_kind(self) -> dict[str, float]:
        """Return seconds of the critical path by kind; they sum to the iteration time."""
        totals: dict[str, float] = {}
        for segment in self._segments:
            totals[segment.kind] = totals.get(segment.kind, 0.0) + segment.duration_s
        return {kind: seconds / self.num_averaged for kind, seconds in totals.items()}

    def kernels_on_path(self) -> list[tuple[KernelTime, float]]:
        """Return the kernels on the critical path and the seconds that each takes there, all its runs together.

        Model: a task's time on the path is shared by its kernels in proportion to their durations.
        """
        found: list[tuple[KernelTime, float]] = []
        for task, span in self._tasks_on_path():
            if task.kernels and task.duration_s > 0:
                found += [(kernel, span * kernel.duration_s / task.duration_s) for kernel in task.kernels]
        return found

    def communication_on_path(self) -> list[tuple[Task, float]]:
        """Return the collectives and messages on the critical path and the seconds of each there, all runs together."""
        return [(task, span) for task, span in self._tasks_on_path() if task.group]

    def _tasks_on_path(self) -> list[tuple[Task, float]]:
        path, begin = self._path, int(self._ends_ps[-1 - self.num_averaged])
        seconds: dict[tuple[int, int], float] = {}
        spans = np.maximum(path["end_ps"] - np.maximum(path["start_ps"], begin), 0) * PS * (path["is_hold"] == 0)
        for key, span in zip(zip(path["template"].tolist(), path["task"].tolist(), strict=True), spans, strict=True):
            seconds[key] = seconds.get(key, 0.0) + float(span)
        templates = self._names.templates
        return [
            (templates[template].tasks[task], span / self.num_averaged)
            for (template, task), span in seconds.items()
            if span > 0
        ]

    def critical_tasks(self, count: int = 10) -> list[dict[str, Any]]:
        """Return the largest parts of the critical path: tasks added up over micro-batches, stages and repeated blocks.

        Block numbers in names read ``*``: "all_reduce blocks.*.proj forward" stands for all blocks'.
        """
        totals: dict[tuple[str, str], list[float]] = {}
        for segment in self._segments:
            entry = totals.setdefault((segment.kind, re.sub(r"\b\d+\b", "*", segment.name)), [0, 0.0])
            entry[0] += 1
            entry[1] += segment.duration_s
        largest = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))[:count]
        return [
            {
                "kind": kind, "name": name, "count": max(1, round(times / self.num_averaged)),
                "duration_s": seconds / self.num_averaged,
            }
            for (kind, name), (times, seconds) in largest
        ]  # fmt: skip

    def busiest_links(self, count: int = 10) -> list[LinkLoad]:
        """Return the ``count`` links that carried the most bytes in relation to their bandwidth."""
        links = self.fabric.links
        bandwidth = links["bandwidth_bytes_per_s"]
        utilization = self.link_bytes / (bandwidth * self.iteration_time_s)
        order = np.lexsort((np.arange(len(utilization)), -utilization))[:count]
        return [
            LinkLoad(
                int(k), link_name(self.fabric, links, int(k)), float(self.link_bytes[k]),
                float(self.link_busy_s[k] / self.iteration_time_s), float(utilization[k]),
            )
            for k in order if self.link_bytes[k] > 0
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready summary; equal runs give equal values, to the byte."""
        return {
            "version": RESULT_VERSION,
            "model": self.job.name,
            "fabric": self.fabric.describe(),
            "num_accelerators": self.job.num_devices,
            "fidelity": self.fidelity,
            "routing": self.routing,
            "seed": self.seed,
            "controllers": [dict(one) for one in self.controllers],
            "iteration_time_s": self.iteration_time_s,
            "first_iteration_s": self.first_iteration_s,
            "iteration_times_s": list(self.iteration_times_s),
            "is_steady": self.is_steady,
            **({"num_averaged": self.num_averaged} if self.num_averaged > 1 else {}),
            "breakdown_s": self.breakdown,
            "compute_by_family_s": self.compute_by_family,
            "critical_path_s": self.critical_path_by_kind(),
            "critical_tasks": self.critical_tasks(),
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "num_messages": self.num_messages,
            "algorithms": self.algorithms,
            "collective_times": {
                kind: [asdict(one) for one in times] for kind, times in self.collective_times.items()
            },
            "busiest_links": [
                {"link": load.link, "name": load.name, "num_bytes": load.num_bytes,
                 "busy_fraction": load.busy_fraction, "utilization": load.utilization}
                for load in self.busiest_links()
            ],
            "num_simulated_devices": self.num_simulated_devices,
            "checks": list(self.checks),
            **({"restarts": [asdict(one) for one in self.restarts]} if self.restarts else {}),
            **({} if self.fabric.circuits is None else {"circuits": self.fabric.circuits.record()}),
            **({} if self.reconfigurations is None else {"reconfigurations": self.reconfigurations.record()}),
            "notes": list(self.notes),
        }  # fmt: skip

    def to_json(self, path: str | None = None) -> str:
        """Return the summary as JSON text, and write it to ``path`` if given."""
        text = json.dumps(self.to_dict(), indent=2) + "\n"
        if path is not None:
            write_whole(path, text.encode())
        return text

    def save_timeline(self, path: str, *, whole_run: bool = False) -> None:
        """Write the recorded devices' last iteration as a Perfetto / Chrome trace (JSON, gzip if it ends in .gz).

        Model: of a plan one device of each stage has its memory over time as a counter as well; the busiest links
            have their load.
        Args: whole_run: all iterations, without memory, which is known of the last one.
        Raises: ConfigError if the run recorded none (``simulate(..., timeline=True)``).
        """
        if len(self._timeline["start_ps"]) == 0:
            raise ConfigError("this run recorded no timeline; simulate with timeline=True or a list of accelerators")
        begin, end = int(self._ends_ps[0 if whole_run else -2]), int(self._ends_ps[-1])
        memory = [] if whole_run else self.memory_over_time()
        arrows = message_arrows(self.job, self._number, self._names, self._timeline)
        write_perfetto(path, self._names, self._timeline, begin, end, memory, self.changes(), arrows,
                       self.link_counters, self.moves)  # fmt: skip

    def changes(self) -> list[Change]:
        """Return when circuits were dark, parts had failed and jobs were cut, of the whole run."""
        return changes_of(self.controllers, self.restarts, self.reconfigurations, self.moves, int(self._ends_ps[-1]))

    def memory_over_time(self) -> list[StageMemory]:
        """Return the memory of a recorded device of each stage over the last iteration; of a task graph none is known.

        Returns: nothing where a stage has no recorded device (``simulate(..., timeline=True)``), for placers that do
            not tell activations apart in time, and for jobs that were restarted.
        Raises: InternalError if the highest is not the memory that the plan reports.
        """
        return []

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the time, a bar of where it goes, and what fills the critical path."""
        total = self.iteration_time_s
        tasks = [
            (row["kind"], row["name"], f"{row['count']:,}", format_time(row["duration_s"]), f"{share:.1%}")
            for row in self.critical_tasks(5)
            if (share := row["duration_s"] / total) > 0
        ]
        axes = [asdict(one) for one in self.messages_by_axis]
        colours = {kind: group_kind(kind).colour.lower() for kind in self._names.categories}
        return (
            html_pairs(*self._headline())
            + html_bars(self.breakdown, "where one iteration goes (mean device)", colours)
            + (html_table("communication by axis", message_rows(axes), COLUMNS) if len(axes) > 1 else "")
            + html_table("largest parts of the critical path", tasks, ("kind", "task", "times", "total", "share"))
        )

    def __repr__(self) -> str:
        where, seconds = self.fabric.describe(), format_time(self.iteration_time_s)
        return f"{type(self).__name__}({self.job.name!r} on {where}: {seconds} an iteration)"

    def _headline(self) -> tuple[str, dict[str, Any]]:
        """Return the title and the first lines of what a notebook shows."""
        return f"{self.job.name} on {self.fabric.describe()}", {
            "iteration time": format_time(self.iteration_time_s) + steadiness(self)
        }


def steadiness(result: JobResult) -> str:
    """Return what stands behind an iteration's time that is not steady, "" for one that is."""
    if result.is_steady:
        return ""
    if result.num_averaged == 1:
        return f" (not steady yet after {len(result.iteration_times_s)} iterations)"
    low, high = (format_time(one(result.iteration_times_s[-result.num_averaged :])) for one in (min, max))
    return f", mean of the last {result.num_averaged}, not steady: {low} to {high}"
