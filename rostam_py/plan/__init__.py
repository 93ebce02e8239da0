"""The nouns of a placed job: Machine, Strategy, tasks, process groups, Plan; and what is derived from them.

Example:
    machine = Machine(fabric=fabric, accelerator="a100_80gb")
    plan = place(graph, machine, global_batch=1024, strategy=Strategy(dp=128, tp=8))
"""

from rostam_py.plan.data import Batches, Message
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.plan.group_kinds import GROUP_KINDS, GroupKind
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.machine import Machine
from rostam_py.plan.packets import PacketOptions
from rostam_py.plan.plan import Plan
from rostam_py.plan.program import Program, Segment
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import PLACERS
from rostam_py.plan.tasks import KernelTime, MemoryBytes, Stage, Task

__all__ = [
    "GROUP_KINDS", "PLACERS", "Batches", "Failure", "GroupKind", "GroupSet", "KernelTime", "Machine", "MemoryBytes",
    "Message", "PacketOptions", "Plan", "Program", "Recovery", "Segment", "Stage", "Strategy", "Task",
]  # fmt: skip
