"""The two networks of the Slim Fly deployment, from the same 36-port switches, and where jobs of few nodes lie on them.

Example:
    tree(), slim_fly()                # 200 nodes each
    nodes(16, "random", seed=0)       # 16 of the 200, in rank order
    along_neighbours()                # Slim Fly's nodes so that consecutive switches are joined by a cable
"""

from functools import cache

import numpy as np

import rostam_py as rostam
from rostam_py.fabrics.fabric import Fabric

NODES, ON_SWITCH, Q = 200, 4, 5
NUM_NODES = (2, 4, 8, 16, 32, 64, 128, 200)
# FDR InfiniBand; our sources name no adapter, so that the start of an MPI message is assumed.
BANDWIDTH, START_S = "56 Gb/s", 1e-6
TREE = "tree"
LAYERS = ("layers:1", "layers:2", "layers:4", "layers:8", "layers:16")
PRINTED = "layers:4"  # what the slides' Slim Fly is taken to run: the paper's number of layers that settles collisions
SCHEMES = (TREE, "dfsssp", *LAYERS)


@cache
def tree(start_s: float = START_S, slower: float = 1.0) -> Fabric:
    """Return 13 leaves of 16 nodes, two cables from each to each of 8 spines. Args: see ``_with_nics``."""
    shape = {"num_accelerators": NODES, "levels": 2, "radix": 36, "leaf_down": 16, "leaf_up": 16, "num_spines": 8}
    return _with_nics(rostam.fabric("fat_tree", link_bandwidth=BANDWIDTH, **shape), start_s, slower)


@cache
def slim_fly(start_s: float = START_S, slower: float = 1.0) -> Fabric:
    """Return the 50 switches of q = 5, seven cables to others and four nodes on each. Args: see ``_with_nics``."""
    shape = {"q": Q, "terminals_per_switch": ON_SWITCH}
    return _with_nics(rostam.fabric("slim_fly", link_bandwidth=BANDWIDTH, **shape), start_s, slower)


def on(scheme: str, start_s: float = START_S, slower: float = 1.0) -> tuple[Fabric, str]:
    """Return the network of a scheme, and its routing: static on the tree, too, one path for each destination."""
    fabric = tree(start_s, slower) if scheme == TREE else slim_fly(start_s, slower)
    return fabric, "dfsssp" if scheme == TREE else scheme


def _with_nics(fabric: Fabric, start_s: float, slower: float) -> Fabric:
    """Return a fabric whose messages begin and end with half of a start-up each, on the nodes' own links.

    Args: start_s: of one message [s]. slower: what the rate of nodes' links is divided by.
    """
    links = fabric.links
    at_node = (links["src"] < NODES) | (links["dst"] < NODES)
    if not start_s and slower == 1.0:
        return fabric
    latency = links["latency_s"] / (links["latency_s"] + np.where(at_node, start_s / 2, 0.0))
    return fabric.with_factors(bandwidth=np.where(at_node, 1 / slower, 1.0), latency=latency)


def nodes(count: int, placement: str, seed: int = 0) -> list[int]:
    """Return the nodes of a job in rank order: the first ones, or drawn and in drawn order."""
    if placement == "linear":
        return list(range(count))
    drawn: list[int] = np.random.default_rng(seed).permutation(NODES)[:count].tolist()
    return drawn


def along_neighbours() -> list[int]:
    """Return Slim Fly's nodes with its second half's switches renumbered so that consecutive ones are neighbours.

    Model: (0, x, y) has cables to (0, x, y +- 1), (1, m, c) to (1, m, c +- 2): X = {1, 4}, X' = {2, 3} for q = 5.
        Switch c of a subgroup of the second half takes the place of 2 c.
    """
    half = Q * Q
    switches = [*range(half), *(half + Q * m + 2 * c % Q for m in range(Q) for c in range(Q))]
    return [ON_SWITCH * switch + k for switch in switches for k in range(ON_SWITCH)]
