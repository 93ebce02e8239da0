"""Slim Fly against the two-level tree of the same 36-port switches: collectives and training proxies, next to print."""

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from machines import LAYERS, NUM_NODES, PRINTED, SCHEMES, START_S, TREE, along_neighbours, nodes, on
from proxies import PROXIES, iteration_s
from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure

COMMAND = "python experiments/slim_fly_against_tree/compare.py"
POINTS = Path(__file__).with_name("points.json")
WITHIN = 0.05  # of a printed ratio; equal entries of the print differ by as much from size to size
EQUAL = 0.10  # within which two networks count as equal
READINGS = ("tree's time over Slim Fly's", "Slim Fly's time over the tree's")
# Rows of the print: powers of two up to 32 MiB, from a byte (26) and from a float (24); inferred from their number.
SIZES = {"broadcast": tuple(2**k for k in range(26)), "all_reduce": tuple(2**k for k in range(2, 26))}
PRINTS = {"broadcast": "printed_bcast.csv", "all_reduce": "printed_all_reduce.csv"}
# Open MPI 4.0 turns from short messages' algorithm to long ones' here (coll_tuned_decision_fixed.c). Halving and
# doubling stands for recursive doubling, which has its partners, the tree of all sizes for the split one.
SHORT = {"broadcast": ("binomial_tree", 370_728), "all_reduce": ("halving_doubling", 10_000)}
LONG = "ring"  # a chain in pieces, of broadcast
SEEDS = range(5)  # of random placements
DRAWN_BYTES = {"1 KiB": 2**10, "1 MiB": 2**20, "32 MiB": 2**25}  # of broadcasts and all-reduces on them
PAIR_BYTES = {"4 KiB": 2**12, "1 MiB": 2**20}  # of all-to-alls
EXCHANGES = {"direct": "all at once", "balanced_shift": "shift by shift"}
RING_BYTES = 2**26
# Of one ring: how nodes are numbered, what a message's start takes, by how much a node is slower than a switch's port.
RINGS: dict[str, dict[str, float]] = {
    "as numbered": {}, "along neighbours": {}, "nodes at half of the rate": {"slower": 2.0},
}  # fmt: skip
FIRST = 4  # of the print's first sizes, 4 to 32 bytes of an all-reduce, the ratios that stand out
Found = dict[str, Any]


def algorithm_of(collective: str, num_bytes: int) -> str:
    """Return what a library runs at a size, on any network."""
    short, below = SHORT[collective]
    return short if num_bytes < below else LONG


def seconds(
    collective: str, algorithm: str, num_bytes: int, scheme: str, ranks: list[int], start_s: float = START_S,
    slower: float = 1.0,
) -> float:  # fmt: skip
    """Return the time of one collective under a scheme [s]."""
    fabric, routing = on(scheme, start_s, slower)
    return rostam.run_collective(
        fabric, collective, num_bytes=num_bytes, algorithm=algorithm, ranks=ranks, routing=routing
    ).time_s


def over_sizes(collective: str, count: int, start_s: float = START_S) -> Found:
    """Return, by scheme, the times at the print's sizes, nodes in order."""
    ranks = nodes(count, "linear")
    return {
        scheme: [seconds(collective, algorithm_of(collective, size), size, scheme, ranks, start_s=start_s)
                 for size in SIZES[collective]]
        for scheme in (SCHEMES if start_s else (TREE, PRINTED))
    }  # fmt: skip


def drawn_over_sizes(collective: str, count: int) -> Found:
    """Return, by size and scheme, the times of DRAWN_BYTES, one for each random placement."""
    drawn = [nodes(count, "random", seed) for seed in SEEDS]
    return {
        name: {scheme: [seconds(collective, algorithm_of(collective, size), size, scheme, ranks) for ranks in drawn]
               for scheme in SCHEMES}
        for name, size in DRAWN_BYTES.items()
    }  # fmt: skip


def exchanged(algorithm: str, count: int, placement: str) -> Found:
    """Return, by size of a pair and scheme, the times of all-to-alls, one for each random placement."""
    drawn = [nodes(count, placement, seed) for seed in (SEEDS if placement == "random" else (0,))]
    return {
        name: {scheme: [seconds("all_to_all", algorithm, size * count, scheme, ranks) for ranks in drawn]
               for scheme in SCHEMES}
        for name, size in PAIR_BYTES.items()
    }  # fmt: skip


