"""Search time-to-accuracy over bandwidth on SiP-ML's five fabrics and compare with figure 5's claims, with bands."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    ALL,
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
    (RESNET, PAPER), (TRANSFORMER, PAPER), (MEGATRON, HALF), (RESNET, ALL), (TRANSFORMER, ALL),
    *((job, ANY_BATCH) for job in FREE_BATCH.values()),
)  # fmt: skip
# Bands are of the paper's space; curves of their variants, and over batches, have these bandwidths alone [Gb/s].
BANDED = {"resnet50": PAPER, "transformer_350m": PAPER, "megatron_18b": HALF}
FEW_BANDWIDTHS, RATIO_BANDWIDTH = (128, 1_024, 2_048, 8_192), 1_024
# A ring all-reduce in both directions lights both fibres of SiP-Ring.
BOTH_WAYS = Space("paper, rings both ways", PAPER.placers, "bidirectional_ring")
BOTH_WAYS_FABRICS, BOTH_WAYS_BANDWIDTHS = ("Elect-Flat", "SiP-OCS", "SiP-Ring"), (512, 2_048, 8_192)
# All strategies take about a minute a point; two tell what there is to tell.
MEGATRON_BANDWIDTHS = (1_024, 8_192)
REFUSED = (MEGATRON, PAPER)  # Algorithm 1 keeps all activations, and Megatron's do not fit 32 GB
DATA_PARALLEL = "dp on Elect-Flat"

Times = dict[str, np.ndarray]  # fabric -> time [s] of every bandwidth, nan where nothing fits or none was searched


@dataclass(frozen=True)
class Reading:
    """What a claim reads from curves. key: the numbers that its band is of, by what they are called."""

    text: str
    is_met: bool
    key: Mapping[str, float]


def point(points: SearchedPoints, job: Job, space: Space, fabric: str, bandwidth: int) -> Point:
    """Return one search, kept or computed."""
    name, parameters = FABRICS["Elect-Flat" if fabric == DATA_PARALLEL else fabric]
    groups = None
    if fabric == DATA_PARALLEL:
        groups = space.groups(NUM_ACCELERATORS, (1,))
    elif space == HALF:
        groups = space.groups(NUM_ACCELERATORS, (MEGATRON_GROUP,))
    elif space == ANY_BATCH:
        groups = space.groups(NUM_ACCELERATORS, DEGREES)
    return points.search(
        f"{job.model} | {space.name} | {fabric} | {bandwidth} Gb/s", job, space,
        lambda: machine(name, f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS, **parameters),
        strategies=groups, num_simulated=NUM_SIMULATED,
    )  # fmt: skip


def bandwidths_of(space: Space) -> tuple[int, ...]:
    """Return the bandwidths of a panel's curves [Gb/s]."""
    return FEW_BANDWIDTHS if space == ANY_BATCH else BANDWIDTHS


def times(points: SearchedPoints, job: Job, space: Space) -> Times:
    """Return the curves of one panel."""
    found = {}
    for fabric in FABRICS:
        bests = {b: point(points, job, space, fabric, b).get("best", {}) for b in bandwidths_of(space)}
        found[fabric] = np.array([bests.get(b, {}).get("time_to_accuracy_s", np.nan) for b in BANDWIDTHS])
    return found


