"""Print time-to-accuracy against Elect-Flat over bandwidth x fabric, and the cause of every point out of order."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from explain import Anomaly, anomalies
from measure import BANDWIDTHS, FABRICS, FLAT, JOBS, ROWS, Job, Ordering
from searched_points import print_table

from rostam_py.reproduction import Figure

POINTS = Path(__file__).with_name("points.json")
_NO_CLAIM = "no claim, a table (MODEL F20)"


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


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: how many points are in order, and every one that is not. Args: path: of points."""
    ordering = Ordering(path)
    known = found_anomalies(ordering)
    others = [name for name in FABRICS if name != FLAT]
    count = sum(
        "best" in ordering.point(job, row, fabric, bandwidth)
        for job in JOBS for row in ROWS for fabric in others for bandwidth in BANDWIDTHS
    )  # fmt: skip
    summary = Figure(
        name="points slower than Elect-Flat and than at more bandwidth", published=_NO_CLAIM,
        ours=f"{count - len(known)} of {count}", is_met=all(one.cause for one in known.values()),
    )  # fmt: skip
    return [summary, *(_figure(one) for one in known.values())]


def _figure(one: Anomaly) -> Figure:
    """Return an anomaly; the rerun that removes it is the change that was tried."""
    return Figure(
        name=f"{one.job.model}, {one.row}, {one.fabric}, {one.bandwidth}: time over Elect-Flat's",
        published=_NO_CLAIM, ours=f"{one.ratio:.5f}", is_met=False, deviates=one.cause or "unexplained",
        tried=", ".join(f"{name}: {ratio:.5f}" for name, ratio in one.reruns[-1:]),
    )  # fmt: skip


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
    print_table("out of order, and how many are not", ("figure", "rostam"), [[f.name, f.ours] for f in figures(POINTS)])


if __name__ == "__main__":
    main()
