"""Take apart why a SiP-Ring is slower than SiP-OCS, step by step, and compare with "OCS and ring are similar"."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import COST, PAPER, TRANSFORMER, SearchedPoints, machine, print_table

import rostam_py as rostam
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_ring/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS, BATCH = 1_024, 1_024
GROUPS = (4, 8)
BANDWIDTHS = (1_024, 2_048, 4_096, 8_192)  # Gb/s
WAVELENGTH = 25  # Gb/s
CLOSE = 0.15  # as figure 5 takes fabrics to be alike

# Name of a step -> what it changes; times are of plan, fabric and parameters so far.
STEPS = (
    ("OCS, set once", "its own plan, 16 circuits of B / 16"),
    ("placement", "the ring's plan, all else alike: what the ring's reach makes of Algorithm 1's window"),
    ("granularity", "as many circuits as the ring has wavelengths"),
    ("segments", "wavelengths on shared fibres, set once: a byte takes capacity on each segment that it crosses"),
    ("rescheduling", "set anew every 100 us without any dark time"),
    ("dark time", "circuits that change are dark for 25 us: the ring as the paper runs it"),
)


def times_ms(points: SearchedPoints, group: int, bandwidth: int) -> list[float]:
    """Return the iteration after each step, kept or computed [ms]."""

    def compute() -> list[float]:
        rate, graph = f"{bandwidth} Gb/s", points.graph(TRANSFORMER)
        strategy = PAPER.groups(NUM_ACCELERATORS, (group,))[0]

        def on(fabric: str, **keys: Any) -> rostam.Machine:
            return machine(fabric, rate, num_accelerators=NUM_ACCELERATORS, **keys)

        def plan(where: rostam.Machine) -> rostam.Plan:
            return rostam.place(graph, where, global_batch=BATCH, strategy=strategy, cost=COST, software="ideal")

        ring = plan(on("sip_ring"))
        plans = (
            plan(on("sip_ocs")), ring.on(on("sip_ocs")), ring.on(on("sip_ocs", num_ocs=bandwidth // WAVELENGTH)), ring,
            ring.on(on("sip_ring", control="periodic", period="100 us", reconfiguration_delay="0 s")),
            ring.on(on("sip_ring", control="periodic")),
        )  # fmt: skip
        return [rostam.simulate(one).iteration_time_s * 1e3 for one in plans]

    return [float(one) for one in points.keep(f"mp {group} | {bandwidth} Gb/s", compute)]


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, case, printed and own value, and whether the claim is met."""
    rows = []
    for group in GROUPS:
        for bandwidth in BANDWIDTHS:
            times = times_ms(points, group, bandwidth)
            ratio = times[-1] / times[0]
            rows.append({
                "claim": "OCS and ring are similar: ring over OCS", "case": f"groups of {group}, {bandwidth:,} Gb/s",
                "theirs": "about 1x", "ours": f"{ratio:.2f}x ({_words(times)})", "is_met": abs(ratio - 1) <= CLOSE,
            })  # fmt: skip
    return rows


def _words(times: Sequence[float]) -> str:
    """Return by what each step changes the time, as a share of that on OCS."""
    changes = [(late - early) / times[0] for early, late in zip(times, times[1:], strict=False)]
    return ", ".join(f"{name} {change:+.0%}" for (name, _), change in zip(STEPS[1:], changes, strict=True))


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    return claim_figures(compare(SearchedPoints(path, COMMAND)), "{case}")


def main() -> None:
    """Print times after each step and the claims."""
    points = SearchedPoints(POINTS, COMMAND)
    rows = [
        [str(group), f"{bandwidth:,}", *(f"{ms:.2f}" for ms in times_ms(points, group, bandwidth))]
        for group in GROUPS for bandwidth in BANDWIDTHS
    ]  # fmt: skip
    print_table("iteration [ms] after each step", ("group", "B [Gb/s]", *(name for name, _ in STEPS)), rows)
    claims = [[r["claim"], r["case"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in compare(points)]  # fmt: skip
    print_table("claim by claim", ("claim", "case", "theirs", "rostam", ""), claims)


if __name__ == "__main__":
    main()
