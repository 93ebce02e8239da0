"""Experts: which ops and rows are theirs, on which ranks they lie, and how rows get there.

Example:
    experts = spread_experts(graph, degree=4)
    experts.exchanged                          # tensor -> "dispatch" or "combine"
"""

from rostam_py.placement.experts.spread import DISPATCH, SpreadExperts, find_experts, spread_experts

__all__ = ["DISPATCH", "SpreadExperts", "find_experts", "spread_experts"]
