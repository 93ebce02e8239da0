"""Place the Transformer for k = 4, 8, 16 and count where the bytes of its traffic matrix lie (figure 7)."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    COST,
    PAPER,
    Point,
    SearchedPoints,
    Variant,
    machine,
    print_table,
    traced,
    transformer_variants,
)  # fmt: skip

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig7/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS, BATCH = 1_024, 1_024
STATED, *OTHERS = transformer_variants(BATCH)
NEAR, NEAREST = 1.2, 0.9  # "heaviest near the diagonal": a near cell over a far one, and distance 1 over the heaviest


@dataclass(frozen=True)
class Case:
    """One matrix. bandwidth: [Gb/s], the paper's; placing does not depend on it (MODEL D14). quantum: of a sub-op."""

    k: int
    bandwidth: int
    num_ocs: int = 16
    quantum: str = "10 us"
    variant: Variant = STATED

    @property
    def name(self) -> str:
        """Its name in tables and of its point."""
        name = f"k = {self.k}, {self.num_ocs} circuits, {self.quantum}"
        return name if self.variant is STATED else f"{name} | {self.variant.name}"


PUBLISHED = (Case(4, 2_000), Case(8, 6_000), Case(16, 10_000))
# What shapes the blocks: sub-ops fewer than devices, or a window narrower than the group.
VARIANTS = (Case(16, 10_000, quantum="100 us"), Case(16, 10_000, quantum="1 ms"), Case(16, 10_000, num_ocs=8))


def varied(case: Case) -> list[Case]:
    """Return a case and its variants.

    Model: what computes at 70% splits as many ways at a quantum of 7 us; only launches do not scale so.
    """
    quantum = float(case.quantum.split()[0])
    return [case, *(replace(case, variant=one, quantum=f"{quantum * one.speed:g} us") for one in OTHERS)]


def measure(case: Case) -> Point:
    """Return shares of the bytes of one placement: inside k x k blocks by distance |i - j| mod k, and on dp rings."""
    degree = case.k
    where = machine("sip_ocs", f"{case.bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS, num_ocs=case.num_ocs)
    strategy = rostam.Strategy.of(
        dp=NUM_ACCELERATORS // degree, mp=degree, placer="sip_ml", precision="fp32", quantum=case.quantum,
        algorithms={"all_reduce": PAPER.all_reduce}, weight_splits=case.variant.space.weight_splits,
    )  # fmt: skip
    plan = rostam.place(
        traced(case.variant.job), where, global_batch=BATCH, strategy=strategy, cost=COST, software="ideal"
    )
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


def nearest(found: Point) -> float:
    """Return a block cell's bytes at |i - j| = 1 over those of the heaviest."""
    return float(found["inside_a_cell"][0] / max(found["inside_a_cell"]))


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, own value with its band, and whether the claim is met as stated."""
    rows = []
    for case in (*PUBLISHED, *VARIANTS):
        cases = varied(case) if case in PUBLISHED else [case]
        found = [points.keep(one.name, lambda one=one: measure(one)) for one in cases]
        stated = found[0]
        near = (
            f"a cell within k/2 carries {near_half(stated):.2f}x one farther; at distance 1, {nearest(stated):.2f} of"
            " the heaviest"
        )
        tests = (
            ("all bytes in k x k blocks or on dp rings", f"{stated['inside']:.1%} + {stated['dp_rings']:.1%}",
             [one["elsewhere"] == 0 for one in found], [one["inside"] for one in found], "{:.0%}"),
            ("dp rings off the diagonal, one circuit each", f"degree {stated['circuit_degree']}",
             [one["dp_rings"] > 0 for one in found], [one["circuit_degree"] for one in found], "{}"),
            ("blocks heaviest near the diagonal", near,
             [near_half(one) > NEAR and nearest(one) > NEAREST for one in found], [near_half(one) for one in found],
             "{:.2f}x"),
        )  # fmt: skip
        rows += [
            {"case": case.name, "claim": claim, "theirs": "stated", "ours": text + _band(values, form, met),
             "is_met": met[0]}
            for claim, text, met, values, form in tests
        ]  # fmt: skip
    return [*rows, compare_groups(points)]


def best_groups(points: SearchedPoints, variant: Variant) -> tuple[int, ...]:
    """Return the size of the best groups at the bandwidths of the published matrices, searched or kept."""

    def search(bandwidth: int) -> Point:
        return points.search(
            f"best groups | {variant.name} | {bandwidth} Gb/s", variant.job, variant.space,
            lambda: machine("sip_ocs", f"{bandwidth} Gb/s", variant.speed, num_accelerators=NUM_ACCELERATORS),
            strategies=variant.space.groups(NUM_ACCELERATORS, variant.degrees), num_simulated=3,
        )  # fmt: skip

    return tuple(NUM_ACCELERATORS // search(case.bandwidth)["best"]["dp"] for case in PUBLISHED)


def compare_groups(points: SearchedPoints) -> dict[str, Any]:
    """Return the claim on which matrices are shown at all: those of the best strategies."""
    found = {variant.name: best_groups(points, variant) for variant in (STATED, *OTHERS)}
    printed, own = tuple(case.k for case in PUBLISHED), found[STATED.name]
    others = ", ".join(f"{name} {_ways(ways)}" for name, ways in found.items() if ways != own)
    at = ", ".join(f"{case.bandwidth // 1_000}" for case in PUBLISHED)
    return {
        "case": "SiP-OCS, 16 circuits", "claim": f"k of the best strategy at {at} Tb/s", "theirs": _ways(printed),
        "ours": f"{_ways(own)} (band: {others or 'the same'}; met in {sum(w == printed for w in found.values())} of"
        f" {len(found)})",
        "is_met": own == printed,
    }  # fmt: skip


def _ways(ways: Sequence[int]) -> str:
    return " ".join(map(str, ways))


def _band(values: Sequence[float], form: str, met: Sequence[bool]) -> str:
    """Return the least and the most over the variants, and in how many the claim is met; "" without variants."""
    if len(values) == 1:
        return ""
    return f" (band: {form.format(min(values))} to {form.format(max(values))}; met in {sum(met)} of {len(met)})"


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{case}")


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
        [r["claim"], r["case"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
        for r in sorted(compare(points), key=lambda r: r["is_met"])
    ]
    print_table("figure 7, claim by claim", ("claim", "case", "theirs", "rostam (band)", ""), claims)


if __name__ == "__main__":
    main()
