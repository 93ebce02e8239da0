"""What of a run's or a sweep's folder goes to Weights & Biases, as plain mappings and lists; wandb is not needed.

Curves: x name -> rows {x name: value, curve name: value}. Figures are in SI units, which the names say.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.scales import named_label
from rostam_py.report.sweep.load import SweepData

if TYPE_CHECKING:
    import polars

_RESULT_CONFIG = (
    "model", "fabric", "accelerator", "num_accelerators", "strategy", "global_batch", "micro_batch", "fidelity",
    "routing", "controllers", "seed", "software",
)  # fmt: skip
_RESULT_SCALARS = (
    "iteration_time_s", "first_iteration_s", "is_steady", "samples_per_s", "tokens_per_s", "mfu", "mfu_causal", "hfu",
    "memory_bytes", "num_simulated_devices", "breakdown_s", "critical_path_s", "bytes_sent", "bytes_received",
    "num_messages", "expected",
)  # fmt: skip
_RECONFIGURATION_SCALARS = ("num_reconfigurations", "num_changed_circuits", "duty_cycle", "dark_s", "relayed_bytes")
# What a point is, not what it gave; every other column of its row is a result.
_POINT_CONFIG = (
    "mode", "model", "fabric", "fabric_kind", "accelerator", "num_accelerators", "accelerator_bandwidth_bytes_per_s",
    "routing", "controllers", "seed", "cost", "software", "software_release", "strategy", "placer",
    "dp", "tp", "cp", "pp", "mp", "ep", "precision",
    "global_batch", "micro_batch", "num_microbatches", "convergence", "failed_links", "failed_switches",
    "failed_accelerators", "failed_boards", "num_jobs",
)  # fmt: skip
# What points are compared by, the first that any point has.
OBJECTIVES = ("time_to_accuracy_s", "slowdown_mean", "time_per_sample_s")
MAX_TABLE_ROWS = 10_000
_MAX_CURVE_POINTS = 200
_PROGRESS_STEPS = 50
_BITS_PER_GBYTE = 8e-9

Curves = dict[str, list[dict[str, float]]]
Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Chart:
    """Lines of one chart. name: in the run. lines: label -> (x values, y values), x ascending."""

    name: str
    title: str
    x_name: str
    lines: dict[str, tuple[list[float], list[float]]]


def run_name(result: Mapping[str, Any]) -> str:
    """Return what a run is: model, fabric and the degrees above one."""
    degrees = " x ".join(f"{axis} {degree}" for axis, degree in result["strategy"].items() if degree > 1)
    return f"{result['model']} on {result['fabric']}" + (f", {degrees}" if degrees else "")


def result_config(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was simulated, as the result says it."""
    return {key: result[key] for key in _RESULT_CONFIG if key in result}


def result_summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result's figures, time to accuracy included where it has one."""
    summary = {key: result[key] for key in _RESULT_SCALARS if result.get(key) is not None}
    links = result.get("busiest_links") or []
    if links:
        summary["max_link_utilization"] = max(link["utilization"] for link in links)
    switched = result.get("reconfigurations") or {}
    summary |= {key: switched[key] for key in _RECONFIGURATION_SCALARS if key in switched}
    answer = result.get("time_to_accuracy")
    if answer is not None:
        summary["time_to_accuracy_s"] = answer["time_s"]
        summary["iterations"] = answer["iterations"]
        summary["is_extrapolated"] = answer["is_extrapolated"]
        summary["time_to_accuracy_low_s"], summary["time_to_accuracy_high_s"] = answer["band_s"]
    summary["notes"] = "\n".join(result.get("notes", ()))
    return summary


