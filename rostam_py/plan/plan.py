"""Plan: what every device of a machine does in one training iteration, and what it sends.

Legend: D = dp, P = pp, T = tp degrees; a rank's coordinates are (dp, pp, tp) = (d, s, t).
All devices of one stage run the same program over the same templates; they differ in their
process groups and pipeline peers. Within a template compute tasks run in list order on the
compute stream, and communication tasks in list order on one stream per axis (MODEL B8).
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fabrics.circuits import Circuits
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.plan.machine import Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.traffic import ScheduleKey, Volumes, plan_traffic, plan_volumes, schedule_of
from rostam_py.units import format_size

TASK_KINDS = ("compute", "collective", "send", "recv")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel inside a compute task. duration_s: [s]. flops: local FLOPs."""

    name: str
    module: str
    op_type: str
    duration_s: float
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a template.

    kind: one of TASK_KINDS. deps: indices of earlier tasks of the same template that must end
        first; a compute task implicitly follows the compute task before it.
    axis: "" for compute; the process group of a collective: "tp", "dp", or "tied<k>" (the k-th
        entry of ``Plan.tied``); "pp" for send and recv between stages, "mp" inside a sip_ml group,
        "mp_gradient" for what goes into gradients there.
    compute: ``kernels`` in order; the task lasts the sum of their durations.
    collective: ``collective`` is a collective's name and ``num_bytes`` as in MODEL A4.
    send / recv: ``tensor`` names the value (unique in sender's and receiver's template),
        ``stage_offset`` the peer's stage minus this one (+1 or -1; any under mp), ``num_bytes`` its size. A recv
        of micro-batch m matches the peer's send of the same tensor and micro-batch.
    """

    kind: str
    name: str
    deps: tuple[int, ...] = ()
    axis: str = ""
    kernels: tuple[KernelTime, ...] = ()
    collective: str = ""
    num_bytes: int = 0
    tensor: str = ""
    stage_offset: int = 0
    is_optimizer: bool = False

    @property
    def duration_s(self) -> float:
        """Duration of a compute task [s]; 0 for communication."""
        return sum(k.duration_s for k in self.kernels)


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Bytes one device of a stage needs at its peak, by what holds them (MODEL D15).

    parameters: trained and frozen weights, and buffers; gradients and optimizer_state are of the trained ones alone.
    activations: what is kept for backward, the model's inputs included.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts [bytes]."""
        return self.parameters + self.gradients + self.optimizer_state + self.activations


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage, or one device of sip_ml's model-parallel groups.

    templates: name -> tasks. Names: "forward", "backward" and "backward_last" (the last micro-batch's backward
        with gradient buckets, the all-reduce of tied weights and, at its end, the optimizer); sip_ml has one,
        "iteration".
    program: (template name, micro-batch) in execution order, one iteration.
    flops: one device's even share of the stage's model FLOPs in one iteration (no recomputation, no
        padding); the devices of a job sum to the model. hardware_flops: what it really computes, with
        recomputation, padding and work that its tp group replicates; without the optimizer.
    """

    index: int
    templates: dict[str, tuple[Task, ...]]
    program: tuple[tuple[str, int], ...]
    memory: MemoryBytes
    num_parameters: int
    modules: tuple[str, ...] = ()
    flops: float = 0.0
    hardware_flops: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A placed training job.

    accelerators: accelerator id of every rank, int array of shape (D, P, T).
    tied: for each set of tied parameters the stages that hold it, in order.
    algorithms: collective name -> algorithm name, as resolved from the strategy.
    notes: replicated ops, unprofiled splits, assumed presets, fused and vanished op counts.
    precision, optimizer: as resolved from the strategy and the model.
    group: of the sip_ml placer, where the sub-ops of a group are.
    known_volumes: ``volumes`` once computed; copies on other machines share it.
    """

    graph_name: str
    machine: Machine
    strategy: Strategy
    global_batch: int
    micro_batch: int
    num_microbatches: int
    stages: tuple[Stage, ...]
    accelerators: np.ndarray
    tied: tuple[tuple[int, ...], ...] = ()
    algorithms: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cost: str = "roofline"
    precision: str = "fp32"
    optimizer: str = "sgd"
    group: Any = None
    known_volumes: list[Volumes] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        fabric = self.machine.fabric
        may_relay = getattr(fabric.config, "relay", False)
        self._check_degree(None if may_relay else fabric.max_circuit_degree, f"{fabric.name} gives it")
        if self.strategy.placer == "sip_ml":
            self._check_degree(self.strategy.max_circuit_degree, "strategy.max_circuit_degree allows it")

    def _check_degree(self, limit: int | None, giver: str) -> None:
        if limit is None or self.circuit_degree <= limit:
            return
        out, into = self.traffic.out_degree(), self.traffic.in_degree()
        worst = int(np.argmax(np.maximum(out, into)))
        raise DegreeError(
            f"accelerator {worst} sends to {out[worst]} and receives from {into[worst]} others, but {giver} {limit}"
            " circuits; lower the degrees of the strategy, choose ring algorithms, or let the fabric relay"
        )

    @property
    def memory_bytes(self) -> int:
        """Memory the fullest device needs [bytes]."""
        return max(stage.memory.total for stage in self.stages)

    def on(self, machine: Machine) -> "Plan":
        """Return this plan on another machine of the same size and accelerator.

        Raises: DegreeError for another number of accelerators; ConfigError for another accelerator.
        """
        from rostam_py.plan.ranks import assign_accelerators

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
        return replace(self, machine=machine, accelerators=assign_accelerators(self.strategy, machine))

    @cached_property
    def schedules(self) -> dict[tuple[str, str, int], ScheduleKey]:
        """What every collective, by (axis, name, bytes), runs on this machine, "auto" resolved."""
        keys = dict.fromkeys((axis, name, size) for axis, _, name, size in self.volumes.collectives)
        return {key: schedule_of(self, *key) for key in keys}

    @property
    def volumes(self) -> Volumes:
        """What the stages send and reduce in one iteration, whatever the machine."""
        if not self.known_volumes:
            self.known_volumes.append(plan_volumes(self))
        return self.known_volumes[0]

    @cached_property
    def traffic(self) -> Traffic:
        """What every pair of accelerators exchanges in one iteration, collectives included."""
        return plan_traffic(self)

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

    def _repr_html_(self) -> str:
        """Return what a notebook shows: who trains what, in which batches, and whether it fits."""
        device, batches = self.machine.device, (self.num_microbatches, self.micro_batch, self.strategy.dp)
        pairs = {
            "strategy": f"{self.strategy.describe()} ({self.strategy.placer})",
            "accelerators": f"{self.accelerators.size:,} x {device.name}",
            "global batch": "{:,} samples = {} micro-batches x {} x dp {}".format(self.global_batch, *batches),
            "memory": f"{format_size(self.memory_bytes)} of {format_size(device.memory_bytes)} on the fullest device",
            "numerics": f"{self.precision}, {self.optimizer}, cost {self.cost}",
            "notes": "; ".join(self.notes) or None,
        }
        return html_pairs(f"plan: {self.graph_name} on {self.machine.fabric.describe()}", pairs)

    def groups(self, axis: str, stage: int | None = None) -> list[np.ndarray]:
        """Return the accelerators of every process group of an axis, in rank order.

        Args: axis: "tp", "dp", "pp" (one whole pipeline a group), "mp" (sip_ml) or "tied<k>" (k indexes ``tied``).
            stage: only the groups that a stage's devices are in.
        """
        ids = self.accelerators
        num_dp, num_pp, num_tp = ids.shape
        stages_of = range(num_pp) if stage is None else [stage]
        if axis == "tp":
            return [ids[d, s, :] for d in range(num_dp) for s in stages_of]
        if axis == "dp":
            return [ids[:, s, t] for s in stages_of for t in range(num_tp)]
        if axis in ("pp", "mp", "mp_gradient"):
            return [ids[d, :, t] for d in range(num_dp) for t in range(num_tp)]
        known = [f"tied{k}" for k in range(len(self.tied))]
        if axis not in known:
            raise ConfigError(f"axis is {axis!r}; it must be one of: {', '.join(['tp', 'pp', 'dp', 'mp', *known])}")
        stages = list(self.tied[known.index(axis)])
        return [ids[d, stages, t] for d in range(num_dp) for t in range(num_tp)]

    def messages(self) -> list["Message"]:
        """Return what one device of every stage communicates in one iteration, equal messages counted."""
        found: Counter[tuple[str, str, tuple[int, ...], int]] = Counter()
        for stage in self.stages:
            runs = Counter(name for name, _ in stage.program)
            for name, count in runs.items():
                for task in stage.templates[name]:
                    if task.kind != "compute":
                        found[_message_key(self, stage.index, task)] += count
        return [Message(*key, count=count) for key, count in found.items()]


@dataclass(frozen=True, slots=True)
class Message:
    """Equal messages of one device of a stage, per iteration.

    kind: the collective's name, "send" or "recv". stages: the stage (tp, dp), the stages of a tied
    group, or (from, to) of a send or recv. num_bytes: of one, as in MODEL A4.
    """

    kind: str
    axis: str
    stages: tuple[int, ...]
    num_bytes: int
    count: int


def _message_key(plan: Plan, stage: int, task: Task) -> tuple[str, str, tuple[int, ...], int]:
    if task.kind == "collective":
        stages: tuple[int, ...] = plan.tied[int(task.axis[4:])] if task.axis.startswith("tied") else (stage,)
        return task.collective, task.axis, stages, task.num_bytes
    peer = stage + task.stage_offset
    return task.kind, task.axis, (stage, peer) if task.kind == "send" else (peer, stage), task.num_bytes
