"""Searching: over strategies and batches, by estimates of all and simulations of the best few.

The package is called so because ``rostam_py.search`` is the public function.

Example:
    found = search(graph, machine, convergence="transformer_sip_ml", num_simulated=8)
    found.best.strategy, found.best.time_to_accuracy_s
"""

from rostam_py.placement.placer import Estimate
from rostam_py.searching.result import Candidate, SearchResult
from rostam_py.searching.search import search
from rostam_py.searching.searcher import Searcher

__all__ = ["Candidate", "Estimate", "SearchResult", "Searcher", "search"]
