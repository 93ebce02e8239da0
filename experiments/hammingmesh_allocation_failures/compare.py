"""Fill HammingMeshes with failed boards, and large ones, with drawn jobs; print the figures next to the paper's."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from claimed_ranges import claimed, print_claims, read_claims

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.job_sizes import FAMILIES
from rostam_py.fleet.queueing.defragment import restart_s
from rostam_py.fleet.utilisation import Draws, fill_draws
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
SHARES = (0.15, 0.5)  # of the largest job
NUM_DRAWS = 60
NUM_LARGE_DRAWS = 12  # of mixes for machines of 16,384 accelerators
NUM_FAILED = 40
# claim -> mesh; and settings: transposed alone, and what the paper names after it.
SMALL = {
    "Hx2Mesh of 16 x 16 boards, 40 failed: median": {"board": (2, 2), "boards": (16, 16)},
    "Hx4Mesh of 8 x 8 boards, 40 failed: median": {"board": (4, 4), "boards": (8, 8)},
}
ORDERS: dict[str, dict[str, object]] = {"transpose": {}, "all heuristics": {"aspect_ratio": 8, "largest_first": True}}
# claim -> mesh and settings; leaves of 16 boards, of which one switch would hold all 32 of the Hx4Mesh's rows.
LARGE: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "Hx2Mesh of 64 x 64 boards: all-to-all over upper levels": ({"board": (2, 2), "boards": (64, 64)}, {}),
    "Hx4Mesh of 32 x 32 boards, locality: all-to-all over upper levels": (
        {"board": (4, 4), "boards": (32, 32), "wiring": "tree"}, {"locality": True},
    ),
}  # fmt: skip
MEMORY_BYTES, BYTES_PER_S = 64 * 2**30, 800e9


def failed_figures(expected: dict[str, dict[str, str]]) -> Iterator[Figure]:
    """Yield median utilisations of working boards with failed ones."""
    for claim, mesh in SMALL.items():
        for family, share in _cases():
            draws = Draws(family, share, num_failed=NUM_FAILED, num_draws=NUM_DRAWS)
            for order, options in ORDERS.items():
                own = np.median(
                    [100 * one.utilisation for one in fill_draws(HammingMeshConfig(**mesh), draws, options)]
                )
                yield claimed(f"{claim}: {family}, largest {share:.0%}, {order}", expected[claim], float(own))


def traffic_figures(expected: dict[str, dict[str, str]]) -> Iterator[Figure]:
    """Yield shares of traffic over upper levels: all-to-all, and of rings, of which nothing is printed."""
    for claim, (mesh, options) in LARGE.items():
        for family, share in _cases():
            filled = fill_draws(HammingMeshConfig(**mesh), Draws(family, share, num_draws=NUM_LARGE_DRAWS), options)
            where = f"{family}, largest {share:.0%}"
            own = 100 * np.mean([one.all_to_all_share for one in filled])
            yield claimed(f"{claim}: {where}", expected[claim], float(own))
            rings = 100 * np.mean([one.ring_share for one in filled])
            name = claim.replace("all-to-all", "rings")
            yield Figure(name=f"{name}: {where}", published="", ours=f"{rings:.1f}", unit="%")


def figures() -> list[Figure]:
    """Return the ledger's figures."""
    expected = read_claims(EXPECTED)
    pause_s = restart_s(MEMORY_BYTES, BYTES_PER_S)
    times = {"memory of 64 GiB at 800 GB/s": 1e3 * pause_s / 2, "checkpoint and restart": pause_s}
    return [
        *failed_figures(expected), *traffic_figures(expected),
        *(claimed(claim, expected[claim], own, digits=3 - (own > 1) * 2) for claim, own in times.items()),
    ]  # fmt: skip


def _cases() -> list[tuple[str, float]]:
    return [(family, share) for family in FAMILIES for share in SHARES]


def main() -> None:
    """Print the comparison."""
    print_claims("HammingMesh: allocation with failed boards, traffic over upper levels, restarts", figures())


if __name__ == "__main__":
    main()
