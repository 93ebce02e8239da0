"""Search time-to-accuracy over bandwidth on SiP-ML's five fabrics and compare with figure 5's claims."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    ALL,
    HALF,
    MEGATRON,
    MEGATRON_GROUP,
    PAPER,
    SINGLE,
    TRANSFORMER,
    Job,
    Point,
    SearchedPoints,
    Space,
    machine,
    print_table,
)  # fmt: skip

from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig5/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS, NUM_SIMULATED = 1_024, 4
BANDWIDTHS = (128, 256, 512, 1_024, 2_048, 4_096, 8_192)  # Gb/s
FABRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "Elect-Flat": ("electrical_flat", {}),
    "Elect-Cluster 400": ("electrical_cluster", {"server_bandwidth": "400 Gb/s"}),
    "Elect-Cluster 200": ("electrical_cluster", {"server_bandwidth": "200 Gb/s"}),
    "SiP-OCS": ("sip_ocs", {}),
    "SiP-Ring": ("sip_ring", {}),
}
RESNET = Job("resnet50", "resnet50_sip_ml")
CASES: tuple[tuple[Job, Space], ...] = (
    (RESNET, PAPER), (TRANSFORMER, PAPER), (MEGATRON, HALF), (MEGATRON, SINGLE), (RESNET, ALL), (TRANSFORMER, ALL),
)  # fmt: skip
# A ring all-reduce in both directions lights both fibres of SiP-Ring.
BOTH_WAYS = Space("paper, rings both ways", PAPER.placers, "bidirectional_ring")
BOTH_WAYS_FABRICS, BOTH_WAYS_BANDWIDTHS = ("Elect-Flat", "SiP-OCS", "SiP-Ring"), (512, 2_048, 8_192)
# All strategies take about a minute a point; two tell what there is to tell.
MEGATRON_BANDWIDTHS = (1_024, 8_192)
REFUSED = (MEGATRON, PAPER)  # Algorithm 1 keeps all activations, and Megatron's do not fit 32 GB
DATA_PARALLEL = "dp on Elect-Flat"

Times = dict[str, np.ndarray]  # fabric -> time-to-accuracy [s] of every bandwidth, nan where nothing fits


def point(points: SearchedPoints, job: Job, space: Space, fabric: str, bandwidth: int) -> Point:
    """Return one search, kept or computed."""
    name, parameters = FABRICS["Elect-Flat" if fabric == DATA_PARALLEL else fabric]
    groups = None
    if fabric == DATA_PARALLEL:
        groups = space.groups(NUM_ACCELERATORS, (1,))
    elif space in (HALF, SINGLE):
        groups = space.groups(NUM_ACCELERATORS, (MEGATRON_GROUP,))
    return points.search(
        f"{job.model} | {space.name} | {fabric} | {bandwidth} Gb/s", job, space,
        lambda: machine(name, f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS, **parameters),
        strategies=groups, num_simulated=NUM_SIMULATED,
    )  # fmt: skip


def times(points: SearchedPoints, job: Job, space: Space) -> Times:
    """Return the curves of one panel."""
    found = {}
    for fabric in FABRICS:
        bests = [point(points, job, space, fabric, bandwidth).get("best", {}) for bandwidth in BANDWIDTHS]
        found[fabric] = np.array([best.get("time_to_accuracy_s", np.nan) for best in bests])
    return found


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, model, strategies searched, printed and own value, and whether the claim is met."""
    rows = []
    for job, space in CASES:
        curves = times(points, job, space)
        for claim, theirs, measure in CLAIMS:
            ours, is_met = measure(curves)
            rows.append({"model": job.model, "space": space.name, "claim": claim, "theirs": theirs, "ours": ours,
                         "is_met": is_met})  # fmt: skip
    return rows


def _envelope(curves: Times) -> tuple[str, bool]:
    least = min(float(np.nanmin(curves[name] / curves["Elect-Flat"])) for name in FABRICS if name != "Elect-Flat")
    return f"least T / T flat {least:.3f}", least >= 0.999


def _plateau(curves: Times) -> tuple[str, bool]:
    """A plateau: the last three doublings of B gain less than 5%, and less than on Elect-Flat."""
    gains = {name: curves[name][-4] / curves[name][-1] for name in ("Elect-Cluster 400", "Elect-Flat", "SiP-OCS")}
    text = ", ".join(f"{name} {gain:.2f}x" for name, gain in gains.items())
    return text, gains["Elect-Cluster 400"] < 1.05 and gains["Elect-Cluster 400"] < gains["Elect-Flat"]


def _uplink(curves: Times) -> tuple[str, bool]:
    ratio = curves["Elect-Cluster 200"] / curves["Elect-Cluster 400"]
    return f"200 over 400: {np.nanmin(ratio):.2f}x to {np.nanmax(ratio):.2f}x", bool(np.nanmin(ratio) >= 1)


def _speedup(curves: Times) -> tuple[str, bool]:
    """Met where SiP at the highest B is 1.3 to 9.1 times as fast, and the gain grows with B, from where it runs."""
    found = [curves["Elect-Cluster 400"] / curves[name] for name in ("SiP-OCS", "SiP-Ring")]
    ratios = [one[~np.isnan(one)] for one in found]
    text = ", ".join(f"{r[0]:.2f}x to {r[-1]:.2f}x" for r in ratios)
    return text, all(1.3 <= r[-1] <= 9.1 and r[-1] > r[0] for r in ratios)


