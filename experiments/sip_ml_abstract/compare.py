"""SiP-ML's headline ratios with bands over compute speed and assumed shapes, and what they are worth in dollars."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    MEGATRON_VARIANTS,
    PAPER,
    RESNET_VARIANTS,
    SLICED,
    Job,
    SearchedPoints,
    Variant,
    machine,
    print_table,
    with_speeds,
)  # fmt: skip

from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/sip_ml_abstract/compare.py"
POINTS = Path(__file__).with_name("points.json")
NUM_ACCELERATORS = 1_024
HIGH, HALF_OF_IT = 8_192, 4_096  # Gb/s
FABRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("electrical_flat", {}),
    "cluster": ("electrical_cluster", {"server_bandwidth": "400 Gb/s"}),
    "OCS": ("sip_ocs", {}),
    "ring": ("sip_ring", {}),
}

# No curve is needed at one batch; the Universal Transformer has none.
PAIRS = Variant("as stated", Job("transformer_350m", None, (1_024,)), SLICED)
SHARED = Variant("shared layers", Job("universal_transformer", None, (1_024,)), SLICED)
VARIANTS: dict[str, tuple[Variant, ...]] = {
    "resnet50": RESNET_VARIANTS,
    "transformer_350m": (
        *with_speeds(PAIRS), replace(PAIRS, name="least sent", space=PAPER), SHARED,
        replace(PAIRS, name="one bucket", space=replace(SLICED, name="paper, slices, one bucket", bucket_size="2 GB")),
        *(replace(PAIRS, name=f"{n} tokens", job=replace(PAIRS.job, sequence_length=n)) for n in (32, 128)),
    ),
    "megatron_18b": MEGATRON_VARIANTS,
}  # fmt: skip


def seconds(points: SearchedPoints, variant: Variant, fabric: str, bandwidth: int, degrees: tuple[int, ...]) -> float:
    """Return the best iteration time of a search among groups of these sizes, kept or computed [s]."""
    name, parameters = FABRICS[fabric]
    job, space = variant.job, variant.space
    groups = ", ".join(map(str, degrees))
    found = points.search(
        f"{job.model} | {variant.name} | {fabric} | {bandwidth} Gb/s | {groups}", job, space,
        lambda: machine(
            name, f"{bandwidth} Gb/s", speed=variant.speed, num_accelerators=NUM_ACCELERATORS, **parameters
        ),
        strategies=space.groups(NUM_ACCELERATORS, degrees), num_simulated=3,
    )  # fmt: skip
    return float(found["best"]["iteration_s"]) if "best" in found else float("nan")


def ratios(points: SearchedPoints, variant: Variant) -> dict[str, float]:
    """Return a case's ratios at 8 Tb/s."""

    def time(fabric: str, bandwidth: int = HIGH, degrees: tuple[int, ...] = variant.degrees) -> float:
        return seconds(points, variant, fabric, bandwidth, degrees)

    found = {
        "cluster over OCS": time("cluster") / time("OCS"), "cluster over ring": time("cluster") / time("ring"),
        "OCS over flat of B/2": time("OCS") / time("flat", HALF_OF_IT),
        "ring over flat of B/2": time("ring") / time("flat", HALF_OF_IT), "ring over OCS": time("ring") / time("OCS"),
    }  # fmt: skip
    if 1 in variant.degrees:
        found["dp over best, flat"] = time("flat", degrees=(1,)) / time("flat")
    return found


def band(points: SearchedPoints, model: str, key: str) -> tuple[float, float, float]:
    """Return a ratio as stated, and the least and the most of all variants."""
    found = [ratios(points, variant)[key] for variant in VARIANTS[model]]
    return found[0], min(found), max(found)


