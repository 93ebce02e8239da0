"""TemplateContext: what all templates of a plan share, for those who write them and those who ask what they hold.

Example:
    context = TemplateContext(graph=graph, sharding=sharding, stages=stages, kernels=kernels, builder=builder)
    context.phase_of(graph.ops[0])             # "forward"
"""

from dataclasses import dataclass, field

from rostam_py.collectives.row_exchanges import HYBRIDEP
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.experts.hops import ExpertHops
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.context_parallel import ContextExchange
from rostam_py.placement.megatron.gradients import ALL_DATA
from rostam_py.placement.megatron.offload import Offload
from rostam_py.placement.megatron.pipeline import StageAssignment
from rostam_py.placement.megatron.weight_units import WeightUnits
from rostam_py.placement.sharding import Sharding
from rostam_py.plan.gradient_buffers import GRADIENT_BUFFERS, NO_BUFFER, GradientBuffer
from rostam_py.plan.phases import WEIGHT
from rostam_py.plan.program_rules import MCORE
from rostam_py.plan.state_sharding import StateSharding


@dataclass(slots=True, kw_only=True)
class TemplateContext:
    """What all templates of a plan share."""

    graph: OperatorGraph
    sharding: Sharding
    stages: StageAssignment
    kernels: list[Kernel]
    builder: KernelBuilder
    replays: dict[int, list[int]] = field(default_factory=dict)  # kernel -> kernels replayed before it
    bucket_bytes: int = 0  # 0: no data parallelism
    is_tp_asynchronous: bool = True  # False: what follows a tp collective in program order waits for it
    min_kernel_s: float = 0.0  # of the machine
    states: dict[str, StateSharding] = field(default_factory=lambda: {ALL_DATA: StateSharding()})  # by replicas
    units: dict[int, WeightUnits] = field(default_factory=dict)  # stage -> what is gathered together (ZeRO 3)
    exchange: ContextExchange | None = None  # of ranks that share a sequence
    tp_style: str = MCORE
    kept_whole: frozenset[int] = frozenset()  # forward tensors that are kept as they were gathered
    is_tp_overlapped: bool = False  # products run in parts, overlapped with their tp group's ring (ring_writer)
    weight_ops: frozenset[int] = frozenset()  # backward ops that run in templates of their own
    late: frozenset[int] = frozenset()  # tensors of the backward that are made whole there
    hops: ExpertHops = field(default_factory=ExpertHops)  # of rows of experts that cross to a server once
    offload: Offload = field(default_factory=Offload)  # activations that lie in the host's memory
    gradient_buffer: GradientBuffer = GRADIENT_BUFFERS[NO_BUFFER]  # passes over gradients before they are reduced
    overlaps_reductions: bool = True  # False: gradients are reduced behind a device's last backward
    overlaps_messages: bool = True  # False: a template ends with its last message's delivery
    splits_messages: bool = False  # members of a tp group send shares of what all of them hold
    sends_narrow: bool = False  # rows go to their experts as products read them
    dispatcher: str = HYBRIDEP  # whose exchanges hops are
    dispatcher_multiprocessors: int | None = None  # that they hold, instead of the library's own
    multiprocessors: int = 0  # of a device, where a collective that runs takes some of them from kernels
    first_bucket_bytes: int = 0  # of an iteration's first bucket
    kernels_by_stage: dict[tuple[int, str], list[int]] = field(default_factory=dict)  # filled when first asked for
    steps: dict[tuple[int, str], list[tuple[Kernel, bool]]] = field(default_factory=dict)  # likewise, of templates

    @property
    def state(self) -> StateSharding:
        """How state is shared, except that of experts."""
        return self.states[ALL_DATA]

    def shares_state(self, replicas: str) -> bool:
        """Return whether replicas that hold the same weights share their state; "" stands for a single one."""
        return bool(replicas and self.states[replicas].level)

    def phase_of(self, op: Op) -> str:
        """Return the phase in whose templates an op runs."""
        return WEIGHT if op.id in self.weight_ops else op.phase
