"""Columns: what a point's row holds, under which name and type; the one place that turns results into rows."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rostam_py.convergence import time_to_accuracy
from rostam_py.fabrics.failures import FAILURE_KINDS, count_of, share_of
from rostam_py.plan import Plan, Strategy
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.group_kinds import counted_kinds
from rostam_py.simulation import RunResult
from rostam_py.simulation.controllers import controller_words
from rostam_py.spec.keys import NO_CURVE
from rostam_py.spec.settings import Settings
from rostam_py.spread import OutageTimes, StepVariability
from rostam_py.spread.lost_time import CAUSES

# name -> type: "str", "int", "float", "bool", "list[str]" or "jobs". README and report use these names.
_BEFORE_EXPOSED: dict[str, str] = {
    "key": "str", "mode": "str", "status": "str", "error_type": "str", "error": "str",
    "model": "str", "fabric_kind": "str", "accelerator": "str", "num_accelerators": "int",
    "accelerator_bandwidth_bytes_per_s": "float", "routing": "str", "controllers": "str", "seed": "int", "cost": "str",
    **{f"failed_{kind}": "int" for kind in FAILURE_KINDS},
    "strategy": "str", "placer": "str", "dp": "int", "tp": "int", "cp": "int", "pp": "int",
    "mp": "int", "ep": "int", "precision": "str",
    "strategy_settings": "str", "software": "str", "software_release": "str",
    "global_batch": "int", "micro_batch": "int", "num_microbatches": "int",
    "algorithms": "str",
    "iteration_time_s": "float", "expected_iteration_time_s": "float", "expected_low_s": "float",
    "expected_high_s": "float", "first_iteration_s": "float", "is_steady": "bool", "samples_per_s": "float",
    "tokens_per_s": "float",
    "mfu": "float", "mfu_causal": "float", "hfu": "float", "is_upper_bound": "bool",
    "memory_bytes": "int", "memory_capacity_bytes": "int",
    "bytes_sent": "int", "num_messages": "int", "max_link_utilization": "float", "circuit_degree": "int",
    "num_reconfigurations": "int", "num_changed_circuits": "int", "dark_s": "float", "duty_cycle": "float",
    "compute_s": "float", "launch_s": "float", "bubble_s": "float", "host_s": "float",
}  # fmt: skip
_AFTER_EXPOSED: dict[str, str] = {
    "exposed_s": "float",
    "step_p50_s": "float", "step_p95_s": "float", "step_mean_s": "float", "slowest_share": "float",
    "outage_without_s": "float", "outage_total_s": "float", "outage_down_s": "float", "outage_redone_s": "float",
    "outage_slower_s": "float", **{f"outage_{cause}_s": "float" for cause in CAUSES if cause != "redone"},
    "outage_failures": "int", "outage_restarts": "int",
    "convergence": "str", "iterations": "float", "time_to_accuracy_s": "float", "is_extrapolated": "bool",
    "energy_to_target_j": "float",
    "estimate_s": "float", "estimate_error": "float",
    "network_usd": "float", "accelerator_hours": "float", "cost_usd": "float",
    "num_jobs": "int", "slowdown_mean": "float", "slowdown_max": "float", "all_reduce_mean_s": "float",
    "jobs": "jobs", "notes": "list[str]",
}  # fmt: skip
JOB_COLUMNS: dict[str, str] = {
    "name": "str", "model": "str", "num_accelerators": "int", "start_s": "float", "iteration_time_s": "float",
    "alone_s": "float", "ideal_s": "float", "slowdown": "float", "slowdown_ideal": "float",
    "all_reduce_s": "float", "flow_completion_s": "float", "flow_rate_bytes_per_s": "float",
    "algorithms": "str",
}  # fmt: skip


def column_types() -> dict[str, str]:
    """Return {column: type} of a point's row; exposed communication has a column for each registered kind of groups."""
    exposed = {f"exposed_{kind}_s": "float" for kind in counted_kinds()}
    return _BEFORE_EXPOSED | exposed | _AFTER_EXPOSED


