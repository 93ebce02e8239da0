"""Break-even: goodput against the number of spares, and against the time between checkpoints.

Example:
    curve = spares_curve(job, traces, "spares", counts=range(8))
    least_cost(curve).num_spares            # those at which an iteration takes the fewest server-days

Model: every value is replayed over the same traces, so that points of a curve differ by the value alone. Spares are
paid like the job's servers; the point of least cost has the fewest server-days for each useful iteration, which a price
of servers does not move. Restart, detection and the time of a checkpoint stay as they are.
Source: own; tests/fleet/goodput/test_break_even.py compares with jobs stepped second by second, and with Daly's
optimum.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput.faults import DAY_S, FaultTrace
from rostam_py.fleet.goodput.long_job import LongJob
from rostam_py.fleet.goodput.replay import replay

FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0, 8.0, 16.0)  # of the job's own interval
_MOST_COUNTS = 12


@dataclass(frozen=True, kw_only=True)
class BreakEvenPoint:
    """One value of a curve.

    num_spares, checkpoint_iterations: with which the job was replayed. goodput: mean over the traces; least, most: of
    them. server_days: of the job and its spares for each useful iteration; infinite where none was useful.
    """

    num_spares: int
    checkpoint_iterations: int
    goodput: float
    least: float
    most: float
    server_days: float


def spares_curve(
    job: LongJob, traces: Sequence[FaultTrace], policy: str, counts: Iterable[int]
) -> list[BreakEvenPoint]:
    """Return a point for each number of spares.

    Args: traces: of as many servers as the job and the most spares have.
    Raises: ConfigError as replay.
    Cost: traces x counts x faults x log faults.
    """
    return [_point(job, traces, policy, count) for count in sorted({*counts})]


def interval_curve(
    job: LongJob, traces: Sequence[FaultTrace], policy: str, num_spares: int, iterations: Iterable[int]
) -> list[BreakEvenPoint]:
    """Return a point for each number of iterations between checkpoints.

    Raises: ConfigError as replay, and for less than one iteration.
    """
    return [
        _point(replace(job, checkpoint_iterations=every), traces, policy, num_spares) for every in sorted({*iterations})
    ]


def least_cost(curve: Sequence[BreakEvenPoint]) -> BreakEvenPoint:
    """Return the point with the fewest server-days for each useful iteration; of equal ones the first."""
    return min(curve, key=lambda one: one.server_days)


def spare_counts(most: int) -> list[int]:
    """Return numbers of spares from 0 to ``most``: all of a few, else evenly spread ones."""
    if most < _MOST_COUNTS:
        return list(range(most + 1))
    return sorted({round(k * most / (_MOST_COUNTS - 1)) for k in range(_MOST_COUNTS)})


def intervals(job: LongJob, window_s: float) -> list[int]:
    """Return numbers of iterations between checkpoints around the job's own, at most a window's."""
    most = max(int(window_s / job.whole.iteration_s), 1)
    least = max(job.write_iterations, 1)  # one is written before the next
    return sorted({max(min(round(job.checkpoint_iterations * factor), most), least) for factor in FACTORS})


def _point(job: LongJob, traces: Sequence[FaultTrace], policy: str, num_spares: int) -> BreakEvenPoint:
    if not traces:
        raise ConfigError("break_even got no traces; it needs at least one")
    found = [replay(job, trace, policy, spares=num_spares) for trace in traces]
    shares = [one.goodput for one in found]
    paid = (job.num_servers + num_spares) * math.fsum(one.wall_s for one in found) / DAY_S
    samples = math.fsum(one.samples for one in found)
    return BreakEvenPoint(
        num_spares=num_spares, checkpoint_iterations=job.checkpoint_iterations,
        goodput=math.fsum(shares) / len(shares), least=min(shares), most=max(shares),
        server_days=paid / samples if samples else math.inf,
    )  # fmt: skip
