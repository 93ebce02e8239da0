"""tpu_v4_pod: a slice of a TPU v4 pod."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_dims
from rostam_py.machines.config import Figure, MachineConfig, Site

_PAPER = "Jouppi et al., TPU v4, ISCA 2023, "
_FABRIC = "torus"
_MOST = 4096  # chips of a pod


@dataclass(kw_only=True, slots=True)
class TpuV4PodConfig(MachineConfig):
    """A slice of a TPU v4 pod: chips on a three-dimensional torus of 50 GB/s links.

    Model: approximated: the optical circuit switches that join cubes of 4 x 4 x 4 are links like any other, and a
        dimension below 4, which is a line in a pod, wraps round here.
    Args: dims: chips in each of the three dimensions, 4096 at most together.
    Source: Jouppi et al., TPU v4: An Optically Reconfigurable Supercomputer for Machine Learning, ISCA 2023.
    """

    accelerator: ClassVar[str] = "tpu_v4_32gb"
    sizes: ClassVar[tuple[str, ...]] = ("dims", "board")
    figures: ClassVar[Mapping[str, Figure]] = {
        "link_bandwidth": Figure("50 GB/s", _PAPER + "table 4: six inter-chip links of 50 GB/s"),
        "chip_watts": Figure(192, _PAPER + "table 4: 192 W at most, without host"),
        "chip_usd": Figure(None, "not for sale"),
    }

    dims: Any = (4, 4, 4)

    def __post_init__(self) -> None:
        self.dims = check_dims("machine.dims", self.dims, 1, "dimension")
        if len(self.dims) != 3:
            raise ConfigError(f"machine.dims is {list(self.dims)}; a pod has three dimensions, such as [4,4,8]")
        if not 2 <= math.prod(self.dims) <= _MOST:
            raise ConfigError(f"machine.dims is {list(self.dims)}; a slice has 2 to {_MOST} chips")

    def site(self) -> Site:
        """Return the torus of these chips."""
        parameters = {"dims": list(self.dims), "link_bandwidth": self.figure("link_bandwidth")}
        watts = float(self.figure("chip_watts") * math.prod(self.dims))
        return Site(_FABRIC, parameters, self.accelerator, watts, self.figure("chip_usd"))
