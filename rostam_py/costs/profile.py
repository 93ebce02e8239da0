"""Measure a model's ops one by one on this machine's device, into a CostTable.

A killed run loses nothing finished: every measurement is appended to ``<out>.partial.jsonl`` and
read back by the next run with the same settings.

Example:
    table = profile(graph, batches=(2, 8), device="cpu", out="resnet50_cpu.json", date="2026-01-31")
"""

import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rostam_py.costs.optimizers import get_optimizer
from rostam_py.costs.precision import PRECISIONS, get_precision
from rostam_py.costs.profile_inputs import CallBuilder
from rostam_py.costs.profile_timing import CpuTimer, CudaTimer, TimingLimits
from rostam_py.costs.table import CostTable, Entry, op_key, optimizer_key
from rostam_py.errors import ConfigError
from rostam_py.graph import Affine, Op, OperatorGraph

_ACCELERATOR_BY_DEVICE = {
    "NVIDIA H200": "h200_141gb",
    "NVIDIA H100 80GB HBM3": "h100_80gb",
    "NVIDIA A100-SXM4-80GB": "a100_80gb",
    "NVIDIA A100-SXM4-40GB": "a100_40gb",
    "Tesla V100-SXM2-32GB": "v100_32gb",
    "NVIDIA B200": "b200_180gb",
}
MAX_OPTIMIZER_PARAMETERS = 2**28  # beyond it the step is timed on the first parameters and scaled


@dataclass(kw_only=True, slots=True)
class ProfileOptions:
    """How to profile.

    device: "cpu", "cuda" or "auto" (cuda where there is one). threads: CPU threads, 0 = as torch is set.
    optimizer: of OPTIMIZERS, timed as a whole step, "" for none. precision: of PRECISIONS; mixed ones cast the
        matrix ops' inputs.
    date, command: recorded as provenance; the clock is not read, so equal runs have equal provenance.
    """

    device: str = "auto"
    threads: int = 0
    precision: str = "fp32"
    optimizer: str = ""
    limits: TimingLimits = field(default_factory=TimingLimits)
    date: str = ""
    command: str = ""
    show_progress: bool = True

    def check(self) -> None:
        """Raise ConfigError for a setting that nothing can be timed with."""
        if isinstance(self.threads, bool) or not isinstance(self.threads, int) or self.threads < 0:
            raise ConfigError(f"threads is {self.threads!r}; it must be an integer >= 0 (0 keeps torch's setting)")
        if get_precision(self.precision, "precision").others:
            timed = [name for name, one in PRECISIONS.items() if not one.others]
            raise ConfigError(f"precision is {self.precision!r}, which cannot be timed; take {', '.join(timed)}")
        if self.optimizer:
            get_optimizer(self.optimizer, "optimizer")
        _device(self.device)


@dataclass(frozen=True, slots=True)
class _Job:
    """One measurement to make: ``op`` at ``batch``, or the optimizer step where ``op`` is None."""

    key: str
    batch: int
    op: Op | None


def profile(
    graph: OperatorGraph,
    batches: Sequence[int],
    out: str | Path = "",
    options: ProfileOptions | None = None,
    **changes: Any,
) -> CostTable:
    """Time each distinct op of ``graph`` at each batch, and one optimizer step.

    Model: an op runs alone, on inputs that are out of the caches unless the same pass wrote them;
        its median time counts (on CPUs the lower quartile). Eager dispatch is part of an op's time; autograd's own
        bookkeeping is not.
    Args: batches: samples, at least one, each >= 1. out: where to save the table; "" saves nothing.
        changes: fields of ProfileOptions.
    Returns: the table; ops that could not be run are listed in ``provenance["skipped"]``.
    Raises: ConfigError for empty batches, a device that is not there, negative threads, or an optimizer or precision
        that is not known.
    Cost: (distinct ops) x (batches) x at most ``limits.cap_s`` seconds, mostly far less.
    """
    options = options or ProfileOptions()
    for key, value in changes.items():
        if not hasattr(options, key):
            raise ConfigError(f"profile has no option {key!r}")
        setattr(options, key, value)
    batches = check_batches(batches)
    options.check()
    device = _device(options.device)
    provenance = _provenance(graph, batches, device, options)
    table = CostTable(provenance)
    jobs = _jobs(graph, batches, options, table)
    done = _Partial(out, provenance)
    runner = _Runner(graph, device, options)
    for job in _progress(jobs, options.show_progress, graph.name):
        if done.known(job) is None:
            done.add(job, runner.measure(job))
    _collect(table, jobs, done)
    if out:
        table.save(out)
        done.remove()
    return table


