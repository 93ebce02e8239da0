"""Run the Transformer on SiP-OCS with circuits set once and set anew, over reconfiguration delays (figure 9)."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import COST, TRANSFORMER, SearchedPoints, machine, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig9/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS, NUM_REPLICAS, BATCH = 16, 4, 64
BANDWIDTHS = (512, 2_048)  # Gb/s
DELAYS_US = (1, 3, 10, 30, 100, 300, 1_000, 3_000)
PRINTED_CROSSING_US = 300


def iteration_s(points: SearchedPoints, bandwidth: int, fabric: str, **keys: Any) -> float:
    """Return the steady iteration time of dp 4 x mp 4 on a fabric, kept or computed [s]."""

    def compute() -> float:
        where = machine(fabric, f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS, **keys)
        strategy = rostam.Strategy(dp=NUM_REPLICAS, mp=NUM_ACCELERATORS // NUM_REPLICAS, placer="sip_ml")
        graph = rostam.trace(TRANSFORMER.model)
        plan = rostam.place(graph, where, global_batch=BATCH, strategy=strategy, cost=COST)
        return float(rostam.simulate(plan).iteration_time_s)

    words = ", ".join(f"{key} {value}" for key, value in keys.items())
    return float(points.keep(f"{fabric} | {bandwidth} Gb/s | {words}", compute))


def once_s(points: SearchedPoints, bandwidth: int) -> float:
    """Return the iteration on circuits that are set once [s]."""
    return iteration_s(points, bandwidth, "sip_ocs", control="one_shot")


def periodic_s(points: SearchedPoints, bandwidth: int, delay_us: int) -> float:
    """Return the iteration on circuits for the traffic of the last 5 delays, kept as long [s]."""
    return iteration_s(points, bandwidth, "sip_ocs", control="periodic", reconfiguration_delay=f"{delay_us} us")


def ideal_s(points: SearchedPoints, bandwidth: int) -> float:
    """Return the iteration where circuits follow what is queued at once, without delay [s]."""
    return iteration_s(
        points, bandwidth, "sip_ocs", control="periodic", estimator="perfect", period="0 s",
        reconfiguration_delay="0 s",
    )  # fmt: skip


def crossing_us(points: SearchedPoints, bandwidth: int) -> int | None:
    """Return the first delay from which on circuits set anew are nowhere faster than those set once; None for none."""
    once = once_s(points, bandwidth)
    faster = [delay for delay in DELAYS_US if periodic_s(points, bandwidth, delay) < once]
    later = [delay for delay in DELAYS_US if not faster or delay > max(faster)]
    return later[0] if later else None


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, printed and own value, and whether the claim is met."""
    rows = []
    for bandwidth in BANDWIDTHS:
        case, once = f"{bandwidth:,} Gb/s", once_s(points, bandwidth)
        ideal, half = ideal_s(points, bandwidth), iteration_s(points, bandwidth // 2, "electrical_flat")
        crossing = crossing_us(points, bandwidth)
        rows += [
            {"claim": "set once beats set anew from a delay of", "case": case,
             "theirs": f"about {PRINTED_CROSSING_US} us",
             "ours": "none" if crossing is None else f"{crossing} us",
             "is_met": crossing is not None and PRINTED_CROSSING_US / 3 < crossing < PRINTED_CROSSING_US * 3},
            {"claim": "no delay and perfect knowledge: time over set once", "case": case, "theirs": "<= 1x",
             "ours": f"{ideal / once:.3f}x", "is_met": ideal <= once},
            {"claim": "set once at B: time over a flat switch of B/2", "case": case, "theirs": "about 1x",
             "ours": f"{once / half:.3f}x", "is_met": abs(once / half - 1) <= 0.1},
        ]  # fmt: skip
    return rows


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{case}")


def main() -> None:
    """Print times over the delay and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    rows = []
    for bandwidth in BANDWIDTHS:
        times = [ideal_s(points, bandwidth), *(periodic_s(points, bandwidth, delay) for delay in DELAYS_US)]
        rows.append([f"{bandwidth:,}", *(f"{one * 1e3:.2f}" for one in (*times, once_s(points, bandwidth)))])
    columns = ("B [Gb/s]", "0, perfect", *(f"{delay:,} us" for delay in DELAYS_US), "set once")
    print_table("figure 9: iteration [ms] over the reconfiguration delay", columns, rows)
    claims = [[r["claim"], r["case"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 9, claim by claim", ("claim", "case", "theirs", "rostam", ""), claims)


if __name__ == "__main__":
    main()
