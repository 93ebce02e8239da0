"""HammingMesh's figures 13 and 17: all-reduce bandwidth over size, rings against the torus algorithm, small and large.

Legend: S buffer, p accelerators, beta seconds per byte of one of four interfaces.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hammingmesh_clusters import LARGE, built
from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure

COMMAND = "python experiments/hammingmesh_fig13_fig17/compare.py"
POINTS = Path(__file__).with_name("points.json")
WITHIN = 0.01  # of a closed form without latency, at the largest size
HALF = (0.45, 0.55)  # what counts as half of the rings' bandwidth
SIZES = {f"{2**k} {unit}": 2**k * scale for unit, scale in (("MiB", 2**20), ("GiB", 2**30)) for k in (0, 2, 4, 6, 8)}
SIZES |= {"1 KiB": 2**10, "64 KiB": 2**16}
SIZES = dict(sorted(SIZES.items(), key=lambda one: one[1]))
SMALLEST, LARGEST = "1 KiB", "256 GiB"
RINGS, PRINTED_TORUS, BOTH_WAYS = "dual_hamiltonian_rings", "torus_2d_unidirectional", "torus_2d"
SMALL = ("2D HyperX (as Hx1Mesh)", "Hx2Mesh", "Hx4Mesh", "2D torus")
TREES = ("nonblocking tree", "nonblocking tree large")
MESHES = (*SMALL, *(name for name in LARGE if name not in TREES))
Times = dict[str, float]


def times(cluster: str, algorithm: str) -> Times:
    """Return the time of an all-reduce by size [s]."""
    fabric = built(cluster)
    return {
        name: rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm=algorithm).time_s
        for name, size in SIZES.items()
    }


def measure(points: SearchedPoints) -> dict[tuple[str, str], Times]:
    """Return the times by cluster and algorithm; computes what is not kept."""
    asked = [(mesh, algorithm) for mesh in MESHES for algorithm in (RINGS, PRINTED_TORUS, BOTH_WAYS)]
    asked += [(tree, "ring") for tree in TREES]
    return {
        (cluster, algorithm): points.keep(f"{cluster} | {algorithm}", lambda c=cluster, a=algorithm: times(c, a))
        for cluster, algorithm in asked
    }


def share(cluster: str, size: str, time_s: float) -> float:
    """Return the all-reduce's bandwidth over its optimum, 2 (p-1)/p S at the injection bandwidth [%]."""
    fabric = built(cluster)
    count = fabric.num_accelerators
    return 100 * 2 * (count - 1) / count * SIZES[size] / (fabric.injection_bandwidth_bytes_per_s * time_s)


def closed_form_s(algorithm: str, count: int, beta: float) -> float:
    """Return the printed time without latency at LARGEST (section V-A2) [s]."""
    size = SIZES[LARGEST]
    return size * beta / 2 if algorithm == RINGS else size * beta * (1 + 2 * math.sqrt(count)) / (4 * math.sqrt(count))


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    return list(_figures(measure(SearchedPoints(path, COMMAND))))


def _figures(found: dict[tuple[str, str], Times]) -> Iterator[Figure]:
    for mesh in MESHES:
        fabric = built(mesh)
        count, beta = fabric.num_accelerators, 4 / fabric.injection_bandwidth_bytes_per_s
        for algorithm in (RINGS, BOTH_WAYS):
            theirs, own = closed_form_s(algorithm, count, beta), found[mesh, algorithm][LARGEST]
            yield Figure(
                name=f"{mesh}: {algorithm}, {LARGEST}, against its printed closed form", published=f"{theirs:.3f}",
                ours=f"{own:.3f}", difference=f"{own / theirs - 1:+.2%}", unit="s",
                is_met=abs(own / theirs - 1) <= WITHIN,
            )  # fmt: skip
        for algorithm in (PRINTED_TORUS, BOTH_WAYS):
            value = found[mesh, RINGS][LARGEST] / found[mesh, algorithm][LARGEST]
            yield Figure(
                name=f"{mesh}: {algorithm}, {LARGEST}, bandwidth over that of rings", published="about 0.5",
                ours=f"{value:.2f}", is_met=HALF[0] <= value <= HALF[1],
            )  # fmt: skip
        value = found[mesh, RINGS][SMALLEST] / found[mesh, PRINTED_TORUS][SMALLEST]
        # Far less latency, 2 p alpha against 4 sqrt(p) alpha, with one alpha for all messages.
        printed = math.sqrt(count) / 2
        yield Figure(
            name=f"{mesh}: rings' time over {PRINTED_TORUS}'s, {SMALLEST}", published=f"{printed:g} (one latency)",
            ours=f"{value:.1f}", is_met=value > 1,
        )  # fmt: skip
        ahead = (name for name in SIZES if found[mesh, RINGS][name] < found[mesh, PRINTED_TORUS][name])
        name = f"{mesh}: least size where rings are ahead of {PRINTED_TORUS}"
        yield Figure(name=name, published="", ours=next(ahead, "none"))


def main() -> None:
    """Print shares over sizes and the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    rows: list[list[Any]] = [
        [cluster, algorithm, *(f"{share(cluster, size, one):.2f}" for size, one in kept.items())]
        for (cluster, algorithm), kept in found.items()
    ]
    print_table("all-reduce [% of the optimum] over size", ("cluster", "algorithm", *SIZES), rows)
    told = [[one.name, one.published, one.ours, one.difference] for one in _figures(found)]
    print_table("figure by figure", ("figure", "printed", "rostam", "difference"), told)


if __name__ == "__main__":
    main()
