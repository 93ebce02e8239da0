"""ProgramResult: what a simulated iteration of a program took, and why."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.programs.placed import PlacedProgram
from rostam_py.simulation.job_result import JobResult
from rostam_py.units import format_size


@dataclass(frozen=True, repr=False)
class ProgramResult(JobResult):
    """A JobResult of a program, with its roles and what its ranks need of memory. placed: as it was simulated."""

    placed: PlacedProgram

    @property
    def ranks_of_roles(self) -> dict[str, int]:
        """How many ranks each role has, in the order of the program."""
        counts = np.bincount(self.placed.stage_of, minlength=len(self.placed.stages)).tolist()
        return {stage.name: count for stage, count in zip(self.placed.stages, counts, strict=True)}

    @property
    def memory_bytes(self) -> int:
        """Memory that the fullest rank needs [bytes]; 0 where the program does not say."""
        return self.placed.memory_bytes

    @property
    def memory_words(self) -> str:
        """What the fullest rank needs of an accelerator's memory."""
        if not self.memory_bytes:
            return "the program does not say"
        has = format_size(self.placed.machine.device.memory_bytes)
        return f"{format_size(self.memory_bytes)} of {has} on the fullest rank"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready summary; equal runs give equal values, to the byte."""
        placed = self.placed
        counts = self.ranks_of_roles
        roles = [
            {"name": stage.name, "num_ranks": counts[stage.name], "memory_bytes": stage.memory_bytes}
            for stage in placed.stages
        ]
        return super().to_dict() | {
            "fabric": placed.machine.fabric.describe(),
            "accelerator": placed.machine.device.name,
            "roles": roles,
            "memory_bytes": self.memory_bytes,
            "network_usd": placed.machine.fabric.network_usd,
        }

    def _headline(self) -> tuple[str, dict[str, Any]]:
        title, pairs = super()._headline()
        return title, pairs | {"roles": ", ".join(stage.name for stage in self.placed.stages)}
