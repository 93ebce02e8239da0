"""HammingMesh's figure 11: all-to-all bandwidth over the size of a pair's message on the small clusters."""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hammingmesh_clusters import CLUSTERS, built
from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure

COMMAND = "python experiments/hammingmesh_fig11/compare.py"
POINTS = Path(__file__).with_name("points.json")
EXPECTED = Path(__file__).with_name("expected.csv")
WITHIN = 0.02  # of a printed share, as in hammingmesh_table2_throughput
SIZES = {"64 B": 2**6, "1 KiB": 2**10, "16 KiB": 2**14, "256 KiB": 2**18, "4 MiB": 2**22}  # of a pair's message
LARGEST = "4 MiB"
WAYS = {"direct": "all at once", "balanced_shift": "shift by shift"}


def share(cluster: str, algorithm: str, pair_bytes: int) -> float:
    """Return the bytes that leave an accelerator over what it could inject in the all-to-all's time [%]."""
    fabric = built(cluster)
    count = fabric.num_accelerators
    time_s = rostam.run_collective(fabric, "all_to_all", num_bytes=count * pair_bytes, algorithm=algorithm).time_s
    return 100 * (count - 1) * pair_bytes / (time_s * fabric.injection_bandwidth_bytes_per_s)


def measure(points: SearchedPoints) -> dict[tuple[str, str], dict[str, float]]:
    """Return the shares [%] by cluster and algorithm, and size; computes what is not kept."""
    return {
        (cluster, algorithm): {
            name: points.keep(
                f"{cluster} | {algorithm} | {name}", lambda c=cluster, a=algorithm, s=size: share(c, a, s)
            )
            for name, size in SIZES.items()
        }
        for cluster in CLUSTERS
        for algorithm in WAYS
    }  # fmt: skip


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    return list(_figures(measure(SearchedPoints(path, COMMAND))))


def _figures(found: dict[tuple[str, str], dict[str, float]]) -> Iterator[Figure]:
    with EXPECTED.open(encoding="utf-8") as file:
        printed = {row["name"]: row["printed_all_to_all"] for row in csv.DictReader(file)}
    for (cluster, algorithm), shares in found.items():
        for size, own in shares.items():
            theirs = printed.get(cluster, "") if size == LARGEST else ""
            yield Figure(
                name=f"{cluster}, {WAYS[algorithm]}, {size}", published=theirs, ours=f"{own:.2f}", unit="%",
                difference=f"{own / float(theirs) - 1:+.1%}" if theirs else "",
                is_met=abs(own / float(theirs) - 1) <= WITHIN if theirs else None,
            )  # fmt: skip


def main() -> None:
    """Print the table over sizes and the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    rows = [
        [cluster, WAYS[algorithm], *(f"{own:.2f}" for own in shares.values())]
        for (cluster, algorithm), shares in found.items()
    ]
    print_table(
        "all-to-all [% of injection bandwidth] over the size of a pair's message", ("cluster", "", *SIZES), rows
    )
    told = [[one.name, one.published, one.ours, one.difference] for one in _figures(found)]
    print_table("figure by figure", ("figure", "printed", "rostam", "difference"), told)


if __name__ == "__main__":
    main()