def bandwidth_ratios(curves: Times, name: str) -> list[float]:
    """Return, for Elect-Flat at each B up to half the highest, how much more B a fabric needs for the same time.

    Model: log-log interpolation of the fabric's curve; inf where 8 Tb/s do not get there.
    """
    log_b, log_t = np.log(BANDWIDTHS), np.log(np.fmin.accumulate(curves[name]))
    ratios = []
    for flat_b, flat_t in zip(BANDWIDTHS[:-1], np.log(curves["Elect-Flat"]), strict=False):
        reached = np.flatnonzero(log_t <= flat_t + 1e-12)
        if not len(reached):
            ratios.append(float("inf"))
            continue
        k = int(reached[0])
        is_first = k == 0 or np.isnan(log_t[k - 1])
        share = 0.0 if is_first else (log_t[k - 1] - flat_t) / (log_t[k - 1] - log_t[k])
        log_needed = log_b[k] if is_first else log_b[k - 1] + share * (log_b[k] - log_b[k - 1])
        ratios.append(float(np.exp(log_needed) / flat_b))
    return ratios


def _bandwidth(curves: Times) -> tuple[str, bool]:
    ratios = {name: bandwidth_ratios(curves, name) for name in ("SiP-OCS", "SiP-Ring")}
    shown = [
        f"{name} " + " ".join(f"{ratio:.1f}" if np.isfinite(ratio) else "-" for ratio in found)
        for name, found in ratios.items()
    ]
    return ", ".join(shown), max(map(max, ratios.values())) <= 2.0


def _alike(curves: Times) -> tuple[str, bool]:
    """Similar: within 15% at every B."""
    ratio = curves["SiP-Ring"] / curves["SiP-OCS"]
    return f"ring over OCS {np.nanmin(ratio):.2f}x to {np.nanmax(ratio):.2f}x", bool(np.nanmax(abs(ratio - 1)) <= 0.15)


CLAIMS: tuple[tuple[str, str, Callable[[Times], tuple[str, bool]]], ...] = (
    ("Elect-Flat is the lower envelope", ">= 1", _envelope),
    ("Elect-Cluster plateaus: gain from 1 to 8 Tb/s", "about 1x", _plateau),
    ("400 Gb/s a server below 200 Gb/s", "> 1x", _uplink),
    ("SiP over Elect-Cluster 400, from 128 Gb/s to 8 Tb/s (OCS, ring)", "to 1.3x ... 9.1x", _speedup),
    ("B that SiP needs for Elect-Flat's time at 128 ... 4,096 Gb/s", "<= 2x", _bandwidth),
    ("OCS and ring are similar", "about 1x", _alike),
)


def _columns(space: Space) -> tuple[str, ...]:
    return (*FABRICS, DATA_PARALLEL) if space == PAPER else tuple(FABRICS)


def _curve_rows(
    points: SearchedPoints, job: Job, space: Space, bandwidths: Sequence[int] = BANDWIDTHS
) -> Sequence[Sequence[str]]:
    rows = []
    for bandwidth in bandwidths:
        cells = [f"{bandwidth:,}"]
        for fabric in _columns(space):
            best = point(points, job, space, fabric, bandwidth).get("best")
            cells.append(f"{best['time_to_accuracy_s']:,.1f} ({best['strategy']})" if best else "refused")
        rows.append(cells)
    return rows


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{model}, {space}")


def main() -> None:
    """Print the curves and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    for job, space in CASES:
        title = f"{job.model}, {space.name}: time-to-accuracy [s] and best strategy over B [Gb/s]"
        print_table(title, ("B", *_columns(space)), _curve_rows(points, job, space))
    rows = []
    for bandwidth in BOTH_WAYS_BANDWIDTHS:
        bests = [point(points, TRANSFORMER, BOTH_WAYS, fabric, bandwidth)["best"] for fabric in BOTH_WAYS_FABRICS]
        cells = [f"{best['time_to_accuracy_s']:,.1f} ({best['strategy']})" for best in bests]
        rows.append([f"{bandwidth:,}", *cells, f"{bests[2]['iteration_s'] / bests[1]['iteration_s']:.2f}x"])
    title = "transformer_350m, all-reduce rings both ways: time-to-accuracy [s]"
    print_table(title, ("B [Gb/s]", *BOTH_WAYS_FABRICS, "ring over OCS"), rows)
    title = "megatron_18b, all: time-to-accuracy [s] and best strategy over B [Gb/s]"
    print_table(title, ("B", *FABRICS), _curve_rows(points, MEGATRON, ALL, MEGATRON_BANDWIDTHS))
    refusal = point(points, *REFUSED, "Elect-Flat", BANDWIDTHS[-1]).get("refused", "")
    print_table("megatron_18b, paper", ("refused",), [[refusal]])
    rows = [[r["claim"], r["model"], r["space"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
            for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 5, claim by claim", ("claim", "model", "searched", "theirs", "rostam", ""), rows)


if __name__ == "__main__":
    main()
