"""Policy: how a job answers faults of its servers. One file each in ``policies/``, and a line of POLICIES."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.long_job import LongJob, Pace


class Policy:
    """A job that is cut by a fault, goes back to its last checkpoint and begins again once its servers are whole."""

    NEEDS: ClassVar[Mapping[str, Any]] = {}  # what keys of a strategy must be, so that replicas stand on their own
    UNDOES: ClassVar[bool] = True  # a cut undoes the work since the last checkpoint
    GROWS_AT: ClassVar[str] = ""  # "iteration" or "checkpoint": the ends at which a replica comes back; "": it does not

    def lose(self, crew: Crew, server: int) -> None:
        """Answer the fault of a server of the job."""

    def fill(self, crew: Crew) -> None:
        """Find servers for those that are missing, before a restart."""

    def is_ready(self, crew: Crew) -> bool:
        """Tell whether the job can begin again."""
        return bool(crew.replicas) and not crew.missing()

    def pace(self, job: LongJob, crew: Crew) -> Pace:
        """Return what the job does with the servers that it has."""
        return job.pace(len(crew.replicas))

    def can_grow(self, crew: Crew) -> bool:
        """Tell whether free servers let more of the job run."""
        return crew.can_grow()

    def grow(self, crew: Crew) -> None:
        """Take free servers, as many as the job has room for."""
        while crew.can_grow():
            crew.grow()

    def restart_s(self, job: LongJob) -> float:
        """Return how long a cut job takes to begin again [s]."""
        return float(job.restart)

    def grow_s(self, job: LongJob) -> float:
        """Return how long all wait when a replica comes back [s]."""
        return float(job.restart)
