"""RayBackend: batches as plain Ray tasks, on this machine or on a cluster."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from rostam_py.errors import ConfigError, RostamError
from rostam_py.graph import OperatorGraph
from rostam_py.sweep.backend import Batch, Finished, Outcome, Work, evaluate_batch, worker_evaluator
from rostam_py.sweep.local_ray import check_loopback, join_with_token, loopback_only

_COUNT_EVERY_S = 10.0
_OBJECT_STORE_BYTES = 256 * 2**20  # graphs are a few MB; Ray would take 30% of the memory
_ANSWER_S = 10.0
_QUIET = {"log_to_driver": False, "logging_level": "error"}


def start_ray(num_workers: int, address: str | None) -> Callable[[], None] | None:
    """Start or join Ray, and return what leaves it again; None where this process has joined one already.

    Args:
        num_workers: CPUs of a local Ray, 0 for all.
        address: None, or Ray's word "local", starts Ray for this machine alone; "auto" joins the cluster that runs
            here, "ray://host:10001" or "host:6379" another, with the user's token.
    Raises: ConfigError if there is no cluster at the address, or one that refuses the token.
    Cost: 3 to 4 s for a local Ray. To be called in the main thread: Ray's processes end with the thread that started
        them.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    import ray

    if ray.is_initialized():
        return None
    return _start(ray, num_workers) if address in (None, "local") else _join(ray, address)


class RayBackend:
    """Plain tasks of one CPU each; a lost worker or node costs only the point it was computing.

    Args: num_workers: at most so many at once; 0 takes every CPU of the cluster. leave: what ``start_ray`` returned.
    """

    shares_crashes = False

    def __init__(
        self, work: Work, graphs: dict[str, OperatorGraph], num_workers: int, leave: Callable[[], None] | None
    ) -> None:
        import ray

        self._leave = leave
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

    def next_lane(self) -> int:
        """Return 0: Ray chooses the worker."""
        return 0

    def submit(self, batch: Batch, lane: int) -> None:
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
        if self._leave is not None:
            self._leave()
            return
        for reference in self._running:
            self._ray.cancel(reference, force=True)


def _start(ray: Any, num_workers: int) -> Callable[[], None]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(loopback_only())
        stack.callback(ray.shutdown)
        ray.init(
            address="local", num_cpus=num_workers or os.cpu_count(), include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES, _temp_dir=str(folder), **_QUIET,
        )  # fmt: skip
        check_loopback(folder)
        return stack.pop_all().close


def _join(ray: Any, address: str) -> Callable[[], None]:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")  # it is said below what refuses
    _check_answers(address)
    join_with_token()
    try:
        ray.init(address=address, **_QUIET)
    except ray.exceptions.AuthenticationError as error:
        raise _refused(address, _first_line(error)) from error
    except ConnectionError as error:
        if _endpoint(address) is None:  # "auto"
            raise _unanswered(address, _first_line(error)) from error
        raise _refused(address, _first_line(error)) from error
    except (ValueError, RuntimeError) as error:
        raise _unanswered(address, _first_line(error)) from error
    leave: Callable[[], None] = ray.shutdown
    return leave


def _endpoint(address: str) -> tuple[str, int] | None:
    """Return the host and port of an address, None for one that Ray looks up by itself, or does not understand."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() and int(port) < 2**16 else None


def _check_answers(address: str) -> None:
    """Raise ConfigError for a host and port where nobody listens, which Ray would try for a minute and a half."""
    if (endpoint := _endpoint(address)) is None:
        return
    try:
        socket.create_connection(endpoint, timeout=_ANSWER_S).close()
    except OSError as error:
        raise _unanswered(address, error.strerror or str(error)) from error


def _unanswered(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"sweep.address is {address!r}, but no Ray cluster answers there ({why}); start one with `ray start --head`, or"
        " leave sweep.address out to run on this machine"
    )


def _refused(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"sweep.address is {address!r}, and what answers there is no Ray cluster that lets you in ({why}); if it asks"
        " for a token, put the cluster's into ~/.ray/auth_token, RAY_AUTH_TOKEN or the file that RAY_AUTH_TOKEN_PATH"
        " names, and leave RAY_AUTH_MODE unset or set it to token"
    )


def _run_task(work: Work, references: list[dict[str, Any]], batch: Batch) -> tuple[Finished, ...]:
    import ray

    evaluator = worker_evaluator(work, lambda model: ray.get(references[0][model]))
    return evaluate_batch(evaluator, work, batch)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else "no message"
