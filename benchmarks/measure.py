"""Run one case in a process of its own and report its CPU seconds and memory."""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, cases

_MARK = "ROSTAM_BENCHMARK "


@dataclass(kw_only=True)
class Measurement:
    """What one case took.

    cpu_s, wall_s: of the measured call alone, with the processes that it started and waited for.
    prepare_cpu_s: imports, tracing and placing before it.
    peak_bytes: of the whole process; prepared_bytes: peak before the measured call. error: why there is nothing else.
    """

    name: str
    family: str
    size: int = 0
    limit: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    prepare_cpu_s: float = 0.0
    prepared_bytes: int = 0
    peak_bytes: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def measure(case: Case, timeout_s: float, tree: Path | None = None) -> Measurement:
    """Run ``case`` in a fresh interpreter with one thread for linear algebra.

    Args:
        timeout_s: give up after so long [s].
        tree: another checkout, installed in its own ``.venv``, that runs its case of this name; None: this one.
    """
    python = sys.executable if tree is None else str(tree / ".venv" / "bin" / "python")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    found = Measurement(name=case.name, family=case.family, size=case.size, limit=case.limit)
    try:
        done = subprocess.run(
            [python, "-m", "benchmarks.measure", case.name],
            capture_output=True, text=True, timeout=timeout_s, env=environment, check=False, cwd=tree,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        found.error = f"not done after {timeout_s:g} s"
        return found
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not lines:
        found.error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return found
    return Measurement(**json.loads(lines[-1].removeprefix(_MARK)))


def run_here(name: str) -> Measurement:
    """Run the named case in this process."""
    case = next(case for case in cases() if case.name == name)
    call = case.prepare(**case.arguments)
    before, prepared_bytes, start = _cpu_s(), _peak_bytes(), time.perf_counter()
    figures = call()
    return Measurement(
        name=case.name, family=case.family, size=case.size, limit=case.limit, figures=figures,
        wall_s=time.perf_counter() - start, cpu_s=_cpu_s() - before, prepare_cpu_s=before,
        prepared_bytes=prepared_bytes, peak_bytes=_peak_bytes(),
    )  # fmt: skip


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak_bytes() -> int:
    """Return the peak resident memory of this process [bytes] (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    print(_MARK + json.dumps(asdict(run_here(sys.argv[1]))))
