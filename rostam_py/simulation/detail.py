"""Detail documents: what the figures of one run, or of one mix of jobs, are drawn from; plain JSON.

Example:
    write_detail("detail.json.gz", run_detail(rostam.simulate(plan)))

Everything adds up: bytes of the drawing to those of all links of one plane, the matrix to the traffic of all planes,
the critical path to the iteration, the stages' breakdowns, weighted by devices, to the result's.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.documents import read_unpacked, write_whole
from rostam_py.errors import ConfigError
from rostam_py.fabrics.layout import Layout, layout_of
from rostam_py.fabrics.traffic import Traffic
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import MEMORY_PARTS
from rostam_py.programs.placed import PlacedProgram
from rostam_py.simulation.changes import changes_detail
from rostam_py.simulation.critical_path import Segment
from rostam_py.simulation.drawing import drawing_of, short, whole
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.memory_detail import memory_detail
from rostam_py.simulation.pipeline_detail import pipeline_detail
from rostam_py.simulation.program_result import ProgramResult
from rostam_py.simulation.result import RunResult
from rostam_py.simulation.stream_detail import stream_rows
from rostam_py.units import format_number_of

VERSION = 2
MAX_BINS = 128
MAX_SEGMENTS = 1_000
MAX_SAMPLES = 1_000
_NUM_BUSIEST = 20
Detailed = RunResult | ProgramResult


def run_detail(
    result: Detailed | Sequence[Detailed], jobs: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return what the figures of a run need, a few hundred kB whatever the machine's size.

    Model: of a mix, stages and memory are listed by job and traffic is that of all jobs; link loads are over the first
        job's iteration, as in its result, and the critical path is the first job's. The pipeline and memory over time
        are there for a plan alone whose timeline has a device of every stage (``timeline=True``), else None.
    Args:
        result: of a run of a plan or a program, or those of the jobs of one simulation.
        jobs: rows about the jobs of a mix (name, alone_s, ...), which replace those made from the results.
    Returns: JSON-ready document of format ``VERSION``; equal results give equal documents.
    Raises: ConfigError for no result.
    Cost: links, tasks of the critical path and pairs of accelerators that exchange data, each once or a few times.
    """
    results = [result] if isinstance(result, Detailed) else list(result)
    if not results:
        raise ConfigError("run_detail got no result; it needs one of each job")
    first = results[0]
    is_mix = not isinstance(result, Detailed)
    planned = result if isinstance(result, RunResult) else None  # what only a plan alone shows
    links = first.fabric.links
    utilization = first.link_bytes / (links["bandwidth_bytes_per_s"] * first.iteration_time_s)
    layout = layout_of(first.fabric)
    return {
        "version": VERSION,
        "title": _title(results, is_mix),
        "result": first.to_dict(),
        "breakdown_by_stage": [row for job, one in enumerate(results) for row in _stages(one, job, is_mix)],
        "memory": [row for job, one in enumerate(results) for row in _memory(one, job, is_mix)],
        "traffic": _traffic(results),
        "critical_path": merge_segments(first.critical_path(), first.iteration_times_s[-1]),
        "pipeline": None if planned is None else pipeline_detail(planned),
        "changes": changes_of_run(first),
        "memory_over_time": None if planned is None else memory_detail(planned),
        "streams": [] if is_mix or not isinstance(first, ProgramResult) else stream_rows(first.placed),
        "messages_by_axis": [] if is_mix else [asdict(one) for one in first.messages_by_axis],
        "drawing": drawing_of(results, layout, links, utilization),
        "link_utilization": _sample(utilization[~links["is_failed"]]),
        "num_links": int((~links["is_failed"]).sum()),
        "busiest_links": _busiest(first, layout, links, utilization),
        "jobs": _jobs(results, jobs) if is_mix else [],
    }


def changes_of_run(result: JobResult) -> dict[str, Any] | None:
    """Return what a document holds of the changes of a run, None where nothing changed."""
    return changes_detail(result.changes(), result._ends_ps.tolist())


def write_detail(path: str | Path, detail: Mapping[str, Any]) -> None:
    """Write a document as .json.gz; equal documents give equal files, to the byte."""
    text = json.dumps(detail, separators=(",", ":"), allow_nan=False)
    write_whole(path, gzip.compress(text.encode(), mtime=0))


def read_detail(path: str | Path) -> dict[str, Any]:
    """Return a document that ``write_detail`` wrote.

    Raises: ConfigError for another format or version, and for what cannot be read; EOFError or ValueError for a
        damaged file.
    """
    detail = json.loads(read_unpacked(path))
    found = detail.get("version") if isinstance(detail, dict) else None
    if found != VERSION:
        raise ConfigError(f"{path} has version {found!r}; this rostam reads version {VERSION}")
    return detail


def merge_segments(segments: Sequence[Segment], iteration_s: float, limit: int = MAX_SEGMENTS) -> list[dict[str, Any]]:
    """Return a critical path of at most ``limit`` segments whose durations have the same sum.

    Model: a longer path is cut into ``limit`` equal windows of the iteration; segments whose middles share one are
        merged and named after the kind, and in it the name, that took longest. No segment is split.
    """
    if len(segments) <= limit:
        runs: list[Sequence[Segment]] = [[segment] for segment in segments]
    else:
        middles = np.array([segment.start_s + segment.duration_s / 2 for segment in segments])
        window = np.minimum((middles / iteration_s * limit).astype(np.int64), limit - 1)
        begins = np.flatnonzero(np.diff(window, prepend=-1)).tolist()
        ends = [*begins[1:], len(segments)]
        runs = [segments[begin:end] for begin, end in zip(begins, ends, strict=True)]
    return [_merged(run) for run in runs]


