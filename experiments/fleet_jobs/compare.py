"""Many jobs over weeks: waits of a recorded trace by cluster size, placement and order, and a drawn mix on boards."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from printed_figures import print_figures

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators import Room, make_allocator
from rostam_py.fleet.goodput import FaultTrace
from rostam_py.fleet.goodput.faults import DAY_S, HOUR_S
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.jobs_file import read_jobs
from rostam_py.fleet.queueing.names import ORDERS, PLACES, SOURCES
from rostam_py.fleet.queueing.places.units import Units
from rostam_py.fleet.queueing.result import QueueResult
from rostam_py.fleet.queueing.run import Upkeep
from rostam_py.fleet.queueing.simulate import Setting, simulate_queue
from rostam_py.fleet.queueing.sources.source import make_source
from rostam_py.reproduction import Figure

TRACE = Path(__file__).with_name("jobs_philly_busiest_vc.csv")
SERVER = 8
# GPUs -> mean wait [h] by strict first come, first served, of another program that counts GPUs.
COUNTED_ELSEWHERE = {192: "13.9", 256: "0.5", 368: "0.0"}
SMALL = 192  # GPUs: the cluster that has a queue
BOARDS = (32, 32)  # of 2 x 2 accelerators
MIX = {"count": 3_000, "family": "mixed", "load": 0.7, "unit": 4}
RSC_1 = 1_000 / 6.5 * DAY_S  # mean time between faults of a server [s]: Meta's RSC-1, arXiv 2410.21680


def philly(gpus: int, places: str, order: str = "first_come", setting: Setting | None = None) -> QueueResult:
    """Return the trace's jobs on a cluster of servers of 8."""
    empty = PLACES.get(places)(np.ones(gpus, bool), SERVER)
    return simulate_queue(read_jobs(TRACE).jobs, empty, ORDERS.get(order)(), setting)


def with_faults() -> Setting:
    """Return faults at RSC-1's rate, repaired in 132.8 h; restarts and checkpoints as rostam fleet assumes them."""

    def draw(window_s: float) -> FaultTrace:
        return FaultTrace.drawn(num_servers=SMALL // SERVER, window=window_s, mtbf=RSC_1, repair="132.8 h")

    upkeep = Upkeep(detection_s=60.0, restart_s=600.0, checkpoint_s=30.0, mtbf_s=RSC_1)
    return Setting(upkeep=upkeep, faults=FaultFeed.drawn(draw, 64 * DAY_S))


def on_boards(order: str) -> QueueResult:
    """Return a drawn mix on a HammingMesh, placed as sub-meshes."""
    fabric = HammingMeshConfig(board=(2, 2), boards=BOARDS)
    total = 4 * BOARDS[0] * BOARDS[1]
    is_working = np.ones(total, bool)
    jobs = make_source(SOURCES, "families", MIX, total, 0).draw()
    allocator = make_allocator("submesh", Room(fabric, is_working, ~is_working))
    return simulate_queue(jobs, Units(allocator, 4), ORDERS.get(order)())


def waits(found: QueueResult) -> str:
    """Return mean and 95th percentile of the wait in words."""
    return f"mean {found.mean_wait_s / HOUR_S:.1f} h, p95 {found.p95_wait_s / HOUR_S:.1f} h"


def figures() -> list[Figure]:
    """Return the ledger's figures."""
    rows = []
    for gpus, printed in COUNTED_ELSEWHERE.items():
        found = f"{philly(gpus, 'count').mean_wait_s / HOUR_S:.1f}"
        rows.append(Figure(
            name=f"Philly's busiest cluster on {gpus} GPUs: mean wait, first come, by count [h]", published=printed,
            ours=found, is_met=found == printed,
        ))  # fmt: skip
    alone: list[tuple[str, Callable[[], str]]] = [
        (f"on {gpus} GPUs, first come, in servers of 8", lambda gpus=gpus: waits(philly(gpus, "servers")))
        for gpus in COUNTED_ELSEWHERE
    ]
    alone += [
        (f"on {SMALL} GPUs, {order}, in servers of 8", lambda order=order: waits(philly(SMALL, "servers", order)))
        for order in ("backfill", "shortest_first")
    ]
    alone += [
        (f"on {SMALL} GPUs, first come, in servers of 8, jobs move", _moving),
        (f"on {SMALL} GPUs, first come, in servers that fail", _faulty),
    ]
    rows += [Figure(name=f"Philly's busiest cluster {name}", published="", ours=ours()) for name, ours in alone]
    for order in ORDERS:
        found = on_boards(order)
        held = found.timeline.share("held", found.last_submit_s)
        rows.append(Figure(
            name=f"3,000 drawn jobs on 32 x 32 boards: {order}", published="",
            ours=f"{held:.1%} held until the last submission; {waits(found)}",
        ))  # fmt: skip
    return rows


def _moving() -> str:
    found = philly(SMALL, "servers", setting=Setting(move_s=630.0))
    return f"{waits(found)}; {sum(run.num_moves for run in found.runs)} moves of 10.5 min"


def _faulty() -> str:
    found = philly(SMALL, "servers", setting=with_faults())
    cuts = sum(run.num_cuts for run in found.runs)
    return f"{waits(found)}; {cuts} cuts, {found.goodput:.1%} useful of {found.utilisation:.1%} held"


def main() -> None:
    """Print the comparison."""
    print_figures("Many jobs over weeks", figures(), printed="counted elsewhere", width=170)


if __name__ == "__main__":
    main()
