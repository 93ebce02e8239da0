"""Search time-to-accuracy over the number of accelerators at 8 Tb/s on four fabrics (figure 10)."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    HALF,
    MEGATRON,
    MEGATRON_GROUP,
    PAPER,
    TRANSFORMER,
    Job,
    Point,
    SearchedPoints,
    Space,
    machine,
    print_table,
)  # fmt: skip

from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig10/compare.py"
POINTS = Path(__file__).with_name("points.json")
BANDWIDTH = "8192 Gb/s"
SIZES = (64, 128, 256, 512, 1_024)
FABRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "Elect-Flat": ("electrical_flat", {}),
    "Elect-Cluster 400": ("electrical_cluster", {"server_bandwidth": "400 Gb/s"}),
    "SiP-OCS": ("sip_ocs", {}),
    "SiP-Ring": ("sip_ring", {}),
}
DEGREES = (1, 2, 4, 8, 16)  # figure 6: none larger is best
CASES: tuple[tuple[Job, Space, tuple[int, ...]], ...] = (
    (Job("resnet50", "resnet50_sip_ml"), PAPER, DEGREES), (TRANSFORMER, PAPER, DEGREES),
    (MEGATRON, HALF, (MEGATRON_GROUP,)),
)  # fmt: skip
CLOSE, FLAT_GAIN = 1.2, 0.5  # of Elect-Flat's time; of its gain from the first size to the last


def point(points: SearchedPoints, case: tuple[Job, Space, tuple[int, ...]], fabric: str, size: int) -> Point:
    """Return one search, kept or computed."""
    job, space, degrees = case
    name, parameters = FABRICS[fabric]
    return points.search(
        f"{job.model} | {fabric} | {size}", job, space,
        lambda: machine(name, BANDWIDTH, num_accelerators=size, **parameters),
        strategies=space.groups(size, degrees), num_simulated=3,
    )  # fmt: skip


def times(points: SearchedPoints, case: tuple[Job, Space, tuple[int, ...]]) -> dict[str, list[float]]:
    """Return time-to-accuracy over the sizes, by fabric [s]."""
    return {name: [point(points, case, name, size)["best"]["time_to_accuracy_s"] for size in SIZES] for name in FABRICS}


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, model, printed and own value, and whether the claim is met."""
    rows = []
    for case in CASES:
        found = times(points, case)
        flat = found["Elect-Flat"]
        for name in ("SiP-OCS", "SiP-Ring"):
            worst = max(own / least for own, least in zip(found[name], flat, strict=True))
            rows.append({"model": case[0].model, "claim": f"{name} close to Elect-Flat: worst T / T flat",
                         "theirs": "about 1x", "ours": f"{worst:.2f}x", "is_met": worst <= CLOSE})  # fmt: skip
        gains = {name: found[name][0] / found[name][-1] for name in ("Elect-Cluster 400", "Elect-Flat")}
        flattens = gains["Elect-Cluster 400"] < FLAT_GAIN * gains["Elect-Flat"]
        text = ", ".join(f"{name} {gain:.1f}x" for name, gain in gains.items())
        claim = f"Elect-Cluster flattens: speed-up from {SIZES[0]} to {SIZES[-1]:,}"
        rows.append({"model": case[0].model, "claim": claim,
                     "theirs": "less than Elect-Flat's", "ours": text, "is_met": flattens})  # fmt: skip
    return rows


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{model}")


def main() -> None:
    """Print times over sizes and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    for case in CASES:
        rows = []
        for size in SIZES:
            bests = [point(points, case, name, size)["best"] for name in FABRICS]
            cells = [f"{best['time_to_accuracy_s']:,.0f} ({best['strategy']})" for best in bests]
            rows.append([f"{size:,}", *cells])
        title = f"{case[0].model}, {case[1].name}: time-to-accuracy [s] at 8 Tb/s over accelerators"
        print_table(title, ("accelerators", *FABRICS), rows)
    claims = [[r["claim"], r["model"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 10, claim by claim", ("claim", "model", "theirs", "rostam", ""), claims)


if __name__ == "__main__":
    main()
