"""Compare two queues of jobs: what differs in their configurations, in waits, goodput, accelerator-hours and price.

Example:
    jobs_comparison(load_jobs_side("runs/a"), load_jobs_side("runs/b"))["wait_s"][0]
    # {"name": "mean", "a": 40320.0, "b": 10368.0, "difference": -29952.0, "ratio": 0.257}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rostam_py.documents import undamaged
from rostam_py.report.jobs.load import load_document
from rostam_py.report.run.comparison import Side, compared_rows, differing, flat_config, read_part

_OUTPUT = ("out", "report", "trace_cache")  # keys that decide nothing of the jobs
_OF_GOODPUT = {"whole": "goodput", "scheduling": "scheduling", "runtime": "runtime", "program": "program"}
# Sections that have every cause and state there is.
_BY_CAUSE = ("job_accelerator_hours", "cluster_accelerator_hours")


def load_jobs_side(folder: str | Path) -> Side:
    """Return what a queue of jobs left in its folder.

    Raises: ConfigError if a file is missing or damaged.
    """
    folder = Path(folder)
    result = load_document(folder)
    config, about = (
        read_part(folder / name, reader) for name, reader in (("config.yaml", yaml.safe_load), ("run.json", json.loads))
    )
    with undamaged(str(folder)):
        choices = {"fabric": str(result["fabric"]).partition(",")[0]}
        decisive = [key for key in config if key not in _OUTPUT]
        about = {"seed": about.get("seed"), "rostam_version": about.get("rostam_version")}
        return Side(str(folder), result | about, flat_config(config, choices, decisive))


def jobs_comparison(a: Side, b: Side) -> dict[str, Any]:
    """Return a JSON-ready document as ``comparison`` does of runs.

    Model: sections of rows {name, a, b, difference, ratio}: waits, slow-downs with and without network, goodput and its
        factors, accelerator-hours by cause and by state, counts, price. The hours that jobs asked for sum to their time
        from submission to end, those of the cluster to its whole window.
    Raises: ConfigError for a side whose result is not as a queue writes it.
    """
    with undamaged(f"the result of {a.name} or of {b.name}"):
        sections = [_sections(side.result) for side in (a, b)]
        document: dict[str, Any] = {"a": _about(a), "b": _about(b), "configuration": differing(a.config, b.config)}
        for name in sections[0]:
            missing = 0.0 if name in _BY_CAUSE else None
            document[name] = compared_rows(sections[0][name], sections[1][name], missing)
        return document


def _about(side: Side) -> dict[str, Any]:
    keys = ("jobs", "order", "allocation", "fabric", "accelerators", "accelerators_per_server")
    return {"folder": side.name} | {key: side.result.get(key) for key in keys}


def _sections(result: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the figures of one result, by section and name."""
    alone, shares = result.get("without_network") or {}, result["goodput"]
    slow = {f"without network, {name}": value for name, value in (alone.get("slowdown") or {}).items()}
    return {
        "wait_s": dict(result["wait_s"]),
        "window_s": {"window": result["window_s"]},
        "slowdown": dict(result["slowdown"]) | slow,
        "goodput": {words: shares[key] for key, words in _OF_GOODPUT.items()} | {
            "utilisation until the last submission": result["utilisation_until_last_submit"],
            "fragmentation": result["fragmentation"],
        },
        "job_accelerator_hours": dict(result["job_accelerator_hours"]),
        "cluster_accelerator_hours": dict(result["cluster_accelerator_hours"]),
        "counts": {
            "jobs": result["num_jobs"], "ended": result["num_ended"], "not started": result["num_not_started"],
            "faults": result["num_faults"], "cuts": result["num_cuts"], "moves": result["num_moves"],
        },
        "usd": {"cluster": result["usd"], "useful accelerator-hour": result["usd_per_useful_accelerator_hour"]},
        "most_kwh": {"energy at most": result["most_kwh"]},
    }  # fmt: skip
