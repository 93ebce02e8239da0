"""Fabrics: one file each with its dataclass (the only schema), built into a frozen core fabric.

Example:
    from rostam_py.fabrics import build_fabric
    fabric = build_fabric("torus", dims=(32, 32), accelerator_bandwidth="6400 Gb/s", planes=4)
    fabric.num_links, fabric.diameter()
"""

from typing import TYPE_CHECKING, Any

from rostam_py.registry import Registry

if TYPE_CHECKING:
    from rostam_py.fabrics.fabric import Fabric

FABRICS = Registry("fabric")
FABRICS.add("custom", "rostam_py.fabrics.custom:CustomConfig")
FABRICS.add("dragonfly", "rostam_py.fabrics.dragonfly:DragonflyConfig")
FABRICS.add("electrical_cluster", "rostam_py.fabrics.electrical_cluster:ElectricalClusterConfig")
FABRICS.add("electrical_flat", "rostam_py.fabrics.electrical_flat:ElectricalFlatConfig")
FABRICS.add("fat_tree", "rostam_py.fabrics.fat_tree:FatTreeConfig")
FABRICS.add("hammingmesh", "rostam_py.fabrics.hammingmesh:HammingMeshConfig")
FABRICS.add("hybrid_cube_mesh", "rostam_py.fabrics.hybrid_cube_mesh:HybridCubeMeshConfig")
FABRICS.add("hyperx", "rostam_py.fabrics.hyperx:HyperXConfig")
FABRICS.add("photonic_rails", "rostam_py.fabrics.photonic_rails:PhotonicRailsConfig")
FABRICS.add("regional_ocs", "rostam_py.fabrics.regional_ocs:RegionalOcsConfig")
FABRICS.add("sip_ocs", "rostam_py.fabrics.sip_ocs:SipOcsConfig")
FABRICS.add("sip_ring", "rostam_py.fabrics.sip_ring:SipRingConfig")
FABRICS.add("slim_fly", "rostam_py.fabrics.slim_fly:SlimFlyConfig")
FABRICS.add("torus", "rostam_py.fabrics.torus:TorusConfig")


def build_fabric(name: str, **params: Any) -> "Fabric":
    """Build the registered fabric ``name`` from its parameters.

    Args: name: one of ``FABRICS.names()``. params: fields of that fabric's Config.
    Raises: UnknownNameError for another name; ConfigError for an unknown, missing or bad parameter.
    """
    from rostam_py.fabrics.config import make_config
    from rostam_py.fabrics.fabric import Fabric

    return Fabric(name, make_config(name, FABRICS.get(name), params))


def example_fabric(name: str) -> "Fabric":
    """Build the small fabric that a registered name's Config gives as its example.

    Raises: UnknownNameError for another name.
    """
    from rostam_py.fabrics.fabric import Fabric

    return Fabric(name, FABRICS.get(name).example())


__all__ = ["FABRICS", "build_fabric", "example_fabric"]
