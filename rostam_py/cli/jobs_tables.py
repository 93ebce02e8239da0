"""Tables of many jobs as CSV files: jobs, means over time, and which accelerators each job held."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rostam_py.fleet.queueing.placements import ranges
from rostam_py.fleet.queueing.result import QueueResult
from rostam_py.fleet.queueing.run import CAUSES, Run
from rostam_py.plan.machine import Machine
from rostam_py.report.jobs.load import JOBS, PLACEMENTS, SERIES, WITHOUT


def write_jobs_tables(
    folder: Path, result: QueueResult, without: QueueResult | None, cluster: tuple[Machine, int]
) -> None:
    """Write jobs.csv, series.csv and placements.csv.

    Args:
        without: the same jobs without contention, whose ends are a column of jobs.csv.
        cluster: its machine, and the accelerators of a server.
    """
    head = ["name", "accelerators", "submit_s", "first_start_s", "end_s", "work_s", "cuts"]
    head += [f"{cause}_s" for cause in CAUSES] + ([] if without is None else [WITHOUT])
    ends: list[list[Any]] = [[] for _ in result.runs]
    if without is not None:
        left = {run.number: run.left_s for run in without.runs}
        ends = [[left.get(run.number)] for run in result.runs]
    rows = ([*_job_row(run), *end] for run, end in zip(result.runs, ends, strict=True))
    _write(folder / JOBS, head, rows)
    width, names, series = result.timeline.series()
    words = f"# means of {width:g} s each; accelerators, except for jobs waiting\n"
    _write(folder / SERIES, ["start_s", *(name.replace(" ", "_") for name in names)], series, words)
    _write(folder / PLACEMENTS, ["job", "start_s", "end_s", "accelerators"], _placement_rows(result, *cluster))


def _job_row(run: Run) -> list[Any]:
    job = run.job
    return [
        job.name, job.accelerators, job.submit_s, run.first_start_s, run.left_s, job.work_s, run.num_cuts,
        *(run.spent[cause] for cause in CAUSES),
    ]  # fmt: skip


def _placement_rows(result: QueueResult, machine: Machine, server_size: int) -> Iterator[Sequence[Any]]:
    """Yield what never worked, then servers that were down, both of no job, then what each job held."""
    count = machine.num_accelerators
    never = sorted(set(range(count)) - set(machine.healthy_accelerators))
    if never and result.timeline.end_s > 0:
        yield None, 0.0, result.timeline.end_s, ranges(never)
    for one in result.placements.down:
        first = one.server * server_size
        yield None, one.start_s, one.end_s, ranges(range(first, min(first + server_size, count)))
    yield from result.placements.stays


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]], words: str = "") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(words)
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
