"""Search the best strategy over bandwidth on SiP-OCS, as figure 6 does, and on Elect-Flat, next to its claims."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import ALL, COST, PAPER, TRANSFORMER, Job, Point, SearchedPoints, Space, machine, print_table

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_fig6/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS = 1_024
BANDWIDTHS = (128, 256, 512, 1_024, 2_048, 4_096, 8_192, 10_000)  # Gb/s
NUM_SIMULATED = 7  # Algorithm 1 has as many candidates, so that pure dp is one of them
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
SLICED_DEGREES = (1, 2, 4, 8, 16)
UNIVERSAL = Job("universal_transformer", None, (1_024,))
SPACES = {
    ON_OCS: (128, 512, 8_192, 10_000),
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
LONG_BANDWIDTHS = (128, 512, 8_192)
DEGREES, SPENT = (1, 4, 8, 16), ("kernels", "optimizer", "launch", "bubble", "dp", "mp")
LOW, HIGH = 512, 8_192  # "below about 1 Tb/s", "at 8 Tb/s"


def point(points: SearchedPoints, space: Space, bandwidth: int) -> Point:
    """Return one search, kept or computed."""
    fabric = "sip_ocs" if space in (ON_OCS, SLICED, SHARED) else "electrical_flat"
    return points.search(
        f"{space.name} | {bandwidth} Gb/s", UNIVERSAL if space == SHARED else TRANSFORMER, space,
        lambda: machine(fabric, f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS),
        strategies=space.groups(NUM_ACCELERATORS, SLICED_DEGREES) if space in (SLICED, SHARED) else None,
        num_simulated=NUM_SIMULATED,
    )  # fmt: skip


def long_point(points: SearchedPoints, bandwidth: int) -> Point:
    """Return one search with sequences of 512 tokens a side, kept or computed."""
    return points.search(
        f"512 tokens | {FASTEST.name} | {bandwidth} Gb/s", LONG, FASTEST,
        lambda: machine("electrical_flat", f"{bandwidth} Gb/s", num_accelerators=NUM_ACCELERATORS),
        num_simulated=NUM_SIMULATED,
    )  # fmt: skip


def breakdown(points: SearchedPoints, mp: int, optimizer: str) -> dict[str, float]:
    """Return where an iteration of dp x mp goes at the highest bandwidth [s], kept or computed."""

    def compute() -> dict[str, float]:
        strategy = replace(PAPER.base(), dp=NUM_ACCELERATORS // mp, mp=mp, placer="sip_ml", optimizer=optimizer)
        where = machine("electrical_flat", f"{BANDWIDTHS[-1]} Gb/s", num_accelerators=NUM_ACCELERATORS)
        plan = rostam.place(rostam.trace(TRANSFORMER.model), where, global_batch=1_024, strategy=strategy, cost=COST)
        result = rostam.simulate(plan)
        spent = dict(result.breakdown)
        steps = [task.duration_s for stage in plan.stages for task in stage.templates["iteration"] if task.is_optimizer]
        spent["optimizer"] = sum(steps) / mp
        spent["kernels"] = spent.pop("compute") - spent["optimizer"]
        return {key: value for key, value in spent.items() if value > 0}

    return dict(points.keep(f"breakdown | {optimizer} | mp {mp}", compute))


def pure_dp(points: SearchedPoints, space: Space, bandwidth: int) -> Point | None:
    """Return pure dp's simulation at a point: the space's own, or that of the same all-reduce under Algorithm 1."""
    for one in (space, FASTEST if space is ALL else space):
        if bandwidth in SPACES[one]:
            for entry in point(points, one, bandwidth)["simulated"]:
                if entry["dp"] == NUM_ACCELERATORS:
                    return entry
    return None


def gain(points: SearchedPoints, space: Space, bandwidth: int) -> float:
    """Return pure dp's iteration time over the best one's."""
    dp = pure_dp(points, space, bandwidth)
    best = point(points, space, bandwidth)["best"]
    if dp is None:
        raise ConfigError(
            f"{space.name}, {bandwidth} Gb/s: pure dp is not among the {NUM_SIMULATED} simulated strategies"
        )
    return dp["iteration_s"] / best["iteration_s"]


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, strategies searched, printed and own value, and whether the claim is met."""
    rows = []
    for space, bandwidths in SPACES.items():
        first, last = (point(points, space, b)["best"] for b in (bandwidths[0], bandwidths[-1]))
        degrees = [NUM_ACCELERATORS // point(points, space, b)["best"]["dp"] for b in bandwidths]
        low = max(gain(points, space, b) for b in (bandwidths[0], LOW))
        high = gain(points, space, HIGH)
        claims: list[tuple[str, str, str, bool]] = [
            ("best at 128 Gb/s", "dp 1024 x mp 1", first["strategy"], first["dp"] == NUM_ACCELERATORS),
            (f"best at {bandwidths[-1]:,} Gb/s", "dp 64 x mp 16", last["strategy"], last["dp"] == 64),
            ("more model parallelism as B grows", "1 to 16", " ".join(map(str, degrees)),
             degrees == sorted(degrees) and degrees[-1] > degrees[0]),
            ("dp over best at 128 and 512 Gb/s, the more", "1.00x", f"{low:.2f}x", low <= 1.001),
            ("dp over best at 8 Tb/s", "about 1.5x", f"{high:.2f}x", 1.35 <= high <= 1.65),
        ]  # fmt: skip
        rows += [{"claim": claim, "space": space.name, "theirs": theirs, "ours": ours, "is_met": is_met}
                 for claim, theirs, ours, is_met in claims]  # fmt: skip
    return rows


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
            sent = best["sent_bytes"]
            dp_gb, mp_gb = (sum(sent.get(axis, 0.0) for axis in axes) / 1e9 for axes in (("dp", "tied"), ("mp", "tp")))
            rows.append([
                f"{bandwidth:,}", f"{best['placer']} {best['strategy']}", f"{best['iteration_s'] * 1e3:.2f}",
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
        where = space.name if space in (ON_OCS, SLICED, SHARED) else f"{space.name}, on Elect-Flat"
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
        for mp in DEGREES:
            spent = breakdown(points, mp, optimizer)
            rows.append([optimizer, str(mp), f"{sum(spent.values()) * 1e3:.2f}",
                         *(f"{spent.get(key, 0.0) * 1e3:.2f}" for key in SPENT)])  # fmt: skip
    print_table("an iteration at 10 Tb/s under Algorithm 1, ring [ms]", ("step", "mp", "iteration", *SPENT), rows)
    rows = [[r["claim"], r["space"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
            for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("figure 6, claim by claim", ("claim", "searched", "theirs", "rostam", ""), rows)


if __name__ == "__main__":
    main()
