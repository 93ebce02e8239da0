"""Tasks, templates and what a class of alike devices runs: data only.

Within a template compute tasks run in list order on the compute stream, and communication tasks in list order on one
stream for each process group; sends have a stream for each peer (MODEL B8). Tasks that name a stream are on that one.
"""

from dataclasses import dataclass, field, replace

from rostam_py.costs.families import op_family
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.power import watts_of
from rostam_py.plan.program import Program

TASK_KINDS = ("compute", "collective", "send", "recv")
COMPUTE_STREAM = "compute"  # what the stream of kernels is called


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kernel inside a compute task.

    duration_s: [s]. flops: local FLOPs. role: its main op's, of graph.ROLES. call, cost: what was timed, and by which
    cost model; None for kernels of a plan that was read from a file, and for views. launches: how many kernels stand
    for it in code that launches each expert's product, and each pass of a cast, by itself; calls: the module whose code
    runs in front of it, of plan.host_calls.MEGATRON_CORE, "" for none. stretch: its duration over what
    its cost model says, where it does not have the device by itself, or not at the clock that it was timed at. watts:
    what it draws above an idle device while it runs [W], 0 where unknown.
    """

    name: str
    module: str
    op_type: str
    duration_s: float
    flops: float = 0.0
    role: str = ""
    call: KernelCall | None = field(default=None, compare=False, repr=False)
    cost: CostModel | None = field(default=None, compare=False, repr=False)
    launches: int = 1
    calls: str = ""
    stretch: float = field(default=1.0, compare=False, repr=False)
    watts: float = 0.0

    @classmethod
    def of(
        cls, cost: CostModel, call: KernelCall, name: str = "", launches: int = 1, calls: str = "", *, module: str = ""
    ) -> "KernelTime":
        """Return a kernel as a cost model times it. Args: name, module: by default its main op's; see the class."""
        main, seconds = call.ops[0], cost.duration_s(call)
        return cls(
            name=name or main.name, module=module or main.module, op_type=main.op_type, duration_s=seconds,
            flops=call.flops, role=main.role, call=call, cost=cost, launches=launches, calls=calls,
            watts=watts_of(cost, call),
        )  # fmt: skip

    def stretched(self, factor: float) -> "KernelTime":
        """Return the kernel, ``factor`` times as long, on the same energy above idle."""
        return replace(
            self, duration_s=self.duration_s * factor, stretch=self.stretch * factor, watts=self.watts / factor
        )

    def lasting(self, seconds: float) -> "KernelTime":
        """Return the kernel with another duration [s] and the same energy above idle."""
        return replace(self, duration_s=seconds, watts=self.watts * self.duration_s / seconds if seconds else 0.0)

    @property
    def family(self) -> str:
        """The family of its main op, one of ``costs.families.FAMILIES``, ``HOST_COPY`` or ``UNNAMED``."""
        return op_family(self.op_type, self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of a template.

    kind: one of TASK_KINDS. deps: indices of earlier tasks of the same template that must end
        first; a compute task implicitly follows the compute task before it.
    group: "" for compute; else the label of the GroupSet it communicates in.
    stream: first-in first-out queue, by default COMPUTE_STREAM of compute, the group's own of communication.
    compute: ``kernels`` in order; the task lasts the sum of their durations.
    collective: ``collective`` is a collective's name and ``num_bytes`` as in MODEL A4.
    send / recv: ``channel`` names the value (unique in sender's and receiver's template), ``peer`` the other end's
        rank in the group minus the own rank, ``num_bytes`` its size. A recv of micro-batch m matches the peer's send
        on the same channel and micro-batch.
    multiprocessors: of a device's that a collective holds while it runs, where its code is not NCCL's; 0: NCCL's
        channels.
    is_routed: it sends rows to their experts, as many to each as chose it, which its host reads (host_sync).
    is_awaited: of compute, its host waits for what it waits for before it launches it and what follows.
    is_mark: compute of no kernels, a point of its stream that nothing launches; with a group one of the order of its
        collectives.
    """

    kind: str
    name: str
    deps: tuple[int, ...] = ()
    group: str = ""
    kernels: tuple[KernelTime, ...] = ()
    collective: str = ""
    num_bytes: int = 0
    channel: str = ""
    peer: int = 0
    stream: str = ""
    is_optimizer: bool = False
    is_routed: bool = False
    multiprocessors: int = 0
    is_awaited: bool = False
    is_mark: bool = False

    @property
    def duration_s(self) -> float:
        """Duration of a compute task [s]; 0 for communication."""
        return sum(k.duration_s for k in self.kernels)


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Bytes one device of a stage needs at its peak, by what holds them (MODEL D15).

    parameters: trained and frozen weights, and buffers; gradients and optimizer_state are of the trained ones alone.
    activations: what is kept for backward, the model's inputs included.
    gathered: whole weights, and the whole gradients not yet reduced, of units that share them otherwise (ZeRO 3): what
        they add to the peak. staying: such weights that are whole all the time.
    reserved: what an allocator holds besides all that (software.rules.allocator).
    user_buffers: that tensor parallelism communicates through (software.rules.tp_overlap).
    messages: of all micro-batches, what a stage receives and gives (software.rules.pipeline_buffers).
    """

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    gathered: int = 0
    staying: int = 0
    reserved: int = 0
    user_buffers: int = 0
    messages: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts [bytes]."""
        return sum(getattr(self, part) for part in MEMORY_PARTS)


# Part of MemoryBytes -> its name for readers.
MEMORY_PARTS = {
    "parameters": "parameters", "gradients": "gradients", "optimizer_state": "optimizer state",
    "activations": "activations", "gathered": "gathered weights", "staying": "weights that stay gathered",
    "reserved": "additional memory of the allocator", "user_buffers": "user buffers",
    "messages": "messages of all micro-batches",
}  # fmt: skip
RARE_PARTS = ("gathered", "staying", "reserved", "user_buffers", "messages")  # of those what few strategies have


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Stage:
    """What the devices of one class run: a pipeline stage, or one device of sip_ml's model-parallel groups.

    templates: name -> tasks. Names: "forward", "backward" and "backward_last" (the last micro-batch's backward
        with gradient buckets, the all-reduce of tied weights and, at its end, the optimizer); "forward_first" is the
        first micro-batch's forward where it gathers updated weights; sip_ml has one, "iteration".
    program: one iteration; given as (template, micro-batch) pairs it is made a Program.
    memory: of one device.
    flops: one device's even share of the stage's model FLOPs in one iteration (no recomputation, no
        padding), attention whole; the devices of a job sum to the model. causal_flops: of those half of attention's
        where its mask is causal, None where that is not known. hardware_flops: what its kernels run, with
        recomputation, padding and work that its tp group replicates, less what they leave out of attention under a
        causal mask; without the optimizer.
    activation_changes: template -> bytes of activations that its begin and its end add; empty where they are not told
        apart in time.
    gathered_changes: template -> (kernels of it that have ended, bytes that are then added), in order: gathered
        weights, and gradients of theirs, as they come and go (ZeRO 3). What a forward keeps is there once, however
        many micro-batches are under way.
    """

    index: int
    templates: dict[str, tuple[Task, ...]]
    program: Program
    memory: MemoryBytes
    num_parameters: int
    modules: tuple[str, ...] = ()
    flops: float = 0.0
    causal_flops: float | None = None
    hardware_flops: float = 0.0
    activation_changes: dict[str, tuple[float, float]] = field(default_factory=dict)
    gathered_changes: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        tasks = ", ".join(f"{name} of {len(found):,} tasks" for name, found in self.templates.items())
        return f"Stage({self.index}: {self.num_parameters:,} parameters; {tasks})"

    def __post_init__(self) -> None:
        if not isinstance(self.program, Program):
            object.__setattr__(self, "program", Program.of(self.program))
