"""``rostam sweep``: axes in; one table, a report and a folder that goes on where it was killed."""

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.run_folder import send_on
from rostam_py.cli.sweep_axes import is_axis, read_command
from rostam_py.cli.sweep_progress import SweepProgress
from rostam_py.cli.tables import UNSTEADY, UNSTEADY_NOTE
from rostam_py.documents import write_whole
from rostam_py.extras import require
from rostam_py.report.needs import page_needs, wandb_needs
from rostam_py.report.sinks.wandb_options import WandbOptions
from rostam_py.spec.sweep_options import OVER_FIRST
from rostam_py.sweep import Sweep, SweepEstimate, SweepOptions, SweepResult, Tally
from rostam_py.sweep.run_sweep import check_folders
from rostam_py.units import format_time

_NUM_BEST = 12
_WATCH_EVERY_S = 10.0
_LEFT_OUT = "start, tracing and report"  # of an estimate


def sweep(overrides: list[str], as_json: bool) -> int:
    """Evaluate all points of the axes, print the best, and write table and report. Returns the exit status."""
    is_dry = "--dry-run" in overrides
    overrides = [one for one in overrides if one != "--dry-run"]
    command = read_command(overrides)
    options = command.section
    prepared = Sweep(command.settings, axes=command.axes, trace_cache=options.trace_cache)
    if not is_dry:
        drawing = page_needs("report=true", otherwise="report=false") if command.report else []
        require(*options.needs(), *drawing, *wandb_needs(command.wandb))
    folder = Path(command.out) if command.out else Path("runs") / f"sweep-{_slug(prepared.models)}-{prepared.digest}"
    console = Console(width=max(120, Console().width))
    check_folders(folder, options)
    if is_dry:
        return _dry_run(console, prepared, options, folder, as_json)
    if options.details is None and not command.report:
        options = dataclasses.replace(options, details=0)  # nothing draws them
    watch = Watch(command.wandb, prepared.manifest(options.title, []), folder)
    with watch:
        result = run_prepared(prepared, folder, options, overrides, watch)
    if as_json:
        print(json.dumps({"folder": str(folder), **result.manifest, "points": result.table.to_dicts()}, indent=2))
    else:
        print_sweep(console, result)
    send_on(Console(stderr=True) if as_json else console, folder, report=command.report)
    watch.finish(Console(stderr=True) if as_json else console)
    return 0 if result.num_errors < result.num_points or result.num_points == 0 else 2


class Watch:
    """The sweep's run in Weights & Biases, open while the sweep is; nothing at all where it is not asked for."""

    def __init__(self, options: WandbOptions, manifest: dict[str, Any], folder: Path) -> None:
        self._folder = folder
        self._logger: Any = None
        self._last = time.monotonic()
        if options.enable:
            from rostam_py.report.sinks.wandb_sink import SweepLogger

            folder.mkdir(parents=True, exist_ok=True)
            self._logger = SweepLogger(options, manifest, folder)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._logger is not None:
            self._logger.finish()

    def update(self, tally: Tally) -> None:
        """Log how far the sweep is, now and then."""
        now = time.monotonic()
        if self._logger is not None and now - self._last >= _WATCH_EVERY_S:
            self._last = now
            self._logger.log_progress(tally.stored + tally.done, tally.errors)

    def finish(self, console: Console) -> None:
        """Add table, curves and report, and say where the run is."""
        if self._logger is not None:
            with console.status("writing to Weights & Biases"):
                text = self._logger.finish(self._folder)
            console.print(text, highlight=False, markup=False, soft_wrap=True)


def run_prepared(
    prepared: Sweep, folder: Path, options: SweepOptions, overrides: Sequence[str], watch: Watch
) -> SweepResult:
    """Run a sweep with progress on stderr; an interruption says how to go on."""
    from rostam_py.cli.compose import resolved_yaml

    folder.mkdir(parents=True, exist_ok=True)
    plain = [one for one in overrides if not is_axis(one)]
    write_whole(folder / "config.yaml", resolved_yaml("sweep", plain).encode())
    write_whole(folder / "command.json", (json.dumps({"overrides": list(overrides)}, indent=2) + "\n").encode())
    # Ray prints what it notices of dying nodes; standard output is for the result.
    with (
        redirect_stdout(sys.stderr),
        _going_on(folder),
        SweepProgress(Console(stderr=True), prepared.describe()) as progress,
    ):

        def update(tally: Tally) -> None:
            progress.update(tally)
            watch.update(tally)

        return prepared.run(folder, options, progress=update, report=progress.say)


