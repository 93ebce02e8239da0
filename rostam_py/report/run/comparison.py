"""Compare two runs: what differs in their configurations, and in time, traffic, memory and dollars.

Example:
    comparison(load_side("runs/a"), load_side("runs/b"))["breakdown_s"][0]
    # {"name": "compute", "a": 0.049, "b": 0.051, "difference": 0.002, "ratio": 1.04}

``breakdown_s`` and ``critical_path_s`` each sum to the iteration time of either side, so that their differences sum to
the difference of those; ``compute_by_family_s`` sums to the compute.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rostam_py.documents import undamaged
from rostam_py.errors import ConfigError
from rostam_py.plan.software import Software
from rostam_py.plan.tasks import MEMORY_PARTS
from rostam_py.report.run.contents import Contents
from rostam_py.spec.keys import RunKeys

# Keys of a run that decide the simulation; others say what becomes of the result.
_SIMULATED = {entry.name for entry in dataclasses.fields(RunKeys)} | {"plan", "task_graph"}
# Sections that have every kind there is: what a side does not list took no time, or sent nothing.
_BY_KIND = ("breakdown_s", "compute_by_family_s", "critical_path_s", "bytes_sent")
_ROUNDING = 1e-12  # share of a figure by which means over devices differ through rounding alone


@dataclass(frozen=True, slots=True)
class Side:
    """One of two runs.

    name: its folder, or its overrides. result: as result.json. config: as ``flat_config``. contents: what its ranks
    run, as contents.py has it; empty where that is not known.
    """

    name: str
    result: Mapping[str, Any]
    config: Mapping[str, Any]
    contents: Contents = field(default_factory=dict)


def load_side(folder: str | Path) -> Side:
    """Return what a run left in its folder.

    Raises: ConfigError if a file is missing or damaged.
    """
    folder = Path(folder)
    result = read_part(folder / "result.json", json.loads)
    config = read_part(folder / "config.yaml", yaml.safe_load)
    about = read_part(folder / "run.json", json.loads)
    if "format" in result:
        raise ConfigError(
            f"{folder} holds {result['format']}, not a run; give the folder of a run (rostam run); jobs of rostam fleet"
            " are compared with other jobs"
        )
    with undamaged(str(folder)):
        choices = dict(about.get("choices") or {})
        # Runs of versions that did not write the choices: a fabric's name begins its description.
        choices.setdefault("fabric", str(result.get("fabric", "")).partition(",")[0])
        return Side(str(folder), result, flat_config(config, choices))


def read_part(path: Path, reader: Callable[[str], Any]) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(
            f"{path} is missing; give the folder of a run (rostam run), or overrides such as strategy.tp=2"
        )
    try:
        found = reader(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is damaged: it holds no mapping")
    return found


def flat_config(
    config: Mapping[str, Any], choices: Mapping[str, str], keys: Collection[str] = _SIMULATED
) -> dict[str, Any]:
    """Return the part of a run's configuration that decides the simulation, by dotted key.

    Args:
        choices: names of the chosen fabric and cost model, which stand behind the groups' own keys.
        keys: those that decide it.
    """
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            flat[prefix] = value

    walk("", {key: value for key, value in config.items() if key in keys})
    return flat | dict(choices)


def comparison(a: Side, b: Side) -> dict[str, Any]:
    """Return ``_comparison`` of two sides. Raises: ConfigError for a side whose result is not as a run writes it."""
    with undamaged(f"the result of {a.name} or of {b.name}"):
        return _comparison(a, b)


def _comparison(a: Side, b: Side) -> dict[str, Any]:
    """Return a JSON-ready document: who is compared, and sections of rows {name, a, b, difference, ratio}.

    Model: difference is b - a and ratio b / a; null where a side has no such figure, or a is 0. A kind of time or
        traffic that only one side has is 0 on the other; a critical task that only one side lists among its largest
        is null there. Rows that are 0 or missing on both sides are left out. Two sides whose contents are known have
        sections of these, too. configuration lists the keys whose values
        differ; a key that only the other side's fabric or cost model has is null.
    """
    document: dict[str, Any] = {"a": _about(a), "b": _about(b), "configuration": differing(a.config, b.config)}
    sections = [_sections(side.result) for side in (a, b)]
    for name in sections[0]:
        document[name] = compared_rows(sections[0][name], sections[1][name], 0.0 if name in _BY_KIND else None)
    if a.contents and b.contents:
        document |= {name: compared_rows(a.contents[name], b.contents[name], 0.0) for name in a.contents}
    return document


def _about(side: Side) -> dict[str, Any]:
    keys = ("model", "fabric", "accelerator", "num_accelerators", "strategy", "global_batch")
    facts = {"run": side.name} | {key: side.result.get(key) for key in keys}
    software = side.result.get("software")
    facts["software"] = None if software is None else Software.of(software).describe()
    facts["speed"] = "an upper bound" if side.result.get("is_upper_bound") else None
    return facts


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "a": a.get(key), "b": b.get(key)} for key in sorted({*a, *b}) if a.get(key) != b.get(key)]


def _sections(result: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the figures of one result, by section and name."""
    seconds, batch = result.get("iteration_time_s"), result.get("global_batch")
    accuracy = result.get("time_to_accuracy") or {}
    memory, bar = result.get("memory_parts_bytes") or {}, result.get("error_bar") or {}
    steps = result.get("variability") or {}
    tasks: dict[str, float | None] = {
        f"{row['kind']}: {row['name']}": row["duration_s"] for row in result.get("critical_tasks", ())
    }
    return {
        "time_s": {
            "iteration": seconds, "iteration at least": bar.get("low_s"), "iteration at most": bar.get("high_s"),
            "iteration, expected": (result.get("expected") or {}).get("iteration_time_s"),
            "step, p50": steps.get("p50_s"), "step, p95": steps.get("p95_s"),
            "first iteration": result.get("first_iteration_s"),
            "per sample": seconds / batch if seconds and batch else None, "to accuracy": accuracy.get("time_s"),
        },
        "breakdown_s": dict(result.get("breakdown_s") or {}),
        "compute_by_family_s": dict(result.get("compute_by_family_s") or {}),
        "critical_path_s": dict(result.get("critical_path_s") or {}),
        "critical_tasks_s": tasks,
        "rates": {key: result.get(key) for key in ("samples_per_s", "tokens_per_s", "mfu", "mfu_causal", "hfu")},
        "bytes_sent": dict(result.get("bytes_sent") or {}),
        "memory_bytes": {words: memory.get(part) for part, words in MEMORY_PARTS.items()}
        | {"fullest device": result.get("memory_bytes")},
        "usd": {"network": result.get("network_usd"), "machine": result.get("machine_usd"),
                "training": accuracy.get("usd")},
        "energy_j": {"iteration": result.get("energy_per_iteration_j"), "to the target": accuracy.get("energy_j")},
    }  # fmt: skip


def compared_rows(
    a: Mapping[str, float | None], b: Mapping[str, float | None], missing: float | None
) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys((*a, *b)):
        before, after = a.get(name, missing), b.get(name, missing)
        if before or after:
            apart = None if before is None or after is None else after - before
            if apart is not None and abs(apart) <= _ROUNDING * max(abs(before or 0.0), abs(after or 0.0)):
                apart = 0.0
            rows.append({
                "name": name, "a": before, "b": after, "difference": apart,
                "ratio": after / before if after is not None and before else None,
            })  # fmt: skip
    return rows
