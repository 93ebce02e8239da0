"""Compare speed and memory with another checkout: ``python -m benchmarks.against TREE [--repeats 5] [--only PART]``.

Cases run alternately, there and here, so that what else the machine does falls on both; CPU seconds and peak memory are
medians. TREE needs a ``.venv`` of its own (make install). Returns 1 if a case got more than 10% slower or larger.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.case import Case
from benchmarks.cases import cases
from benchmarks.measure import Measurement, measure

LIMIT = 1.10  # of CPU seconds and of memory
LEAST_CPU_S = 0.05  # differences below it are the clock's


def medians(runs: list[Measurement]) -> dict[str, float]:
    """Return the medians of the measured call's CPU seconds and of the peak memory [bytes]."""
    return {key: statistics.median(getattr(one, key) for one in runs) for key in ("cpu_s", "peak_bytes")}


def ratios(there: dict[str, float], here: dict[str, float]) -> dict[str, float]:
    """Return here / there, of times after adding ``LEAST_CPU_S`` to both."""
    return {
        "cpu_s": (here["cpu_s"] + LEAST_CPU_S) / (there["cpu_s"] + LEAST_CPU_S),
        "peak_bytes": here["peak_bytes"] / there["peak_bytes"],
    }


def compare(case: Case, tree: Path, repeats: int, timeout_s: float) -> dict[str, Any]:
    """Return medians of both and their ratios, or why there are none."""
    there, here = [], []
    for _ in range(repeats):
        there.append(measure(case, timeout_s, tree))
        here.append(measure(case, timeout_s))
        for one, where in ((there[-1], "there"), (here[-1], "here")):
            if one.error:
                return {"name": case.name, "error": f"{where}: {one.error}"}
    old, new = medians(there), medians(here)
    return {"name": case.name, "there": old, "here": new, "ratio": ratios(old, new)}


def main() -> int:
    """Compare the chosen cases one after the other."""
    parser = argparse.ArgumentParser(prog="benchmarks.against", description="Compare with another checkout of rostam.")
    parser.add_argument("tree", type=Path, help="folder of the other checkout, installed")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each case in each checkout")
    parser.add_argument("--only", nargs="*", default=[""], help="compare the cases whose name contains one of these")
    parser.add_argument("--out", type=Path, help="JSON file to write, after every case")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="give up on a run after so long [s]")
    options = parser.parse_args()
    rows = []
    shown = Table("case", "CPU s there", "here", "ratio", "peak MB there", "here", "ratio")
    for case in cases():
        if not any(part in case.name for part in options.only):
            continue
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        row = compare(case, options.tree.resolve(), options.repeats, options.timeout_s)
        rows.append(row)
        if "error" in row:
            shown.add_row(row["name"], row["error"])
        else:
            times, sizes = (
                [row[where][key] for where in ("there", "here", "ratio")] for key in ("cpu_s", "peak_bytes")
            )
            memory = (f"{sizes[0] / 1e6:.0f}", f"{sizes[1] / 1e6:.0f}", f"{sizes[2]:.2f}")
            shown.add_row(row["name"], *(f"{value:.2f}" for value in times), *memory)
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    Console(width=None if sys.stdout.isatty() else 140).print(shown)
    return int(any("error" in row or max(row["ratio"].values()) > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