def ring(count: int, how: str) -> Found:
    """Return, by scheme, the time of the ring of RING_BYTES that RINGS describes."""
    numbered = along_neighbours() if how == "along neighbours" else nodes(200, "linear")
    return {
        scheme: seconds(
            "all_reduce", "ring", RING_BYTES, scheme, nodes(count, "linear") if scheme == TREE else numbered[:count],
            **RINGS[how],
        )
        for scheme in SCHEMES
    }  # fmt: skip


def trained(proxy: str, count: int, placement: str) -> Found:
    """Return, by scheme, the iteration times of a proxy, one for each of two random placements."""
    seeds = SEEDS[:2] if placement == "random" else (0,)
    return {scheme: [iteration_s(proxy, count, scheme, placement, seed) for seed in seeds] for scheme in SCHEMES}


def measure(points: SearchedPoints) -> Found:
    """Return everything that is simulated, by its key; computes what is not kept."""
    return {key: points.keep(key, compute) for key, compute in _runs()}


def _runs() -> Iterator[tuple[str, Callable[[], Found]]]:
    for count in NUM_NODES:
        for collective in SIZES:
            yield f"{collective} | {count} nodes", lambda c=collective, n=count: over_sizes(c, n)
            yield f"{collective} | {count} nodes | network alone", lambda c=collective, n=count: over_sizes(c, n, 0.0)
            yield f"{collective} | {count} nodes | random", lambda c=collective, n=count: drawn_over_sizes(c, n)
        for algorithm in EXCHANGES:
            for placement in ("linear", "random"):
                key = f"all_to_all | {algorithm} | {count} nodes | {placement}"
                yield key, lambda a=algorithm, n=count, p=placement: exchanged(a, n, p)
    for count in (64, 128, 200):
        for how in RINGS:
            yield f"ring | {count} nodes | {how}", lambda n=count, h=how: ring(n, h)
    for proxy, counts in PROXIES.items():
        for count in counts:
            for placement in ("linear", "random"):
                key = f"{proxy} | {count} nodes | {placement}"
                yield key, lambda p=proxy, n=count, q=placement: trained(p, n, q)


def ratios(found: Found, collective: str, count: int, scheme: str = PRINTED, more: str = "") -> np.ndarray:
    """Return the tree's time over Slim Fly's, by size."""
    times = found[f"{collective} | {count} nodes{more}"]
    return np.array(times[TREE]) / np.array(times[scheme])


def gain(times: Found, scheme: str, over: str = TREE) -> float:
    """Return the median over placements of one scheme's time over another's."""
    return float(np.median(np.array(times[over]) / np.array(times[scheme])))


def printed(collective: str) -> dict[int, np.ndarray]:
    """Return the print's columns by number of nodes."""
    with Path(__file__).with_name(PRINTS[collective]).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {int(name[1:]): np.array([float(row[name]) for row in rows]) for name in rows[0]}


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    found = measure(SearchedPoints(path, COMMAND))
    return [*_medians(found), *_rows(found), *_rings(found), *_exchanges(found), *_proxies(found)]


def _compared(name: str, theirs: float, ours: float) -> Figure:
    return Figure(
        name=name, published=f"{theirs:.2f}", ours=f"{ours:.2f}", difference=f"{ours / theirs - 1:+.1%}",
        is_met=bool(abs(ours / theirs - 1) <= WITHIN),
    )  # fmt: skip


def _medians(found: Found) -> Iterator[Figure]:
    for collective in SIZES:
        for count, column in printed(collective).items():
            own = float(np.median(ratios(found, collective, count)))
            for reading, value in zip(READINGS, (own, 1 / own), strict=True):
                yield _compared(f"{collective}, {count} nodes, median: {reading}", float(np.median(column)), value)


def _rows(found: Found) -> Iterator[Figure]:
    """Compare, by the first reading, the rows that stand out: the first ones and the last."""
    for count in (64, 128, 200):
        column, own = printed("all_reduce")[count], ratios(found, "all_reduce", count)
        yield _compared(f"all_reduce, {count} nodes, first {FIRST} sizes", column[:FIRST].mean(), own[:FIRST].mean())
    for collective in SIZES:
        for count in (16, 128, 200):
            last = printed(collective)[count][-1]
            yield _compared(f"{collective}, {count} nodes, 32 MiB", last, ratios(found, collective, count)[-1])