def _words(value: tuple[float, float, float]) -> str:
    return "{:.2f}x ({:.2f}x to {:.2f}x)".format(*value)


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return claim, model, printed and own value with its band, and whether the claim is met as stated."""
    rows: list[dict[str, Any]] = []

    def add(model: str, claim: str, theirs: str, value: tuple[float, float, float], is_met: bool) -> None:
        rows.append({"model": model, "claim": claim, "theirs": theirs, "ours": _words(value), "is_met": is_met})

    for model in VARIANTS:
        for name in ("OCS", "ring"):
            value = band(points, model, f"cluster over {name}")
            add(model, f"SiP over the cluster at 8 Tb/s, {name}", "1.3x to 9.1x", value, 1.3 <= value[0] <= 9.1)
        for name in ("OCS", "ring"):
            value = band(points, model, f"{name} over flat of B/2")
            add(model, f"{name} at 8 Tb/s over Elect-Flat at 4 Tb/s", "<= 1x", value, value[0] <= 1.02)
        value = band(points, model, "ring over OCS")
        add(model, "ring over OCS at 8 Tb/s", "about 1x", value, abs(value[0] - 1) <= 0.15)
        if "dp over best, flat" in ratios(points, VARIANTS[model][0]):
            value = band(points, model, "dp over best, flat")
            add(model, "pure dp over hybrid at 8 Tb/s", "1x to 2x", value, 1 <= value[0] <= 2.1)
    for word, printed, choose in (("least", 1.3, min), ("largest", 9.1, max)):
        values = [band(points, model, f"cluster over {name}") for model in VARIANTS for name in ("OCS", "ring")]
        value = choose(values)
        add("all", f"{word} gain over the cluster at 8 Tb/s", f"{printed}x", value, abs(value[0] / printed - 1) <= 0.15)
    gains = {model: band(points, model, "cluster over OCS")[0] for model in VARIANTS}
    rows.append({
        "model": "all", "claim": "gain over the cluster: least ResNet-50, most Megatron", "theirs": "in that order",
        "ours": " ".join(f"{gain:.2f}x" for gain in gains.values()),
        "is_met": list(gains.values()) == sorted(gains.values()),
    })  # fmt: skip
    return rows


SERVER_USD, SERVER_SIZE = 149_000, 8  # DGX-1 with eight V100 at its launch, as the press quoted it: machine=dgx1_v100


def break_even_usd(points: SearchedPoints, model: str, name: str) -> float:
    """Return what a SiP network may cost for each accelerator to reach accuracy at the cluster's dollars [USD].

    Model: dollars are accelerators and network, written off over equal times; the cluster's network is its bill of
        materials.
    """
    fabric, parameters = FABRICS["cluster"]
    cluster = machine(fabric, f"{HIGH} Gb/s", num_accelerators=NUM_ACCELERATORS, **parameters).fabric
    own = SERVER_USD / SERVER_SIZE
    network = cluster.bill_of_materials().total_usd / NUM_ACCELERATORS
    return band(points, model, f"cluster over {name}")[0] * (own + network) - own


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims, estimates of economics. Args: path: of the points."""
    points = SearchedPoints(path, COMMAND)
    found = claim_figures(compare(points), "{model}")
    found += [
        Figure(name=f"estimate: {r[0]}, break-even price of the network, {r[1]}", published="", ours=r[2])
        for r in _economics(points)
    ]
    return [*found, Figure(name="figure 14", published="", ours=NO_FIGURE_14)]


NO_FIGURE_14 = "not compared"


def _economics(points: SearchedPoints) -> list[list[str]]:
    return [
        [model, name, f"{break_even_usd(points, model, name):,.0f} USD"]
        for model in VARIANTS
        for name in ("OCS", "ring")
    ]


def main() -> None:
    """Print all ratios by variant, the claims with their bands and the economics."""
    points = SearchedPoints(POINTS, COMMAND)
    for model, variants in VARIANTS.items():
        keys = list(ratios(points, variants[0]))
        rows = [[one.name, *(f"{value:.2f}x" for value in ratios(points, one).values())] for one in variants]
        print_table(f"{model}, ratios at 8 Tb/s", ("variant", *keys), rows)
    title = "estimates: what a SiP network may cost for each accelerator to reach accuracy at the cluster's dollars"
    print_table(title, ("model", "network", "break-even"), _economics(points))
    claims = [[r["claim"], r["model"], r["theirs"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in sorted(compare(points), key=lambda r: r["is_met"])]  # fmt: skip
    print_table("claim by claim", ("claim", "model", "theirs", "rostam (band)", ""), claims)
    print_table("not compared", ("figure", ""), [["14", NO_FIGURE_14]])


if __name__ == "__main__":
    main()