def polars_schema() -> dict[str, Any]:
    """Return {column: polars type}."""
    import polars as pl

    plain = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}
    jobs = pl.List(pl.Struct({name: plain[kind] for name, kind in JOB_COLUMNS.items()}))
    return {
        name: plain[kind] if kind in plain else (jobs if kind == "jobs" else pl.List(pl.String))
        for name, kind in column_types().items()
    }


def settings_row(key: str, settings: Settings, bandwidth_bytes_per_s: float | None = None) -> dict[str, Any]:
    """Return what a row holds before anything is simulated."""
    return {
        "key": key, "mode": settings["mode"], "model": settings.get("model"),
        "fabric_kind": settings["fabric"]["name"], "accelerator": settings["accelerator"],
        "accelerator_bandwidth_bytes_per_s": bandwidth_bytes_per_s, "routing": settings["routing"],
        "controllers": controller_words(settings["controllers"]) or None,
        "seed": settings["seed"], "cost": settings["cost"]["name"], "convergence": _curve(settings),
    }  # fmt: skip


def variability_row(found: StepVariability) -> dict[str, float]:
    """Return what a row holds of steps of fleets that vary."""
    return {
        "step_p50_s": found.p50_s, "step_p95_s": found.p95_s, "step_mean_s": found.mean_s,
        "slowest_share": found.slowest_share,
    }  # fmt: skip


def outage_row(found: OutageTimes) -> dict[str, float | int]:
    """Return what a row holds of the time lost to failures."""
    return {
        "outage_without_s": found.without_s, "outage_total_s": found.total_s, "outage_down_s": found.down_s,
        **{f"outage_{cause}_s": found.lost.total_s(cause) for cause in CAUSES}, "outage_slower_s": found.slower_s,
        "outage_failures": len(found.failures), "outage_restarts": len(found.restarts),
    }  # fmt: skip


def failed_columns(settings: Settings, fabric: Any) -> dict[str, int]:
    """Return how many parts of each kind were drawn to fail; a share is counted on the fabric."""
    given = settings["failures"]
    drawn = {kind: given[kind] for kind in FAILURE_KINDS}
    failed = fabric.failures
    counted = {
        "links": len(failed.links), "switches": len(failed.switches),
        "accelerators": len(failed.accelerators) - len(failed.cut_off),
        "boards": count_of("failures.boards", drawn["boards"], fabric.num_boards),
    }  # fmt: skip
    return {
        f"failed_{kind}": int(value) if share_of(f"failures.{kind}", value) is None else counted[kind]
        for kind, value in drawn.items()
    }


def _curve(settings: Settings) -> str | None:
    name = settings.get("target") or settings.get("convergence")
    return None if name in (None, NO_CURVE) else str(name)


def result_row(result: RunResult, settings: Settings, network_usd: float | None) -> dict[str, Any]:
    """Return the columns of one simulated job."""
    plan = result.plan
    exposed = {f"exposed_{kind}_s": result.breakdown.get(kind, 0.0) for kind in counted_kinds()}
    row = {
        "model": plan.graph_name if ":" in settings["model"] else settings["model"],
        "num_accelerators": plan.num_devices, **plan_row(plan),
        "algorithms": algorithm_words(result.algorithms),
        "iteration_time_s": result.iteration_time_s, **_expected(result),
        "first_iteration_s": result.first_iteration_s, "is_steady": result.is_steady,
        "samples_per_s": result.samples_per_s, "tokens_per_s": result.tokens_per_s,
        "mfu": result.mfu, "mfu_causal": result.mfu_causal, "hfu": result.hfu,
        "is_upper_bound": result.is_upper_bound,
        "bytes_sent": sum(result.bytes_sent.values()), "num_messages": sum(result.num_messages.values()),
        "max_link_utilization": max_link_utilization(result), "circuit_degree": plan.circuit_degree,
        **({} if result.reconfigurations is None else result.reconfigurations.figures()),
        **{f"{kind}_s": result.breakdown.get(kind, 0.0) for kind in ("compute", "launch", "bubble", "host")}, **exposed,
        "exposed_s": sum(exposed.values()), "network_usd": network_usd,
        "notes": list(result.notes),
    }  # fmt: skip
    if _curve(settings) is not None:
        answer = time_to_accuracy(
            result, settings["convergence"] if settings["target"] is None else None, target=settings["target"],
            extrapolate=settings["extrapolate"],
        )  # fmt: skip
        row |= {
            "convergence": answer.curve, "energy_to_target_j": answer.energy_j,
            "iterations": answer.iterations, "time_to_accuracy_s": answer.time_s,
            "is_extrapolated": answer.is_extrapolated, "notes": [*result.notes, *answer.notes],
        }  # fmt: skip
    return row | _cost_row(row, settings)


