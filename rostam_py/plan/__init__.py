"""The nouns of a placed job: Machine, Strategy, tasks, process groups, Plan; and what is derived from them.

Example:
    machine = Machine(fabric=fabric, accelerator="a100_80gb")
    plan = place(graph, machine, global_batch=1024, strategy=Strategy(dp=128, tp=8))
"""

from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import KernelTime, MemoryBytes, Message, Plan, Stage, Task
from rostam_py.plan.strategy import PLACERS, Strategy

__all__ = [
    "PLACERS", "KernelTime", "Machine", "MemoryBytes", "Message", "Plan", "Stage", "Strategy", "Task",
]  # fmt: skip
