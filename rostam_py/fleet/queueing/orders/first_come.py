"""first_come: by submission, and nobody overtakes."""

from rostam_py.fleet.queueing.orders.order import Order
from rostam_py.fleet.queueing.run import Run


class FirstCome(Order):
    """By submission; while the first job has no room, all others wait.

    Source: own, tests/fleet/queueing/test_first_come.py simulates it a second time.
    """

    def key(self, run: Run) -> float:
        """Return nothing: equal ones go by submission."""
        return 0.0