def plan_row(plan: Plan) -> dict[str, Any]:
    """Return the columns that a plan decides; strategy_settings is its strategy, defaults left out, as JSON."""
    strategy = plan.strategy
    return {
        "strategy_settings": json.dumps(strategy_settings(strategy), sort_keys=True),
        "strategy": strategy.describe(), "placer": strategy.placer, **dict.fromkeys(("tp", "cp", "pp", "mp")),
        **strategy.degrees(), "ep": strategy.ep, "precision": plan.precision,
        "software": plan.software.name, "software_release": plan.software.release, "global_batch": plan.global_batch,
        "micro_batch": plan.micro_batch, "num_microbatches": plan.num_microbatches,
        "memory_bytes": plan.memory_bytes, "memory_capacity_bytes": int(plan.machine.device.memory_bytes),
    }  # fmt: skip


def strategy_settings(strategy: Strategy) -> dict[str, Any]:
    """Return the fields of a strategy that differ from the defaults, as ``strategy.KEY`` takes them."""
    return {"dp": strategy.dp} | strategy.nested()


def _cost_row(row: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return accelerator-hours to the target, and dollars where the user gave a price."""
    seconds, price = row.get("time_to_accuracy_s"), settings["accelerator_usd_per_hour"]
    if seconds is None:
        return {}
    hours = row["num_accelerators"] * seconds / 3600
    return {"accelerator_hours": hours, "cost_usd": None if price is None else hours * price}


def _expected(result: RunResult) -> dict[str, float]:
    """Return the iteration time to expect; nothing of the ideal program."""
    seconds = result.expected_iteration_s
    names = ("expected_iteration_time_s", "expected_low_s", "expected_high_s")
    return {} if seconds is None else dict(zip(names, seconds, strict=True))


def max_link_utilization(result: RunResult) -> float:
    """Return the largest share of its capacity that a link used over an iteration."""
    bandwidth = result.fabric.links["bandwidth_bytes_per_s"]
    if len(bandwidth) == 0:
        return 0.0
    return float(np.max(result.link_bytes / (bandwidth * result.iteration_time_s)))


def mix_row(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a mix of jobs from ``MixResult.to_dict()``."""
    jobs = [{name: job.get(name) for name in JOB_COLUMNS} for job in outcome["jobs"]]
    slowdowns = [job["slowdown"] for job in jobs if job["slowdown"] is not None]
    all_reduces = [job["all_reduce_s"] for job in jobs if job["all_reduce_s"] is not None]
    ran = dict.fromkeys(job["algorithms"] for job in jobs if job["algorithms"])
    return {
        "algorithms": " | ".join(ran), "num_accelerators": sum(job["num_accelerators"] for job in jobs),
        "num_jobs": len(jobs), "jobs": jobs,
        "slowdown_mean": sum(slowdowns) / len(slowdowns) if slowdowns else None,
        "slowdown_max": max(slowdowns, default=None),
        "all_reduce_mean_s": sum(all_reduces) / len(all_reduces) if all_reduces else None,
    }  # fmt: skip
