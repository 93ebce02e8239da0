"""Place the Transformer for k = 4, 8, 16 and count where the bytes of its traffic matrix lie (figure 7)."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import COST, PAPER, TRANSFORMER, Point, SearchedPoints, machine, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig7/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS = 1_024


@dataclass(frozen=True)
class Case:
    """One matrix. bandwidth: [Gb/s], the paper's; placing does not depend on it (MODEL D14). quantum: of a sub-op."""

    k: int
    bandwidth: int
    num_ocs: int = 16
    quantum: str = "10 us"

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"k = {self.k}, {self.num_ocs} circuits, {self.quantum}"


PUBLISHED = (Case(4, 2_000), Case(8, 6_000), Case(16, 10_000))
# What shapes the blocks: sub-ops fewer than devices, or a window narrower than the group.
VARIANTS = (Case(16, 10_000, quantum="100 us"), Case(16, 10_000, quantum="1 ms"), Case(16, 10_000, num_ocs=8))


def measure(case: Case) -> Point:
    """Return shares of the bytes of one placement: inside k x k blocks by distance |i - j| mod k, and on dp rings."""
    degree = case.k
    where = machine("sip_ocs", f"{case.bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS, num_ocs=case.num_ocs)
    strategy = rostam.Strategy(
        dp=NUM_ACCELERATORS // degree, mp=degree, placer="sip_ml", precision="fp32", quantum=case.quantum,
        algorithms={"all_reduce": PAPER.all_reduce},
    )  # fmt: skip
    (batch,) = TRANSFORMER.batches or (1_024,)
    plan = rostam.place(rostam.trace(TRANSFORMER.model), where, global_batch=batch, strategy=strategy, cost=COST)
    traffic = plan.traffic
    src, dst, num_bytes = traffic.src, traffic.dst, traffic.num_bytes
    total = num_bytes.sum()
    is_inside = src // degree == dst // degree
    gap = (dst - src) % NUM_ACCELERATORS
    is_ring = ~is_inside & (gap == degree)
    steps = abs(src - dst)
    by_step = [float(num_bytes[is_inside & (steps == d)].sum() / total) for d in range(1, degree)]
    cells = [2 * (degree - d) for d in range(1, degree)]  # ordered pairs of a block at |i - j| = d
    return {
        "inside": float(num_bytes[is_inside].sum() / total), "dp_rings": float(num_bytes[is_ring].sum() / total),
        "elsewhere": float(num_bytes[~is_inside & ~is_ring].sum() / total), "inside_by_step": by_step,
        "inside_a_cell": [share / count for share, count in zip(by_step, cells, strict=True)],
        "circuit_degree": traffic.circuit_degree, "sent_gb": float(total / NUM_ACCELERATORS / 1e9),
        "notes": [note for note in plan.notes if "sub-ops" in note or "relocation" in note or "window" in note],
        "mean_hops": float((np.minimum(gap, NUM_ACCELERATORS - gap) * num_bytes).sum() / total),
        "cells_in_use": float(is_inside.sum() / (NUM_ACCELERATORS * (degree - 1))),
    }  # fmt: skip


def near_half(found: Point) -> float:
    """Return a block cell's mean bytes at |i - j| <= k/2 over those farther away."""
    cells = np.array(found["inside_a_cell"])
    half = (len(cells) + 1) // 2
    return float(cells[:half].mean() / cells[half:].mean())


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, own value, and whether the claim is met."""
    rows = []
    for case in (*PUBLISHED, *VARIANTS):
        found = points.keep(case.name, lambda case=case: measure(case))
        ratio = near_half(found)
        nearest = found["inside_a_cell"][0] / max(found["inside_a_cell"])
        near = f"a cell within k/2 carries {ratio:.2f}x one farther; at distance 1, {nearest:.2f} of the heaviest"
        rows += [
            {"case": case.name, "claim": "all bytes in k x k blocks or on dp rings", "is_met": found["elsewhere"] == 0,
             "ours": f"{found['inside']:.1%} + {found['dp_rings']:.1%}"},
            {"case": case.name, "claim": "dp rings off the diagonal, one circuit each", "is_met": found["dp_rings"] > 0,
             "ours": f"degree {found['circuit_degree']}"},
            {"case": case.name, "claim": "blocks heaviest near the diagonal", "is_met": ratio > 1.2 and nearest > 0.9,
             "ours": near},
        ]  # fmt: skip
    return rows


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(({"theirs": "stated"} | row for row in compare(SearchedPoints(path, COMMAND))), "{case}")


def main() -> None:
    """Print the matrices in numbers and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    rows = []
    for case in (*PUBLISHED, *VARIANTS):
        found = points.keep(case.name, lambda case=case: measure(case))
        steps = " ".join(f"{share:.1%}" for share in found["inside_by_step"])
        rows.append([
            case.name, f"{case.bandwidth:,}", f"{found['sent_gb']:.3f}", f"{found['inside']:.1%}",
            f"{found['dp_rings']:.1%}", f"{found['cells_in_use']:.0%}", str(found["circuit_degree"]),
            f"{found['mean_hops']:.1f}", steps, "; ".join(found["notes"]),
        ])  # fmt: skip
    columns = ("case", "B [Gb/s]", "GB sent each", "in blocks", "dp rings", "block cells in use", "degree",
               "hops", "in blocks by distance 1, 2, ...", "notes")  # fmt: skip
    print_table("figure 7: where the bytes lie", columns, rows)
    claims = [
        [r["claim"], r["case"], r["ours"], "met" if r["is_met"] else "not met"]
        for r in sorted(compare(points), key=lambda r: r["is_met"])
    ]
    print_table("figure 7, claim by claim", ("claim", "case", "rostam", ""), claims)


if __name__ == "__main__":
    main()
