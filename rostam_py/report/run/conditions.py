"""Under which conditions a run's figures hold, in words."""

from collections.abc import Mapping
from typing import Any

from rostam_py.plan.algorithms import algorithm_words


def algorithms_said(detail: Mapping[str, Any]) -> str:
    """Return a sentence that names the algorithms of a run's collectives; empty where it had none, or named none."""
    words = algorithm_words(detail.get("result", {}).get("algorithms", ()))
    return f" Algorithms: {words}." if words else ""
