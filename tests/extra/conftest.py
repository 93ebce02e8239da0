"""Python faces of the second core's parts, registered while the tests run, as a user's own package would."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.units import parse_time


@dataclass(kw_only=True, slots=True)
class IslandsConfig(FabricConfig):
    """Groups of switches; paths go local, global, local.

    Model: every pair of switches of a group is joined, and each switch to that of the same place in every other group.
    Args:
        groups: of switches. switches: of a group. down: accelerators of a switch.
    Source: own, tests/csrc/islands.cpp; a small Dragonfly.
    """

    groups: int = 4
    switches: int = 2
    down: int = 2

    def __post_init__(self) -> None:
        FabricConfig.__post_init__(self)
        for name in ("groups", "switches", "down"):
            check_integer(f"fabric.{name}", getattr(self, name), 1)

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with as many groups as hold the accelerators; their switches are kept."""
        size = parameters.get("switches", 2) * parameters.get("down", 2)
        if num_accelerators % size:
            raise ConfigError(f"num_accelerators is {num_accelerators}; groups hold {size} each")
        return {**parameters, "groups": num_accelerators // size}

    def core_parameters(self) -> dict[str, object]:
        """Return the core's plain arguments in SI units."""
        return {
            "groups": self.groups, "switches": self.switches, "down": self.down,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "link_latency_s": parse_time(self.link_latency),
        }  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def faces() -> Iterator[None]:
    """Register the faces for the session."""
    module = ModuleType("users_fabrics")
    module.IslandsConfig = IslandsConfig  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    FABRICS.add("islands", "users_fabrics:IslandsConfig")
    yield
    del sys.modules[module.__name__]
