"""Jobs of a CSV file, as schedulers log them.

Example:
    # any comment
    submit_s,gpus,duration_s
    0,8,7200
    60,1,300

Columns have these names or those of published traces (ALIASES). Others are not read; ``JobsFile.unread`` names them.
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fleet.queueing.job import QueuedJob

ALIASES = {
    "submit_s": ("submit_s", "submit_time", "submit", "submitted_s"),
    "accelerators": ("accelerators", "gpus", "num_gpu", "num_gpus", "gpu_num"),
    "duration_s": ("duration_s", "duration", "run_time"),
    "iterations": ("iterations",),
    "stated_s": ("stated_s", "requested_s", "time_limit_s"),
    "name": ("name", "job_id", "job", "id"),
    "model": ("model",),
    "global_batch": ("global_batch",),
}
_MOST = 1e11  # seconds: 3,000 years, which sums keep to the millisecond
STRATEGY = "strategy."  # begins columns of a job's strategy


@dataclass(frozen=True)
class JobsFile:
    """Jobs in the order of the file. unread: columns that say nothing here."""

    jobs: tuple[QueuedJob, ...]
    unread: tuple[str, ...]


def read_jobs(path: str | Path, key: str = "fleet.jobs") -> JobsFile:
    """Return the jobs of a CSV file: a row for each.

    Model: submit_s, accelerators and duration_s are needed; a job with a model may give iterations in place of its
        duration, and then its settings: columns strategy.KEY and global_batch. stated_s is what its owner said that it
        would run; without the column the duration itself.
    Raises: ConfigError naming file, line, column and value.
    """
    where = str(path)
    table, lines = _table(where, key)
    columns = _columns(list(table), where)
    number = _Numbers(table, columns, where, lines)
    count = len(lines)
    submits = number.column("submit_s", least=0.0)
    sizes = number.column("accelerators", least=1.0, is_whole=True)
    durations = number.column("duration_s", least=0.0, is_optional=True)
    iterations = number.column("iterations", least=0.0, is_optional=True)
    stated = number.column("stated_s", least=0.0, is_optional=True)
    names = number.texts("name")
    models = number.texts("model")
    settings = _settings(table, columns, number, count)
    jobs = []
    for k in range(count):
        duration = _duration(k, durations[k], iterations[k], models[k], number)
        jobs.append(QueuedJob(
            name=names[k] or str(k + 1), submit_s=float(submits[k] or 0.0), accelerators=int(sizes[k] or 0),
            work_s=duration, stated_s=duration if stated[k] is None else float(stated[k] or 0.0), model=models[k],
            iterations=None if models[k] is None else iterations[k], settings=settings[k],
        ))  # fmt: skip
    read = {*columns.values(), *(one for one in table if one.startswith(STRATEGY))}
    return JobsFile(tuple(jobs), tuple(one for one in table if one not in read))


def _table(where: str, key: str) -> tuple[dict[str, list[str | None]], list[int]]:
    """Return the columns as text, and the line of each row."""
    import polars as pl  # 0.1 s

    try:
        text = Path(where).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key} is {where!r}; the file cannot be read: {error}") from error
    kept = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"]
    if len(kept) < 2:
        raise ConfigError(f"{key} is {where!r}; the file has no row: a line of column names, then one for each job")
    try:
        header = next(csv.reader([kept[0][1]]))
        frame = pl.read_csv("\n".join(line for _, line in kept).encode(), infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"{key} is {where!r}; the file is no CSV table: {str(error).splitlines()[0]}") from error
    if frame.height != len(kept) - 1:
        raise ConfigError(f"{where}: a cell goes over several lines; quotes are not closed, or not needed")
    twice = next((name.strip() for name in header if [one.strip() for one in header].count(name.strip()) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}, line {kept[0][0]}: column {twice} is there twice; leave one out")
    stripped = frame.rename({name: name.strip() for name in frame.columns}).with_columns(pl.all().str.strip_chars())
    columns = {name: [value or None for value in stripped[name].to_list()] for name in stripped.columns}
    return columns, [n for n, _ in kept[1:]]


def _columns(found: list[str], where: str) -> dict[str, str]:
    """Return the file's own name of each column that is there."""
    chosen = {}
    for column, aliases in ALIASES.items():
        there = [one for one in aliases if one in found]
        if len(there) > 1:
            raise ConfigError(f"{where}: columns {' and '.join(there)} both mean {column}; leave one out")
        if there:
            chosen[column] = there[0]
    for column in ("submit_s", "accelerators"):
        if column not in chosen:
            raise ConfigError(
                f"{where}: there is no column {column} (or {', '.join(ALIASES[column][1:])}); the file has:"
                f" {', '.join(found)}"
            )
    if "duration_s" not in chosen and not {"iterations", "model"} <= {*chosen}:
        raise ConfigError(
            f"{where}: there is no column duration_s (or {', '.join(ALIASES['duration_s'][1:])}), nor model and"
            f" iterations; the file has: {', '.join(found)}"
        )
    return chosen


def _duration(k: int, duration: float | None, iterations: float | None, model: str | None, number: "_Numbers") -> float:
    """Return a job's duration as given [s]; 0 where its iterations will say it."""
    if model is not None and iterations is not None:
        return 0.0
    if duration is None:
        raise number.error(k, "duration_s", None, "a number of seconds, or model and iterations must be given")
    return duration


def _settings(
    table: dict[str, list[str | None]], columns: dict[str, str], number: "_Numbers", count: int
) -> list[dict[str, Any]]:
    """Return what each job says of its strategy and batch: texts, read where jobs are placed."""
    batches = number.column("global_batch", least=1.0, is_whole=True, is_optional=True)
    keys = [one for one in table if one.startswith(STRATEGY)]
    rows: list[dict[str, Any]] = []
    for k in range(count):
        row: dict[str, Any] = {key: table[key][k] for key in keys if table[key][k] is not None}
        if batches[k] is not None:
            row["global_batch"] = int(batches[k] or 0)
        rows.append(row)
    return rows


class _Numbers:
    """Columns as numbers, checked. Args: lines: of each row in the file."""

    def __init__(
        self, table: dict[str, list[str | None]], columns: dict[str, str], where: str, lines: list[int]
    ) -> None:
        self._table, self._columns, self._where, self._lines = table, columns, where, lines

    def texts(self, column: str) -> list[str | None]:
        """Return a column's texts, None where it is empty or missing."""
        name = self._columns.get(column)
        return [None] * len(self._lines) if name is None else self._table[name]

    def column(
        self, column: str, *, least: float, is_whole: bool = False, is_optional: bool = False
    ) -> list[float | None]:
        """Return a column's numbers, None where it is empty or missing and may be."""
        texts = self.texts(column)
        return [self._number(k, column, text, least, is_whole, is_optional) for k, text in enumerate(texts)]

    def _number(
        self, k: int, column: str, text: str | None, least: float, is_whole: bool, is_optional: bool
    ) -> float | None:  # fmt: skip
        if text is None and is_optional:
            return None
        try:
            value = float(text or "nan")
        except ValueError:
            value = math.nan
        if not least <= value <= _MOST or (is_whole and value != int(value)):
            raise self.error(k, column, text, f"{'a whole' if is_whole else 'a'} number from {least:g} to {_MOST:g}")
        return value

    def error(self, k: int, column: str, text: str | None, allowed: str) -> ConfigError:
        """Return an error at a row's cell."""
        name = self._columns.get(column, column)
        given = "empty" if text is None else repr(text)
        return ConfigError(f"{self._where}, line {self._lines[k]}: {name} is {given}; it must be {allowed}")
