"""Policy: how a job answers faults of its servers. One file each in ``policies/``, and a line of POLICIES."""

from typing import ClassVar

from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.long_job import LongJob


class Policy:
    """A job that is cut by a fault, goes back to its last checkpoint and begins again once its servers are whole."""

    NEEDS_WHOLE_REPLICAS: ClassVar[bool] = False  # every replica has all of the state: no rank shares it (ZeRO 0)
    UNDOES: ClassVar[bool] = True  # a cut undoes the work since the last checkpoint
    GROWS_AT: ClassVar[str] = ""  # "iteration" or "checkpoint": the ends at which a replica comes back; "": it does not

    def lose(self, crew: Crew, server: int) -> None:
        """Answer the fault of a server of the job."""

    def fill(self, crew: Crew) -> None:
        """Find servers for those that are missing, before a restart."""

    def is_ready(self, crew: Crew) -> bool:
        """Tell whether the job can begin again."""
        return bool(crew.replicas) and not crew.missing()

    def restart_s(self, job: LongJob) -> float:
        """Return how long a cut job takes to begin again [s]."""
        return float(job.restart)

    def grow_s(self, job: LongJob) -> float:
        """Return how long all wait when a replica comes back [s]."""
        return float(job.restart)