@contextmanager
def _going_on(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print(
            f"stopped; finished points are in {folder}: run the same command again to resume", highlight=False
        )
        raise


def print_sweep(console: Console, result: SweepResult) -> None:
    """Print the best points, what failed and why, and where everything is."""
    import polars as pl

    keys = [axis["key"] for axis in result.manifest["axes"]]
    columns = [*keys, *(name for name in ("strategy", "global_batch") if name not in keys and _has(result, name))]
    times = [
        name
        for name in ("iteration_time_s", OVER_FIRST, "expected_iteration_time_s", "exposed_s", "time_to_accuracy_s")
        if _has(result, name)
    ]
    # Among equal batches it ranks as the iteration time does.
    has_batches = result.table["global_batch"].drop_nulls().n_unique() > 1
    times += [result.goal] if result.goal == "time_per_sample_s" and has_batches else []
    times += [name for name in ("slowdown_mean", "slowdown_max", "all_reduce_mean_s") if _has(result, name)]
    title = f"{result.manifest['title']}: best of {result.num_points:,} points by {result.goal}"
    console.print(title, style="bold", highlight=False, markup=False, soft_wrap=True)
    table = Table()
    short = [name.rpartition(".")[2] for name in columns]
    is_short = len(set(short)) == len(short)  # "seed" and "mix.seed" keep their names
    for name in columns:
        table.add_column(name.rpartition(".")[2] if is_short else name, overflow="fold")
    for name in times:
        words = name.removesuffix("_s").replace("expected_iteration_time", "expected")
        table.add_column(words, justify="right", no_wrap=True)
    best = list(result.best(_NUM_BEST).iter_rows(named=True))
    for row in best:
        shown = ["" if row[name] is None else str(row[name]) for name in columns]
        table.add_row(*shown, *(_shown(name, row[name]) + _mark(name, row) for name in times))
    console.print(table)
    if any(row["is_steady"] is False for row in best):
        console.print(UNSTEADY_NOTE, highlight=False)
    failed = result.table.filter(result.table["status"] == "error")
    if failed.height:
        console.print(f"{failed.height:,} of {result.num_points:,} points failed:", highlight=False)
        counts = failed.group_by("error_type", maintain_order=True).agg(pl.len(), pl.col("error").first())
        for row in counts.iter_rows(named=True):
            console.print(f"  {row['len']:,} x {row['error_type']}: {row['error']}", markup=False, highlight=False)
    console.print(f"table: {result.folder}/points.parquet and points.csv", highlight=False, markup=False)


def _has(result: SweepResult, name: str) -> bool:
    return name in result.table.columns and bool(result.table[name].null_count() < result.num_points)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == OVER_FIRST:
        return f"{value:+.2%}"
    return format_time(value) if name.endswith("_s") else f"{value:.3f}"


def _mark(name: str, row: Mapping[str, Any]) -> str:
    """Return what stands behind a time of a point that is not steady."""
    return f" {UNSTEADY}" if row["is_steady"] is False and name == "iteration_time_s" else ""


def _dry_run(console: Console, prepared: Sweep, options: SweepOptions, folder: Path, as_json: bool) -> int:
    """Print what there is to do, then what it takes, which may need three points evaluated. Returns the status."""
    if not as_json:
        _print_plan(console, prepared, prepared.count(folder, options))
    with Console(stderr=True).status("evaluating up to three points"):
        estimate = prepared.estimate(folder, options)
    if as_json:
        axes = {axis.key: [value.label for value in axis.values] for axis in prepared.axes}
        document = {
            "axes": axes, "num_points": estimate.num_points, "num_stored": estimate.num_stored, "left": estimate.left,
            "estimated_s": estimate.seconds, "basis": estimate.basis, "left_out": _LEFT_OUT, "folder": str(folder),
        }  # fmt: skip
        print(json.dumps(document, indent=2))
    else:
        seconds = _duration(estimate.seconds or 0.0)
        text = f"about {seconds} for the points alone ({estimate.basis}); {_LEFT_OUT} come on top; into {folder}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _print_plan(console: Console, prepared: Sweep, counted: SweepEstimate) -> None:
    console.print(prepared.describe(), style="bold", highlight=False, markup=False, soft_wrap=True)
    table = Table()
    table.add_column("axis")
    table.add_column("values", justify="right")
    table.add_column("labels", overflow="fold")
    for axis in prepared.axes:
        labels = [value.label for value in axis.values]
        text = ", ".join(labels if len(labels) <= 12 else [*labels[:8], "...", labels[-1]])
        table.add_row(axis.key, str(len(labels)), text)
    console.print(table)
    console.print(
        f"{counted.num_points:,} points, {counted.num_stored:,} of them stored, {counted.left:,} to evaluate",
        highlight=False,
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _slug(models: Sequence[str]) -> str:
    names = [Path(model.split(":")[0]).stem for model in models]
    return names[0] if len(names) == 1 else f"{len(names)}_models"
