"""Reproduction: published figures next to rostam's, from folders of experiments into one ledger.

An experiment is a folder with compare.py, which has ``figures() -> list[Figure]`` (``figures(points)`` where it keeps
computed points in POINTS), a README.md whose heading is its title, and reasons.yaml for figures that are not met.

Example:
    entry = run_experiment(Experiment.at(Path("experiments/hammingmesh_table2_cost")))
    print(markdown([entry]))
"""

from rostam_py.reproduction.experiment import Experiment, experiments_in, run_experiment
from rostam_py.reproduction.figures import Figure, claim_figures
from rostam_py.reproduction.ledger import html, markdown
from rostam_py.reproduction.reasons import Entry, Row, Verdict

__all__ = [
    "Entry", "Experiment", "Figure", "Row", "Verdict",
    "claim_figures", "experiments_in", "html", "markdown", "run_experiment",
]  # fmt: skip
