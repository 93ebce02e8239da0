"""Programs: what the ranks of each role run, as a person, a capture or an importer writes it down.

Example:
    program = rostam.Program.load("program.json")
    rostam.simulate(program.on(machine)).iteration_time_s
"""

from rostam_py.programs.groups import RankGroups
from rostam_py.programs.kernels import Kernel
from rostam_py.programs.placed import PlacedProgram, PlacedRole
from rostam_py.programs.program import Program
from rostam_py.programs.roles import Repeat, Role
from rostam_py.programs.steps import Batch, BatchMessage, Collective, Compute, Receive, Send, Wait

__all__ = [
    "Batch", "BatchMessage", "Collective", "Compute", "Kernel", "PlacedProgram", "PlacedRole", "Program", "RankGroups",
    "Receive", "Repeat", "Role", "Send", "Wait",
]  # fmt: skip