def varied_times(points: SearchedPoints, variant: Variant) -> Times:
    """Return the curves of one variant: iteration times [s] at FEW_BANDWIDTHS, nan elsewhere."""

    def search(fabric: str, bandwidth: int) -> float:
        name, parameters = FABRICS[fabric]
        found = points.search(
            f"{variant.job.model} | {variant.name} | {fabric} | {bandwidth} Gb/s", variant.job, variant.space,
            lambda: machine(
                name, f"{bandwidth} Gb/s", variant.speed, num_accelerators=NUM_ACCELERATORS, **parameters
            ),
            strategies=variant.space.groups(NUM_ACCELERATORS, variant.degrees), num_simulated=3,
        )  # fmt: skip
        return float(found.get("best", {}).get("iteration_s", np.nan))

    return {
        fabric: np.array([search(fabric, b) if b in FEW_BANDWIDTHS else np.nan for b in BANDWIDTHS])
        for fabric in FABRICS
    }


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, model, strategies searched, printed and own value, its band, and whether the claim is met."""
    rows = []
    for job, space in CASES:
        curves = times(points, job, space)
        has_band = BANDED[job.model] == space
        varied = [varied_times(points, one) for one in VARIANTS[job.model][1:]] if has_band else []
        for claim, theirs, measure in CLAIMS:
            stated, others = measure(curves), [measure(one) for one in varied]
            rows.append({
                "model": job.model, "space": space.name, "claim": claim, "theirs": theirs,
                "ours": stated.text + (f" ({band(stated, others)})" if has_band else ""), "is_met": stated.is_met,
            })  # fmt: skip
    return rows


def band(stated: Reading, others: Sequence[Reading]) -> str:
    """Return the least and the most of each number over all variants, and in how many of them the claim is met."""
    every = [stated, *others]
    words = []
    for name in stated.key:
        values = [one.key[name] for one in every]
        ends = (f"{end:.2f}x" if np.isfinite(end) else "-" for end in (min(values), max(values)))
        words.append(f"{name} {' to '.join(ends)}")
    return f"band: {', '.join(words)}; met in {sum(one.is_met for one in every)} of {len(every)}"


def _envelope(curves: Times) -> Reading:
    least = min(float(np.nanmin(curves[name] / curves["Elect-Flat"])) for name in FABRICS if name != "Elect-Flat")
    return Reading(f"least T / T flat {least:.3f}", least >= 0.999, {"least": least})


def _plateau(curves: Times) -> Reading:
    """A plateau: the last three doublings of B gain less than 5%, and less than on Elect-Flat."""
    gains = {name: float(curves[name][-4] / curves[name][-1])
             for name in ("Elect-Cluster 400", "Elect-Flat", "SiP-OCS")}  # fmt: skip
    text = ", ".join(f"{name} {gain:.2f}x" for name, gain in gains.items())
    own = gains["Elect-Cluster 400"]
    return Reading(text, own < 1.05 and own < gains["Elect-Flat"], {"Elect-Cluster 400": own})


def _uplink(curves: Times) -> Reading:
    ratio = curves["Elect-Cluster 200"] / curves["Elect-Cluster 400"]
    least, most = float(np.nanmin(ratio)), float(np.nanmax(ratio))
    return Reading(f"200 over 400: {least:.2f}x to {most:.2f}x", least >= 1, {"at 8 Tb/s": float(ratio[-1])})


def _speedup(curves: Times) -> Reading:
    """Met where SiP at the highest B is 1.3 to 9.1 times as fast, and the gain grows with B, from where it runs."""
    found = [curves["Elect-Cluster 400"] / curves[name] for name in ("SiP-OCS", "SiP-Ring")]
    ratios = [one[~np.isnan(one)] for one in found]
    text = ", ".join(f"{r[0]:.2f}x to {r[-1]:.2f}x" for r in ratios)
    is_met = all(1.3 <= r[-1] <= 9.1 and r[-1] > r[0] for r in ratios)
    return Reading(text, is_met, {"OCS at 8 Tb/s": float(ratios[0][-1]), "ring": float(ratios[1][-1])})


def bandwidth_ratios(curves: Times, name: str) -> list[float]:
    """Return, for Elect-Flat at each B up to half the highest, how much more B a fabric needs for the same time.

    Model: log-log interpolation of the fabric's curve between the bandwidths that it has; inf where 8 Tb/s do not get
        there, nan where Elect-Flat has no time.
    """
    known = np.flatnonzero(~np.isnan(curves[name]))
    log_b, log_t = np.log(np.array(BANDWIDTHS)[known]), np.log(np.minimum.accumulate(curves[name][known]))
    ratios = []
    for flat_b, flat_t in zip(BANDWIDTHS[:-1], np.log(curves["Elect-Flat"]), strict=False):
        reached = np.flatnonzero(log_t <= flat_t + 1e-12)
        if np.isnan(flat_t) or not len(reached):
            ratios.append(float("nan") if np.isnan(flat_t) else float("inf"))
            continue
        k = int(reached[0])
        share = 0.0 if k == 0 else (log_t[k - 1] - flat_t) / (log_t[k - 1] - log_t[k])
        log_needed = log_b[k] if k == 0 else log_b[k - 1] + share * (log_b[k] - log_b[k - 1])
        ratios.append(float(np.exp(log_needed) / flat_b))
    return ratios


def _ratio_words(ratio: float) -> str:
    """Return a ratio in words: "-" beyond the highest B, ".." where Elect-Flat was not searched."""
    return ".." if np.isnan(ratio) else f"{ratio:.1f}" if np.isfinite(ratio) else "-"


def _bandwidth(curves: Times) -> Reading:
    ratios = {name: bandwidth_ratios(curves, name) for name in ("SiP-OCS", "SiP-Ring")}
    shown = [f"{name} {' '.join(_ratio_words(one) for one in found)}" for name, found in ratios.items()]
    place = BANDWIDTHS.index(RATIO_BANDWIDTH)
    at_1_tbps = {"at 1 Tb/s OCS": ratios["SiP-OCS"][place], "ring": ratios["SiP-Ring"][place]}
    return Reading(", ".join(shown), bool(max(np.nanmax(found) for found in ratios.values()) <= 2.0), at_1_tbps)


def _alike(curves: Times) -> Reading:
    """Similar: within 15% at every B."""
    ratio = curves["SiP-Ring"] / curves["SiP-OCS"]
    text = f"ring over OCS {np.nanmin(ratio):.2f}x to {np.nanmax(ratio):.2f}x"
    return Reading(text, bool(np.nanmax(abs(ratio - 1)) <= 0.15), {"at 8 Tb/s": float(ratio[-1])})


CLAIMS: tuple[tuple[str, str, Callable[[Times], Reading]], ...] = (
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
    points: SearchedPoints, job: Job, space: Space, bandwidths: Sequence[int] | None = None
) -> Sequence[Sequence[str]]:
    rows = []
    for bandwidth in bandwidths or bandwidths_of(space):
        cells = [f"{bandwidth:,}"]
        for fabric in _columns(space):
            best = point(points, job, space, fabric, bandwidth).get("best")
            searched = f", batch {best['batch']:,}" if best and space == ANY_BATCH else ""
            cells.append(f"{best['time_to_accuracy_s']:,.1f} ({best['strategy']}{searched})" if best else "refused")
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
    print_table("figure 5, claim by claim", ("claim", "model", "searched", "theirs", "rostam (band)", ""), rows)


if __name__ == "__main__":
    main()
