"""HammingMesh's figure 12: random permutations on the small clusters, by flows and packets, and dollars per GB/s."""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from hammingmesh_clusters import CLUSTERS, built, price_musd
from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure

COMMAND = "python experiments/hammingmesh_fig12/compare.py"
POINTS = Path(__file__).with_name("points.json")
EXPECTED = Path(__file__).with_name("expected.csv")
PAIR_BYTES = 2**20
# By tier: routing, and seeds of permutations. In packets the paper's routing, free of deadlock; UGAL on the Dragonfly.
TIERS = {"flow": ("spray", range(100)), "packet": ("turns_adaptive", range(10))}
DRAGONFLY_ROUTING = "ugal"
QUANTILES = (0.05, 0.5, 0.95)
WITHIN = 0.05  # of what an independent program found
TREE = "nonblocking tree"
Shares = dict[str, list[float]]


def permuted(cluster: str, tier: str) -> Shares:
    """Return, for each permutation, mean, least and quantiles of what accelerators receive [% of injection].

    Model: everyone sends PAIR_BYTES at once, to another one; its bandwidth is the bytes over the time until the last.
    """
    fabric = built(cluster)
    routing, seeds = TIERS[tier]
    if cluster == "Dragonfly":
        routing = DRAGONFLY_ROUTING
    found: Shares = {name: [] for name in ("mean", "least", *(f"{quantile:.0%}" for quantile in QUANTILES))}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(fabric.num_accelerators)
        src = np.flatnonzero(order != np.arange(len(order)))
        result = rostam.run_flows(
            fabric, src=src.tolist(), dst=order[src].tolist(), num_bytes=[PAIR_BYTES] * len(src), routing=routing,
            fidelity=tier,
        )  # fmt: skip
        shares = 100 * PAIR_BYTES / (result.finish_s * fabric.injection_bandwidth_bytes_per_s)
        own = (shares.mean(), shares.min(), *np.quantile(shares, QUANTILES))
        for name, value in zip(found, own, strict=True):
            found[name].append(float(value))
    return found


def measure(points: SearchedPoints) -> dict[tuple[str, str], Shares]:
    """Return the shares [%] by cluster and tier; computes what is not kept."""
    return {
        (cluster, tier): points.keep(f"{cluster} | {tier}", lambda c=cluster, t=tier: permuted(c, t))
        for cluster in CLUSTERS
        for tier in TIERS
    }


def dollars(cluster: str, mean: float) -> float:
    """Return what a GB/s of the mean permutation costs an accelerator [$]. Args: mean: [% of injection]."""
    fabric = built(cluster)
    received = mean / 100 * fabric.injection_bandwidth_bytes_per_s * fabric.num_accelerators
    # A network's price is of all its planes, four times what is simulated.
    return price_musd(cluster) * 1e6 / (4 * received / 1e9)


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    return list(_figures(measure(SearchedPoints(path, COMMAND))))


def _figures(found: dict[tuple[str, str], Shares]) -> Iterator[Figure]:
    with EXPECTED.open(encoding="utf-8") as file:
        others = {(row["name"], row["quantity"]): row["independent"] for row in csv.DictReader(file)}
    for (cluster, tier), shares in found.items():
        for quantity in ("mean", "least"):
            theirs = others.get((cluster, quantity), "") if tier == "packet" else ""
            own = float(np.mean(shares[quantity]))
            yield Figure(
                name=f"{cluster}, by {tier}s: {quantity}", published=theirs, ours=f"{own:.1f}", unit="%",
                difference=f"{own / float(theirs) - 1:+.1%}" if theirs else "",
                is_met=abs(own / float(theirs) - 1) <= WITHIN if theirs else None,
            )  # fmt: skip
        own = dollars(cluster, float(np.mean(shares["mean"])))
        yield Figure(
            name=f"{cluster}, by {tier}s: price of the mean", published="", ours=f"{own:.1f}", unit="$ per GB/s"
        )


def main() -> None:
    """Print the table and the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    rows = [[cluster, tier, *_cells(cluster, shares)] for (cluster, tier), shares in found.items()]
    names = next(iter(found.values()))
    head = ("cluster", "tier", *names, "deviation of means", "$ per GB/s", "of the tree's")
    tree = {tier: dollars(TREE, float(np.mean(found[TREE, tier]["mean"]))) for tier in TIERS}
    for row in rows:
        row.append(f"{float(row[-1]) / tree[row[1]]:.2f}")
    print_table("received in a random permutation [% of injection bandwidth], means over permutations", head, rows)
    told = [[one.name, one.published, one.ours, one.difference] for one in _figures(found)]
    print_table("figure by figure", ("figure", "elsewhere", "rostam", "difference"), told)


def _cells(cluster: str, shares: Shares) -> list[Any]:
    means = [f"{np.mean(values):.1f}" for values in shares.values()]
    return [*means, f"{np.std(shares['mean']):.1f}", f"{dollars(cluster, float(np.mean(shares['mean']))):.1f}"]


if __name__ == "__main__":
    main()
