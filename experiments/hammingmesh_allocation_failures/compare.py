"""Fill HammingMeshes with failed boards, and large ones, with drawn jobs; print the figures next to the paper's."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.defragmentation import restart_s
from rostam_py.fleet.job_sizes import FAMILIES
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
                yield _figure(f"{claim}: {family}, largest {share:.0%}, {order}", expected[claim], float(own))


def traffic_figures(expected: dict[str, dict[str, str]]) -> Iterator[Figure]:
    """Yield shares of traffic over upper levels: all-to-all, and of rings, of which nothing is printed."""
    for claim, (mesh, options) in LARGE.items():
        for family, share in _cases():
            filled = fill_draws(HammingMeshConfig(**mesh), Draws(family, share, num_draws=NUM_LARGE_DRAWS), options)
            where = f"{family}, largest {share:.0%}"
            own = 100 * np.mean([one.all_to_all_share for one in filled])
            yield _figure(f"{claim}: {where}", expected[claim], float(own))
            rings = 100 * np.mean([one.ring_share for one in filled])
            name = claim.replace("all-to-all", "rings")
            yield Figure(name=f"{name}: {where}", published="", ours=f"{rings:.1f}", unit="%")


def figures() -> list[Figure]:
    """Return the ledger's figures."""
    with EXPECTED.open(encoding="utf-8") as file:
        expected = {row["claim"]: row for row in csv.DictReader(file)}
    pause_s = restart_s(MEMORY_BYTES, BYTES_PER_S)
    times = {"memory of 64 GiB at 800 GB/s": 1e3 * pause_s / 2, "checkpoint and restart": pause_s}
    return [
        *failed_figures(expected), *traffic_figures(expected),
        *(_figure(claim, expected[claim], own, digits=3 - (own > 1) * 2) for claim, own in times.items()),
    ]  # fmt: skip


def _cases() -> list[tuple[str, float]]:
    return [(family, share) for family in FAMILIES for share in SHARES]


def _figure(name: str, row: dict[str, str], own: float, digits: int = 1) -> Figure:
    low, high = (float(row[key]) if row[key] else end for key, end in (("low", -np.inf), ("high", np.inf)))
    short = min(own - low, 0.0) or max(own - high, 0.0)
    return Figure(
        name=name, published=row["printed"], ours=f"{own:.{digits}f}", difference=f"{short:+.1f}" if short else "",
        unit=row["unit"], is_met=low <= own <= high,
    )  # fmt: skip


def main() -> None:
    """Print the comparison."""
    table = Table(title="HammingMesh: allocation with failed boards, traffic over upper levels, restarts")
    for column in ("claim: job sizes", "printed", "rostam", "beyond", "unit"):
        table.add_column(column, justify="left" if column == "claim: job sizes" else "right")
    for one in figures():
        table.add_row(one.name, one.published, one.ours, one.difference, one.unit)
    Console().print(table)


if __name__ == "__main__":
    main()
