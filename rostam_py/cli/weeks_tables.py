"""Tables of weeks as CSV files: policies, seconds of each day by cause, servers that are down, break-even curves."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rostam_py import __version__
from rostam_py.checks import check_folder
from rostam_py.cli.compose import resolved_yaml
from rostam_py.cli.schema import FleetConfig, name_of
from rostam_py.documents import staged
from rostam_py.fleet.goodput import FaultTrace, Goodput, LongJob
from rostam_py.fleet.goodput.down_times import down_rows
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.goodput.result import CAUSES
from rostam_py.report.fleet_folder import FILE
from rostam_py.spec.build_break_even import BreakEven

_OPTIONAL = ("break_even.csv", "report.html")


def write_tables(
    folder: Path, job: LongJob, faults: FaultTrace, found: Mapping[str, Goodput], break_even: BreakEven | None
) -> None:
    """Write policies.csv, days.csv, down.csv and, where there are curves, break_even.csv."""
    _write(folder / "policies.csv", ["policy", "goodput", *_seconds(CAUSES), "num_cuts", "iterations"], [
        [policy, one.goodput, *(one.seconds[cause] for cause in CAUSES), one.num_cuts, one.samples]
        for policy, one in found.items()
    ])  # fmt: skip
    _write(folder / "days.csv", ["policy", "day", *_seconds(CAUSES)], [
        [policy, day, *seconds]
        for policy, one in found.items()
        for day, seconds in enumerate(zip(*(one.days[cause] for cause in CAUSES), strict=True))
    ])  # fmt: skip
    rows = [[start / DAY_S, mean, most] for start, mean, most in down_rows(faults)]
    _write(folder / "down.csv", ["day", "servers_down", "most_servers_down"], rows)
    curves = [] if break_even is None else break_even.rows()
    if curves:
        interval_s = [row["checkpoint_iterations"] * job.whole.iteration_s for row in curves]
        head = [*curves[0], "checkpoint_every_s"]
        cells = [[*row.values(), every_s] for row, every_s in zip(curves, interval_s, strict=True)]
        _write(folder / "break_even.csv", head, cells)


def write_fleet_folder(
    folder: Path, overrides: list[str], seed: int, text: str, write_tables_in: Callable[[Path], None]
) -> None:
    """Fill the folder of ``rostam fleet``, whole or not at all. Args: text: of result.json."""
    about = {"rostam_version": __version__, "seed": seed, "overrides": overrides}
    with staged(folder) as stage:
        (stage / "config.yaml").write_text(resolved_yaml("fleet", overrides), encoding="utf-8")
        (stage / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (stage / FILE).write_text(text, encoding="utf-8")
        write_tables_in(stage)
        left = _left_over(folder, stage)
    for path in left:
        path.unlink(missing_ok=True)


def fleet_folder(config: FleetConfig, overrides: list[str], what: str) -> Path:
    """Return the folder of a run: out, or runs/fleet-WHAT-FABRIC-DIGEST.

    Args: what: a model or a file of jobs, named by its stem.
    Raises: ConfigError for one that cannot be written.
    """
    digest = hashlib.sha256(resolved_yaml("fleet", overrides).encode()).hexdigest()[:8]
    usual = Path("runs") / f"fleet-{Path(what).stem}-{name_of('fabric', config.fabric)}-{digest}"
    folder = Path(config.out) if config.out else usual
    check_folder(folder, "out")
    return folder


def _left_over(folder: Path, stage: Path) -> list[Path]:
    """Return what earlier weeks have left in a folder and these do not write. Args: stage: what is about to move there.

    Nothing in a folder that holds none: files there are somebody's own.
    """
    if not (folder / "run.json").exists():
        return []
    return [folder / name for name in _OPTIONAL if not (stage / name).exists()]


def _seconds(causes: Iterable[str]) -> list[str]:
    return [f"{cause}_s" for cause in causes]


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
