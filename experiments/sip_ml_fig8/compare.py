"""Search the Transformer on SiP-OCS with 4 to 20 switches at equal bandwidth (figure 8)."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import ALL, COST, PAPER, TRANSFORMER, Point, SearchedPoints, Space, machine, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig8/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS = 1_024
BANDWIDTHS = (1_024, 8_192)  # Gb/s
NUM_OCS = (4, 8, 12, 16, 20)
ENOUGH = 12
SPACES = (PAPER, ALL)


def point(points: SearchedPoints, space: Space, bandwidth: int, num_ocs: int) -> Point:
    """Return one search, kept or computed."""
    return points.search(
        f"{space.name} | {bandwidth} Gb/s | {num_ocs} OCS", TRANSFORMER, space,
        lambda: machine("sip_ocs", f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS, num_ocs=num_ocs),
        num_simulated=8,
    )  # fmt: skip


def allocation(points: SearchedPoints, num_ocs: int) -> dict[str, float]:
    """Return the circuits that dp 128 x mp 8 gets at 1 Tb/s, and how long the slowest pair's bytes take [s]."""

    def compute() -> dict[str, float]:
        where = machine("sip_ocs", "1024 Gb/s", num_accelerators=NUM_ACCELERATORS, num_ocs=num_ocs)
        strategy = replace(PAPER.base(), dp=128, mp=8, placer="sip_ml")
        plan = rostam.place(points.graph(TRANSFORMER), where, global_batch=1_024, strategy=strategy, cost=COST)
        traffic, circuits = plan.traffic, plan.fabric_with_circuits().circuits
        is_ring = traffic.src // 8 != traffic.dst // 8
        seconds = traffic.num_bytes / circuits.bandwidth_bytes_per_s
        return {
            "ring_circuits": float(circuits.count[is_ring].mean()), "ring_s": float(seconds[is_ring].max()),
            "block_circuits": float(circuits.count[~is_ring].mean()), "block_s": float(seconds[~is_ring].max()),
        }  # fmt: skip

    return dict(points.keep(f"allocation | {num_ocs} OCS", compute))


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, printed and own value, and whether the claim is met."""
    rows = []
    for space in SPACES:
        for num_ocs in NUM_OCS:  # one after another: a search keeps the plans of its windows for the next alone
            for bandwidth in BANDWIDTHS:
                point(points, space, bandwidth, num_ocs)
        for bandwidth in BANDWIDTHS:
            seconds = {q: point(points, space, bandwidth, q)["best"]["iteration_s"] for q in NUM_OCS}
            early, late = seconds[NUM_OCS[0]] / seconds[ENOUGH], seconds[ENOUGH] / seconds[NUM_OCS[-1]]
            rises = [b / a for a, b in zip(list(seconds.values()), list(seconds.values())[1:], strict=False)]
            case = f"{space.name}, {bandwidth:,} Gb/s"
            rows += [
                {"claim": "more switches help: time with 4 over 12", "case": case, "theirs": "> 1x",
                 "ours": f"{early:.3f}x", "is_met": early > 1.001},
                {"claim": "no more switches slow it down: worst step", "case": case, "theirs": "<= 1x",
                 "ours": f"{max(rises):.3f}x", "is_met": max(rises) <= 1.001},
                {"claim": "little beyond 12: time with 12 over 20", "case": case, "theirs": "about 1x",
                 "ours": f"{late:.3f}x", "is_met": abs(late - 1) < 0.05},
            ]  # fmt: skip
    return rows


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{case}")


def main() -> None:
    """Print times over the number of switches and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    rows = []
    for space in SPACES:
        for bandwidth in BANDWIDTHS:
            bests = [point(points, space, bandwidth, q)["best"] for q in NUM_OCS]
            cells = [f"{best['iteration_s'] * 1e3:.2f} ({best['strategy']})" for best in bests]
            rows.append([space.name, f"{bandwidth:,}", *cells])
    print_table("figure 8: iteration [ms] and best strategy over the number of switches",
                ("searched", "B [Gb/s]", *map(str, NUM_OCS)), rows)  # fmt: skip
    rows = []
    for num_ocs in NUM_OCS[1:]:
        found = allocation(points, num_ocs)
        rows.append([str(num_ocs), f"{found['ring_circuits']:.2f}", f"{found['ring_s'] * 1e3:.2f}",
                     f"{found['block_circuits']:.2f}", f"{found['block_s'] * 1e3:.2f}"])  # fmt: skip
    columns = (
        "switches",
        "circuits a ring pair",
        "its bytes take [ms]",
        "circuits a block pair",
        "its bytes take [ms]",
    )
    print_table("dp 128 x mp 8 at 1,024 Gb/s", columns, rows)
    claims = [[r["claim"], r["case"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 8, claim by claim", ("claim", "case", "theirs", "rostam", ""), claims)


if __name__ == "__main__":
    main()
