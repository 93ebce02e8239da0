"""Search the best strategy over bandwidth on SiP-OCS, as figure 6 does, and on Elect-Flat, next to its claims."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    ALL,
    COST,
    DEGREES,
    FREE_BATCH,
    PAPER,
    TRANSFORMER,
    Job,
    Point,
    SearchedPoints,
    Space,
    Variant,
    band_words,
    machine,
    print_table,
    transformer_variants,
)  # fmt: skip

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig6/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS = 1_024
BANDWIDTHS = (128, 256, 512, 1_024, 2_048, 4_096, 8_192, 10_000)  # Gb/s
NUM_SIMULATED = 4  # as figure 5, which asks for most of these points, too; pure dp is run by itself
# Variants of the paper: one all-reduce for all gradients, so that 1,024 ranks pay a ring's latency once and
# not once a bucket; the fastest all-reduce instead of a ring; and coarser sub-ops.
ONE_BUCKET = Space("paper, one bucket", PAPER.placers, "ring", bucket_size="2 GB")
FASTEST = Space("paper, fastest all-reduce", PAPER.placers, "auto")
COARSE = Space("paper, quantum 100 us", PAPER.placers, "ring", quantum="100 us")
ON_OCS = Space("paper, on SiP-OCS", PAPER.placers, "ring")  # what figure 6 plots; the rest is on Elect-Flat
# Weights in slices: no group holds two copies of a matrix, and no optimizer's step is done twice. SiP-ML's Transformer
# is a Universal Transformer (4.1), whose layers share weights, so that a parameter computes more.
SLICED = replace(ON_OCS, name="paper, on SiP-OCS, weights in slices", weight_splits="sliced")
SHARED = replace(SLICED, name="universal_transformer, on SiP-OCS, one bucket, weights in slices", bucket_size="2 GB")
UNIVERSAL = Job("universal_transformer", None, (1_024,))
FREE = replace(ON_OCS, name="paper, on SiP-OCS, batch searched")
FREE_ONE_BUCKET = replace(FREE, name="paper, on SiP-OCS, batch searched, one bucket", bucket_size="2 GB")
SPACES = {
    ON_OCS: (128, 512, 8_192, 10_000),
    FREE: (128, 512, 8_192, 10_000),
    FREE_ONE_BUCKET: (128, 512, 8_192, 10_000),
    SLICED: (128, 512, 8_192, 10_000),
    SHARED: (128, 512, 1_024, 8_192, 10_000),
    PAPER: BANDWIDTHS,
    ALL: BANDWIDTHS,
    ONE_BUCKET: (128, 512, 8_192),
    FASTEST: (128, 512, 8_192),
    COARSE: (128, 512, 8_192),
}
# The preset's 64 + 64 tokens are assumed (MODEL J26), and so is what a sample exchanges inside a group.
LONG = Job(TRANSFORMER.model, TRANSFORMER.convergence, TRANSFORMER.batches, sequence_length=512)
LONG_BANDWIDTHS, LONG_SIMULATED = (128, 512, 8_192), 7  # all of Algorithm 1's candidates
SPENT_DEGREES, SPENT = (1, 4, 8, 16), ("kernels", "optimizer", "launch", "bubble", "dp", "mp")
LOW, HIGH = 512, 8_192  # "below about 1 Tb/s", "at 8 Tb/s"
# Searched over groups of up to 64, as figure 5; of the others none larger than 16 was best, or near it.
WIDE, ON_CIRCUITS = (ON_OCS, PAPER, ALL), (ON_OCS, FREE, FREE_ONE_BUCKET, SLICED, SHARED)
# Of other spaces the Transformer at batch 1,024.
JOBS = {SHARED: UNIVERSAL, **dict.fromkeys((FREE, FREE_ONE_BUCKET), FREE_BATCH[TRANSFORMER.model])}
# The band is of the figure's own case.
VARIANTS = transformer_variants(1_024)[1:]


def _where(space: Space, bandwidth: int, speed: float = 1.0) -> rostam.Machine:
    fabric = "sip_ocs" if space in ON_CIRCUITS else "electrical_flat"
    return machine(fabric, f"{bandwidth} Gb/s", speed, num_accelerators=NUM_ACCELERATORS)


def point(points: SearchedPoints, space: Space, bandwidth: int) -> Point:
    """Return one search, kept or computed."""
    return points.search(
        f"{space.name} | {bandwidth} Gb/s", JOBS.get(space, TRANSFORMER), space,
        lambda: _where(space, bandwidth),
        strategies=None if space in WIDE else space.groups(NUM_ACCELERATORS, DEGREES),
        num_simulated=NUM_SIMULATED,
    )  # fmt: skip


def long_point(points: SearchedPoints, bandwidth: int) -> Point:
    """Return one search with sequences of 512 tokens a side, kept or computed."""
    return points.search(
        f"512 tokens | {FASTEST.name} | {bandwidth} Gb/s", LONG, FASTEST,
        lambda: machine("electrical_flat", f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS),
        num_simulated=LONG_SIMULATED,
    )  # fmt: skip


def breakdown(points: SearchedPoints, mp: int, optimizer: str) -> dict[str, float]:
    """Return where an iteration of dp x mp goes at the highest bandwidth [s], kept or computed."""

    def compute() -> dict[str, float]:
        strategy = replace(PAPER.base(), dp=NUM_ACCELERATORS // mp, mp=mp, placer="sip_ml", optimizer=optimizer)
        where = machine("electrical_flat", f"{BANDWIDTHS[-1]} Gb/s", num_accelerators=NUM_ACCELERATORS)
        plan = rostam.place(
            rostam.trace(TRANSFORMER.model), where, global_batch=1_024, strategy=strategy, cost=COST, software="ideal"
        )
        result = rostam.simulate(plan)
        spent = dict(result.breakdown)
        steps = [task.duration_s for stage in plan.stages for task in stage.templates["iteration"] if task.is_optimizer]
        spent["optimizer"] = sum(steps) / mp
        spent["kernels"] = spent.pop("compute") - spent["optimizer"]
        return {key: value for key, value in spent.items() if value > 0}

    return dict(points.keep(f"breakdown | {optimizer} | mp {mp}", compute))


def _is_free(space: Space) -> bool:
    return space in (FREE, FREE_ONE_BUCKET)


def pure_dp(points: SearchedPoints, space: Space, bandwidth: int) -> Point | None:
    """Return pure dp at a point, kept or computed: the space's own, or that of the same all-reduce under Algorithm 1.

    None where that space was not searched at this bandwidth.
    """
    one = FASTEST if space is ALL else space
    if bandwidth not in SPACES[one]:
        return None
    found = points.search(
        f"{one.name} | dp | {bandwidth} Gb/s", JOBS.get(one, TRANSFORMER), one,
        lambda: _where(one, bandwidth), strategies=one.groups(NUM_ACCELERATORS, (1,)), num_simulated=NUM_SIMULATED,
    )  # fmt: skip
    return dict(found["best"])


def gain(points: SearchedPoints, space: Space, bandwidth: int) -> float:
    """Return pure dp's time over the best one's: to accuracy, where batches may differ, or of an iteration."""
    dp = pure_dp(points, space, bandwidth)
    best = point(points, space, bandwidth)["best"]
    if dp is None:
        raise ConfigError(f"{space.name}, {bandwidth} Gb/s: pure dp is not run at this bandwidth")
    key = "time_to_accuracy_s" if _is_free(space) else "iteration_s"
    return float(dp[key] / best[key])


@dataclass(frozen=True)
class Curve:
    """What claims read: degrees of model parallelism over the bandwidths, and pure dp over best at LOW and HIGH."""

    degrees: Sequence[int]
    low: float
    high: float

    @property
    def is_rising(self) -> bool:
        """Whether more bandwidth brings more model parallelism."""
        return list(self.degrees) == sorted(self.degrees) and self.degrees[-1] > self.degrees[0]


def curve(points: SearchedPoints, space: Space) -> Curve:
    """Return what claims read of a space."""
    bandwidths = SPACES[space]
    degrees = [NUM_ACCELERATORS // point(points, space, b)["best"]["dp"] for b in bandwidths]
    return Curve(
        degrees, max(gain(points, space, b) for b in (bandwidths[0], LOW)), gain(points, space, HIGH)
    )  # fmt: skip


def varied_curve(points: SearchedPoints, variant: Variant) -> Curve:
    """Return what claims read of a variant of the figure's own case, kept or computed."""

    def search(bandwidth: int, degrees: Sequence[int], what: str) -> Point:
        found = points.search(
            f"{variant.name} | {what}{bandwidth} Gb/s", variant.job, variant.space,
            lambda: _where(ON_OCS, bandwidth, variant.speed),
            strategies=variant.space.groups(NUM_ACCELERATORS, degrees), num_simulated=3,
        )  # fmt: skip
        return dict(found["best"])

    bests = {b: search(b, variant.degrees, "") for b in SPACES[ON_OCS]}
    gains = {
        b: search(b, (1,), "dp | ")["iteration_s"] / bests[b]["iteration_s"] for b in (SPACES[ON_OCS][0], LOW, HIGH)
    }
    return Curve(
        [NUM_ACCELERATORS // best["dp"] for best in bests.values()],
        max(gains[b] for b in (SPACES[ON_OCS][0], LOW)), gains[HIGH],
    )  # fmt: skip


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, strategies searched, printed and own value with its band, and whether the claim is met."""
    rows = []
    for space, bandwidths in SPACES.items():
        first, last = (point(points, space, b)["best"] for b in (bandwidths[0], bandwidths[-1]))
        found = [curve(points, space), *(varied_curve(points, one) for one in VARIANTS if space == ON_OCS)]
        own = found[0]
        claims: list[tuple[str, str, str, bool]] = [
            ("best at 128 Gb/s", "dp 1024 x mp 1", first["strategy"] + _ways(one.degrees[0] for one in found),
             first["dp"] == NUM_ACCELERATORS),
            (f"best at {bandwidths[-1]:,} Gb/s", "dp 64 x mp 16",
             last["strategy"] + _ways(one.degrees[-1] for one in found), last["dp"] == 64),
            ("more model parallelism as B grows", "1 to 16",
             " ".join(map(str, own.degrees)) + _met(one.is_rising for one in found), own.is_rising),
            ("dp over best at 128 and 512 Gb/s, the more", "1.00x", _gains([one.low for one in found]),
             own.low <= 1.001),
            ("dp over best at 8 Tb/s", "about 1.5x", _gains([one.high for one in found]), 1.35 <= own.high <= 1.65),
        ]  # fmt: skip
        rows += [{"claim": claim, "space": space.name, "theirs": theirs, "ours": ours, "is_met": is_met}
                 for claim, theirs, ours, is_met in claims]  # fmt: skip
    return rows


# Bands over the variants; a space without any has one value, and no band.
def _ways(degrees: Iterable[int]) -> str:
    found = list(degrees)
    return "" if len(found) == 1 else f" ({min(found)} to {max(found)} ways)"


def _met(verdicts: Iterable[bool]) -> str:
    found = list(verdicts)
    return "" if len(found) == 1 else f" (so in {sum(found)} of {len(found)})"


def _gains(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}x" if len(values) == 1 else band_words(values, "{:.2f}x")


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{space}")


def main() -> None:
    """Print the strategies and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    for space, bandwidths in SPACES.items():
        rows = []
        for bandwidth in bandwidths:
            best, dp = point(points, space, bandwidth)["best"], pure_dp(points, space, bandwidth)
            sent, batch = best["sent_bytes"], f", batch {best['batch']:,}" if _is_free(space) else ""
            dp_gb, mp_gb = (sum(sent.get(axis, 0.0) for axis in axes) / 1e9 for axes in (("dp", "tied"), ("mp", "tp")))
            rows.append([
                f"{bandwidth:,}", f"{best['placer']} {best['strategy']}{batch}", f"{best['iteration_s'] * 1e3:.2f}",
                f"{best['breakdown_s']['compute'] * 1e3:.2f}", f"{dp_gb:.3f} + {mp_gb:.3f}",
                f"{dp['iteration_s'] * 1e3:.2f}" if dp else "",
                f"{gain(points, space, bandwidth):.2f}x" if dp else "",
            ])  # fmt: skip
        columns = (
            "B [Gb/s]",
            "best",
            "iteration [ms]",
            "compute [ms]",
            "GB sent, dp + mp",
            "pure dp [ms]",
            "dp / best",
        )
        where = space.name if space in ON_CIRCUITS else f"{space.name}, on Elect-Flat"
        model = UNIVERSAL.model if space == SHARED else TRANSFORMER.model
        print_table(f"{model}, {where}", columns, rows)
    rows = []
    for bandwidth in LONG_BANDWIDTHS:
        simulated = long_point(points, bandwidth)["simulated"]
        rows.append([f"{bandwidth:,}", *(f"{c['strategy']}: {c['iteration_s'] * 1e3:.1f}" for c in simulated[:4])])
    print_table(
        "512 tokens a side, fastest all-reduce: simulated [ms]", ("B [Gb/s]", "best", "2nd", "3rd", "4th"), rows
    )
    rows = []
    for optimizer in ("adam", "sgd"):
        for mp in SPENT_DEGREES:
            spent = breakdown(points, mp, optimizer)
            rows.append([optimizer, str(mp), f"{sum(spent.values()) * 1e3:.2f}",
                         *(f"{spent.get(key, 0.0) * 1e3:.2f}" for key in SPENT)])  # fmt: skip
    print_table("an iteration at 10 Tb/s under Algorithm 1, ring [ms]", ("step", "mp", "iteration", *SPENT), rows)
    rows = [[r["claim"], r["space"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
            for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 6, claim by claim", ("claim", "searched", "theirs", "rostam (band)", ""), rows)


if __name__ == "__main__":
    main()
