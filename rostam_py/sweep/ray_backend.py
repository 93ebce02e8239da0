"""RayBackend: batches as plain Ray tasks, on this machine or on a cluster."""

import os
import time
from typing import Any

from rostam_py.errors import ConfigError, RostamError
from rostam_py.graph import OperatorGraph
from rostam_py.sweep.backend import Batch, Finished, Outcome, Work, evaluate_batch, worker_evaluator

_COUNT_EVERY_S = 10.0
_OBJECT_STORE_BYTES = 256 * 2**20  # graphs are a few MB; Ray would take 30% of the memory


def start_ray(num_workers: int, address: str | None) -> bool:
    """Start or join Ray and return whether that was needed: who has, leaves it again.

    Args: num_workers: CPUs of a local Ray, 0 for all. address: None starts Ray on this machine, "auto" joins the
        cluster that runs here, "ray://host:10001" or "host:6379" another.
    Raises: ConfigError if there is no cluster at the address.
    Cost: 3 to 4 s for a local Ray. To be called in the main thread: Ray's processes end with the thread that started
        them.
    """
    # Neither usage reports nor tokens: nothing leaves the machine, and a local cluster is this user's own.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    import ray

    if ray.is_initialized():
        return False
    _start(ray, num_workers, address)
    return True


def leave_ray() -> None:
    """Leave, and if it was started here stop, Ray."""
    import ray

    ray.shutdown()


class RayBackend:
    """Plain tasks of one CPU each; a lost worker or node costs only the point it was computing.

    Args: num_workers: at most so many at once; 0 takes every CPU of the cluster. owns_cluster: what ``start_ray``
        returned.
    """

    shares_crashes = False

    def __init__(self, work: Work, graphs: dict[str, OperatorGraph], num_workers: int, owns_cluster: bool) -> None:
        import ray

        self._owns_cluster = owns_cluster

        self._ray = ray
        self._wanted = num_workers
        self._count_workers()
        references = {name: ray.put(graph) for name, graph in graphs.items()}
        self._arguments = (ray.put(work), [references])  # in a list, so that a task fetches only what it needs
        self._task = ray.remote(num_cpus=1, max_retries=0)(_run_task)
        self._running: dict[Any, Batch] = {}

    def _count_workers(self) -> None:
        """Take the CPUs that the cluster has now; nodes may have joined or left."""
        cpus = int(self._ray.cluster_resources().get("CPU", 1))
        self.num_workers = max(1, min(self._wanted, cpus) if self._wanted else cpus)
        self._counted = time.monotonic()

    def submit(self, batch: Batch) -> None:
        """Submit a batch as one task."""
        self._running[self._task.remote(*self._arguments, batch)] = batch

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Return tasks that have ended, those of lost workers and nodes too."""
        if not self._running:
            return []
        if time.monotonic() - self._counted > _COUNT_EVERY_S:
            self._count_workers()
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        outcomes = []
        for reference in done:
            batch = self._running.pop(reference)
            try:
                outcomes.append(Outcome(batch, self._ray.get(reference)))
            except self._ray.exceptions.RayTaskError as error:
                cause = error.cause
                if isinstance(cause, RostamError):
                    raise cause from None
                if not isinstance(cause, MemoryError):
                    raise
                outcomes.append(Outcome(batch, lost="MemoryError"))
            except self._ray.exceptions.RayError as error:
                outcomes.append(Outcome(batch, lost=f"{type(error).__name__}: {_first_line(error)}"))
        return outcomes

    def close(self) -> None:
        """Cancel what runs and leave Ray as it was found."""
        if self._owns_cluster:
            self._ray.shutdown()
            return
        for reference in self._running:
            self._ray.cancel(reference, force=True)


def _start(ray: Any, num_workers: int, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        ray.init(
            num_cpus=num_workers or os.cpu_count(), include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES, **quiet,
        )  # fmt: skip
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"sweep.address is {address!r}, but no Ray cluster answers there ({_first_line(error)}); start one with"
            " `ray start --head`, or leave sweep.address out to run on this machine"
        ) from error


def _run_task(work: Work, references: list[dict[str, Any]], batch: Batch) -> tuple[Finished, ...]:
    import ray

    evaluator = worker_evaluator(work, lambda model: ray.get(references[0][model]))
    return evaluate_batch(evaluator, work, batch)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else "no message"
