"""Run the Transformer on SiP-OCS with circuits set once and set anew, over reconfiguration delays (figure 9)."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    COST,
    SearchedPoints,
    Variant,
    band_words,
    machine,
    print_table,
    transformer_variants,
)  # fmt: skip

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig9/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS, GROUP, BATCH_EACH = 16, 4, 4  # the batch is of each accelerator
BANDWIDTHS = (512, 2_048)  # Gb/s
DELAYS_US = (1, 3, 10, 30, 100, 150, 200, 300, 1_000, 3_000)
# The paper's size, at the bandwidth where computing does not hide everything; shorter delays take hours.
LARGE, LARGE_BANDWIDTH, LARGE_DELAYS_US = 1_024, 512, DELAYS_US[2:]
PRINTED_CROSSING_US = 300
VARIANTS = transformer_variants(BATCH_EACH * NUM_ACCELERATORS)
STATED = VARIANTS[0]


def iteration_s(
    points: SearchedPoints, variant: Variant, bandwidth: int, fabric: str, size: int = NUM_ACCELERATORS, **keys: Any
) -> float:
    """Return the iteration time of groups of 4 on a fabric, kept or computed [s].

    Iterations that do not settle, since each finds other circuits, are taken on average.
    """

    def compute() -> float:
        where = machine(fabric, f"{bandwidth} Gb/s", variant.speed, num_accelerators=size, **keys)
        strategy = rostam.Strategy.of(
            dp=size // GROUP, mp=GROUP, placer="sip_ml", weight_splits=variant.space.weight_splits
        )
        graph = points.graph(variant.job)
        plan = rostam.place(
            graph, where, global_batch=BATCH_EACH * size, strategy=strategy, cost=COST, software="ideal"
        )
        return rostam.simulate(plan).iteration_time_s

    words = ", ".join(f"{key} {value}" for key, value in keys.items())
    varied = "" if variant is STATED else f"{variant.name} | "
    sized = "" if size == NUM_ACCELERATORS else f"{size} accelerators | "
    return float(points.keep(f"{sized}{varied}{fabric} | {bandwidth} Gb/s | {words}", compute))


def once_s(points: SearchedPoints, variant: Variant, bandwidth: int, size: int = NUM_ACCELERATORS) -> float:
    """Return the iteration on circuits that are set once [s]."""
    return iteration_s(points, variant, bandwidth, "sip_ocs", size, control="one_shot")


def periodic_s(
    points: SearchedPoints, variant: Variant, bandwidth: int, delay_us: int, size: int = NUM_ACCELERATORS
) -> float:
    """Return the iteration on circuits for the traffic of the last 5 delays, kept as long [s]."""
    return iteration_s(
        points, variant, bandwidth, "sip_ocs", size, control="periodic", reconfiguration_delay=f"{delay_us} us"
    )


def ideal_s(points: SearchedPoints, variant: Variant, bandwidth: int) -> float:
    """Return the iteration where circuits follow what is queued at once, without delay [s]."""
    return iteration_s(
        points, variant, bandwidth, "sip_ocs", control="periodic", estimator="perfect", period="0 s",
        reconfiguration_delay="0 s",
    )  # fmt: skip


def crossing_us(
    points: SearchedPoints, variant: Variant, bandwidth: int, size: int = NUM_ACCELERATORS,
    delays_us: Sequence[int] = DELAYS_US,
) -> int | None:  # fmt: skip
    """Return the first delay from which on circuits set anew are nowhere faster than those set once; None for none."""
    once = once_s(points, variant, bandwidth, size)
    faster = [delay for delay in delays_us if periodic_s(points, variant, bandwidth, delay, size) < once]
    later = [delay for delay in delays_us if not faster or delay > max(faster)]
    return later[0] if later else None


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, printed and own value with its band, and whether the claim is met as stated."""
    rows = []
    for bandwidth in BANDWIDTHS:
        case = f"{bandwidth:,} Gb/s"
        once = [once_s(points, one, bandwidth) for one in VARIANTS]
        over_once = [ideal_s(points, one, bandwidth) / own for one, own in zip(VARIANTS, once, strict=True)]
        halves = [iteration_s(points, one, bandwidth // 2, "electrical_flat") for one in VARIANTS]
        over_half = [own / half for own, half in zip(once, halves, strict=True)]
        found = [crossing_us(points, one, bandwidth) for one in VARIANTS]
        crossings = [math.inf if one is None else float(one) for one in found]
        rows += [
            _crossing(case, band_words(crossings, "{:.0f} us"), crossings[0]),
            {"claim": "no delay and perfect knowledge: time over set once", "case": case, "theirs": "<= 1x",
             "ours": band_words(over_once, "{:.3f}x"), "is_met": over_once[0] <= 1},
            {"claim": "set once at B: time over a flat switch of B/2", "case": case, "theirs": "about 1x",
             "ours": band_words(over_half, "{:.3f}x"), "is_met": abs(over_half[0] - 1) <= 0.1},
        ]  # fmt: skip
    large = crossing_us(points, STATED, LARGE_BANDWIDTH, LARGE, LARGE_DELAYS_US)
    crossing = math.inf if large is None else float(large)
    return [*rows, _crossing(f"{LARGE:,} accelerators, {LARGE_BANDWIDTH:,} Gb/s", f"{crossing:.0f} us", crossing)]


def _crossing(case: str, words: str, crossing: float) -> dict[str, Any]:
    return {
        "claim": "set once beats set anew from a delay of", "case": case, "theirs": f"about {PRINTED_CROSSING_US} us",
        "ours": words.replace("inf us", "none"),
        "is_met": PRINTED_CROSSING_US / 2 <= crossing <= PRINTED_CROSSING_US * 2,
    }  # fmt: skip


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{case}")


def main() -> None:
    """Print times over the delay and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    rows = []
    for bandwidth in BANDWIDTHS:
        for one in VARIANTS:
            times = [periodic_s(points, one, bandwidth, delay) for delay in DELAYS_US]
            shown = (ideal_s(points, one, bandwidth), *times, once_s(points, one, bandwidth))
            rows.append([f"{bandwidth:,}", one.name, *(f"{seconds * 1e3:.2f}" for seconds in shown)])
    times = [periodic_s(points, STATED, LARGE_BANDWIDTH, delay, LARGE) for delay in LARGE_DELAYS_US]
    shown = (*times, once_s(points, STATED, LARGE_BANDWIDTH, LARGE))
    unknown = ["-"] * (1 + len(DELAYS_US) - len(LARGE_DELAYS_US))
    name = f"as stated, {LARGE:,} accelerators"
    rows.append([f"{LARGE_BANDWIDTH:,}", name, *unknown, *(f"{seconds * 1e3:.2f}" for seconds in shown)])
    columns = ("B [Gb/s]", "variant", "0, perfect", *(f"{delay:,} us" for delay in DELAYS_US), "set once")
    print_table("figure 9: iteration [ms] over the reconfiguration delay", columns, rows)
    claims = [[r["claim"], r["case"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 9, claim by claim", ("claim", "case", "theirs", "rostam (band)", ""), claims)


if __name__ == "__main__":
    main()