def result_curves(result: Mapping[str, Any], detail: Mapping[str, Any]) -> Curves:
    """Return iteration times over iterations, the critical path adding up by kind, and training's progress."""
    times = result["iteration_times_s"]
    curves: Curves = {"iteration": [{"iteration": k, "iteration_time_s": t} for k, t in enumerate(times)]}
    path = list(_cumulative(detail.get("critical_path", ())))
    if path:
        every = -(-len(path) // _MAX_CURVE_POINTS)
        curves["critical_path/time_s"] = [*path[:-1:every], path[-1]]
    answer = result.get("time_to_accuracy")
    if answer is not None:
        shares = [k / _PROGRESS_STEPS for k in range(_PROGRESS_STEPS + 1)]
        curves["training/time_s"] = [
            {
                "training/time_s": share * answer["time_s"],
                "training/iterations": share * answer["iterations"],
                "training/samples": share * answer["iterations"] * answer["global_batch"],
                "training/progress": share,
            }
            for share in shares
        ]
    return curves


def result_tables(result: Mapping[str, Any], detail: Mapping[str, Any]) -> Tables:
    """Return breakdown, critical tasks, busiest links and, of a detail document, memory by stage."""
    total, path = result["iteration_time_s"], result.get("critical_path_s", {})
    kinds = dict.fromkeys([*result["breakdown_s"], *path])
    breakdown = [
        {
            "kind": kind, "mean_device_s": result["breakdown_s"].get(kind, 0.0),
            "share": result["breakdown_s"].get(kind, 0.0) / total, "critical_path_s": path.get(kind, 0.0),
            "bytes_sent": result.get("bytes_sent", {}).get(kind), "messages": result.get("num_messages", {}).get(kind),
        }
        for kind in kinds
    ]  # fmt: skip
    tables = {
        "breakdown": breakdown,
        "critical_tasks": list(result.get("critical_tasks", ())),
        "busiest_links": list(result.get("busiest_links", ())),
        "memory_by_stage": list(detail.get("memory", ())),
        "breakdown_by_stage": list(detail.get("breakdown_by_stage", ())),
    }
    return {name: rows for name, rows in tables.items() if rows}


def sweep_group(manifest: Mapping[str, Any]) -> str:
    """Return the group of a sweep's runs: its title and a digest of what it sweeps, so that other sweeps stay apart."""
    what = {key: manifest.get(key) for key in ("mode", "axes", "base")}
    digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"{(manifest.get('title') or 'sweep')[:100]} {digest}"


def sweep_config(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sweep's axes and base settings."""
    axes = {_plain(axis["key"]): [str(label) for label in axis["labels"]] for axis in manifest.get("axes", ())}
    keys = ("rostam_version", "title", "mode", "num_points", "base")
    return {"axes": axes} | {key: manifest[key] for key in keys if key in manifest}


def sweep_summary(data: SweepData) -> dict[str, Any]:
    """Return how many points there are, and each model's best: its axes' labels, strategy and figures."""
    best: dict[str, Any] = {}
    objective = objective_of(data)
    for model, points in _by_model(data) if objective is not None else ():
        row = points.sort(objective, "index", nulls_last=True).row(0, named=True)
        labels = {_plain(key): _setting(data, row, key) for key in data.axes}
        figures = {key: row[key] for key in ("index", "strategy", *OBJECTIVES) if row.get(key) is not None}
        best[_plain(model)] = labels | figures
    return {"points": len(data.table), "errors": len(data.failed()), "best": best}


def objective_of(data: SweepData) -> str | None:
    """Return the column that points are compared by; None if no point has one."""
    table = _with_time_per_sample(data.finished())
    return next((name for name in OBJECTIVES if _has_values(table, name)), None)


def sweep_rows(data: SweepData) -> tuple[list[str], list[list[Any]]]:
    """Return the table of all points (the first 10,000): columns that any point fills, lists as JSON text."""
    table = data.table.head(MAX_TABLE_ROWS)
    names = [name for name in table.columns if _has_values(table, name)]
    return names, [[_cell(value) for value in row] for row in table.select(names).rows()]


def sweep_charts(data: SweepData) -> list[Chart]:
    """Return the best points' objective over accelerator bandwidth: a chart per model, a line per fabric or case."""
    objective, x = objective_of(data), "accelerator_bandwidth_bytes_per_s"
    label = "case" if "case" in data.axes else "fabric"
    if objective is None or label not in data.table.columns or not _has_values(data.table, x):
        return []
    charts = []
    for model, points in _by_model(data):
        known = points.select(label, x, objective).drop_nulls()
        best = known.group_by(label, x, maintain_order=True).min()
        lines: dict[str, tuple[list[float], list[float]]] = {}
        for line, bandwidth, value in sorted(best.rows(), key=lambda row: row[1]):
            xs, ys = lines.setdefault(str(line), ([], []))
            xs.append(bandwidth * _BITS_PER_GBYTE)
            ys.append(value)
        ordered = {name: lines[name] for name in data.axes.get(label, sorted(lines)) if name in lines}
        if any(len(xs) > 1 for xs, _ in ordered.values()):
            title = f"{model}: {objective} over accelerator bandwidth"
            charts.append(Chart(f"{objective}/{_plain(model)}", title, "accelerator bandwidth [Gb/s]", ordered))
    return charts


def point_name(data: SweepData, row: Mapping[str, Any]) -> str:
    """Return what a point is: model, fabric, its label on the other axes, strategy."""
    fabric, strategy = row.get("fabric") or row.get("case"), row.get("strategy")
    text = str(row.get("model") or data.mode) + (f" on {fabric}" if fabric else "")
    axes = [key for key in data.axes if key not in ("model", "fabric", "case")]
    others = [named_label(key, str(_setting(data, row, key))) for key in axes]
    return ", ".join([text, *others, *([strategy] if strategy else [])])


def point_config(data: SweepData, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point's key, its label on every axis, and what it was resolved to."""
    config = {key: row[key] for key in ("key", "index", *_POINT_CONFIG) if row.get(key) is not None}
    return config | {"axes": {_plain(key): _setting(data, row, key) for key in data.axes}}


def point_summary(data: SweepData, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point's results, or its error."""
    known = {"key", "index", *_POINT_CONFIG, *data.axes}
    return {_plain(key): _cell(value) for key, value in row.items() if key not in known and _cell(value) is not None}


def _setting(data: SweepData, row: Mapping[str, Any], key: str) -> Any:
    """Return what an axis has at a point; where its column holds results, as that of jobs, its label."""
    return data.label_at(row["index"], key) if isinstance(row[key], list) else row[key]


def _cumulative(path: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, float]]:
    """Yield, at the end of every segment of the critical path, the seconds of each kind so far."""
    sums = dict.fromkeys((segment["kind"] for segment in path), 0.0)
    for segment in path:
        sums[segment["kind"]] += segment["duration_s"]
        end = {"critical_path/time_s": segment["start_s"] + segment["duration_s"]}
        yield end | {f"critical_path/{kind}_s": seconds for kind, seconds in sums.items()}


def _with_time_per_sample(table: polars.DataFrame) -> polars.DataFrame:
    """Add iteration time / global batch: iterations of different batches do different work (MODEL K31)."""
    import polars as pl

    if not {"iteration_time_s", "global_batch"} <= set(table.columns):
        return table
    return table.with_columns((pl.col("iteration_time_s") / pl.col("global_batch")).alias("time_per_sample_s"))


def _by_model(data: SweepData) -> Iterator[tuple[str, polars.DataFrame]]:
    """Yield the finished points of every model; those of several jobs at once as "mix"."""
    done = _with_time_per_sample(data.finished())
    if "model" not in done.columns:
        yield data.mode, done
        return
    for (model,), points in done.group_by("model", maintain_order=True):
        yield data.mode if model is None else str(model), points


def _has_values(table: polars.DataFrame, name: str) -> bool:
    return name in table.columns and table[name].null_count() < len(table)


def _cell(value: Any) -> Any:
    """Return a value that W&B takes: lists (jobs, notes) as text, nothing for values that are not numbers."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value) if value else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(key: str) -> str:
    """Return a key without dots, which W&B reads as nesting: "fabric.bandwidth" becomes "fabric/bandwidth"."""
    return key.replace(".", "/")