def _merged(run: Sequence[Segment]) -> dict[str, Any]:
    kinds: dict[str, float] = {}
    for segment in run:
        kinds[segment.kind] = kinds.get(segment.kind, 0.0) + segment.duration_s
    kind = max(kinds, key=lambda name: kinds[name])
    longest = max((segment for segment in run if segment.kind == kind), key=lambda segment: segment.duration_s)
    return {
        "kind": kind,
        "name": longest.name if len(run) == 1 else f"{longest.name} and {len(run) - 1} more",
        "stage": longest.stage,
        "device": longest.device,
        "start_s": short(run[0].start_s),
        "duration_s": short(sum(segment.duration_s for segment in run), 10),
    }


def _placed(result: Detailed) -> Plan | PlacedProgram:
    return result.plan if isinstance(result, RunResult) else result.placed


def _title(results: Sequence[Detailed], is_mix: bool) -> str:
    first = _placed(results[0])
    where = first.machine.fabric.describe()
    if is_mix:
        return f"{len(results)} jobs on {where}"
    what = first.strategy.describe() if isinstance(first, Plan) else format_number_of(first.num_devices, "rank")
    return f"{results[0].job.name} on {where}; {what}"


def _jobs(results: Sequence[Detailed], rows: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    if rows is not None:
        return [dict(row) for row in rows]
    return [
        {
            "name": f"job {number}",
            "model": result.job.name,
            "num_accelerators": result.job.num_devices,
            "iteration_time_s": result.iteration_time_s,
            "algorithms": algorithm_words(result.algorithms),
        }
        for number, result in enumerate(results)
    ]


def _stages(result: Detailed, job: int, is_mix: bool) -> list[dict[str, Any]]:
    """Return the mean breakdown of every stage's devices [s]."""
    rows = []
    for stage in result.job.stages:
        devices = np.flatnonzero(result.job.stage_of == stage.index)
        times = result.breakdown_by_device[devices].mean(axis=0).tolist()
        parts = {name: short(seconds, 9) for name, seconds in zip(result.breakdown, times, strict=True)}
        rows.append(({"job": job} if is_mix else {}) | {"stage": stage.index, "devices": len(devices)} | parts)
    return rows


def _memory(result: Detailed, job: int, is_mix: bool) -> list[dict[str, Any]]:
    placed, rows = _placed(result), []
    for stage in placed.stages:
        parts = {part: int(getattr(stage.memory, part)) for part in MEMORY_PARTS}
        if isinstance(placed, Plan) or any(parts.values()):  # a program may not say, or only the sum
            rows.append(
                ({"job": job} if is_mix else {})
                | {"stage": stage.index, "devices": int((placed.stage_of == stage.index).sum())}
                | parts
                | {"capacity": int(placed.machine.device.memory_bytes)}
            )
    return rows


def _traffic(results: Sequence[Detailed]) -> dict[str, Any]:
    """Return bytes of one iteration of every job between bins of consecutive accelerators, all planes."""
    parts = [_placed(result).traffic for result in results]
    traffic = parts[0] if len(parts) == 1 else Traffic.total(parts)
    used = 1 + max(int(result.devices.max()) for result in results)
    per_bin = -(-used // MAX_BINS)
    bins = -(-used // per_bin)
    cell = (traffic.src // per_bin) * bins + traffic.dst // per_bin
    summed = np.bincount(cell, weights=traffic.num_bytes, minlength=bins * bins).reshape(bins, bins)
    return {
        "accelerators_per_bin": per_bin,
        "num_accelerators": used,
        "matrix": [[whole(value) for value in row] for row in summed.tolist()],
    }


def _busiest(result: Detailed, layout: Layout, links: np.ndarray, utilization: np.ndarray) -> list[dict[str, Any]]:
    order = np.lexsort((np.arange(len(utilization)), -utilization))[:_NUM_BUSIEST]
    differ = len(result.fabric.plane_classes) > 1
    return [
        {
            "link": int(k),
            "name": f"{layout.name_of[links['src'][k]]} -> {layout.name_of[links['dst'][k]]}"
            + (f" (plane {links['plane'][k]})" if differ else ""),
            "num_bytes": whole(float(result.link_bytes[k])),
            "busy_fraction": short(float(result.link_busy_s[k] / result.iteration_time_s), 5),
            "utilization": short(float(utilization[k]), 5),
        }
        for k in order
        if result.link_bytes[k] > 0
    ]


def _sample(values: np.ndarray) -> list[float]:
    """Return values in descending order, at most ``MAX_SAMPLES`` evenly spaced ones, both ends among them."""
    ordered = np.sort(values)[::-1]
    if len(ordered) > MAX_SAMPLES:
        ordered = ordered[np.linspace(0, len(ordered) - 1, MAX_SAMPLES).round().astype(np.int64)]
    return [short(value, 4) for value in ordered.tolist()]
