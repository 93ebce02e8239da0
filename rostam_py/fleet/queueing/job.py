"""QueuedJob: what a scheduler knows of a job, and what it will do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that is submitted, waits, holds all of its accelerators at once, and leaves.

    name: in results. submit_s: when it is submitted [s]. accelerators: that it holds, >= 1. work_s: how long it runs
    alone, checkpoints included [s], >= 0. stated_s: how long its owner says it will run [s]; orders read it.
    model, iterations, settings: of a job whose iterations are simulated; work_s is then theirs.
    """

    name: str
    submit_s: float
    accelerators: int
    work_s: float
    stated_s: float
    model: str | None = None
    iterations: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)


Kind = tuple[str, int, tuple[tuple[str, Any], ...]]


def kind_of(job: QueuedJob) -> Kind | None:
    """Return what jobs have in common whose iterations are alike: model, size and settings; None without a model."""
    return None if job.model is None else (job.model, job.accelerators, tuple(sorted(job.settings.items())))


def arrivals_in_order(jobs: Sequence[QueuedJob]) -> list[QueuedJob]:
    """Return jobs by submission, those of one moment as given, with times from the first one on.

    Raises: ConfigError where there is none.
    """
    if not jobs:
        raise ConfigError("fleet.jobs has no job; it must have at least one")
    first = min(job.submit_s for job in jobs)
    moved = [
        QueuedJob(
            name=job.name, submit_s=job.submit_s - first, accelerators=job.accelerators, work_s=job.work_s,
            stated_s=job.stated_s, model=job.model, iterations=job.iterations, settings=job.settings,
        )
        for job in jobs
    ]  # fmt: skip
    return sorted(moved, key=lambda job: job.submit_s)
