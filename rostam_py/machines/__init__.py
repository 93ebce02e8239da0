"""Machines one can name: servers and pods as they are sold, each figure with its source.

Example:
    site = MACHINES.get("dgx_h100")(servers=16).site()
    site.fabric, site.parameters["num_accelerators"], site.accelerator      # ("fat_tree", 128, "h100_80gb")

A machine is a Config in a file of its own, which says what fabric and accelerators it stands for.
"""

from rostam_py.registry import Registry

MACHINES = Registry("machine")
MACHINES.add("dgx1_v100", "rostam_py.machines.dgx1_v100:Dgx1V100Config")
MACHINES.add("dgx_a100", "rostam_py.machines.dgx_a100:DgxA100Config")
MACHINES.add("dgx_h100", "rostam_py.machines.dgx_h100:DgxH100Config")
MACHINES.add("dgx_b200", "rostam_py.machines.dgx_b200:DgxB200Config")
MACHINES.add("gb200_nvl72", "rostam_py.machines.gb200_nvl72:Gb200Nvl72Config")
MACHINES.add("tpu_v4_pod", "rostam_py.machines.tpu_v4_pod:TpuV4PodConfig")

__all__ = ["MACHINES"]
