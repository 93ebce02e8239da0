"""Search time-to-accuracy over the number of accelerators at 8 Tb/s on four fabrics, with bands (figure 10)."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    ANY_BATCH,
    DEGREES,
    FREE_BATCH,
    HALF,
    MEGATRON,
    MEGATRON_GROUP,
    PAPER,
    TRANSFORMER,
    VARIANTS,
    Job,
    Point,
    SearchedPoints,
    Space,
    Variant,
    band_words,
    machine,
    print_table,
)  # fmt: skip

from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig10/compare.py"
POINTS = Path(__file__).with_name("points.json")
BANDWIDTH = "8192 Gb/s"
SIZES = (64, 128, 256, 512, 1_024)
ENDS = (SIZES[0], SIZES[-1])  # of the curves of variants, and over batches
FABRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "Elect-Flat": ("electrical_flat", {}),
    "Elect-Cluster 400": ("electrical_cluster", {"server_bandwidth": "400 Gb/s"}),
    "SiP-OCS": ("sip_ocs", {}),
    "SiP-Ring": ("sip_ring", {}),
}
CASES: tuple[tuple[Job, Space, tuple[int, ...]], ...] = (
    (Job("resnet50", "resnet50_sip_ml"), PAPER, DEGREES), (TRANSFORMER, PAPER, DEGREES),
    (MEGATRON, HALF, (MEGATRON_GROUP,)), *((job, ANY_BATCH, DEGREES) for job in FREE_BATCH.values()),
)  # fmt: skip
CLOSE, FLAT_GAIN = 1.2, 0.5  # of Elect-Flat's time; of its gain from the first size to the last


def name_of(case: tuple[Job, Space, tuple[int, ...]]) -> str:
    """Return what tables call a case."""
    job, space, _ = case
    return f"{job.model}, batch searched" if space == ANY_BATCH else job.model


def sizes_of(case: tuple[Job, Space, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the numbers of accelerators of a case's curves."""
    return ENDS if case[1] == ANY_BATCH else SIZES


def point(points: SearchedPoints, case: tuple[Job, Space, tuple[int, ...]], fabric: str, size: int) -> Point:
    """Return one search, kept or computed."""
    job, space, degrees = case
    name, parameters = FABRICS[fabric]
    return points.search(
        f"{name_of(case)} | {fabric} | {size}", job, space,
        lambda: machine(name, BANDWIDTH, num_accelerators=size, **parameters),
        strategies=space.groups(size, degrees), num_simulated=3,
    )  # fmt: skip


def times(points: SearchedPoints, case: tuple[Job, Space, tuple[int, ...]]) -> dict[str, list[float]]:
    """Return time-to-accuracy over the sizes, by fabric [s]."""
    return {
        name: [point(points, case, name, size)["best"]["time_to_accuracy_s"] for size in sizes_of(case)]
        for name in FABRICS
    }


def varied_times(points: SearchedPoints, variant: Variant) -> dict[str, list[float]]:
    """Return a variant's iteration times over ENDS, by fabric [s]."""

    def search(fabric: str, size: int) -> float:
        name, parameters = FABRICS[fabric]
        found = points.search(
            f"{variant.job.model} | {variant.name} | {fabric} | {size}", variant.job, variant.space,
            lambda: machine(name, BANDWIDTH, variant.speed, num_accelerators=size, **parameters),
            strategies=variant.space.groups(size, variant.degrees), num_simulated=3,
        )  # fmt: skip
        return float(found["best"]["iteration_s"])

    return {fabric: [search(fabric, size) for size in ENDS] for fabric in FABRICS}


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, model, printed and own value with its band, and whether the claim is met as stated."""
    rows = []
    for case in CASES:
        model = name_of(case)
        found = [times(points, case), *(varied_times(points, one) for one in VARIANTS.get(model, ())[1:])]
        for name in ("SiP-OCS", "SiP-Ring"):
            worst = [max(own / least for own, least in zip(one[name], one["Elect-Flat"], strict=True)) for one in found]
            rows.append({
                "model": model, "claim": f"{name} close to Elect-Flat: worst T / T flat", "theirs": "about 1x",
                "ours": _words(worst, "{:.2f}x"), "is_met": worst[0] <= CLOSE,
            })  # fmt: skip
        gains = {name: [one[name][0] / one[name][-1] for one in found] for name in ("Elect-Cluster 400", "Elect-Flat")}
        text = ", ".join(f"{name} {_words(gain, '{:.1f}x')}" for name, gain in gains.items())
        rows.append({
            "model": model, "claim": f"Elect-Cluster flattens: speed-up from {SIZES[0]} to {SIZES[-1]:,}",
            "theirs": "less than Elect-Flat's", "ours": text,
            "is_met": gains["Elect-Cluster 400"][0] < FLAT_GAIN * gains["Elect-Flat"][0],
        })  # fmt: skip
    return rows


def _words(values: Sequence[float], form: str) -> str:
    """Return a value with its band, where it has one."""
    return form.format(values[0]) if len(values) == 1 else band_words(values, form)


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{model}")


def main() -> None:
    """Print times over sizes and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    for case in CASES:
        rows = []
        for size in sizes_of(case):
            bests = [point(points, case, name, size)["best"] for name in FABRICS]
            batch = (lambda best: f", batch {best['batch']:,}") if case[1] == ANY_BATCH else lambda best: ""
            cells = [f"{best['time_to_accuracy_s']:,.0f} ({best['strategy']}{batch(best)})" for best in bests]
            rows.append([f"{size:,}", *cells])
        title = f"{case[0].model}, {case[1].name}: time-to-accuracy [s] at 8 Tb/s over accelerators"
        print_table(title, ("accelerators", *FABRICS), rows)
    claims = [[r["claim"], r["model"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 10, claim by claim", ("claim", "model", "theirs", "rostam (band)", ""), claims)


if __name__ == "__main__":
    main()
