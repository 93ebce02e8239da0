"""Plan: what every device of a machine does in one training iteration, and what it sends.

Legend: D = dp, P = pp, T = tp degrees; a rank's coordinates are (dp, pp, tp) = (d, s, t).
All devices of one stage run the same program over the same templates; they differ in their
process groups and pipeline peers. Within a template compute tasks run in list order on the
compute stream, and communication tasks in list order on one stream per axis (MODEL B8).
"""

from dataclasses import dataclass, field

import numpy as np

from rostam_py.placement.machine import Machine
from rostam_py.placement.strategy import Strategy

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
        entry of ``Plan.tied``); "pp" for send and recv.
    compute: ``kernels`` in order; the task lasts the sum of their durations.
    collective: ``collective`` is a collective's name and ``num_bytes`` as in MODEL A4.
    send / recv: ``tensor`` names the value (unique in sender's and receiver's template),
        ``stage_offset`` the peer's stage minus this one (+1 or -1), ``num_bytes`` its size. A recv
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
    """Bytes one device of a stage needs at its peak, by what holds them (MODEL D15)."""

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
    """One pipeline stage.

    templates: name -> tasks. Names: "forward", "backward" and "backward_last" (the last micro-batch's
        backward with gradient buckets, the all-reduce of tied weights and, at its end, the optimizer).
    program: (template name, micro-batch) in execution order, one iteration.
    flops: model FLOPs one device computes in one iteration (no recomputation); hardware_flops: with.
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
