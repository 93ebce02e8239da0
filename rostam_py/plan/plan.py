"""Plan: a placed training job, and what is derived from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.documents import refused
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fabrics.circuits import Circuits
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.plan.algorithms import collectives_of
from rostam_py.plan.data import Batches, PlanData
from rostam_py.plan.degree import check_degree, check_fabric_degree
from rostam_py.plan.groups import GroupSet, grid_groups
from rostam_py.plan.machine import Machine
from rostam_py.plan.mapping import NOTE as MAPPING_NOTE
from rostam_py.plan.ranks import assign_accelerators, mapping_notes
from rostam_py.plan.storage import read_plan, save_plan
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import Stage
from rostam_py.plan.traffic import ScheduleKey, Volumes, plan_traffic, plan_volumes, schedules_of
from rostam_py.plan.unread import unread_keys
from rostam_py.plan.work import WorkSpread, work_spread
from rostam_py.units import format_size


@dataclass(frozen=True, repr=False)
class Plan(PlanData):
    """A placed training job; its properties are functions of the data, computed once.

    known_volumes: ``volumes`` once computed; copies on other machines share it.
    """

    known_volumes: list[Volumes] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def on_grid(
        cls, graph_name: str, machine: Machine, strategy: Strategy, batches: Batches, stages: Sequence[Stage],
        accelerators: np.ndarray, *, tied: Sequence[Sequence[int]] = (), groups: Sequence[GroupSet] | None = None,
        **others: Any,
    ) -> "Plan":  # fmt: skip
        """Return the plan of ranks on a (dp x cp, stages, tp) grid, stage s running on the devices of column s.

        Args: accelerators: of every rank, int array (dp x cp, stages, tp). tied: sets of stages that share parameters.
            groups: by default those of ``grid_groups``. others: further fields; keys that nothing reads and the
            spread of work join the notes.
        """
        ids = np.asarray(accelerators, dtype=np.int64)
        num_dp, num_stages, num_tp = ids.shape
        stage_of = np.broadcast_to(np.arange(num_stages)[None, :, None], ids.shape).reshape(-1)
        spread = work_spread(stages, [num_dp * num_tp] * num_stages)
        unread = (*unread_keys(strategy), *machine.fabric.config.unread_keys())
        mapped = mapping_notes(strategy, machine)
        others["notes"] = (*others.get("notes", ()), *unread, spread.describe(), *mapped)  # as ``on`` leaves them
        found = grid_groups((num_dp, num_stages, num_tp), tied) if groups is None else tuple(groups)
        return cls(
            graph_name=graph_name, machine=machine, strategy=strategy, batches=batches, devices=ids.reshape(-1),
            stage_of=stage_of, stages=tuple(stages), groups=found, **others,
        )  # fmt: skip

    def __post_init__(self) -> None:
        check_fabric_degree(self.machine.fabric, lambda: self.traffic)
        if self.max_circuit_degree is not None:
            check_degree(self.traffic, self.max_circuit_degree, "strategy.max_circuit_degree allows it")

    def save(self, path: str | Path) -> None:
        """Write the plan, its machine included, to a file: JSON, gzip-compressed if the name ends in .gz.

        The placer's ``details`` stay behind. Raises: ConfigError if the file cannot be written.
        """
        save_plan(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Return a saved plan; it simulates to an equal result.

        Raises: ConfigError for a damaged file, with the place, or one of an unknown version.
        """
        fields = read_plan(path)
        with refused(f"{path}: the plan is refused"):
            return cls(**fields)

    def on(self, machine: Machine) -> "Plan":
        """Return this plan on another machine of the same size and accelerator, whose hosts run the plan's software.

        Raises: DegreeError for another number of accelerators; ConfigError for another accelerator.
        """
        if machine.num_accelerators != self.machine.num_accelerators:
            raise DegreeError(
                f"the machine has {machine.num_accelerators} accelerators, but the plan was made for"
                f" {self.machine.num_accelerators}; place the graph again"
            )
        if machine.device != self.machine.device:
            raise ConfigError(
                f"the machine has accelerators of type {machine.device.name!r}, but the plan's times are for"
                f" {self.machine.device.name!r}; place the graph again"
            )
        if machine.min_kernel_s != self.machine.min_kernel_s:
            raise ConfigError(
                f"machine.min_kernel_time is {machine.min_kernel_time!r}, but the plan's times are for"
                f" {self.machine.min_kernel_time!r}; place the graph again"
            )
        notes = (*(note for note in self.notes if not note.startswith(MAPPING_NOTE)),
                 *mapping_notes(self.strategy, machine))  # fmt: skip
        devices = assign_accelerators(self.strategy, machine).reshape(-1)
        return replace(self, machine=self.software.on(machine), devices=devices, notes=notes)

    def with_mapping(self, mapping: str) -> "Plan":
        """Return this plan with its ranks on other accelerators of its machine."""
        return replace(self, strategy=replace(self.strategy, mapping=mapping)).on(self.machine)

    @cached_property
    def schedules(self) -> dict[tuple[str, str, int], ScheduleKey]:
        """The algorithm of every collective, by (group, name, bytes), on this machine, "auto" resolved."""
        return schedules_of(self, self.volumes)

    @cached_property
    def collectives(self) -> list[dict[str, Any]]:
        """The algorithm of every collective on this machine, by groups, collective and size; see ``collectives_of``."""
        return collectives_of(self.volumes, self.schedules)

    @property
    def volumes(self) -> Volumes:
        """Bytes that the stages send and reduce in one iteration, on any machine."""
        if not self.known_volumes:
            self.known_volumes.append(plan_volumes(self))
        return self.known_volumes[0]

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes exchanged by every pair of accelerators in one iteration, collectives included."""
        return plan_traffic(self, self.volumes, self.schedules)

    @cached_property
    def work_spread(self) -> WorkSpread:
        """How an iteration's compute is spread over the devices."""
        return work_spread(self.stages, np.bincount(self.stage_of, minlength=len(self.stages)).tolist())

    @property
    def traffic_matrix(self) -> np.ndarray:
        """Bytes per iteration, float array (accelerators, accelerators), row = sender."""
        return self.traffic.matrix()

    @property
    def circuit_degree(self) -> int:
        """Most peers that one accelerator sends to, or receives from (MODEL C12)."""
        return self.traffic.circuit_degree

    def fabric_with_circuits(self, seed: int = 0) -> Fabric:
        """Return the machine's fabric as a run of this plan finds it: with circuits for it where it needs them.

        Raises: ConfigError if the fabric cannot hold circuits for all pairs that exchange data.
        """
        fabric = self.machine.fabric
        if not fabric.is_circuit_switched or fabric.circuits is not None:
            return fabric
        if seed not in self._configured:
            self._configured[seed] = fabric.with_circuits(self.traffic, seed=seed)
        return self._configured[seed]

    @property
    def circuits(self) -> Circuits | None:
        """The circuits set for this plan; None on a fabric that switches packets."""
        return self.fabric_with_circuits().circuits

    @cached_property
    def _configured(self) -> dict[int, Fabric]:
        return {}

    def __repr__(self) -> str:
        where = self.machine.fabric.describe()
        batch = f"{self.global_batch:,} samples in micro-batches of {self.micro_batch:,}"
        return f"Plan({self.graph_name!r} as {self.strategy.describe()}, {batch}, on {where})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: who trains what, in which batches, and whether it fits."""
        device, batches = self.machine.device, (self.num_microbatches, self.micro_batch, self.strategy.dp)
        pairs = {
            "strategy": f"{self.strategy.describe()} ({self.strategy.placer})",
            "accelerators": f"{self.num_devices:,} x {device.name}",
            "global batch": "{:,} samples = {} micro-batches x {} x dp {}".format(self.global_batch, *batches),
            "memory": f"{format_size(self.memory_bytes)} of {format_size(device.memory_bytes)} on the fullest device",
            "numerics": f"{self.precision}, {self.optimizer}, cost {self.cost}",
            "notes": "; ".join(self.notes) or None,
        }
        return html_pairs(f"plan: {self.graph_name} on {self.machine.fabric.describe()}", pairs)
