"""``rostam demo``, the main job: two models, six fabrics, five bandwidths; best strategies and time-to-accuracy."""

import csv
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import DemoConfig
from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric
from rostam_py.placement import Machine
from rostam_py.searching import Candidate, Searcher
from rostam_py.units import format_bandwidth, format_time, parse_bandwidth

_SHORT_BANDWIDTHS = ["3200 Gb/s"]
# Elect-Flat, the cluster and the optical fabrics take 1 us end to end (SiP-ML 4.2); tree and mesh 500 ns a cable or
# trace, so 1 us between two ports of a switch. What differs is bandwidth, how it is shared, and how many cables lie on
# the way.
_HOP = "500 ns"


@dataclass(frozen=True)
class Job:
    """One model of the demonstration: its convergence curve says which batches are searched."""

    model: str
    convergence: str


# ResNet-50's batch is searched within what MLPerf measured; SiP-ML's Transformer fixes 1,024.
_JOBS = (Job("resnet50", "resnet50_mlperf"), Job("transformer_350m", "transformer_sip_ml"))


@dataclass(frozen=True)
class Point:
    """The best of one search."""

    job: Job
    fabric: str
    bandwidth: str
    best: Candidate


def demo(overrides: list[str], as_json: bool) -> int:
    """Search every point, print the tables, and write results, report and a timeline. Returns the exit status."""
    config: DemoConfig = compose_config("demo", overrides)
    bandwidths = _SHORT_BANDWIDTHS if config.short else config.bandwidths
    for bandwidth in bandwidths:
        parse_bandwidth(bandwidth, "bandwidths")
    machines = {
        (name, bandwidth): Machine(
            fabric=build_fabric(name, accelerator_bandwidth=bandwidth, **parameters), accelerator=config.accelerator
        )
        for name, parameters in demo_fabrics(config.num_accelerators).items()
        for bandwidth in bandwidths
    }
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.process_time()
    points = _search_all(machines, config)
    seconds = time.process_time() - begin
    _write(folder, points)
    if as_json:
        print(json.dumps([_row(point, points) for point in points], indent=2))
        return 0
    console = Console(record=True, width=max(124, Console().width))
    for job in _JOBS:
        console.print(_table(job, [one for one in points if one.job is job], config))
    console.print(_reading(points), markup=False, highlight=False)
    console.save_html(str(folder / "report.html"), clear=False)
    done = f"{len(points)} searches in {seconds:.1f} CPU seconds, the best {config.num_simulated} of each simulated"
    console.print(f"{done}; written to {folder}/", highlight=False)
    console.print(f"open {folder}/report.html, and {folder}/timeline.json at ui.perfetto.dev", highlight=False)
    return 0


def demo_fabrics(num_accelerators: int) -> dict[str, dict[str, Any]]:
    """Return the parameters of the six fabrics at a size: Elect-Flat, Elect-Cluster, full tree, Hx2Mesh, SiP.

    Raises: ConfigError for a size that 2 x 2 boards in a rectangle do not fill.
    """
    if num_accelerators % 16:
        raise ConfigError(f"num_accelerators is {num_accelerators}; it must be a multiple of 16 (servers, boards)")
    boards = num_accelerators // 4
    rows = max(y for y in range(1, int(boards**0.5) + 1) if boards % y == 0)
    size = {"num_accelerators": num_accelerators}
    return {
        "electrical_flat": size | {"latency": "1 us"},
        "electrical_cluster": size | {"server_size": 8, "server_bandwidth": "400 Gb/s"},
        "fat_tree": size | {"levels": 2, "link_latency": _HOP, "switch_latency": "0 ns"},
        "hammingmesh": {
            "board": [2, 2], "boards": [boards // rows, rows], "link_latency": _HOP, "board_latency": _HOP,
            "switch_latency": "0 ns",
        },
        "sip_ocs": size | {"latency": "1 us"},
        "sip_ring": size | {"latency": "1 us"},
    }  # fmt: skip


def _search_all(machines: dict[tuple[str, str], Machine], config: DemoConfig) -> list[Point]:
    from rostam_py.placement import Strategy
    from rostam_py.tracing import trace

    points: list[Point] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=len(_JOBS) * len(machines))
        for job in _JOBS:
            progress.update(task, description=f"tracing {job.model}")
            base = Strategy(precision=config.precision, algorithms={"all_reduce": "auto"})
            searcher = Searcher(trace(job.model), base=base)
            for (name, bandwidth), machine in machines.items():
                progress.update(task, description=f"{job.model} on {name} at {bandwidth}")
                found = searcher.search(machine, convergence=job.convergence, num_simulated=config.num_simulated)
                points.append(Point(job, name, bandwidth, found.best))
                progress.advance(task)
    return points


