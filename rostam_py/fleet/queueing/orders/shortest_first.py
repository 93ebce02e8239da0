"""shortest_first: by stated duration, and nobody overtakes the shortest."""

from rostam_py.fleet.queueing.orders.order import Order
from rostam_py.fleet.queueing.run import Run


class ShortestFirst(Order):
    """The shortest stated duration first; while that job has no room, all others wait. Long jobs may wait for ever.

    Source: own, tests/fleet/queueing/test_orders.py.
    """

    def key(self, run: Run) -> float:
        """Return the stated duration [s]."""
        return run.job.stated_s
