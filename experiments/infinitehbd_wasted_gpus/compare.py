"""GPUs wasted by tensor-parallel groups that need whole islands, over InfiniteHBD's trace of faults."""

import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from printed_figures import print_figures

from rostam_py.fleet.goodput import FaultTrace
from rostam_py.fleet.islands import wasted_share
from rostam_py.fleet.islands.cube import Cube
from rostam_py.fleet.islands.islands import Islands
from rostam_py.fleet.islands.k_hop_ring import KHopRing
from rostam_py.fleet.islands.nvl72 import Nvl72
from rostam_py.fleet.islands.server import Server
from rostam_py.fleet.islands.switch import Switch
from rostam_py.reproduction import Figure

TRACE = Path(__file__).parents[1] / "fleet_goodput" / "faults_infinitehbd_400_servers.csv"
SERVERS = 400
KINDS: dict[str, Islands] = {
    "servers of 8 GPUs": Server(), "NVL72": Nvl72(), "cubes of 64": Cube(), "2-hop ring": KHopRing(2),
    "3-hop ring": KHopRing(3), "one switch": Switch(),
}  # fmt: skip
TPS = (16, 32)
ORDERS = 20
RING = "3-hop ring"
LEAST = 10.0  # the abstract: over an order of magnitude lower


class Wasted(NamedTuple):
    """Shares of working GPUs: as the trace numbers servers, and in each of the random orders."""

    numbered: float
    shuffled: list[float]

    @property
    def mean(self) -> float:
        """Of the random orders."""
        return float(np.mean(self.shuffled))


def wasted(faults: FaultTrace, kind: Islands, tp: int, orders: int = ORDERS) -> Wasted:
    """Return what one kind of islands wastes with groups of one size."""
    shuffled = [
        wasted_share(faults, kind, tp=tp, order=random.Random(seed).sample(range(SERVERS), SERVERS))
        for seed in range(orders)
    ]
    return Wasted(wasted_share(faults, kind, tp=tp), shuffled)


def shares() -> dict[tuple[str, int], Wasted]:
    """Return what is wasted by (islands, tp)."""
    faults = FaultTrace.read(TRACE, num_servers=SERVERS)
    return {(name, tp): wasted(faults, kind, tp) for name, kind in KINDS.items() for tp in TPS}


def figures() -> list[Figure]:
    """Return the ledger's figures."""
    found = shares()
    rows = [
        Figure(
            name=f"{name}, tp {tp}: working GPUs in no complete group", published="",
            ours=f"{one.mean:.2%} ({min(one.shuffled):.2%} to {max(one.shuffled):.2%}; as numbered {one.numbered:.2%})",
        )
        for (name, tp), one in found.items()
    ]  # fmt: skip
    for name in ("NVL72", "cubes of 64"):
        for tp in TPS:
            ratio = found[name, tp].mean / found[RING, tp].mean
            rows.append(Figure(
                name=f"{name} waste against {RING}s, tp {tp}", published="> 10x", ours=f"{ratio:.0f}x",
                is_met=ratio > LEAST,
            ))  # fmt: skip
    return rows


def compare() -> dict[str, Any]:
    """Return the shares, for plots."""
    return {f"{name}, tp {tp}": one._asdict() for (name, tp), one in shares().items()}


def main() -> None:
    """Print the comparison."""
    print_figures("GPUs wasted by tensor-parallel groups", figures())


if __name__ == "__main__":
    main()
