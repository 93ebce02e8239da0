"""Fill a HammingMesh of 16 x 16 boards with drawn jobs and print utilisations next to the paper's claims."""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from claimed_ranges import claimed, print_claims, read_claims

from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators.board_mesh import BoardMesh
from rostam_py.fleet.job_sizes import FAMILIES
from rostam_py.fleet.utilisation import Draws, fill_draws
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
MESH = {"board": (2, 2), "boards": (16, 16)}
SHARES = (0.15, 0.5)  # of the largest job
NUM_DRAWS = 60
# Each stands on those before it, as the paper names them.
HEURISTICS: dict[str, dict[str, object]] = {
    "greedy": {"transpose": False}, "transpose": {}, "transpose, aspect ratio 8": {"aspect_ratio": 8},
    "sorted": {"aspect_ratio": 8, "largest_first": True},
    "all with locality": {"aspect_ratio": 8, "largest_first": True, "locality": True},
    "transpose, sorted": {"largest_first": True},
}  # fmt: skip
NOT_PRINTED = ("transpose", "transpose, aspect ratio 8", "all with locality", "transpose, sorted")
HUGE = 1000  # boards along each side of the mesh whose search is timed
HUGE_JOBS = ((300, 400), (600, 600))
_MOST_S = 0.1


def claims(family: str, share: float) -> dict[str, float]:
    """Return rostam's value of every claim on utilisation [%, points], as expected.csv names them."""
    fabric = HammingMeshConfig(**MESH)

    def utilisations(heuristic: str, way: str = "upright") -> np.ndarray:
        filled = fill_draws(fabric, Draws(family, share, way=way, num_draws=NUM_DRAWS), HEURISTICS[heuristic])
        return np.array([100 * one.utilisation for one in filled])

    greedy, transposed, ordered = (utilisations(name) for name in ("greedy", "transpose", "sorted"))
    either = utilisations("transpose", "either").mean() - utilisations("greedy", "either").mean()
    found = {
        "greedy alone": greedy.mean(), "transpose adds": transposed.mean() - greedy.mean(),
        "transpose adds, jobs either way": either, "sorted: mean": ordered.mean(), "sorted: median": np.median(ordered),
        "sorted: 99th percentile": np.percentile(ordered, 1),
    }  # fmt: skip
    found |= {name: utilisations(name).mean() for name in NOT_PRINTED}
    return {claim: float(value) for claim, value in found.items()}


def figures() -> list[Figure]:
    """Return the ledger's figures: claims by family and largest job, jobs asking upright; then the search's time."""
    expected = read_claims(EXPECTED)
    found = [
        claimed(f"{claim}: {family}, largest {share:.0%}", expected.get(claim), own)
        for family in FAMILIES
        for share in SHARES
        for claim, own in claims(family, share).items()
    ]
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


def main() -> None:
    """Print the comparison."""
    print_claims("HammingMesh of 16 x 16 boards: utilisation, mean of 60 draws unless said otherwise", figures())


if __name__ == "__main__":
    main()