def _flat_times(points: list[Point]) -> dict[tuple[str, str], float]:
    flat = [p for p in points if p.fabric == "electrical_flat"]
    return {(p.job.model, p.bandwidth): p.best.time_to_accuracy_s or 0.0 for p in flat}


def _table(job: Job, points: list[Point], config: DemoConfig) -> Table:
    precision = points[0].best.plan.precision if points[0].best.plan is not None else config.precision
    machine = f"{config.num_accelerators} x {config.accelerator}, {precision}"
    title = f"{job.model} to the target of {job.convergence}: {machine}"
    table = Table(
        title=title,
        caption="exposed: communication, mean device; error: estimate over simulation - 1; mp: placed by Algorithm 1",
    )
    headers = ("fabric", "bandwidth", "strategy", "batch", "iteration", "exposed", "error", "to accuracy", "vs flat")
    for name in headers:
        table.add_column(name, justify="left" if name in ("fabric", "strategy") else "right", no_wrap=True)
    flat = _flat_times(points)
    last = ""
    for point in points:
        if last and point.fabric != last:
            table.add_section()
        best = point.best
        seconds, total = best.iteration_time_s or 0.0, best.time_to_accuracy_s or 0.0
        table.add_row(
            "" if point.fabric == last else point.fabric, format_bandwidth(parse_bandwidth(point.bandwidth)),
            _degrees(best), f"{best.global_batch:,}", format_time(seconds),
            f"{format_time(best.exposed_s or 0.0)} ({(best.exposed_s or 0.0) / seconds:.0%})",
            f"{best.estimate_error or 0.0:+.1%}", _minutes(total), f"{total / flat[job.model, point.bandwidth]:.2f} x",
        )  # fmt: skip
        last = point.fabric
    return table


def _degrees(candidate: Candidate) -> str:
    """Return the degrees above 1; "mp" says that Algorithm 1 placed it."""
    return " x ".join(f"{axis} {n}" for axis, n in candidate.degrees.items() if n > 1) or "one device"


def _minutes(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 7200 else f"{seconds / 60:.2f} min"


def _reading(points: list[Point]) -> str:
    """Return the tables' points in a few sentences a model, points faster than Elect-Flat among them."""
    lines = []
    flat = _flat_times(points)
    for job in _JOBS:
        mine = [p for p in points if p.job is job]
        slow, fast = max(mine, key=_total_s), min(mine, key=_total_s)
        lines.append(
            f"{job.model}: {slow.fabric} at {slow.bandwidth} takes {_total_s(slow) / _total_s(fast):.2f} x the time of"
            f" {fast.fabric} at {fast.bandwidth}; best strategies: "
            + ", ".join(dict.fromkeys(_degrees(p.best) for p in mine))
            + "."
        )
        ahead = [p for p in mine if _total_s(p) < flat[job.model, p.bandwidth] * (1 - 1e-3)]
        if ahead:
            names = ", ".join(
                f"{p.fabric} at {p.bandwidth} ({_total_s(p) / flat[job.model, p.bandwidth]:.3f} x)" for p in ahead
            )
            lines.append(f"  faster than electrical_flat there: {names}; see experiments/ordering_against_flat")
    return "\n".join(lines)


def _total_s(point: Point) -> float:
    return point.best.time_to_accuracy_s or 0.0


def _row(point: Point, points: list[Point]) -> dict[str, Any]:
    flat = _flat_times(points)[point.job.model, point.bandwidth]
    return {
        "model": point.job.model, "convergence": point.job.convergence, "fabric": point.fabric,
        "accelerator_bandwidth": point.bandwidth, "strategy": point.best.describe(),
        "precision": None if point.best.plan is None else point.best.plan.precision,
        "time_to_accuracy_over_flat": _total_s(point) / flat, **point.best.to_dict(),
    }  # fmt: skip


def _write(folder: Path, points: list[Point]) -> None:
    rows = [_row(point, points) for point in points]
    (folder / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    with open(folder / "results.csv", "w", newline="", encoding="utf-8") as file:
        keys = list(dict.fromkeys(key for row in rows for key in row))
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        writer.writerows(rows)
    from rostam_py.simulation import simulate

    chosen = next(p for p in reversed(points) if p.fabric == "hammingmesh")
    if chosen.best.plan is not None:
        simulate(chosen.best.plan, timeline=True).save_timeline(str(folder / "timeline.json"))
