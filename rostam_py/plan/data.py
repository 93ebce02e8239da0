"""PlanData: what every device of a machine does in one training iteration, as data.

A plan numbers its devices from 0; ``devices`` says on which accelerator each of them is, ``stage_of`` which Stage it
runs, and process groups are rows of device numbers.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.machine import Machine
from rostam_py.plan.software import IDEAL_SOFTWARE, Software
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import MEMORY_PARTS, MemoryBytes, Stage, Task


@dataclass(frozen=True, slots=True)
class Batches:
    """Samples of an iteration (MODEL D16): global_batch = micro_batch x num_microbatches x dp."""

    global_batch: int
    micro_batch: int
    num_microbatches: int


@dataclass(frozen=True, slots=True)
class Message:
    """Equal messages of one device of a stage, per iteration.

    kind: the collective's name, "send" or "recv". group: label of the groups. stages: of the group's devices, or
    (from, to) of a send or recv. num_bytes: of one, as in MODEL A4.
    """

    kind: str
    group: str
    stages: tuple[int, ...]
    num_bytes: int
    count: int


@dataclass(frozen=True, kw_only=True)
class PlanData:
    """A placed training job.

    devices: accelerator id of every device, int array (n,). stage_of: index into ``stages``, int array (n,).
    groups: sets of process groups; their order is that of the communication streams.
    algorithms: collective name -> algorithm name, as resolved from the strategy.
    notes: replicated ops, unprofiled splits, assumed presets, fused and vanished op counts.
    precision, optimizer: as resolved from the strategy and the model.
    cost: the cost model that timed the kernels; "given" for a plan whose times come with it.
    sequence_length: tokens of a sample, 0 of models whose samples are no sequences of them.
    max_circuit_degree: peers that an accelerator may have beyond what the fabric allows; None for no such limit.
    software: the program that trains; what it does stands in the strategy and the machine.
    has_experts: the model is a mixture of experts.
    details: what the placer knows beyond the plan (its estimator may use it); not saved.
    """

    graph_name: str
    machine: Machine
    strategy: Strategy
    batches: Batches
    devices: np.ndarray
    stage_of: np.ndarray
    stages: tuple[Stage, ...]
    groups: tuple[GroupSet, ...]
    algorithms: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cost: str = "given"
    precision: str = "fp32"
    optimizer: str = "sgd"
    sequence_length: int = 0
    max_circuit_degree: int | None = None
    software: Software = IDEAL_SOFTWARE
    has_experts: bool = False
    details: Any = field(default=None, repr=False, compare=False)

    @property
    def num_devices(self) -> int:
        """Devices that the job uses."""
        return len(self.devices)

    @property
    def global_batch(self) -> int:
        """Samples of one iteration."""
        return self.batches.global_batch

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch of one replica."""
        return self.batches.micro_batch

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of one replica in an iteration."""
        return self.batches.num_microbatches

    @property
    def memory_bytes(self) -> int:
        """Memory the fullest device needs [bytes]."""
        return sum(self.memory_parts.values())

    @property
    def fullest_memory(self) -> MemoryBytes:
        """What the fullest device, the first of those, needs."""
        return max((stage.memory for stage in self.stages), key=lambda memory: memory.total)

    @property
    def memory_parts(self) -> dict[str, int]:
        """What the fullest device, the first of those, needs by part of MEMORY_PARTS [bytes]."""
        return {part: int(getattr(self.fullest_memory, part)) for part in MEMORY_PARTS}

    @property
    def accelerators(self) -> np.ndarray:
        """Accelerator of every rank of the strategy's grid, int array (dp x cp, pp, tp), or (dp, mp, 1)."""
        return self.devices.reshape(self.strategy.shape)

    @cached_property
    def _sets(self) -> dict[str, GroupSet]:
        return {one.label: one for one in self.groups}

    def group_set(self, label: str) -> GroupSet:
        """Return the set of process groups with a label. Raises: ConfigError, with the labels there are."""
        if label not in self._sets:
            raise ConfigError(f"group is {label!r}; it must be one of: {', '.join(self._sets)}")
        return self._sets[label]

    def devices_of(self, stage: int) -> np.ndarray:
        """Return the numbers of the devices that run a stage, ascending."""
        return np.flatnonzero(self.stage_of == stage)

    def members(self, label: str, stage: int | None = None) -> np.ndarray:
        """Return the accelerators of the process groups with a label, int array (groups, ranks), in rank order.

        Args: stage: only the groups that a stage's devices are in.
        """
        found = self.group_set(label).members
        if stage is not None:
            found = found[(self.stage_of[found] == stage).any(axis=1)]
        return self.devices[found]

    @property
    def tied(self) -> tuple[tuple[int, ...], ...]:
        """For each set of tied parameters the stages that hold it, in order."""
        rows = [self.stage_of[one.members[0]] for one in self.groups if one.kind == "tied"]
        return tuple(tuple(row.tolist()) for row in rows)

    def messages(self) -> list[Message]:
        """Return what one device of every stage communicates in one iteration, equal messages counted."""
        found: Counter[tuple[str, str, tuple[int, ...], int]] = Counter()
        for stage in self.stages:
            for name, count in stage.program.counts().items():
                for task in stage.templates[name]:
                    if task.kind != "compute":
                        found[self._message_key(stage.index, task)] += count
        return [Message(*key, count=count) for key, count in found.items()]

    def _message_key(self, stage: int, task: Task) -> tuple[str, str, tuple[int, ...], int]:
        row, rank = self.first_place(task.group, stage)
        if task.kind == "collective":
            stages = tuple(dict.fromkeys(self.stage_of[row].tolist()))
            return task.collective, task.group, stages, task.num_bytes
        peer = int(self.stage_of[row[rank + task.peer]])
        return task.kind, task.group, (stage, peer) if task.kind == "send" else (peer, stage), task.num_bytes

    def first_place(self, label: str, stage: int) -> tuple[np.ndarray, int]:
        """Return the first group with a label that a stage's devices are in, and the rank of the first of them."""
        members = self.group_set(label).members
        rows, ranks = np.nonzero(self.stage_of[members] == stage)
        if not len(rows):
            raise ConfigError(f"a task of stage {stage} names group {label!r}, which none of its devices is in")
        return members[rows[0]], int(ranks[0])
