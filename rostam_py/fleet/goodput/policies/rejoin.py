"""Rejoin: the others go on without the replica that was cut."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.long_job import LongJob
from rostam_py.fleet.goodput.policy import Policy
from rostam_py.plan.table_groups import REPLICATED


class Rejoin(Policy):
    """Drop the replica that was cut, repeat one iteration without it, and let it rejoin at the end of an iteration.

    Model: every replica has all of the state (strategy.shard is 0), so only the iteration under way is lost. Without
        any replica left the job goes back to its last checkpoint and restarts.
    """

    NEEDS: ClassVar[Mapping[str, Any]] = {"shard": 0, "ep": 1, "tables": REPLICATED}
    UNDOES: ClassVar[bool] = False
    GROWS_AT: ClassVar[str] = "iteration"

    def lose(self, crew: Crew, server: int) -> None:
        """Give up the server's replica."""
        crew.drop(server)

    def fill(self, crew: Crew) -> None:
        """Make replicas of servers that work where none is left."""
        while not crew.replicas and crew.can_grow():
            crew.grow()

    def is_ready(self, crew: Crew) -> bool:
        """Tell whether any replica is left: those that were not cut go on."""
        return bool(crew.replicas)

    def restart_s(self, job: LongJob) -> float:
        """Return nothing: the others go on once the fault is known."""
        return 0.0

    def grow_s(self, job: LongJob) -> float:
        """Return the time of a replica's rejoining [s]."""
        return float(job.rejoin)
