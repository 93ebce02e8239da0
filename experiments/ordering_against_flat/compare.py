"""Print time-to-accuracy against Elect-Flat over bandwidth x fabric, and the cause of every point out of order."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from explain import Anomaly, anomalies
from measure import BANDWIDTHS, FABRICS, FLAT, JOBS, ROWS, Job, Ordering
from searched_points import print_table

POINTS = Path(__file__).with_name("points.json")


def found_anomalies(ordering: Ordering) -> dict[tuple[str, str, str, str], Anomaly]:
    """Return the anomalies by (model, row, fabric, bandwidth)."""
    return {(a.job.model, a.row, a.fabric, a.bandwidth): a for a in anomalies(ordering, JOBS)}


def _rows(ordering: Ordering, job: Job, row: str, known: dict[tuple[str, str, str, str], Anomaly]) -> list[list[str]]:
    lines = []
    for fabric in FABRICS:
        cells, causes = [fabric], []
        for bandwidth in BANDWIDTHS:
            point = ordering.point(job, row, fabric, bandwidth)
            if "refused" in point:
                cells.append("refused")
                continue
            best, flat = point["best"], ordering.time_s(job, row, FLAT, bandwidth)
            text = f"{best['iteration_s'] * 1e3:.2f} ms"
            if fabric != FLAT:
                text += f", {best['time_to_accuracy_s'] / flat:.4f}x"
            cells.append(text + (f" ({best['strategy']}, {best['batch']:,})" if row == "best" else ""))
            anomaly = known.get((job.model, row, fabric, bandwidth))
            if anomaly is not None:
                causes.append(f"{bandwidth}: {anomaly.cause or 'unexplained'}")
        lines.append([*cells, "; ".join(causes)])
    return lines


def main() -> None:
    """Print the table, a part for each model and strategy, and the reruns behind every cause."""
    ordering = Ordering(POINTS)
    known = found_anomalies(ordering)
    for job in JOBS:
        for row in ROWS:
            title = f"{job.model}, {row}: iteration, and time-to-accuracy over Elect-Flat's"
            print_table(title, ("fabric", *BANDWIDTHS, "cause of anomalies"), _rows(ordering, job, row, known))
    print_table(
        "anomalies: ratio, and ratio after each rerun",
        ("model", "strategy", "fabric", "bandwidth", "ratio", "reruns", "cause"),
        [[a.job.model, a.row, a.fabric, a.bandwidth, f"{a.ratio:.5f}",
          ", ".join(f"{name}: {ratio:.5f}" for name, ratio in a.reruns), a.cause or "unexplained"]
         for a in known.values()],
    )  # fmt: skip


if __name__ == "__main__":
    main()
