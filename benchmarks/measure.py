"""Run one case in a process of its own and report its CPU seconds and memory."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.cases import cases

_MARK = "ROSTAM_BENCHMARK "
_READY = "ROSTAM_PREPARED"


@dataclass(kw_only=True)
class Measurement:
    """What one case took.

    cpu_s, wall_s: of the measured call alone, with the processes that it started and waited for.
    prepare_cpu_s: imports, tracing and placing before it.
    peak_bytes: of the whole process; prepared_bytes: peak before the measured call. error: why there is nothing else.
    is_over: it passed ``cpu_limit_s`` and was ended: cpu_s is that limit, and the call takes more. The targets are the
        case's.
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
    is_over: bool = False
    target_cpu_s: float = 0.0
    target_bytes: float = 0.0
    least: dict[str, float] = field(default_factory=dict)
    cpu_limit_s: int = 0

    @property
    def has_target(self) -> bool:
        """True where a number is asked of the case."""
        return bool(self.target_cpu_s or self.target_bytes or self.least)

    @property
    def misses(self) -> list[str]:
        """Targets that were not met; of a case that was ended, only CPU seconds that its limit reached are known."""
        if self.error:
            return []
        if self.is_over:
            return ["cpu_s"] if 0 < self.target_cpu_s <= self.cpu_s else []
        found = []
        if self.target_cpu_s and self.cpu_s > self.target_cpu_s:
            found.append("cpu_s")
        if self.target_bytes and self.peak_bytes > self.target_bytes:
            found.append("peak_bytes")
        return found + [key for key, least in self.least.items() if self.figures.get(key, 0.0) < least]


def _empty(case: Case, cpu_limit_s: int) -> Measurement:
    return Measurement(
        name=case.name, family=case.family, size=case.size, limit=case.limit, target_cpu_s=case.target_cpu_s,
        target_bytes=case.target_bytes, least=case.least, cpu_limit_s=cpu_limit_s,
    )  # fmt: skip


def measure(case: Case, timeout_s: float, tree: Path | None = None, cpu_limit_s: int | None = None) -> Measurement:
    """Run ``case`` in a fresh interpreter with one thread for linear algebra.

    Args:
        timeout_s: give up after so long [s].
        tree: another checkout, installed in its own ``.venv``, that runs its case of this name; None: this one.
        cpu_limit_s: of the call, and again of its preparation, where less than the case's own [s].
    """
    python = sys.executable if tree is None else str(tree / ".venv" / "bin" / "python")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    limit_s = min(case.cpu_limit_s, cpu_limit_s or case.cpu_limit_s)
    found = _empty(case, limit_s)
    limits = [] if tree else [str(limit_s)]
    try:
        done = subprocess.run(
            [python, "-m", "benchmarks.measure", case.name, *limits],
            capture_output=True, text=True, timeout=timeout_s, env=environment, check=False, cwd=tree,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        found.error = f"not done after {timeout_s:g} s"
        return found
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode == -signal.SIGXCPU:
        if _READY in done.stdout:
            found.is_over, found.cpu_s = True, float(limit_s)
        else:
            found.error = f"its preparation took more than {limit_s} CPU s"
        return found
    if done.returncode or not lines:
        found.error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return found
    return Measurement(**json.loads(lines[-1].removeprefix(_MARK)))


def run_here(name: str, cpu_limit_s: int | None = None) -> Measurement:
    """Run the named case in this process, which is ended if the call, or its preparation, passes the limit."""
    case = next(case for case in cases() if case.name == name)
    limit_s = cpu_limit_s or case.cpu_limit_s
    _limit_cpu(limit_s)
    call = case.prepare(**case.arguments)
    print(_READY, flush=True)
    _limit_cpu(limit_s)
    before, prepared_bytes, start = _cpu_s(), _peak_bytes(), time.perf_counter()
    figures = call()
    found = _empty(case, limit_s)
    found.wall_s = time.perf_counter() - start
    found.cpu_s = max(now - then for now, then in zip(_cpu_s(), before, strict=True))
    found.figures, found.prepare_cpu_s = figures, max(before)
    found.prepared_bytes, found.peak_bytes = prepared_bytes, _peak_bytes()
    return found


def _limit_cpu(seconds: int) -> None:
    """End this process by SIGXCPU after so many more CPU seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _cpu_s() -> tuple[float, float]:
    """Return the CPU seconds of this process, and of this thread, each with those of children that have ended.

    With a limit on CPU seconds a process's steps by 4 ms on Linux, and may not have moved over a short call; a thread's
    does not, and is all there is where no other thread works.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = children.ru_utime + children.ru_stime
    return time.process_time() + ended, time.thread_time() + ended


def _peak_bytes() -> int:
    """Return the peak resident memory of this process [bytes] (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    print(_MARK + json.dumps(asdict(run_here(sys.argv[1], *map(int, sys.argv[2:])))))