def check_batches(batches: Sequence[int]) -> list[int]:
    """Return the batches, ascending and once each.

    Raises: ConfigError unless there is one, and each is an integer >= 1.
    """
    if not batches or any(isinstance(b, bool) or not hasattr(b, "__index__") or int(b) < 1 for b in batches):
        raise ConfigError(f"batches is {list(batches)}; it needs at least one batch, each an integer >= 1")
    return sorted({int(b) for b in batches})


def _coefficients(quantity: Affine) -> list[float]:
    found = [quantity.constant, quantity.per_sample]
    return [*found, quantity.per_pair] if quantity.per_pair else found


def distinct_ops(graph: OperatorGraph, precision: str = "fp32") -> dict[str, Op]:
    """Return one op for each key; metadata-only ops are left out."""
    found: dict[str, Op] = {}
    for op in graph.ops:
        if not op.is_metadata:
            found.setdefault(op_key(op, graph, precision), op)
    return found


def _jobs(graph: OperatorGraph, batches: list[int], options: ProfileOptions, table: CostTable) -> list[_Job]:
    """List the measurements and give ``table`` an empty entry for each op."""
    jobs = []
    for key, op in distinct_ops(graph, options.precision).items():
        num_bytes = op.bytes_read + op.bytes_written
        table.entries[key] = Entry(
            op.op_type,
            flops=_coefficients(op.flops),
            bytes=_coefficients(num_bytes),
        )
        jobs += [_Job(key, batch, op) for batch in batches]
    if options.optimizer:
        key = optimizer_key(options.optimizer, graph, options.precision)
        table.entries[key] = Entry(f"optimizer.{options.optimizer}", num_parameters=graph.num_parameters)
        jobs.append(_Job(key, 1, None))
    return jobs


def _collect(table: CostTable, jobs: list[_Job], done: "_Partial") -> None:
    skipped = []
    for job in jobs:
        seconds = done.known(job)
        if isinstance(seconds, str):
            skipped.append(f"{job.key} at batch {job.batch}: {seconds}")
        elif seconds is not None:
            table.entries[job.key].seconds[job.batch] = seconds
    table.entries = {key: entry for key, entry in table.entries.items() if entry.seconds}
    table.provenance["skipped"] = skipped


