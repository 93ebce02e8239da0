"""Measure speed and memory: ``python -m benchmarks --date 2026-01-31 [--only PART] [--out FILE.json]``."""

import argparse
import importlib.metadata
import itertools
import json
import math
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import cases
from benchmarks.measure import Measurement, measure

_VERSIONS = ("rostam", "torch", "numpy")


def machine() -> dict[str, Any]:
    """Describe the machine that measures, without its name."""
    return {
        "processor": _processor(), "num_cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }  # fmt: skip


def _processor() -> str:
    """Return the processor's model where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def growth(measurements: list[Measurement]) -> dict[str, float]:
    """Return {case: k} where CPU seconds grew as size^k since the next smaller case of its family."""
    found = {}
    for one, other in itertools.pairwise(measurements):
        is_pair = one.family == other.family and 0 < one.size < other.size
        if is_pair and one.cpu_s > 0 and other.cpu_s > 0:
            found[other.name] = math.log(other.cpu_s / one.cpu_s) / math.log(other.size / one.size)
    return found


def table(measurements: list[Measurement]) -> Table:
    """Lay the measurements out."""
    shown = Table("case", "CPU s", "wall s", "prepare CPU s", "peak MB", "growth", "asked for", "figures")
    for column in shown.columns[1:6]:
        column.justify = "right"
    exponents = growth(measurements)
    for one in measurements:
        if one.error:
            shown.add_row(one.name, "-", "-", "-", "-", "-", one.limit, f"FAILED: {one.error}")
            continue
        exponent = f"size^{exponents[one.name]:.2f}" if one.name in exponents else ""
        figures = ", ".join(f"{key} {value:,.6g}" for key, value in one.figures.items())
        numbers = (f"{one.cpu_s:.2f}", f"{one.wall_s:.2f}", f"{one.prepare_cpu_s:.1f}", f"{one.peak_bytes / 1e6:.0f}")
        shown.add_row(one.name, *numbers, exponent, one.limit, figures)
    return shown


def main() -> int:
    """Measure the chosen cases one after the other; return 1 if one could not run."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure rostam's speed and memory.")
    parser.add_argument("--date", required=True, help="date to record, as 2026-01-31")
    parser.add_argument("--only", default="", help="measure the cases whose name contains this")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="give up on a case after so long [s]")
    parser.add_argument("--list", action="store_true", help="list the cases and measure nothing")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only in case.name]
    if options.list or not chosen:
        print("\n".join(case.name for case in (chosen or cases())))
        return 0 if options.list else 2
    measurements = []
    for case in chosen:
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        measurements.append(measure(case, options.timeout_s))
    Console(width=None if sys.stdout.isatty() else 160).print(table(measurements))
    if options.out:
        versions = {name: importlib.metadata.version(name) for name in _VERSIONS}
        document = {
            "date": options.date, "machine": machine(), "versions": versions, "growth": growth(measurements),
            "measurements": [asdict(one) for one in measurements],
        }  # fmt: skip
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(one.error for one in measurements))


if __name__ == "__main__":
    sys.exit(main())
