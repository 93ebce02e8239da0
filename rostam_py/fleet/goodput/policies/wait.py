"""Wait: roll back and wait for the repair."""

from rostam_py.fleet.goodput.policy import Policy


class Wait(Policy):
    """Roll back to the last checkpoint and wait until the job's own servers work again."""
