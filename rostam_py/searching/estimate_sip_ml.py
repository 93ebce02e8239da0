"""Estimate of plans that the "sip_ml" placer made: Algorithm 1 gives start times of its own (MODEL D14)."""

from typing import Any

from rostam_py.placement import Plan
from rostam_py.searching.estimate import Estimate


def can_estimate_sip_ml() -> bool:
    """Tell whether plans can retime themselves, without which Algorithm 1 is not searched."""
    return hasattr(Plan, "retimed")


def estimate_sip_ml(plan: Plan, fabric: Any) -> Estimate | None:
    """Return the estimated iteration of a plan with sub-ops spread over model-parallel groups.

    Model: the plan's own, retimed at the fabric's bandwidth: ``plan.retimed(fabric)`` returns an ``Estimate`` or the
        iteration time [s].
    Args: fabric: with circuits set where it is circuit-switched.
    Returns: None where plans cannot retime themselves; such candidates are left out of a search.
    """
    retimed = getattr(plan, "retimed", None)
    if retimed is None:
        return None
    answer = retimed(fabric)
    return answer if isinstance(answer, Estimate) else Estimate(float(answer), 0.0)
