"""Measure speed and memory: ``python -m benchmarks --date 2026-01-31 [--only PART] [--out FILE.json]``.

Returns 1 if a case could not run or is slower than in the newest stored result of this processor.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cases import cases
from benchmarks.history import LEAST_S, STORED, WORST_RATIO, newest, regressions
from benchmarks.measure import Measurement, measure

_HOPS = "message_hops"  # a figure of cases
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


def growth(measurements: list[Measurement], per: str = "") -> dict[str, float]:
    """Return {family: k} where CPU seconds grow as size^k: a line through their logarithms, by least squares.

    Args:
        per: a figure of the cases; their CPU seconds for each one of it are taken then.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for one in measurements:
        count = one.figures.get(per, 0) if per else 1
        if one.size > 0 and one.cpu_s > 0 and count > 0 and not one.error and not one.is_over:
            points.setdefault(one.family, []).append((one.size, one.cpu_s / count))
    exponents = {}
    for family, found in points.items():
        if len({size for size, _ in found}) > 1:
            sizes, seconds = np.log(np.array(found)).T
            exponents[family] = float(np.polyfit(sizes, seconds, 1)[0])
    return exponents


def targets(one: Measurement) -> str:
    """Return what is asked of a case and whether it is met."""
    asked = [one.limit] if one.limit else []
    if one.target_cpu_s:
        asked.append(f"{one.target_cpu_s:g} CPU s")
    if one.target_bytes:
        asked.append(f"{one.target_bytes / 1e6:,.0f} MB")
    asked += [f"{key} >= {least:,.0f}" for key, least in one.least.items()]
    if one.error or not one.has_target:
        return ", ".join(asked)
    return ", ".join(asked) + (": MISSED" if one.misses else ": not known" if one.is_over else ": met")


def table(measurements: list[Measurement]) -> Table:
    """Lay the measurements out."""
    shown = Table("case", "CPU s", "wall s", "prepare CPU s", "peak MB", "growth", "asked for", "figures")
    for column in shown.columns[1:6]:
        column.justify = "right"
    exponents, per_hop = growth(measurements), growth(measurements, _HOPS)
    last = {one.family: one.name for one in measurements}
    for one in measurements:
        exponent = (
            f"size^{exponents[one.family]:.2f}" if one.family in exponents and last[one.family] == one.name else ""
        )
        if exponent and one.family in per_hop:
            exponent += f", size^{per_hop[one.family]:.2f} per hop"
        if one.error:
            shown.add_row(one.name, "-", "-", "-", "-", exponent, targets(one), f"FAILED: {one.error}")
            continue
        if one.is_over:
            shown.add_row(one.name, f"more than {one.cpu_s:g}", "-", "-", "-", exponent, targets(one), "")
            continue
        figures = ", ".join(f"{key} {value:,.6g}" for key, value in one.figures.items())
        numbers = (f"{one.cpu_s:.3g}", f"{one.wall_s:.3g}", f"{one.prepare_cpu_s:.1f}", f"{one.peak_bytes / 1e6:.0f}")
        shown.add_row(one.name, *numbers, exponent, targets(one), figures)
    return shown


_EPILOG = f"""\
Each case runs in a process of its own with one thread. It prepares, unmeasured, and then runs the call that is
measured. A call that passes its CPU limit is ended and reported as "more than N". "growth" is k of CPU s = c size^k,
fitted over the sizes of a family; "per hop" is the same of CPU s / message_hops, the links that messages crossed. A
figure that misses what is asked for is marked MISSED and is no failure.

Results are compared with the newest file in benchmarks/results of the same processor: a case that takes over
{WORST_RATIO:g} x its CPU seconds, and over {LEAST_S:g} s more, is a regression. To keep a result, copy it there.

examples:
  make bench                                       every case
  make bench BENCH_ARGS="--only all_to_all"        cases with this in their name
  python -m benchmarks --date 2026-01-31 --only ring torus --cpu-limit-s 20
  python -m benchmarks --list

exit code: 0; 1 for a case that failed or a regression; 2 where no case has such a name."""


def main() -> int:
    """Measure the chosen cases one after the other; return 1 if one could not run or got slower."""
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="Measure rostam's speed and memory.", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--date", help="date to record, as 2026-01-31; needed to measure")
    parser.add_argument("--only", nargs="*", default=[""], help="measure the cases whose name contains one of these")
    parser.add_argument("--out", type=Path, help="JSON file to write, after every case")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="give up on a case after so long [s]")
    parser.add_argument(
        "--cpu-limit-s", type=int, help="end calls after so many CPU seconds; by default each case's own"
    )
    parser.add_argument("--stored", type=Path, default=STORED, help="folder of stored results to compare with")
    parser.add_argument("--list", action="store_true", help="list the cases and measure nothing")
    options = parser.parse_args()
    if options.cpu_limit_s is not None and options.cpu_limit_s < 1:
        parser.error(f"--cpu-limit-s is {options.cpu_limit_s}; it must be >= 1")
    chosen = [case for case in cases() if any(part in case.name for part in options.only)]
    if options.list or not chosen:
        print("\n".join(case.name for case in (chosen or cases())))
        return 0 if options.list else 2
    if not options.date:
        parser.error("--date is needed to measure")
    here = machine()
    before = newest(options.stored, here["processor"])
    measurements: list[Measurement] = []
    for number, case in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {case.name} ...", file=sys.stderr, flush=True)
        measurements.append(measure(case, options.timeout_s, cpu_limit_s=options.cpu_limit_s))
        if options.out:
            _write(options.out, options.date, here, measurements)
    Console(width=None if sys.stdout.isatty() else 160).print(table(measurements))
    slower = regressions(before["measurements"], measurements) if before else []
    compared = f"{before['file']} of {before['date']}" if before else "none stored of this processor"
    print(f"regressions against {compared}: {len(slower)}", *slower, sep="\n  ")
    return int(bool(slower) or any(one.error for one in measurements))


def _write(path: Path, date: str, here: dict[str, Any], measurements: list[Measurement]) -> None:
    versions = {name: importlib.metadata.version(name) for name in _VERSIONS}
    document = {
        "date": date, "machine": here, "versions": versions, "growth": growth(measurements),
        "growth_per_message_hop": growth(measurements, _HOPS),
        "measurements": [{**asdict(one), "misses": one.misses} for one in measurements],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
