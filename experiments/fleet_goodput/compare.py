"""Goodput over weeks: a recorded trace, what clusters print of their faults, and where printed goodputs may lie."""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from printed_figures import print_figures

from rostam_py.fleet.goodput import FaultTrace, LongJob, Pace, replay
from rostam_py.fleet.goodput.faults import DAY_S, HOUR_S
from rostam_py.reproduction import Figure

TRACE = Path(__file__).with_name("faults_infinitehbd_400_servers.csv")
SERVERS = 400
JOB, STANDBY = 376, 24  # servers
REPLICAS = 47
ITERATION_S = 6.0  # no goodput below depends on it by more than an iteration for each fault
RESTARTS_MIN, INTERVALS_MIN = (1, 5, 10, 20), (5, 15, 30, 60)
SEEDS = range(5)
# Printed: failures for 1,000 server-days; servers of 8 accelerators; days; the goodput.
LLAMA_3 = 419 / (54 * 2_048) * 1_000
RUNS = {
    "Llama 3 405B, 16,384 H100s": (LLAMA_3, 2_048, 54, "> 90%", 0.9),
    "ByteRobust, 9,600 GPUs": (6.5, 1_200, 90, "97%", 0.97),
}


def trace() -> FaultTrace:
    """Return InfiniteHBD's faults of 400 servers."""
    return FaultTrace.read(TRACE, num_servers=SERVERS)


def statistics(faults: FaultTrace) -> dict[str, tuple[str, str]]:
    """Return, by name, a statistic as counted elsewhere (see README) and as counted here."""
    repairs = faults.repair_s / HOUR_S
    return {
        "faults for 1,000 server-days": ("4.18", f"{faults.per_1000_server_days:.2f}"),
        "of them hardware's": ("2.13", f"{faults.only(['Hardware']).per_1000_server_days:.2f}"),
        "server time lost": ("2.31%", f"{faults.share_down:.2%}"),
        "servers down, mean": ("9.26", f"{faults.mean_down:.2f}"),
        "servers down, most": ("35", f"{faults.most_down}"),
        "servers down, p95": ("26", f"{faults.quantile_down(0.95)}"),
        "time with more than 24 down": ("5.6%", f"{faults.share_of_time_above(STANDBY):.1%}"),
        "repair, median [h]": ("20.39", f"{np.median(repairs):.2f}"),
        "repair, mean [h]": ("132.8", f"{repairs.mean():.1f}"),
        "faults on the worst 40 servers": ("41%", f"{faults.share_on_worst(40):.0%}"),
        "servers that ever fail": ("231", f"{faults.num_failing}"),
        "coefficient of variation between faults": ("1.76", f"{faults.cv_between:.2f}"),
    }


def policies(faults: FaultTrace) -> dict[str, float]:
    """Return the goodput of a job of 376 of the servers with 24 spares by policy."""
    job = LongJob(
        num_servers=JOB, replicas=REPLICAS, iteration=ITERATION_S, checkpoint="20 s", detection="1 min",
        restart="10 min", rejoin="1 min", checkpoint_iterations=300,
        paces={left: Pace(ITERATION_S, left / REPLICAS) for left in range(1, REPLICAS)},
    )  # fmt: skip
    return {name: replay(job, faults, name).goodput for name in ("wait", "spares", "shrink", "rejoin")}


def region(per_1000: float, servers: int, days: int) -> dict[tuple[int, int], float]:
    """Return the goodput by (restart, interval between checkpoints) [min], with spares at hand.

    Model: memoryless faults at the printed rate, each server replaced at once; checkpoints take no time; detection is
        part of the restart.
    """
    drawn = [
        FaultTrace.drawn(
            num_servers=servers + 64, window=days * DAY_S, mtbf=1_000 / per_1000 * DAY_S, repair="12 h", seed=seed
        )
        for seed in SEEDS
    ]
    found = {}
    for restart, interval in itertools.product(RESTARTS_MIN, INTERVALS_MIN):
        every = round(interval * 60 / ITERATION_S)
        job = LongJob(num_servers=servers, iteration=ITERATION_S, restart=restart * 60.0, checkpoint_iterations=every)
        found[restart, interval] = float(np.mean([replay(job, faults, "spares").goodput for faults in drawn]))
    return found


def mttf_h(per_1000: float, servers: int) -> float:
    """Return the mean time between faults of a job [h]."""
    return 1_000 / (per_1000 * servers) * 24


def figures() -> list[Figure]:
    """Return the ledger's figures."""
    faults = trace()
    rows = [
        Figure(name=f"InfiniteHBD's trace: {name}", published=printed, ours=ours, is_met=printed == ours)
        for name, (printed, ours) in statistics(faults).items()
    ]
    recorded = policies(faults)
    drawn = [policies(faults.memoryless(seed)) for seed in SEEDS]
    for name, share in recorded.items():
        mean = float(np.mean([one[name] for one in drawn]))
        rows.append(Figure(
            name=f"376 of 400 servers and 24 spares: goodput by {name}", published="",
            ours=f"{share:.1%} (memoryless faults of equal means: {mean:.1%})",
        ))  # fmt: skip
    rate = mttf_h(6.5, 2_048)
    rows += [
        Figure(
            name="RSC-1: mean time to failure of 16,384 GPUs, projected", published="1.8 h", ours=f"{rate:.1f} h",
            is_met=f"{rate:.1f}" == "1.8",
        ),
        Figure(
            name="RSC-1: mean time to failure of 1,024 GPUs, observed", published="7.9 h",
            ours=f"{mttf_h(6.5, 128):.1f} h", is_met=False,
        ),
        Figure(
            name="Llama 3 405B: unexpected interruptions for 1,000 server-days", published="3.79",
            ours=f"{LLAMA_3:.2f}", is_met=f"{LLAMA_3:.2f}" == "3.79",
        ),
    ]  # fmt: skip
    for name, (per_1000, servers, days, printed, least) in RUNS.items():
        found = region(per_1000, servers, days)
        reached = [f"{restart} + {interval} min" for (restart, interval), share in found.items() if share >= least]
        rows.append(Figure(
            name=f"{name}: goodput over restart and checkpoint interval", published=printed,
            ours=f"{min(found.values()):.1%} to {max(found.values()):.1%}; {least:.0%} at {_longest(reached)}",
            is_met=False,
        ))  # fmt: skip
    return rows


def _longest(reached: list[str]) -> str:
    if not reached:
        return "none of them"
    return f"{len(reached)} of {len(RESTARTS_MIN) * len(INTERVALS_MIN)}, such as {reached[-1]}"


def compare() -> dict[str, Any]:
    """Return the regions by run, for plots."""
    return {name: region(*settings[:3]) for name, settings in RUNS.items()}


def main() -> None:
    """Print the comparison."""
    print_figures("Goodput over weeks", figures())


if __name__ == "__main__":
    main()
