"""HammingMesh's Table II by packets: all-to-all and permutations of the small clusters, next to the same by flows."""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from hammingmesh_clusters import CLUSTERS, built
from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure

COMMAND = "python experiments/hammingmesh_table2_packets/compare.py"
POINTS = Path(__file__).with_name("points.json")
EXPECTED = Path(__file__).with_name("expected.csv")
SIZES = {"16 KiB": 2**14, "1 MiB": 2**20}  # of a pair's message
TIERS = {"flow": "spray", "packet": "turns_adaptive"}  # the latter the paper's: adaptive, free of deadlock
DRAGONFLY_ROUTING = "ugal"
NUM_SHIFTS = 2  # of p - 1, drawn
NUM_PERMUTATIONS = 10
WITHIN = 0.05  # of what is printed or what an independent program found
SHIFTED, PERMUTED, ALL = "shifts", "permutations", "all at once"


def routing_of(cluster: str, tier: str) -> str:
    """Return the routing of a cluster."""
    return DRAGONFLY_ROUTING if cluster == "Dragonfly" else TIERS[tier]


def all_at_once(cluster: str, tier: str, pair_bytes: int) -> float:
    """Return what leaves an accelerator over what it could inject, all pairs sending at time 0 [%].

    Model: flows take all shortest paths on the Dragonfly, too, where a million of them by UGAL-L take too long.
    """
    fabric = built(cluster)
    count = fabric.num_accelerators
    routing = TIERS[tier] if tier == "flow" else routing_of(cluster, tier)
    time_s = rostam.run_collective(
        fabric, "all_to_all", num_bytes=count * pair_bytes, algorithm="direct", routing=routing, fidelity=tier
    ).time_s
    return 100 * (count - 1) * pair_bytes / (time_s * fabric.injection_bandwidth_bytes_per_s)


def shifted(cluster: str, tier: str, pair_bytes: int) -> float:
    """Return the share of injection bandwidth of an all-to-all by shifts, one after the other [%].

    Model: p - 1 shifts take p - 1 times the mean time of NUM_SHIFTS drawn ones, each until its last byte has arrived.
    """
    count = built(cluster).num_accelerators
    drawn = np.random.default_rng(0).choice(np.arange(1, count), NUM_SHIFTS, replace=False)
    times = [1 / _shares(cluster, tier, (np.arange(count) + shift) % count, pair_bytes).min() for shift in drawn]
    return float(1 / np.mean(times))


def permuted(cluster: str, tier: str, pair_bytes: int) -> float:
    """Return what accelerators receive in random permutations [% of injection], mean over them and permutations."""
    count = built(cluster).num_accelerators
    orders = [np.random.default_rng(seed).permutation(count) for seed in range(NUM_PERMUTATIONS)]
    return float(np.mean([_shares(cluster, tier, order, pair_bytes).mean() for order in orders]))


def _shares(cluster: str, tier: str, destinations: np.ndarray, pair_bytes: int) -> np.ndarray:
    fabric = built(cluster)
    src = np.flatnonzero(destinations != np.arange(len(destinations)))
    finish_s = rostam.run_flows(
        fabric, src=src.tolist(), dst=destinations[src].tolist(), num_bytes=[pair_bytes] * len(src),
        routing=routing_of(cluster, tier), fidelity=tier,
    ).finish_s  # fmt: skip
    return np.asarray(100 * pair_bytes / (finish_s * fabric.injection_bandwidth_bytes_per_s))


PATTERNS = {ALL: all_at_once, SHIFTED: shifted, PERMUTED: permuted}
# 1 MiB from every pair at once is 64 times as long as 16 KiB: sampled by shifts alone.
CELLS = ((ALL, "16 KiB"), (SHIFTED, "16 KiB"), (SHIFTED, "1 MiB"), (PERMUTED, "1 MiB"))
LEFT_OUT = ("2D torus", ALL)  # by packets it was stopped after two CPU minutes


def measure(points: SearchedPoints) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the shares [%] by cluster, pattern and size, and tier; computes what is not kept."""
    return {
        (cluster, pattern, size): {
            tier: points.keep(
                f"{cluster} | {pattern} | {size} | {tier}",
                lambda c=cluster, p=pattern, s=size, t=tier: PATTERNS[p](c, t, SIZES[s]),
            )
            for tier in TIERS
        }
        for pattern, size in CELLS
        for cluster in CLUSTERS
        if (cluster, pattern) != LEFT_OUT
    }  # fmt: skip


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    return list(_figures(measure(SearchedPoints(path, COMMAND))))


def _figures(found: dict[tuple[str, str, str], dict[str, float]]) -> Iterator[Figure]:
    with EXPECTED.open(encoding="utf-8") as file:
        expected = {(row["name"], row["pattern"], row["size"]): row["share"] for row in csv.DictReader(file)}
    for cell, shares in found.items():
        theirs, own = expected.get(cell, ""), shares["packet"]
        yield Figure(
            name=", ".join(cell), published=theirs, ours=f"{own:.2f}", unit="%",
            difference=f"{own / float(theirs) - 1:+.1%}" if theirs else "",
            is_met=abs(own / float(theirs) - 1) <= WITHIN if theirs else None,
        )  # fmt: skip


def main() -> None:
    """Print every cell by both tiers with their difference, and the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    rows = [
        [*cell, f"{one['flow']:.2f}", f"{one['packet']:.2f}", f"{one['packet'] / one['flow'] - 1:+.1%}"]
        for cell, one in sorted(found.items(), key=lambda item: list(CLUSTERS).index(item[0][0]))
    ]
    head = ("cluster", "pattern", "a pair", "flow", "packet", "packet against flow")
    print_table("[% of injection bandwidth]", head, rows)
    told = [[one.name, one.published, one.ours, one.difference] for one in _figures(found)]
    print_table("figure by figure", ("figure", "elsewhere", "rostam", "difference"), told)


if __name__ == "__main__":
    main()
