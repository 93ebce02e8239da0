"""run_sweep: every point of a base and its axes, evaluated once, kept, and put into one table.

The table holds nothing of clocks, hosts or order of completion: an interrupted sweep, repeated with the same command,
ends with the same bytes as one that ran through.
"""

import gzip
import hashlib
import json
import os
import secrets
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rostam_py.checks import check_folder
from rostam_py.errors import ConfigError, RostamWarning
from rostam_py.extras import require
from rostam_py.graph import OperatorGraph
from rostam_py.graph.naming import ModelName
from rostam_py.simulation.options import SimulationOptions, chosen
from rostam_py.spec.keys import MODES
from rostam_py.spec.model_names import GIVEN, is_own_model
from rostam_py.spec.settings import is_read
from rostam_py.spec.sweep_options import SweepOptions
from rostam_py.sweep.axes import Axis, grid_axes, row_axis
from rostam_py.sweep.backend import TOKEN_FILE, Backend, InlineBackend, ProcessBackend, Work
from rostam_py.sweep.driver import Driver, Progress, Tally, store_folder
from rostam_py.sweep.engines import with_differences
from rostam_py.sweep.estimate import SweepEstimate
from rostam_py.sweep.evaluate import Evaluator
from rostam_py.sweep.folder import Snapshots, locked, write_json, write_table
from rostam_py.sweep.identity import code_version, models_of
from rostam_py.sweep.machine_rows import with_machines
from rostam_py.sweep.points import Point, expand_points
from rostam_py.sweep.result import SweepResult
from rostam_py.sweep.store import Store, write_atomically, writing
from rostam_py.sweep.table import chosen_points, sweep_table

MANIFEST_VERSION = 1
_SAMPLES = 3
Leave = Callable[[], None] | None  # leaves Ray; None where there is nothing to leave


