"""``rostam demo``, the main job: two models, six fabrics, five bandwidths; best strategies and time-to-accuracy.

A sweep of searches like any other: its folder resumes, holds the table, and a report that one can open.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import DemoConfig
from rostam_py.cli.sweep_progress import SweepProgress
from rostam_py.errors import ConfigError, InternalError
from rostam_py.extras import require
from rostam_py.fabrics.sizes import resize_parameters
from rostam_py.report.needs import page_needs
from rostam_py.sweep import Sweep, SweepOptions, SweepResult, Tally
from rostam_py.sweep.driver import store_folder
from rostam_py.sweep.run_sweep import check_folders
from rostam_py.sweep.store import Store
from rostam_py.units import format_bandwidth, format_time, parse_bandwidth
from rostam_py.validation.names import table_names
from rostam_py.validation.predict import Predictor
from rostam_py.validation.tables import select

Row = dict[str, Any]

_SHORT_BANDWIDTHS = ["3200 Gb/s"]
_BANDWIDTH = "fabric.accelerator_bandwidth"
_KNOWN = ("V2", "22B selective")  # a measured step and its table
# ResNet-50's batch is searched within what MLPerf measured; SiP-ML's Transformer fixes 1,024.
_MODELS = ("resnet50", "transformer_350m")
# Elect-Flat, the cluster and the optical fabrics take 1 us end to end (SiP-ML 4.2); tree and mesh 500 ns a cable or
# trace, so 1 us between two ports of a switch. What differs is bandwidth, how it is shared, and how many cables lie on
# the way.
_HOP = "500 ns"
_FABRICS: dict[str, dict[str, Any]] = {
    "electrical_flat": {"latency": "1 us"},
    "electrical_cluster": {"server_size": 8, "server_bandwidth": "400 Gb/s"},
    "fat_tree": {"levels": 2, "link_latency": _HOP, "switch_latency": "0 ns"},
    "hammingmesh": {"board": [2, 2], "link_latency": _HOP, "board_latency": _HOP, "switch_latency": "0 ns"},
    "sip_ocs": {"latency": "1 us"},
    "sip_ring": {"latency": "1 us"},
}  # fmt: skip


def demo(overrides: list[str], as_json: bool) -> int:
    """Search every point, print the tables, and write table, report and a timeline. Returns the exit status."""
    config: DemoConfig = compose_config("demo", overrides)
    bandwidths = _SHORT_BANDWIDTHS if config.short else config.bandwidths
    for bandwidth in bandwidths:
        parse_bandwidth(bandwidth, "bandwidths")
    sweep = _sweep(config, bandwidths)
    options = SweepOptions(
        backend="process", title=f"Two models on {config.num_accelerators} accelerators, six fabrics"
    )
    require(*(replace(need, what="rostam demo", otherwise="") for need in options.needs()), *page_needs("rostam demo"))
    folder = Path(config.out)
    check_folders(folder, options)
    console = Console(stderr=True)
    _print_known_run(console)
    begin = time.perf_counter()
    with SweepProgress(console, "searches") as progress:
        points = _Points(progress, sweep, folder)
        result = sweep.run(folder, options, progress=points.update, report=progress.say)
    seconds = time.perf_counter() - begin
    _write_timeline(sweep, result, folder)
    from rostam_py.report.report import write_report

    report = write_report(folder)
    rows = result.table.to_dicts()
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    console = Console(width=max(124, Console().width))
    for model in _MODELS:
        console.print(_table(model, [row for row in rows if row["model"] == model], rows, config))
    console.print(_reading(rows), markup=False, highlight=False)
    done = f"{len(rows)} searches in {seconds:.1f} s, the best {config.num_simulated} or more of each simulated"
    console.print(f"{done}; table: {folder}/points.csv", highlight=False)
    console.print(f"open {report}, and {folder}/timeline.json at ui.perfetto.dev", highlight=False)
    return 0


def _print_known_run(console: Console) -> None:
    """Simulate one step that a paper timed, which takes seconds, and print both times."""
    (table,) = select([_KNOWN[0]], ["/".join(_KNOWN)])
    found = Predictor().outcome(table, table.rows[0], with_alternatives=False)
    if found.failed:
        raise InternalError(f"{table.name}/{found.row.name} is refused: {found.failed}")
    step = found.compared["time"]
    console.print(
        f"first, a step that was measured: {table.source}, {found.row.name}: {format_time(step.measured)} printed,"
        f" {format_time(step.predicted)} simulated ({step.error:+.1f}%); rostam validate compares"
        f" {len(table_names())} such tables",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


class _Points:
    """Progress of the sweep, and a line for every point as it comes."""

    def __init__(self, progress: SweepProgress, sweep: Sweep, folder: Path) -> None:
        self._progress = progress
        self._labels = {point.key: point.labels for point in sweep.points}
        self._store = Store(store_folder(folder, None))
        self._num_shown = 0

    def update(self, tally: Tally) -> None:
        """Show how far the sweep is, and what has come."""
        self._progress.update(tally)
        for key in tally.keys[self._num_shown :]:
            self._progress.show(_line(self._labels[key], self._store.row(key)))
        self._num_shown = len(tally.keys)


def _line(labels: Mapping[str, str], row: Row) -> str:
    where = f"{labels['model']:<16}  {labels['fabric']:<18}  {labels[_BANDWIDTH]:>10}"
    if row["status"] != "ok":
        return f"{where}  {row['error']}"
    return (
        f"{where}  {_degrees(row):<14}  {format_time(row['iteration_time_s']):>8} an iteration,"
        f" {_minutes(row['time_to_accuracy_s'])} to accuracy"
    )


def demo_fabrics(num_accelerators: int) -> dict[str, dict[str, Any]]:
    """Return the parameters of the six fabrics at a size: Elect-Flat, Elect-Cluster, full tree, Hx2Mesh, SiP.

    Raises: ConfigError for a size that 2 x 2 boards in a rectangle do not fill.
    """
    if num_accelerators % 16:
        raise ConfigError(f"num_accelerators is {num_accelerators}; it must be a multiple of 16 (servers, boards)")
    return {name: resize_parameters(name, given, num_accelerators) for name, given in _FABRICS.items()}


def _sweep(config: DemoConfig, bandwidths: list[str]) -> Sweep:
    base = {
        "mode": "search", "software": {"name": "ideal"}, "accelerator": config.accelerator,
        "search": {"num_simulated": config.num_simulated},
        "strategy": {"precision": config.precision, "algorithms": {"all_reduce": "auto"}},
    }  # fmt: skip
    fabrics = demo_fabrics(config.num_accelerators)
    grid = {
        "model": _MODELS,
        "fabric": [{"label": name, "name": name, **parameters} for name, parameters in fabrics.items()],
        _BANDWIDTH: bandwidths,
    }
    return Sweep(base, grid=grid)


def _write_timeline(sweep: Sweep, result: SweepResult, folder: Path) -> None:
    """Write a timeline of the last HammingMesh point."""
    from rostam_py.simulation import simulate
    from rostam_py.sweep.evaluate import Evaluator

    path = folder / "timeline.json"
    chosen = [point for point in sweep.points if point.labels["fabric"] == "hammingmesh"][-1]
    if path.exists() or result.table["status"][chosen.index] != "ok":
        return
    graphs = sweep.load_graphs([chosen.settings["model"]], lambda text: None)
    row = result.table.row(chosen.index, named=True)
    for job in Evaluator(graphs.__getitem__).results(chosen.settings, row):
        simulate(job.plan, timeline=True).save_timeline(str(path))


def _flat_times(rows: list[Row]) -> dict[tuple[str, str], float]:
    flat = [row for row in rows if row["fabric"] == "electrical_flat" and row["status"] == "ok"]
    return {(row["model"], row[_BANDWIDTH]): row["time_to_accuracy_s"] for row in flat}


def _over_flat(row: Row, rows: list[Row]) -> float:
    return float(row["time_to_accuracy_s"] / _flat_times(rows)[row["model"], row[_BANDWIDTH]])


def _table(model: str, mine: list[Row], rows: list[Row], config: DemoConfig) -> Table:
    machine = f"{config.num_accelerators} x {config.accelerator}, {mine[0]['precision']}"
    table = Table(
        title=f"{model} to the target of {mine[0]['convergence']}: {machine}",
        caption="exposed: communication, mean device; error: estimate over simulation - 1; mp: placed by Algorithm 1",
    )
    headers = ("fabric", "bandwidth", "strategy", "batch", "iteration", "exposed", "error", "to accuracy", "vs flat")
    for name in headers:
        table.add_column(name, justify="left" if name in ("fabric", "strategy") else "right", no_wrap=True)
    last = ""
    for row in mine:
        if last and row["fabric"] != last:
            table.add_section()
        name, last = "" if row["fabric"] == last else row["fabric"], row["fabric"]
        bandwidth = format_bandwidth(parse_bandwidth(row[_BANDWIDTH]))
        if row["status"] != "ok":
            table.add_row(name, bandwidth, row["error"])
            continue
        seconds, exposed = row["iteration_time_s"], row["exposed_s"]
        table.add_row(
            name, bandwidth, _degrees(row), f"{row['global_batch']:,}", format_time(seconds),
            f"{format_time(exposed)} ({exposed / seconds:.0%})", f"{row['estimate_error']:+.1%}",
            _minutes(row["time_to_accuracy_s"]), f"{_over_flat(row, rows):.2f} x",
        )  # fmt: skip
    return table


def _degrees(row: Row) -> str:
    """Return the degrees above 1; "mp" says that Algorithm 1 placed it."""
    axes = ("dp", "tp", "cp", "pp", "mp")
    return " x ".join(f"{axis} {row[axis]}" for axis in axes if (row[axis] or 1) > 1) or "one device"


def _minutes(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 7200 else f"{seconds / 60:.2f} min"


def _reading(rows: list[Row]) -> str:
    """Return the tables' points in a few sentences a model, points faster than Elect-Flat among them."""
    lines = []
    for model in _MODELS:
        mine = [row for row in rows if row["model"] == model and row["status"] == "ok"]
        slow, fast = max(mine, key=_total_s), min(mine, key=_total_s)
        lines.append(
            f"{model}: {slow['fabric']} at {slow[_BANDWIDTH]} takes {_total_s(slow) / _total_s(fast):.2f} x the time of"
            f" {fast['fabric']} at {fast[_BANDWIDTH]}; best strategies: "
            + ", ".join(dict.fromkeys(_degrees(row) for row in mine))
            + "."
        )
        ahead = [row for row in mine if _over_flat(row, rows) < 1 - 1e-3]
        if ahead:
            names = ", ".join(f"{r['fabric']} at {r[_BANDWIDTH]} ({_over_flat(r, rows):.3f} x)" for r in ahead)
            lines.append(f"  faster than electrical_flat there: {names}; see experiments/ordering_against_flat")
    return "\n".join(lines)


def _total_s(row: Row) -> float:
    return float(row["time_to_accuracy_s"])
