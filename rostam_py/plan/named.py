"""Build a machine by name."""

from typing import Any

from rostam_py.fabrics import build_fabric
from rostam_py.machines import MACHINES
from rostam_py.machines.config import make_machine
from rostam_py.plan.machine import Machine


def named_machine(name: str, **given: Any) -> Machine:
    """Build a machine that is sold under a name: its fabric, accelerators, power and price.

    Args: name: one of ``rostam list machines``. given: its keys, such as servers=16.
    Raises: UnknownNameError for another name; ConfigError for a key or a size that the machine cannot have.
    """
    site = make_machine(name, MACHINES.get(name), given).site()
    return Machine(
        fabric=build_fabric(site.fabric, **site.parameters), accelerator=site.accelerator, watts=site.watts,
        usd=site.usd,
    )  # fmt: skip
