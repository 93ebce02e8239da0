"""Fill a HammingMesh of 16 x 16 boards with drawn jobs and print utilisations next to the paper's claims."""

import csv
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators.board_mesh import BoardMesh
from rostam_py.fleet.job_sizes import FAMILIES
from rostam_py.fleet.utilisation import Draws, fill_draws
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
MESH = {"board": (2, 2), "boards": (16, 16)}
SHARES = (0.15, 0.5)  # of the largest job
NUM_DRAWS = 60
GREEDY = {"transpose": False}
TRANSPOSED: dict[str, object] = {}
SORTED = {"aspect_ratio": 8, "largest_first": True}  # on top of the heuristics that the paper names before it
# What else may be switched on, of which nothing is printed.
OTHERS: dict[str, dict[str, object]] = {
    "transpose": TRANSPOSED, "transpose, aspect ratio 8": {"aspect_ratio": 8},
    "transpose, sorted": {"largest_first": True}, "all with locality": {**SORTED, "locality": True},
}  # fmt: skip
HUGE = 1000  # boards along each side of the mesh whose search is timed
HUGE_JOBS = ((300, 400), (600, 600))
_MOST_S = 0.1


def utilisations(draws: Draws, options: dict[str, object]) -> np.ndarray:
    """Return the share of boards that jobs hold after each draw [%]."""
    return np.array([100 * one.utilisation for one in fill_draws(HammingMeshConfig(**MESH), draws, options)])


def claims_of(draws: Draws) -> dict[str, float]:
    """Return rostam's value of every claim on utilisation, as expected.csv names them."""
    greedy, transposed, ordered = (utilisations(draws, options) for options in (GREEDY, TRANSPOSED, SORTED))
    return {
        "greedy alone": float(greedy.mean()), "transpose adds": float(transposed.mean() - greedy.mean()),
        "sorted: mean": float(ordered.mean()), "sorted: median": float(np.median(ordered)),
        "sorted: 99th percentile": float(np.percentile(ordered, 1)),
    }  # fmt: skip


def figures() -> list[Figure]:
    """Return the ledger's figures: claims by family and largest job, jobs asking upright; then what is not printed."""
    with EXPECTED.open(encoding="utf-8") as file:
        expected = {row["claim"]: row for row in csv.DictReader(file)}
    found = []
    for family in FAMILIES:
        for share in SHARES:
            where = f"{family}, largest {share:.0%}"
            for claim, own in claims_of(Draws(family, share, num_draws=NUM_DRAWS)).items():
                found.append(_figure(f"{claim}: {where}", expected[claim], own))
            own = claims_of(Draws(family, share, way="either", num_draws=NUM_DRAWS))["transpose adds"]
            found.append(_figure(f"transpose adds, jobs either way: {where}", expected["transpose adds"], own))
            for words, options in OTHERS.items():
                mean = utilisations(Draws(family, share, num_draws=NUM_DRAWS), options).mean()
                found.append(Figure(name=f"{words}: {where}", published="", ours=f"{mean:.1f}", unit="%"))
    printed = expected["two jobs on 1000 x 1000 boards"]
    is_met = search_s() <= _MOST_S
    ours = f"{'<=' if is_met else '>'} {_MOST_S:g} s"
    return [*found, Figure(name=printed["claim"], published=printed["printed"], ours=ours, is_met=is_met)]


def search_s() -> float:
    """Return the CPU time of two jobs on a free mesh of 1,000 x 1,000 boards [s]."""
    mesh = BoardMesh(np.ones((HUGE, HUGE), dtype=bool))
    begin = time.process_time()
    for rows, columns in HUGE_JOBS:
        found = mesh.find(rows, columns)
        if found is not None:
            mesh.mark(found, is_free=False)
    return time.process_time() - begin


def _figure(name: str, row: dict[str, str], own: float) -> Figure:
    own = round(own, 1)
    low, high = (float(row[key]) if row[key] else end for key, end in (("low", -np.inf), ("high", np.inf)))
    short = min(own - low, 0.0) or max(own - high, 0.0)
    return Figure(
        name=name, published=row["printed"], ours=f"{own:.1f}", difference=f"{short:+.1f}" if short else "",
        unit=row["unit"], is_met=low <= own <= high,
    )  # fmt: skip


def main() -> None:
    """Print the comparison."""
    table = Table(title="HammingMesh of 16 x 16 boards: utilisation, mean of 60 draws unless said otherwise")
    for column in ("claim: job sizes", "printed", "rostam", "beyond", "unit"):
        table.add_column(column, justify="left" if column == "claim: job sizes" else "right")
    for one in figures():
        table.add_row(one.name, one.published, one.ours, one.difference, one.unit)
    Console().print(table)


if __name__ == "__main__":
    main()
