"""Read what ``rostam fleet fleet.jobs=...`` left in its folder.

found = load_jobs("runs/fleet-mine"); found.document["wait_s"]["mean"], found.jobs["first_start_s"]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.queueing.timeline import STATES
from rostam_py.report.fleet_folder import is_folder_of, read_document
from rostam_py.report.run.load import existing_folder, read_file

if TYPE_CHECKING:
    import polars

FORMAT, VERSION = "rostam-jobs", 1
JOBS, SERIES, PLACEMENTS = "jobs.csv", "series.csv", "placements.csv"
WITHOUT = "end_without_network_s"  # column of jobs.csv
WAITING, WAITED_FOR = "jobs_waiting", "accelerators_waited_for"  # columns of series.csv
_WHY = "rostam fleet writes one with fleet.jobs"


@dataclass(frozen=True)
class JobsData:
    """What became of many jobs.

    document: of result.json. jobs: of jobs.csv, a row for each, by submission. series: start_s, end_s, accelerators by
    state, the queue. placements: job (a row of jobs from 0 on; null where the accelerators had failed), start_s, end_s,
    accelerators; by start.
    """

    document: dict[str, Any]
    jobs: polars.DataFrame
    series: polars.DataFrame
    placements: polars.DataFrame

    @property
    def window_s(self) -> float:
        """Length of the window [s]."""
        return float(self.document["window_s"])

    @property
    def days(self) -> float:
        """Length of the window [days]."""
        return self.window_s / DAY_S

    @property
    def has_network(self) -> bool:
        """Whether jobs were also simulated without neighbours."""
        return WITHOUT in self.jobs.columns


def state_column(state: str) -> str:
    """Return the column of series.csv that has a state."""
    return state.replace(" ", "_")


def is_jobs_folder(folder: str | Path) -> bool:
    """Say whether a folder is of ``rostam fleet fleet.jobs=...``."""
    return is_folder_of(folder, FORMAT, JOBS)


def load_jobs(folder: str | Path) -> JobsData:
    """Return what a folder of ``rostam fleet fleet.jobs=...`` holds.

    Raises: ConfigError if a file is missing, damaged, or of a version that this rostam does not read.
    """
    where = existing_folder(folder)
    document = load_document(where)
    series = read_file(where / SERIES, _series, _WHY)
    import polars as pl

    ends = series["start_s"].shift(-1, fill_value=float(document["window_s"])).alias("end_s")
    return JobsData(
        document, read_file(where / JOBS, _jobs, _WHY), series.with_columns(ends.cast(pl.Float64)),
        read_file(where / PLACEMENTS, _placements, _WHY),
    )  # fmt: skip


def load_document(folder: str | Path) -> dict[str, Any]:
    """Return result.json. Raises: as ``load_jobs``."""
    return read_document(folder, VERSION, _WHY)


def _jobs(path: Path) -> polars.DataFrame:
    import polars as pl

    table = pl.read_csv(path, infer_schema=False)  # a name may look like a number
    integers = {"accelerators": pl.Int64, "cuts": pl.Int64}
    return table.with_columns(pl.col(one).cast(integers.get(one, pl.Float64)) for one in table.columns if one != "name")


def _series(path: Path) -> polars.DataFrame:
    import polars as pl

    table = pl.read_csv(path, infer_schema=False, comment_prefix="#")
    return table.select(
        pl.col(one).cast(pl.Float64) for one in ("start_s", *map(state_column, STATES), WAITING, WAITED_FOR)
    )


def _placements(path: Path) -> polars.DataFrame:
    import polars as pl

    table = pl.read_csv(path, infer_schema=False)
    return table.select(
        pl.col("job").cast(pl.Int64), pl.col("start_s", "end_s").cast(pl.Float64), pl.col("accelerators")
    ).sort("start_s", maintain_order=True)
