"""Break-even curves of weeks from their settings: which traces, which numbers of spares, which intervals."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import FaultTrace, LongJob
from rostam_py.fleet.goodput.break_even import (
    BreakEvenPoint,
    interval_curve,
    intervals,
    least_cost,
    spare_counts,
    spares_curve,
)
from rostam_py.spec.build_fleet import build_faults
from rostam_py.spec.fleet_options import FleetOptions

DRAWS = 5  # traces that are drawn for each point, of seeds from fleet.seed on
_MANY, _MOST = 2_000, 20_000  # faults of one trace: one draw alone, no curves
Curve = list[BreakEvenPoint]


@dataclass(frozen=True)
class BreakEven:
    """Curves by policy. num_traces: behind every point. left_out: policies without curves, and why."""

    num_traces: int
    is_drawn: bool
    spares: dict[str, Curve] = field(default_factory=dict)
    intervals: dict[str, Curve] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each point, in SI; None for what no useful iteration has."""
        return [
            {
                "curve": name, "policy": policy, "num_spares": one.num_spares,
                "checkpoint_iterations": one.checkpoint_iterations, "goodput": one.goodput, "goodput_least": one.least,
                "goodput_most": one.most, "is_least_cost": one is least_cost(curve),
                "server_days_per_iteration": one.server_days if one.server_days < float("inf") else None,
            }
            for name, curves in (("spares", self.spares), ("interval", self.intervals))
            for policy, curve in curves.items()
            for one in curve
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "num_traces": self.num_traces, "is_drawn": self.is_drawn, "points": self.rows(), "left_out": self.left_out
        }  # fmt: skip


def build_break_even(
    options: FleetOptions,
    job: LongJob,
    faults: FaultTrace,
    policies: Iterable[str],
    say: Callable[[str], None] = lambda text: None,
) -> BreakEven | None:
    """Return the curves of policies; None where they are not wanted, or a trace has too many faults.

    Args: faults: of the weeks themselves. policies: those that the job's layout permits.
    """
    if not options.break_even or len(faults.faults) > _MOST:
        return None
    traces, most = _traces(options, job, faults)
    found = BreakEven(len(traces), _is_drawn(options))
    for policy in policies:
        say(f"break-even of policy {policy}")
        try:
            spares = spares_curve(job, traces, policy, {*spare_counts(most), options.spares})
            every = interval_curve(job, traces, policy, options.spares, intervals(job, faults.window_s))
        except ConfigError as error:  # a draw leaves a number of replicas that the layout cannot have
            found.left_out[policy] = str(error)
        else:
            found.spares[policy], found.intervals[policy] = spares, every
    return found


def _is_drawn(options: FleetOptions) -> bool:
    return options.faults is None or options.memoryless


def _traces(options: FleetOptions, job: LongJob, faults: FaultTrace) -> tuple[list[FaultTrace], int]:
    """Return the traces, and the most spares that are tried: one more than servers are ever down at once.

    Model: recorded faults are of a known number of servers, and so are those of ``fleet.servers``: spares beyond them
        would be servers that never fail.
    """
    draws = DRAWS if _is_drawn(options) and len(faults.faults) <= _MANY else 1
    chosen = [replace(options, seed=options.seed + draw) for draw in range(draws)]
    traces = [build_faults(one, job.num_servers) for one in chosen]
    wanted = max(max(trace.most_down for trace in traces) + 1, options.spares)
    if options.faults is not None or options.servers is not None:
        return traces, min(wanted, traces[0].num_servers - job.num_servers)
    return [build_faults(replace(one, spares=wanted), job.num_servers) for one in chosen], wanted
