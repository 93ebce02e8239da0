"""Placement: a Strategy turns a model's graph and a machine into an explicit Plan.

Example:
    machine = Machine(fabric=fabric, accelerator="a100_80gb")
    plan = place(graph, machine, global_batch=1024, strategy=Strategy(dp=128, tp=8))
"""

from rostam_py.placement.place import place

__all__ = ["place"]
