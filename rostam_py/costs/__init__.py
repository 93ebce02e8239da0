"""Costs: how long a kernel takes on an accelerator, by data sheet, by measurement or by a published time.

Example:
    accelerator = get_accelerator("a100_80gb")
    cost = make_cost_model("roofline", accelerator)
    cost.duration_s(optimizer_call("adam", 1_000_000, "bf16_mixed"))
"""

import dataclasses
from typing import Any

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator, get_accelerator
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.optimizers import optimizer_call, optimizer_state_bytes
from rostam_py.costs.precision import PRECISIONS, gradient_bytes, parameter_bytes, tensor_bytes_factor
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.registry import Registry

__all__ = [
    "ACCELERATORS", "COST_MODELS", "DEFAULT_COST", "PRECISIONS", "Accelerator", "CostModel", "KernelCall",
    "get_accelerator", "gradient_bytes", "make_cost_model", "optimizer_call", "optimizer_state_bytes",
    "parameter_bytes", "tensor_bytes_factor",
]  # fmt: skip

DEFAULT_COST = "calibrated"  # of runs, searches, sweeps, mixes and the Python API: the one place that says so

COST_MODELS = Registry("cost model")
COST_MODELS.add("calibrated", "rostam_py.costs.calibrated:CalibratedCost")
COST_MODELS.add("constant", "rostam_py.costs.constant:ConstantCost")
COST_MODELS.add("profiled", "rostam_py.costs.profiled:ProfiledCost")
COST_MODELS.add("roofline", "rostam_py.costs.roofline:RooflineCost")


def make_cost_model(
    name: str, accelerator: Accelerator | str, *, graph: OperatorGraph | None = None, **config: Any
) -> CostModel:
    """Build a registered cost model for one accelerator.

    Args: name: a name in COST_MODELS. accelerator: an Accelerator or the name of a known one.
        graph: the model to be timed; "constant" and "calibrated" need it, "profiled" checks its table against it.
        config: fields of the model's ``Config``.
    Raises: UnknownNameError for an unknown model or accelerator; ConfigError for an unknown field.
    """
    cost_class = COST_MODELS.get(name)
    known = [f.name for f in dataclasses.fields(cost_class.Config)]
    for key in config:
        if key not in known:
            raise ConfigError(f"cost model {name!r} has no setting {key!r}; it has: {', '.join(known)}")
    device = get_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    return cost_class.Config(**config).build(accelerator=device, graph=graph)
