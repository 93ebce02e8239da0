"""Spares: roll back and go on with servers that stood by."""

from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.policy import Policy


class Spares(Policy):
    """Roll back to the last checkpoint and go on with spare servers; wait for a repair where there are none."""

    def fill(self, crew: Crew) -> None:
        """Take free servers for those that are missing."""
        crew.replace(crew.missing())
