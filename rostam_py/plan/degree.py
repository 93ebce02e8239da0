"""Circuit degree: whether accelerators have as many circuits as they have peers (MODEL C12)."""

from collections.abc import Callable

import numpy as np

from rostam_py.errors import DegreeError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic


def check_fabric_degree(fabric: Fabric, traffic: Callable[[], Traffic]) -> None:
    """Raise DegreeError for traffic between more pairs than a fabric's circuits serve.

    Args: traffic: returns it; not called on fabrics without such a limit.
    """
    limit = fabric.max_circuit_degree
    if limit is not None and not fabric.config.serves_beyond_degree:
        check_degree(traffic(), limit, f"{fabric.name} gives it")


def check_degree(traffic: Traffic, limit: int, giver: str) -> None:
    """Raise DegreeError for an accelerator with more peers than a limit.

    Args: giver: of the limit, in words that the number follows.
    """
    if traffic.circuit_degree <= limit:
        return
    out, into = traffic.out_degree(), traffic.in_degree()
    worst = int(np.argmax(np.maximum(out, into)))
    raise DegreeError(
        f"accelerator {worst} sends to {out[worst]} and receives from {into[worst]} others, but {giver} {limit}"
        f" circuit{'' if limit == 1 else 's'}; lower the degrees of the strategy, choose ring algorithms, or let"
        " the fabric relay or set circuits anew (fabric.control)"
    )