def _rings(found: Found) -> Iterator[Figure]:
    for count in (64, 128, 200):
        for how in RINGS:
            times = found[f"ring | {count} nodes | {how}"]
            value = times[TREE] / times["layers:1"]
            yield Figure(
                name=f"ring of 64 MiB, {count} nodes, minimal paths, {how}", published="about 1", ours=f"{value:.2f}",
                is_met=bool(abs(value - 1) <= WITHIN),
            )  # fmt: skip


def _exchanges(found: Found) -> Iterator[Figure]:
    """Compare claims of all-to-alls of 1 MiB a pair: placements, and layers against one path for each pair."""
    for count in (8, 16, 200):
        linear, drawn = (
            gain(found[f"all_to_all | direct | {count} nodes | {one}"]["1 MiB"], "dfsssp")
            for one in ("linear", "random")
        )
        yield Figure(
            name=f"all-to-all all at once, {count} nodes: linear placement congests, random does not",
            published="tree's time over Slim Fly's < 1, then about 1", ours=f"{linear:.2f}, then {drawn:.2f}",
            is_met=bool(linear < 1 - EQUAL and abs(drawn - 1) <= EQUAL),
        )  # fmt: skip
    for algorithm, words in EXCHANGES.items():
        for count in (16, 64, 200):
            times = found[f"all_to_all | {algorithm} | {count} nodes | linear"]["1 MiB"]
            own = [gain(times, scheme, over="dfsssp") for scheme in LAYERS]
            yield Figure(
                name=f"all-to-all {words}, {count} nodes: DFSSSP's time over that of 1, 2, 4, 8, 16 layers",
                published="> 1 with layers", ours=", ".join(f"{value:.2f}" for value in own), is_met=min(own[2:]) > 1,
            )  # fmt: skip


def _proxies(found: Found) -> Iterator[Figure]:
    for proxy, counts in PROXIES.items():
        for count in counts:
            for placement in ("linear", "random"):
                own = gain(found[f"{proxy} | {count} nodes | {placement}"], PRINTED)
                yield Figure(
                    name=f"{proxy}, {count} nodes, {placement}: tree's time over Slim Fly's", published="about 1",
                    ours=f"{own:.2f}", is_met=bool(own >= 1 - EQUAL),
                )  # fmt: skip


def main() -> None:
    """Print the tables and the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    slim = [scheme for scheme in SCHEMES if scheme != TREE]
    for collective in SIZES:
        rows = [
            [f"{count}", f"{np.median(column):.2f}", *(
                f"{np.median(ratios(found, collective, count, scheme)):.2f}" for scheme in slim
            ), f"{np.median(ratios(found, collective, count, more=' | network alone')):.2f}"]
            for count, column in printed(collective).items()
        ]  # fmt: skip
        head = ("nodes", "printed", *slim, f"{PRINTED}, network alone")
        print_table(f"{collective}: median over sizes of the tree's time over Slim Fly's", head, rows)
    for what, keys in _tables().items():
        rows = [[name, *(f"{gain(times, scheme):.2f}" for scheme in slim)] for name, times in keys(found)]
        print_table(f"{what}: tree's time over Slim Fly's", ("", *slim), rows)
    own = figures(POINTS)
    rows = [[one.name, one.published, one.ours, "met" if one.is_met else "not met"] for one in own]
    print_table("figure by figure", ("figure", "printed", "rostam", ""), rows)


def _tables() -> dict[str, Callable[[Found], list[tuple[str, Found]]]]:
    def drawn(found: Found) -> list[tuple[str, Found]]:
        kept = [(key, found[f"{key} | random"]) for n in NUM_NODES for key in (f"{one} | {n} nodes" for one in SIZES)]
        return [(f"{key} | {size}", times[size]) for key, times in kept for size in DRAWN_BYTES]

    def rings(found: Found) -> list[tuple[str, Found]]:
        return [(key.removeprefix("ring | "), times) for key, times in found.items() if key.startswith("ring")]

    def exchanges(found: Found) -> list[tuple[str, Found]]:
        kept = [(key.removeprefix("all_to_all | "), found[key]) for key in found if key.startswith("all_to_all")]
        return [(key, times["1 MiB"]) for key, times in kept]

    def proxies(found: Found) -> list[tuple[str, Found]]:
        return [(key, times) for key, times in found.items() if key.startswith(tuple(PROXIES))]

    return {
        "random placement": drawn,
        "ring of 64 MiB": rings,
        "all-to-all of 1 MiB a pair": exchanges,
        "iteration of a proxy": proxies,
    }


if __name__ == "__main__":
    main()
