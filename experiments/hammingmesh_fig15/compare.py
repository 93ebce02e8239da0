"""HammingMesh's figure 15: what a network costs times what communication adds, for the workloads of section V-B."""

import argparse
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[1]))

from hammingmesh_clusters import CLUSTERS, built, price_musd
from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.fabrics.fabric import Fabric
from rostam_py.reproduction import Figure, experiments_in

COMMAND = "python experiments/hammingmesh_fig15/compare.py"
POINTS = Path(__file__).with_name("points.json")
REFERENCE = "nonblocking tree"
Overheads = dict[tuple[str, str], float]


@cache
def study(name: str) -> ModuleType:
    """Return the comparison of another of HammingMesh's studies, which makes the workload's plan."""
    return experiments_in(Path(__file__).parents[1])[name].load()


def resnet152(fabric: Fabric) -> float:
    """Return what communication adds to ResNet-152's compute, D = 1,024 [%]."""
    module = study("hammingmesh_resnet152")
    return _added(rostam.simulate(module.plan_on(fabric, 1024, "ring")).iteration_time_s, module.COMPUTE_S)


def cosmoflow(fabric: Fabric) -> float:
    """Return what it adds to CosmoFlow's, 256 groups of four [%]."""
    module = study("hammingmesh_cosmoflow")
    return _added(rostam.simulate(module.plan_on(fabric, module.STRATEGY)).iteration_time_s, module.COMPUTE_S)


def gpt3(fabric: Fabric) -> float:
    """Return what it adds to GPT-3's, 96 stages of four [%]."""
    module = study("hammingmesh_gpt3")
    return _added(module.spent_ms(fabric, "ring") * 1e-3, module.COMPUTE_S)


def gpt3_moe(fabric: Fabric) -> float:
    """Return what it adds to GPT-3's with mixtures of experts [%]."""
    module = study("hammingmesh_gpt3_moe")
    parts = rostam.simulate(module.plan_on(fabric, module.ALGORITHMS["rostam"])).stage_microbatch_s
    if parts is None:
        raise RuntimeError("a pipeline has a time per micro-batch and stage")
    return _added(sum(parts.values()), module.COMPUTE_S)


def _added(time_s: float, compute_s: float) -> float:
    return 100 * (time_s / compute_s - 1)


WORKLOADS: dict[str, Callable[[Fabric], float]] = {
    "ResNet-152": resnet152, "CosmoFlow": cosmoflow, "GPT-3": gpt3, "GPT-3 MoE": gpt3_moe,
}  # fmt: skip


def measure(points: SearchedPoints) -> Overheads:
    """Return the overheads [%] by workload and cluster; computes what is not kept."""
    return {
        (workload, cluster): points.keep(f"{workload} | {cluster}", lambda a=added, c=cluster: a(built(c)))
        for workload, added in WORKLOADS.items()
        for cluster in CLUSTERS
    }


def saving(found: Overheads, workload: str, cluster: str) -> float:
    """Return the reference's price times overhead over a cluster's: how many times less the cluster costs so."""
    return _weighed(found, workload, REFERENCE) / _weighed(found, workload, cluster)


def _weighed(found: Overheads, workload: str, cluster: str) -> float:
    return price_musd(cluster) * found[workload, cluster]


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    found = measure(SearchedPoints(path, COMMAND))
    return [
        Figure(name=f"{workload}: {cluster}", published="", ours=f"{saving(found, workload, cluster):.2f}")
        for workload, cluster in found
    ]


def main() -> None:
    """Print prices, overheads and how many times less each cluster costs."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    rows = [
        [
            cluster, f"{price_musd(cluster):.1f}", f"{price_musd(REFERENCE) / price_musd(cluster):.1f}",
            *(cell for workload in WORKLOADS
              for cell in (f"{found[workload, cluster]:.2f}", f"{saving(found, workload, cluster):.2f}")),
        ]
        for cluster in CLUSTERS
    ]  # fmt: skip
    head = ["cluster", "M$", "tree's price over it"]
    for workload in WORKLOADS:
        head += [f"{workload} [%]", "times less"]
    print_table("what communication adds, and the tree's price x overhead over the cluster's", head, rows)


if __name__ == "__main__":
    main()
