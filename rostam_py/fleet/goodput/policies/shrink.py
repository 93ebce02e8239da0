"""Shrink: go on with the whole replicas, and grow back."""

from typing import ClassVar

from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.policy import Policy


class Shrink(Policy):
    """Roll back to the last checkpoint, go on with the replicas that are whole, and grow back behind a checkpoint."""

    GROWS_AT: ClassVar[str] = "checkpoint"

    def lose(self, crew: Crew, server: int) -> None:
        """Give up the server's replica."""
        crew.drop(server)

    def fill(self, crew: Crew) -> None:
        """Give up replicas with servers that do not work; make replicas of those that do."""
        for server in crew.missing():
            if crew.has(server):
                crew.drop(server)
        while crew.can_grow():
            crew.grow()