class _Runner:
    """Measures jobs on the device."""

    def __init__(self, graph: OperatorGraph, device: str, options: ProfileOptions) -> None:
        import torch

        if options.threads:
            torch.set_num_threads(options.threads)
        torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
        self._torch = torch
        self._graph = graph
        self._device = device
        self._options = options
        self._timer = CudaTimer(options.limits) if device == "cuda" else CpuTimer(options.limits)
        self._builders: dict[int, CallBuilder] = {}

    def measure(self, job: _Job) -> float | str:
        """Return the duration [s], or why the op could not be run."""
        try:
            with self._torch.no_grad():
                if job.op is None:
                    return self._optimizer_s()
                self._check_memory(job)
                builder = self._builders.setdefault(
                    job.batch, CallBuilder(self._graph, job.batch, self._device, self._options.precision)
                )
                return self._timer.time_call(builder.build(job.op))
        except (RuntimeError, TypeError, ValueError, IndexError, ConfigError) as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"

    def _check_memory(self, job: _Job) -> None:
        """Refuse an op whose tensors would not fit: the system would kill the whole run."""
        need = (job.op.bytes_read + job.op.bytes_written).at(job.batch) if job.op else 0.0
        if self._device == "cuda":
            free = self._torch.cuda.mem_get_info()[0]
        else:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if 2 * need > free:  # twice: workspaces and the copies a random tensor is made from
            raise ConfigError(f"needs about {2 * need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")

    def _optimizer_s(self) -> float:
        torch = self._torch
        parameters, count = [], 0
        for p in self._graph.parameters:
            shape = [round(dim.at(1)) for dim in p.shape]
            parameters.append(torch.zeros(shape, device=self._device).normal_().requires_grad_())
            count += parameters[-1].numel()
            if count >= MAX_OPTIMIZER_PARAMETERS:
                break
        for p in parameters:
            p.grad = torch.randn_like(p)
        name = self._options.optimizer
        makers: dict[str, Callable[[], Any]] = {
            "sgd": lambda: torch.optim.SGD(parameters, lr=1e-4),
            "momentum": lambda: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9),
            "adagrad": lambda: torch.optim.Adagrad(parameters, lr=1e-4),
            "adam": lambda: torch.optim.Adam(parameters, lr=1e-4),
        }
        optimizer = makers[name]()
        return self._timer.time_step(optimizer.step) * self._graph.num_parameters / count


class _Partial:
    """Finished measurements, kept in memory and appended to a file line by line."""

    def __init__(self, out: str | Path, provenance: dict[str, Any]) -> None:
        self._path = Path(f"{out}.partial.jsonl") if out else None
        self._header = {"provenance": provenance}
        self._done: dict[tuple[str, int], float | str] = {}
        if self._path is None:
            return
        for line in self._lines():
            self._done[(line["key"], line["batch"])] = line["result"]
        if not self._done:
            self._path.write_text(json.dumps(self._header) + "\n")

    def known(self, job: _Job) -> float | str | None:
        """Return the result of a finished job: seconds, the reason of a failure, or None."""
        return self._done.get((job.key, job.batch))

    def add(self, job: _Job, result: float | str) -> None:
        """Keep a result; it is on disk when this returns."""
        self._done[(job.key, job.batch)] = result
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"key": job.key, "batch": job.batch, "result": result}) + "\n")

    def remove(self) -> None:
        """Delete the file: the table holds all of it now."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the results of an earlier run with the same settings; a torn last line is cut off."""
        if self._path is None or not self._path.exists():
            return
        whole = [line for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if not whole or json.loads(whole[0]) != self._header:
            return
        self._path.write_text("".join(whole))
        for line in whole[1:]:
            yield json.loads(line)


def _device(name: str) -> str:
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; it must be auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device; use 'cpu' or 'auto'")
    return name if name != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")


def _provenance(graph: OperatorGraph, batches: list[int], device: str, options: ProfileOptions) -> dict[str, Any]:
    import torch

    if device == "cuda":
        name = torch.cuda.get_device_name(0)
        accelerator, clock = _ACCELERATOR_BY_DEVICE.get(name, ""), "device events, median"
    else:
        name, accelerator, clock = _cpu_name(), "cpu_local", "time.perf_counter, lower quartile"
    return {
        "model": graph.name,
        "device": f"1x {name}",
        "accelerator": accelerator,
        "torch": torch.__version__,
        "threads": options.threads or torch.get_num_threads(),
        "precision": options.precision,
        "optimizer": options.optimizer,
        "batches": batches,
        "clock": clock,
        "date": options.date,
        "command": options.command,
    }


def _cpu_name() -> str:
    """Return the processor's name and number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _progress(jobs: list[_Job], is_shown: bool, name: str) -> Iterator[_Job]:
    """Yield the jobs behind a progress bar on standard error."""
    if not is_shown:
        yield from jobs
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(jobs, description=f"profiling {name}", console=Console(stderr=True))
