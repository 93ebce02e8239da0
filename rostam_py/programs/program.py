"""Program: what every rank of a job runs in one iteration, on any machine; a documented file format (docs/how-to).

Example:
    program = rostam.Program.load("program.json")
    result = rostam.simulate(program.on(machine))
    rostam.Program.of(plan).save("plan_as_program.json")
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py.costs import DEFAULT_COST
from rostam_py.documents import refused
from rostam_py.html import html_pairs
from rostam_py.plan.data import Message
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.programs.consistency import check_steps
from rostam_py.programs.data import ProgramData
from rostam_py.programs.matching import check_matches
from rostam_py.programs.messages import messages_of
from rostam_py.programs.of_plan import fields_of
from rostam_py.programs.placed import PlacedProgram
from rostam_py.programs.splits import unequal_parts


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Program(ProgramData):
    """What the ranks of a job run in one iteration, its steps checked against each other; fields: see ProgramData."""

    def __post_init__(self) -> None:
        ProgramData.__post_init__(self)
        check_steps(self)
        check_matches(self)
        unequal_parts(self)  # they fit each other

    @classmethod
    def load(cls, path: str | Path) -> "Program":
        """Return the program that a file holds; nothing of it is run.

        Raises: ConfigError that names the file, the place in it, the value and what is allowed there.
        """
        from rostam_py.programs.storage import read_program  # needs pydantic, which only files are worth

        fields = read_program(path)
        with refused(f"{path}: the program is refused"):
            return cls(**fields)

    def save(self, path: str | Path) -> None:
        """Write the program to a file that ``load`` reads: JSON, gzip-compressed if the name ends in .gz.

        Raises: ConfigError if the file cannot be written.
        """
        from rostam_py.programs.storage import save_program

        save_program(self, path)

    @classmethod
    def of(cls, plan: Plan) -> "Program":
        """Return what a plan's devices run, with the times of its kernels.

        Raises: ConfigError for what programs do not say yet: micro-batches that take turns (software.rules.ep_overlap),
            rows of experts that go once to each server (software.rules.servers_per_token).
        """
        return cls(**fields_of(plan))

    def messages(self) -> list[Message]:
        """Return what one rank of every role communicates in one iteration, equal messages counted."""
        return messages_of(self)

    def on(
        self, machine: Machine, *, accelerators: Sequence[int] | None = None, cost: str = DEFAULT_COST,
        cost_config: Mapping[str, Any] | None = None,
    ) -> PlacedProgram:  # fmt: skip
        """Return the program on a machine: its kernels timed, its collectives' algorithms chosen.

        Args:
            accelerators: of the ranks, in rank order; by default the first that work.
            cost: the cost model of kernels without a time (rostam list cost).
            cost_config: its settings.
        Raises: DegreeError for a machine with fewer accelerators than ranks; MemoryCapacityError for a role that needs
            more memory than an accelerator has; ConfigError for accelerators that there are not, or have failed.
        """
        return PlacedProgram.of(self, machine, accelerators=accelerators, cost=cost, cost_config=cost_config)

    def __repr__(self) -> str:
        roles = ", ".join(list(self.roles)[:4]) + (", ..." if len(self.roles) > 4 else "")
        return f"Program({self.name!r}: {self.num_ranks:,} ranks; roles {roles})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many ranks of which roles, and their groups."""
        groups = (f"{label} ({len(one.members):,} of {one.num_ranks})" for label, one in self.group_sets.items())
        pairs = {
            "ranks": f"{self.num_ranks:,}", "roles": ", ".join(self.roles), "groups": ", ".join(groups) or "none",
            "steps of an iteration": f"{self.num_steps:,}, all roles",
        }  # fmt: skip
        return html_pairs(f"program: {self.name}", pairs)