class Sweep:
    """A base configuration and its axes, checked and expanded.

    Args: base: any of the keys of ``rostam sweep --help`` as nested mappings; "fabric" is {"name": ..., parameters}.
        grid: {dotted key: values}, multiplied. rows: cases, each {"label": ..., dotted key: value}, one axis. Both may
        name machines, as ``machine=`` does: {"machine": "dgx_h100", "machine.servers": 2}.
        axes: more axes, in front of grid and rows. graphs: {name: graph} of one's own; model="graph:name".
        trace_cache: whether the trace cache may have models of files.
    Raises: ConfigError for any bad value, before any work.
    Cost: models of files, "file.py:Class", are traced, or taken from the trace cache: their points are told apart by
        their graphs, which follow all that such a file imports and reads.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        *,
        grid: Mapping[str, Sequence[Any]] | None = None,
        rows: Sequence[Mapping[str, Any]] = (),
        axes: Sequence[Axis] = (),
        graphs: Mapping[str, OperatorGraph] | None = None,
        trace_cache: bool = True,
    ) -> None:
        self.base = dict(base)
        rows, grid = with_machines(rows, grid or {}, varied=[axis.key for axis in axes])
        self.axes = (*axes, *([row_axis(rows)] if rows else []), *grid_axes(grid))
        self._graphs = {f"{GIVEN}{name}": graph for name, graph in (graphs or {}).items()}
        self._trace_cache = trace_cache
        self._digests: dict[str, str] = {}
        self.points: list[Point] = expand_points(self.base, self.axes, self._graph_digest)

    def _graph_digest(self, model: str) -> str | None:
        """Return the digest of a graph that the caller brings, or of a file's model; None for rostam's own."""
        if model.startswith(GIVEN) and model not in self._graphs:
            raise ConfigError(f"model is {model!r}, but graphs holds: {', '.join(self._graphs) or 'nothing'}")
        if model not in self._graphs:
            if not is_own_model(model) or ModelName.parse(model).kind in ("graph", "family"):
                return None
            self._graphs[model] = _trace(model, self._trace_cache)
        if model not in self._digests:
            self._digests[model] = _graph_digest(self._graphs[model])
        return self._digests[model]

    @property
    def models(self) -> list[str]:
        """Models of all points, in order."""
        return _models_of(self.points)

    @property
    def digest(self) -> str:
        """A hash of all points' keys and labels, for folder names."""
        text = json.dumps([[point.key, dict(point.labels)] for point in self.points], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def load_graphs(
        self, wanted: Sequence[str], report: Callable[[str], None], *, cache: bool = True
    ) -> dict[str, OperatorGraph]:
        """Trace the wanted models, or take those given. Args: cache: whether the trace cache may have them."""
        graphs = {model: self._graphs[model] for model in wanted if model in self._graphs}
        for model in wanted:
            if model not in graphs:
                report(f"tracing {model}")
                graphs[model] = _trace(model, cache)
        return graphs

    def manifest(self, title: str | None, details: Sequence[str]) -> dict[str, Any]:
        """Return what sweep.json holds."""
        axes = [{"key": axis.key, "labels": [value.label for value in axis.values]} for axis in self.axes]
        return {
            "version": MANIFEST_VERSION, "rostam_version": code_version(), "title": title or self.describe(),
            "mode": self.points[0].settings["mode"] if self.points else "run", "axes": axes,
            "num_points": len(self.points), "base": json.loads(json.dumps(self.base, default=str)),
            "details": list(details),
        }  # fmt: skip

    def describe(self) -> str:
        """Return the sweep in a line: "resnet50 over fabric (6) x fabric.accelerator_bandwidth (5)"."""
        axes = " x ".join(f"{axis.key} ({len(axis.values)})" for axis in self.axes if axis.key != "model")
        models = ", ".join(self.models[:3]) + (f" and {len(self.models) - 3} more" if len(self.models) > 3 else "")
        return f"{models} over {axes}" if axes else models

    def count(self, folder: str | Path, options: SweepOptions) -> SweepEstimate:
        """Count points and what is stored of them, and evaluate nothing: there are no seconds yet."""
        keys = {point.key for point in self.points}
        num_stored = sum(key in keys for key in self._stored_times(folder, options))
        return SweepEstimate(len(self.points), num_stored, len(keys) - num_stored, None, "")

    def estimate(self, folder: str | Path, options: SweepOptions) -> SweepEstimate:
        """Count points and estimate the time left, from stored times or else by evaluating three points now.

        Model: the points' own times, shared evenly by the workers. Starting the backend, tracing the models, the
            details and the report come on top.
        """
        known = self._stored_times(folder, options)
        counted = self.count(folder, options)
        left = [point for point in _distinct(self.points) if point.key not in known]
        workers = options.workers or os.cpu_count() or 1
        if not left:
            return replace(counted, seconds=0.0, basis="everything is stored")
        times = [known[key] for key in {point.key for point in self.points} if key in known]
        basis = f"{len(times)} stored points"
        if not times:
            times, basis = self._sample_times(left, options), f"{min(_SAMPLES, len(left))} points evaluated now"
        seconds = len(left) * sum(times) / len(times) / min(workers, len(left))
        return replace(counted, seconds=seconds, basis=f"{basis}, {workers} workers")

    def _stored_times(self, folder: str | Path, options: SweepOptions) -> dict[str, float]:
        place = store_folder(Path(folder), options.store)
        return Store(place).finished() if place.is_dir() else {}

    def _sample_times(self, points: Sequence[Point], options: SweepOptions) -> list[float]:
        samples = [points[i * (len(points) - 1) // (_SAMPLES - 1)] for i in range(min(_SAMPLES, len(points)))]
        graphs = self.load_graphs(_models_of(samples), lambda text: None, cache=options.trace_cache)
        evaluator = Evaluator(graphs.__getitem__)
        times = []
        for point in samples:
            begin = time.perf_counter()
            evaluator.row(point.key, point.settings)
            times.append(time.perf_counter() - begin)
        return times

    def run(
        self,
        folder: str | Path,
        options: SweepOptions | None = None,
        *,
        progress: Progress = lambda tally: None,
        report: Callable[[str], None] = lambda text: None,
    ) -> SweepResult:
        """Evaluate points that are not stored yet and write table, manifest and details into a folder.

        Args: progress: called with a Tally as points finish; report: called with what happens otherwise.
        Raises: ConfigError if another sweep uses the folder, it cannot be written, or the backend is not installed. A
            point's own errors become its row.
        """
        options = options or SweepOptions()
        require(*options.needs())
        folder = Path(folder)
        check_folders(folder, options)
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(store_folder(folder, options.store))
        with locked(store.folder):
            store.fold()  # what a killed driver left
            for note in store.notes:
                warnings.warn(note, RostamWarning, stacklevel=2)
            known = store.finished()
            todo = [point for point in _distinct(self.points) if point.key not in known]
            tally = Tally(total=len(_distinct(self.points)))
            tally.stored = tally.total - len(todo)
            write_json(folder / "sweep.json", self.manifest(options.title, []))
            graphs: dict[str, OperatorGraph] = {}
            if todo:
                graphs, leave = self._prepare(todo, options, report)
                self._evaluate(folder, store, todo, graphs, options, leave, tally, progress, report)
            frame = store.frame()
        table = with_differences(sweep_table(self.points, self._axis_keys, frame), self.points, self.axes)
        write_table(folder, table, frame)
        details = self._write_details(folder, table, graphs, options, report)
        write_json(folder / "sweep.json", self.manifest(options.title, details))
        return SweepResult(folder, table, self.manifest(options.title, details))

    def _prepare(
        self, todo: list[Point], options: SweepOptions, report: Callable[[str], None]
    ) -> tuple[dict[str, OperatorGraph], Leave]:
        """Return the graphs of pending points, and what leaves Ray: both at once, where both take seconds."""
        models = _models_of(todo)
        report(f"starting {options.backend}")
        if options.backend != "ray":
            return self.load_graphs(models, report, cache=options.trace_cache), None
        from rostam_py.sweep.ray_backend import start_ray

        with ThreadPoolExecutor(1) as other:
            graphs = other.submit(self.load_graphs, models, report, cache=options.trace_cache)
            leave = start_ray(_num_workers(options, len(todo)), options.address)
            if graphs.exception() is not None and leave is not None:
                leave()
            return graphs.result(), leave

    @property
    def _axis_keys(self) -> list[str]:
        return [axis.key for axis in self.axes]

    def _evaluate(
        self, folder: Path, store: Store, todo: list[Point], graphs: dict[str, OperatorGraph], options: SweepOptions,
        leave: Leave, tally: Tally, progress: Progress, report: Callable[[str], None],
    ) -> None:  # fmt: skip
        token = secrets.token_hex(8)
        write_atomically(store.folder / TOKEN_FILE, token.encode())
        work = Work(token, str(store.folder.resolve()), code_version())
        backend = make_backend(work, graphs, options, len(todo), leave)
        progress(tally)
        snapshots = Snapshots(lambda: self._write_snapshot(folder, store))

        def note(tally: Tally) -> None:
            progress(tally)
            snapshots.now_and_then()

        try:
            Driver(store, backend, todo, tally, retries=options.retries, progress=note).run()
        except BaseException:
            self._write_snapshot(folder, store)
            raise
        finally:
            backend.close()

    def _write_snapshot(self, folder: Path, store: Store) -> None:
        """Write the table of the points finished so far, so that a running or stopped sweep can be looked at."""
        frame = store.frame()
        if frame.height:
            stored = set(frame["key"].to_list())
            points = [point for point in self.points if point.key in stored]
            write_table(folder, with_differences(sweep_table(points, self._axis_keys, frame), points, self.axes), frame)

    def _write_details(
        self, folder: Path, table: Any, graphs: dict[str, OperatorGraph], options: SweepOptions,
        report: Callable[[str], None],
    ) -> list[str]:  # fmt: skip
        """Simulate the chosen points once more, for the pictures of single runs; files that exist stay."""
        by_key = {point.key: point for point in self.points}
        keys = chosen_points(table, options.details)
        rows = {row["key"]: row for row in table.filter(table["key"].is_in(keys)).iter_rows(named=True)}
        missing = [by_key[key] for key in keys if not (folder / "details" / f"{key}.json.gz").exists()]
        if not missing:
            return keys
        from rostam_py.simulation.detail import run_detail

        (folder / "details").mkdir(exist_ok=True)
        wanted = [model for model in _models_of(missing) if model not in graphs]
        graphs = graphs | self.load_graphs(wanted, report, cache=options.trace_cache)
        evaluator = Evaluator(graphs.__getitem__)
        for point in missing:
            report(f"drawing {', '.join(point.labels.values())}")
            results = evaluator.results(point.settings, rows[point.key])
            jobs = rows[point.key]["jobs"]
            detail = run_detail(results[0]) if jobs is None else run_detail(results, jobs=jobs)
            data = gzip.compress(json.dumps(detail | {"labels": dict(point.labels)}).encode(), mtime=0)
            with writing(folder):
                write_atomically(folder / "details" / f"{point.key}.json.gz", data)
        return keys


def run_sweep(
    base: Mapping[str, Any],
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    graphs: Mapping[str, OperatorGraph] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    backend: str = "process",
    address: str | None = None,
    store: str | None = None,
    details: int | None = None,
    title: str | None = None,
    progress: Progress = lambda tally: None,
    options: SimulationOptions | None = None,
) -> SweepResult:
    """Evaluate every combination of axis values, in parallel, and return the table.

    Model: each point is simulated (base["mode"] = "run"), searched ("search") or a mix of jobs ("mix"). Finished
        points are kept in ``out`` and never computed again; a point's error becomes its row.
    Args: base: nested settings, any of the keys of ``rostam sweep --help``; "fabric" is {"name": ..., parameters}.
        grid: {dotted key: values}, multiplied. rows: one axis of cases, each {"label": ..., dotted key: value}.
        Both may name machines: {"machine": "dgx_h100", "machine.servers": 2}.
        graphs: {name: traced graph}; name one by model="graph:name". out: folder; default runs/sweep-<hash>.
        workers, backend, address, store, details, title: as SweepOptions. progress: called with a Tally.
        options: simulation options of every point that ``base`` does not set.
    Returns: SweepResult: ``table`` (polars, one row per point), ``best()``, the folder.
    Raises: ConfigError for bad settings, before any work.
    Cost: the points' own time over the workers, 1 to 5 ms a batch of a second, and 4 s to start Ray.
    """
    mode = str(base.get("mode", "run"))
    known = [entry.name for entry in fields(SimulationOptions) if mode in MODES and is_read(mode, entry.name)]
    sweep = Sweep(chosen(options, known, f"a sweep of mode {mode}") | dict(base), grid=grid, rows=rows, graphs=graphs)
    how = SweepOptions(workers=workers, backend=backend, address=address, store=store, details=details, title=title)
    return sweep.run(out or Path("runs") / f"sweep-{sweep.digest}", how, progress=progress)


def check_folders(folder: Path, options: SweepOptions) -> None:
    """Raise ConfigError unless a sweep can write its folder and its store."""
    check_folder(folder, "out")
    check_folder(store_folder(folder, options.store), "out" if options.store is None else "sweep.store")


def _trace(model: str, cache: bool) -> OperatorGraph:
    from rostam_py.tracing import trace

    return trace(model, cache=cache)


def make_backend(
    work: Work, graphs: dict[str, OperatorGraph], options: SweepOptions, num_points: int, leave: Leave
) -> Backend:
    """Return the backend that the options name, with no more workers than points.

    Args: leave: of Ray, what ``start_ray`` returned.
    """
    workers = _num_workers(options, num_points)
    if options.backend == "inline":
        return InlineBackend(work, graphs)
    if options.backend == "process":
        return ProcessBackend(work, graphs, workers)
    from rostam_py.sweep.ray_backend import RayBackend

    return RayBackend(work, graphs, workers, leave)


def _num_workers(options: SweepOptions, num_points: int) -> int:
    """Return the workers to use; 0 takes all CPUs of a cluster, whose nodes may come and go."""
    if options.address is not None:
        return options.workers or 0
    return min(options.workers or os.cpu_count() or 1, num_points)


def _distinct(points: Sequence[Point]) -> list[Point]:
    """Return the first point of each key: two labels may mean the same settings."""
    return list({point.key: point for point in reversed(points)}.values())[::-1]


def _models_of(points: Sequence[Point]) -> list[str]:
    found: dict[str, None] = {}
    for point in points:
        found.update(dict.fromkeys(models_of(point.settings)))
    return list(found)


def _graph_digest(graph: OperatorGraph) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        graph.save(str(path))
        return hashlib.sha256(path.read_bytes()).hexdigest()
