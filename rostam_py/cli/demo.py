"""``rostam demo``: two models on 64 accelerators, three fabrics, three bandwidths; a table, a report, a timeline."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import DemoConfig
from rostam_py.simulation import RunResult
from rostam_py.units import format_time

_BANDWIDTHS = ("400 Gb/s", "1600 Gb/s", "6400 Gb/s")
# 64 accelerators: ideal switch; servers of 8 with 400 Gb/s each between them; 8 leaves of 8 with 8 uplinks. Every
# switch on a path costs 1 us everywhere, so that what differs is bandwidth and how it is shared.
_FABRICS: dict[str, dict[str, Any]] = {
    "electrical_flat": {},
    "electrical_cluster": {"server_size": 8, "server_bandwidth": "400 Gb/s"},
    "fat_tree": {"radix": 16, "link_latency": "0 ns", "switch_latency": "1 us"},
}
_NUM_ACCELERATORS = 64
_ACCELERATOR = "a100_80gb"


@dataclass(frozen=True)
class Job:
    """One model of the demonstration and how it is trained."""

    model: str
    title: str
    global_batch: int
    strategy: dict[str, Any]


_JOBS = (
    Job("resnet50", "ResNet-50, pure data parallel", 64 * 64, {"dp": 64, "precision": "bf16_mixed"}),
    Job(
        "gpt_1_3b", "GPT-1.3B, tensor parallel in groups of 8", 64,
        {"dp": 8, "tp": 8, "micro_batch": 4, "precision": "bf16_mixed"},
    ),
)  # fmt: skip


def demo(overrides: list[str], as_json: bool) -> int:
    """Simulate every point, print the table, and write results, report and timeline. Returns the exit status."""
    config: DemoConfig = compose_config("demo", overrides)
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    bandwidths = _BANDWIDTHS[1:2] if config.short else _BANDWIDTHS
    begin = time.process_time()
    points = _simulate_all(bandwidths)
    _write(folder, points)
    if as_json:
        print(json.dumps(_rows(points), indent=2))
        return 0
    console = Console(record=True, width=max(110, Console().width))
    for job in _JOBS:
        console.print(_table(job, [one for one in points if one[0] is job]))
    console.print(_reading(points), markup=False, highlight=False)
    console.save_html(str(folder / "report.html"), clear=False)
    seconds = time.process_time() - begin
    console.print(f"{len(points)} simulations in {seconds:.1f} CPU seconds; written to {folder}/", highlight=False)
    console.print(f"open {folder}/report.html, and {folder}/timeline.json at ui.perfetto.dev", highlight=False)
    return 0


Point = tuple[Job, str, str, RunResult]


def _simulate_all(bandwidths: tuple[str, ...]) -> list[Point]:
    from rostam_py.fabrics import build_fabric
    from rostam_py.placement import Machine, Strategy, place
    from rostam_py.simulation import simulate
    from rostam_py.tracing import trace

    points: list[Point] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=len(_JOBS) * len(_FABRICS) * len(bandwidths))
        for job in _JOBS:
            progress.update(task, description=f"tracing {job.model}")
            graph = trace(job.model)
            for name, parameters in _FABRICS.items():
                for bandwidth in bandwidths:
                    progress.update(task, description=f"{job.model} on {name} at {bandwidth}")
                    fabric = build_fabric(
                        name, num_accelerators=_NUM_ACCELERATORS, accelerator_bandwidth=bandwidth, **parameters
                    )
                    machine = Machine(fabric=fabric, accelerator=_ACCELERATOR)
                    plan = place(graph, machine, global_batch=job.global_batch, strategy=Strategy(**job.strategy))
                    points.append((job, name, bandwidth, simulate(plan, timeline=True)))
                    progress.advance(task)
    return points


def _table(job: Job, points: list[Point]) -> Table:
    table = Table(title=f"{job.title}: {_NUM_ACCELERATORS} x {_ACCELERATOR}, global batch {job.global_batch:,}")
    for name in ("fabric", "bandwidth", "iteration", "samples/s", "compute", "exposed comm", "MFU", "vs flat"):
        table.add_column(name, justify="left" if name == "fabric" else "right", no_wrap=True)
    flat = {bandwidth: result.iteration_time_s for _, name, bandwidth, result in points if name == "electrical_flat"}
    last = ""
    for _, name, bandwidth, result in points:
        if last and name != last:
            table.add_section()
        table.add_row(
            "" if name == last else name, bandwidth, format_time(result.iteration_time_s),
            f"{result.samples_per_s:,.0f}", format_time(result.breakdown["compute"]), format_time(_exposed(result)),
            f"{result.mfu:.1%}", f"{result.iteration_time_s / flat[bandwidth]:.2f} x",
        )  # fmt: skip
        last = name
    return table


def _exposed(result: RunResult) -> float:
    return sum(result.breakdown[axis] for axis in ("tp", "dp", "pp", "tied"))


def _reading(points: list[Point]) -> str:
    """Return the table's point in one sentence a model."""
    lines = []
    for job in _JOBS:
        mine = [one for one in points if one[0] is job]
        slow, fast = max(mine, key=lambda p: p[3].iteration_time_s), min(mine, key=lambda p: p[3].iteration_time_s)
        ratio = slow[3].iteration_time_s / fast[3].iteration_time_s
        lines.append(
            f"{job.model}: {slow[1]} at {slow[2]} takes {ratio:.2f} x the time of {fast[1]} at {fast[2]}; there"
            f" {_exposed(slow[3]) / slow[3].iteration_time_s:.0%} of an iteration is exposed communication."
        )
    return "\n".join(lines)


def _rows(points: list[Point]) -> list[dict[str, Any]]:
    return [
        {"model": job.model, "fabric": name, "accelerator_bandwidth": bandwidth, **result.to_dict()}
        | {"fabric_description": result.plan.machine.fabric.describe(), "fabric": name}
        for job, name, bandwidth, result in points
    ]


def _write(folder: Path, points: list[Point]) -> None:
    (folder / "results.json").write_text(json.dumps(_rows(points), indent=2) + "\n", encoding="utf-8")
    chosen = next(one for one in points if one[0].model == "gpt_1_3b" and one[1] == "fat_tree")
    chosen[3].save_timeline(str(folder / "timeline.json"))
