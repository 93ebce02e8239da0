"""QueueOptions: many jobs that wait for the accelerators of one cluster."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rostam_py.checks import check_booleans
from rostam_py.errors import ConfigError
from rostam_py.units import parse_time

FILE_SUFFIX = ".csv"
NO_FAULTS = "none"


def _orders() -> Iterable[str]:
    from rostam_py.fleet.queueing.names import ORDERS

    return ORDERS


def _placements() -> Iterable[str]:
    from rostam_py.fleet.allocators import ALLOCATORS
    from rostam_py.fleet.queueing.names import PLACES

    return [*PLACES, *ALLOCATORS]


def _sources() -> Iterable[str]:
    from rostam_py.fleet.queueing.names import SOURCES

    return SOURCES


@dataclass(kw_only=True)
class QueueOptions:
    """Jobs over weeks, in place of one job.

    jobs: CSV file of jobs (columns submit_s, accelerators or gpus, duration_s; or model and iterations), or a source of
        drawn ones (rostam list job_sources). null takes the one job of model and strategy.
    draw: settings of a source, such as {count: 1000, load: 0.8}.
    order: which job of the queue starts next (rostam list orders).
    allocation: which accelerators it gets: servers and count share servers (rostam list job_places), others are the
        fabric's (rostam list allocators). null takes the allocator that is made for the fabric, else servers.
    allocation_options: settings of an allocator, such as {aspect_ratio: 8}.
    defragment: move running jobs, with a checkpoint and a restart each, where that gives the next one room.
    move: pause of a job that moves; null takes checkpoint and restart. HammingMesh's 64 GiB at 800 GB/s each way are
        '172 ms'.
    contention: simulate jobs that have a model beside the neighbours with which they share links; false leaves each the
        pace that it has alone.
    """

    jobs: str | None = field(default=None, metadata={"choices": _sources})
    draw: Any = None
    order: str = field(default="first_come", metadata={"choices": _orders})
    allocation: str | None = field(default=None, metadata={"choices": _placements})
    allocation_options: Any = None
    defragment: bool = False
    move: Any = field(default=None, metadata={"unit": "time"})
    contention: bool = True

    def is_file(self) -> bool:
        """Whether the jobs are those of a file."""
        return self.jobs is not None and self.jobs not in _sources()

    def check_queue(self) -> None:
        """Check the keys of this section.

        Raises: ConfigError naming key, value and what is allowed.
        """
        check_booleans("fleet", self)
        if self.move is not None:
            parse_time(self.move, "fleet.move")
        if self.jobs is not None and self.is_file() and not self.jobs.endswith(FILE_SUFFIX):
            raise ConfigError(
                f"fleet.jobs is {self.jobs!r}; it must be a file whose name ends in {FILE_SUFFIX}, or one of:"
                f" {', '.join(_sources())}"
            )
        for key, allowed in (("order", _orders()), ("allocation", _placements())):
            value = getattr(self, key)
            if value not in allowed and not (value is None and key == "allocation"):
                raise ConfigError(f"fleet.{key} is {value!r}; it must be one of: {', '.join(allowed)}")

    def unread_queue_keys(self) -> dict[str, tuple[bool, str]]:
        """Return, by key, whether it is read, and what it needs."""
        many = "fleet.jobs, a file or a source of jobs"
        is_many = self.jobs is not None
        of_allocator = self.allocation is not None and self.allocation not in _shared_places()
        needs = dict.fromkeys(("order", "allocation", "contention", "defragment"), (is_many, many))
        needs |= {"draw": (is_many and not self.is_file(), "fleet.jobs to be a source of jobs, not a file")}
        needs |= {"allocation_options": (is_many and of_allocator, "fleet.allocation to be an allocator's name")}
        needs |= {"move": (is_many and self.defragment, "fleet.defragment=true")}
        one = "one job: no fleet.jobs"
        of_one = ("servers", "policies", "spares", "rejoin", "batch", "asynchronous", "reshard", "break_even")
        return needs | dict.fromkeys(of_one, (not is_many, one))


def _shared_places() -> Iterable[str]:
    from rostam_py.fleet.queueing.names import PLACES

    return PLACES
