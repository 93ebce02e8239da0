"""Search the Transformer on SiP-OCS with 4 to 20 switches at equal bandwidth (figure 8)."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    ALL,
    ANY_BATCH,
    COST,
    FREE_BATCH,
    PAPER,
    Point,
    SearchedPoints,
    Space,
    Variant,
    band_words,
    machine,
    print_table,
    transformer_variants,
)

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig8/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS, BATCH = 1_024, 1_024
BANDWIDTHS = (1_024, 8_192)  # Gb/s
NUM_OCS = (4, 8, 12, 16, 20)
ENOUGH = 12
STATED, *OTHERS = transformer_variants(BATCH)
VARIANTS = (STATED, *OTHERS)
# Every strategy: Algorithm 1's groups with the fastest all-reduce, and tensor and pipeline parallelism.
GROUPS = replace(STATED, name="all, groups", space=ALL)
FREE = Variant(ANY_BATCH.name, FREE_BATCH[STATED.job.model], ANY_BATCH)
MEGATRON = Space("all, tensor and pipeline", ("megatron",), ALL.all_reduce)


def point(points: SearchedPoints, variant: Variant, bandwidth: int, num_ocs: int) -> Point:
    """Return the best of a variant's groups, kept or computed."""
    strategies = variant.space.groups(NUM_ACCELERATORS, variant.degrees)
    return _search(points, variant, variant.name, variant.space, bandwidth, num_ocs, strategies)


def any_strategy(points: SearchedPoints, bandwidth: int, num_ocs: int) -> Point:
    """Return the best of all strategies, kept or computed."""
    groups = point(points, GROUPS, bandwidth, num_ocs)
    tensor = _search(points, STATED, MEGATRON.name, MEGATRON, bandwidth, num_ocs, None)
    return min(groups, tensor, key=lambda found: found["best"]["iteration_s"])


def _search(
    points: SearchedPoints, variant: Variant, name: str, space: Space, bandwidth: int, num_ocs: int,
    strategies: Sequence[rostam.Strategy] | None,
) -> Point:  # fmt: skip
    return points.search(
        f"{name} | {bandwidth} Gb/s | {num_ocs} OCS", variant.job, space,
        lambda: machine(
            "sip_ocs", f"{bandwidth} Gb/s", variant.speed, num_accelerators=NUM_ACCELERATORS, num_ocs=num_ocs
        ),
        strategies=strategies, num_simulated=3,
    )  # fmt: skip


def allocation(points: SearchedPoints, num_ocs: int) -> dict[str, float]:
    """Return the circuits that dp 128 x mp 8 gets at 1 Tb/s, and how long the slowest pair's bytes take [s]."""

    def compute() -> dict[str, float]:
        where = machine("sip_ocs", "1024 Gb/s", num_accelerators=NUM_ACCELERATORS, num_ocs=num_ocs)
        strategy = replace(PAPER.base(), dp=128, mp=8, placer="sip_ml")
        plan = rostam.place(
            points.graph(STATED.job), where, global_batch=BATCH, strategy=strategy, cost=COST, software="ideal"
        )
        traffic, circuits = plan.traffic, plan.fabric_with_circuits().circuits
        is_ring = traffic.src // 8 != traffic.dst // 8
        seconds = traffic.num_bytes / circuits.bandwidth_bytes_per_s
        return {
            "ring_circuits": float(circuits.count[is_ring].mean()), "ring_s": float(seconds[is_ring].max()),
            "block_circuits": float(circuits.count[~is_ring].mean()), "block_s": float(seconds[~is_ring].max()),
        }  # fmt: skip

    return dict(points.keep(f"allocation | {num_ocs} OCS", compute))


def seconds(found: Point) -> float:
    """Return what a search's best takes [s]: to accuracy, where batches differ, or an iteration."""
    best = found["best"]
    return float(best["iteration_s"] if best["time_to_accuracy_s"] is None else best["time_to_accuracy_s"])


def ratios(found: Sequence[Point]) -> tuple[float, float, float]:
    """Return time with 4 switches over 12, with 12 over 20, and the worst step from one number to the next."""
    times = {q: seconds(one) for q, one in zip(NUM_OCS, found, strict=True)}
    steps = [times[b] / times[a] for a, b in zip(NUM_OCS, NUM_OCS[1:], strict=False)]
    return times[NUM_OCS[0]] / times[ENOUGH], times[ENOUGH] / times[NUM_OCS[-1]], max(steps)


def series(points: SearchedPoints) -> dict[tuple[str, int], list[list[Point]]]:
    """Return the points over switches of every variant, as stated first, by what was searched and bandwidth [Gb/s]."""
    found = {}
    for bandwidth in BANDWIDTHS:
        found[PAPER.name, bandwidth] = [[point(points, one, bandwidth, q) for q in NUM_OCS] for one in VARIANTS]
        found[ALL.name, bandwidth] = [[any_strategy(points, bandwidth, q) for q in NUM_OCS]]
        found[FREE.name, bandwidth] = [[point(points, FREE, bandwidth, q) for q in NUM_OCS]]
    return found


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, printed and own value with its band, and whether the claim is met as stated."""
    rows = []
    for (space, bandwidth), found in series(points).items():
        early, late, steps = zip(*map(ratios, found), strict=True)
        case = f"{space}, {bandwidth:,} Gb/s"
        form = band_words if len(found) > 1 else lambda values, form: form.format(values[0])
        rows += [
            {"claim": "more switches help: time with 4 over 12", "case": case, "theirs": "> 1x",
             "ours": form(early, "{:.3f}x"), "is_met": early[0] > 1.001},
            {"claim": "no more switches slow it down: worst step", "case": case, "theirs": "<= 1x",
             "ours": form(steps, "{:.3f}x"), "is_met": steps[0] <= 1.001},
            {"claim": "little beyond 12: time with 12 over 20", "case": case, "theirs": "about 1x",
             "ours": form(late, "{:.3f}x"), "is_met": abs(late[0] - 1) < 0.05},
        ]  # fmt: skip
    return rows


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{case}")


def main() -> None:
    """Print times over the number of switches and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    rows = []
    for (space, bandwidth), found in series(points).items():
        for variant, bests in zip(VARIANTS, found, strict=False):
            batch = (lambda best: f", batch {best['batch']:,}") if space == FREE.name else lambda best: ""
            cells = [
                f"{one['best']['iteration_s'] * 1e3:.2f} ({one['best']['strategy']}{batch(one['best'])})"
                for one in bests
            ]
            rows.append([space, variant.name, f"{bandwidth:,}", *cells])
    print_table("figure 8: iteration [ms] and best strategy over the number of switches",
                ("searched", "variant", "B [Gb/s]", *map(str, NUM_OCS)), rows)  # fmt: skip
    rows = []
    for num_ocs in NUM_OCS[1:]:
        kept = allocation(points, num_ocs)
        rows.append([str(num_ocs), f"{kept['ring_circuits']:.2f}", f"{kept['ring_s'] * 1e3:.2f}",
                     f"{kept['block_circuits']:.2f}", f"{kept['block_s'] * 1e3:.2f}"])  # fmt: skip
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
    print_table("figure 8, claim by claim", ("claim", "case", "theirs", "rostam (band)", ""), claims)


if __name__ == "__main__":
    main()
