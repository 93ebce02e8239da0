"""TemplateWriter: append the tasks of one template in execution order.

Compute is fused between communication points: a segment ends where a collective, a send or a full
gradient bucket needs what it has just produced, and a new one begins where a kernel needs a message that
no earlier segment awaited. What does not need a message in flight overlaps with it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rostam_py.collectives.row_exchanges import DISPATCHERS, HYBRIDEP
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.expert_hops import ExpertHops, Hop
from rostam_py.placement.experts import DISPATCH
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernel_work import NO_WORK
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.context_parallel import ContextExchange
from rostam_py.placement.megatron.gradients import ALL_DATA
from rostam_py.placement.megatron.offload import Offload
from rostam_py.placement.megatron.op_steps import OpStep
from rostam_py.placement.megatron.pipeline import StageAssignment
from rostam_py.placement.megatron.weight_units import WeightUnits
from rostam_py.placement.sharding import Gather, HaloExchange, Sharding
from rostam_py.plan.fusion import MODULES
from rostam_py.plan.gradient_buffers import GRADIENT_BUFFERS, NO_BUFFER, GradientBuffer
from rostam_py.plan.phases import FORWARD, WEIGHT
from rostam_py.plan.state_sharding import StateSharding
from rostam_py.plan.strategy import DTENSOR, MCORE
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.software.product_inputs import sent_width

# Bytes of an expert's place in HybridEP's maps: whether a token goes there, and where its row lies.
_MAP_BYTES, _PLACE_BYTES = 1, 4


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


class TemplateWriter:
    """Append kernels and messages in execution order; ``tasks`` is the template.

    Args: adds_gradients: kernels add gradients of parameters to what is there.
    """

    def __init__(self, context: TemplateContext, phase: str, adds_gradients: bool = False) -> None:
        self.context, self.phase, self.adds_gradients = context, phase, adds_gradients
        self.tasks: list[Task] = []
        self._segment: list[KernelTime] = []
        self._segment_deps: set[int] = set()
        self._provider: dict[int, int] = {}  # tensor -> task that makes it available
        self._gathers: dict[tuple[Gather, bool], int] = {}  # (gather, whether for a replay) -> its task
        self._halos: dict[int, int] = {}  # tensor -> task after which a member has its halo
        self._beside: dict[int, int] = {}  # message -> one that runs at the same time, for the same tensors
        self._awaited: set[int] = set()  # messages that some segment waits for already
        self.work = NO_WORK

    def receive(self, tensor: int, num_bytes: int, offset: int, boundary: int | None = None) -> None:
        """Receive a tensor from the device at ``offset``. Args: boundary: that it crosses, where that is not clear."""
        name, label = f"recv {self._origin(tensor)}", self._channel(tensor, boundary)
        task = Task(kind="recv", name=name, group="pp", num_bytes=num_bytes, channel=label, peer=offset)
        self._provider[tensor] = self._append(task)

    def send(self, tensor: int, num_bytes: int, offset: int, boundary: int | None = None) -> None:
        """Send a tensor to the device at ``offset`` as soon as it is ready. Args: boundary: as of ``receive``."""
        name, label = f"send {self._origin(tensor)}", self._channel(tensor, boundary)
        self._append(
            Task(
                kind="send",
                name=name,
                deps=self._deps_on([tensor]),
                group="pp",
                num_bytes=num_bytes,
                channel=label,
                peer=offset,
            )
        )

    def gather_received(self, tensor: int, num_bytes: int) -> None:
        """Gather a tensor of which each member of the tp group has received its share."""
        name = f"all_gather {self._origin(tensor)} {self.phase} (received)"
        self._provider[tensor] = self.collective(name, "tp", "all_gather", num_bytes, (self._provider[tensor],))

    def await_sends(self) -> None:
        """Let whatever the device computes next wait until this template's messages have been delivered."""
        self.close()
        sends = tuple(t for t, task in enumerate(self.tasks) if task.kind == "send")
        if sends:
            self.tasks.append(Task(kind="compute", name=f"{self.phase} is sent", deps=sends))

    def find_ready(self, tensors: Iterable[int]) -> None:
        """Note that templates before this one, of the same device, have made the tensors.

        They are ready when its compute stream comes to this template: a task without kernels, the first one, says when.
        """
        found = dict.fromkeys(tensors, 0)
        if found and not self.tasks:
            self.tasks.append(Task(kind="compute", name=f"{self.phase} begins"))
        self._provider.update(found)

    def _multiprocessors(self, group: str, kind: str) -> int:
        """Return what a collective holds of a device where its code is not NCCL's, 0 where it is."""
        hops = self.context.hops.hops
        if kind == "all_to_all" and any(hop.group == group for hop in hops):
            return DISPATCHERS[self.context.dispatcher].multiprocessors // len(hops)
        return 0

    def collective(self, name: str, group: str, kind: str, num_bytes: int, deps: tuple[int, ...]) -> int:
        """Append a collective and return its index.

        Model: PyTorch's own wait for what was launched before them, whatever they send
            (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: syncStream), and compiled code waits for them at once.
        """
        if self.context.tp_style == DTENSOR and group in self.context.sharding.groups:
            deps = tuple(sorted({*deps, *self.behind_compute()}))
        task = self.message(name, group, kind, num_bytes, deps)
        if group in self.context.sharding.groups and not self.context.is_tp_asynchronous:
            self._segment_deps.add(task)
            self._awaited.add(task)
        return task

    def message(self, name: str, group: str, kind: str, num_bytes: int, deps: tuple[int, ...]) -> int:
        """Append a collective that kernels wait for where they read what it brings alone, and return its index."""
        held = self._multiprocessors(group, kind)
        return self._append(
            Task(
                kind="collective",
                name=name,
                deps=deps,
                group=group,
                collective=kind,
                num_bytes=num_bytes,
                multiprocessors=held,
            )
        )

    def run(self, kernel: Kernel, is_replay: bool = False) -> None:
        """Run a kernel, then the collectives its outputs ask for."""
        graph, sharding = self.context.graph, self.context.sharding
        self._agree_on_largest(kernel)
        self._begin(kernel, is_replay)
        if self.context.tp_style == MCORE:
            for gather in _listed(sharding.gathers_again, kernel):
                self._gather(gather, (gather.tensor, *kernel.inputs), is_replay)
        missing = (gather for gather in _listed(sharding.gathers, kernel) if not self._is_kept(gather))
        gathered = [self._gather(gather, (gather.tensor,), is_replay) for gather in missing]
        steps = [] if self.context.exchange is None else self.context.exchange.steps(kernel)
        if kernel.is_view:
            known = gathered + [self._provider[t] for t in kernel.inputs if t in self._provider]
            if not known:
                return
            self._provider.update(dict.fromkeys(kernel.outputs, max(known)))
        else:
            halos = [self._halo(halo) for index in kernel.ops for halo in sharding.halo_exchanges(index)]
            if steps:
                self._await((), gathered)
                self._append_casts(kernel)
                self._run_steps(kernel, steps)
            else:
                self._append_kernel(kernel, halos, gathered)
                self._provider.update(dict.fromkeys(kernel.outputs, len(self.tasks)))
            self.work += kernel.work.again if is_replay else kernel.work
        for index in kernel.ops:
            for comm, size in sharding.inner_comms(index):
                op = graph.ops[index]
                name = f"{comm.kind} {op.module or op.name} {self.phase} (inside the op)"
                deps = self._deps_on(kernel.outputs)
                task = self.collective(name, comm.group, comm.kind, math.ceil(size), deps)
                self._provider.update(dict.fromkeys(kernel.outputs, task))
        exchanged = self.context.builder.experts.exchanged
        for t in kernel.outputs:
            is_first = self._is_gathered_behind_dispatch(t)
            if is_first:
                self._exchange_rows(t)
            if t in sharding.comms and t not in self.context.late:
                self.make_whole(t)
            if t in exchanged and not is_first:
                self._exchange_rows(t)

    def _is_gathered_behind_dispatch(self, tensor: int) -> bool:
        """Tell whether a tensor is a member's own rows, which members gather where their experts are."""
        comms = self.context.sharding.comms.get(tensor, ())
        kind = self.context.builder.experts.exchanged.get(tensor)
        return kind == DISPATCH and any(comm.kind == "all_gather" for comm in comms)

    def _gather(self, gather: Gather, behind: tuple[int, ...], is_replay: bool) -> int:
        """Gather a tensor behind others unless that is done, and return the task that brings it."""
        key = self._key(gather, is_replay)
        if key not in self._gathers:
            context = self.context
            size = math.ceil(self._gathered_bytes(gather, context.sharding.gathered_fraction(gather)))
            name = f"all_gather {self._origin(gather.tensor)} {self.phase}"
            group = context.sharding.group(gather.levels)
            self._gathers[key] = self.collective(name, group, "all_gather", size, self._deps_on(behind))
            if context.tp_style == DTENSOR:
                self._await((), [self._gathers[key]])
                self._gathers[key] = self._move(gather.tensor, "copied together", size, size)
        return self._gathers[key]

    def _gathered_bytes(self, gather: Gather, share: float) -> float:
        """Return the bytes of a share of what a collective gathers."""
        return self.context.builder.gathered_bytes(gather, share)

    def _key(self, gather: Gather, is_replay: bool) -> tuple[Gather, bool]:
        """Return what tells gathers apart: what a replay has gathered serves weight gradients as well in PyTorch."""
        return gather, is_replay and self.context.tp_style == MCORE

    def _is_kept(self, gather: Gather) -> bool:
        """Tell whether what is gathered lies there since forward."""
        return self.phase != FORWARD and gather.tensor in self.context.kept_whole

    def _move(self, tensor: int, what: str, read: float, written: float) -> int:
        """Append a kernel that moves a tensor; return the task that it will be part of."""
        producer = self.context.graph.tensors[tensor].producer
        op = self.context.graph.ops[0 if producer is None else producer]
        self._segment.append(self.context.builder.moved(op, what, read, written))
        return len(self.tasks)

    def _run_steps(self, kernel: Kernel, steps: list[OpStep]) -> None:
        """Append the steps of an op in their order."""
        ends: list[int] = []
        for step in steps:
            needed = {ends[place] for place in step.after}
            if step.time is not None:
                self._await(step.reads, sorted(needed))
                self._segment.append(step.time)
                ends.append(len(self.tasks))
            else:
                if len(self.tasks) in needed:
                    self.close()
                deps = tuple(sorted({*needed, *self._deps_on(step.reads)}))
                name = f"{step.name} {kernel.time.module or kernel.time.name} {self.phase}"
                ends.append(self.collective(name, step.group, step.collective, step.num_bytes, deps))
            self._provider.update(dict.fromkeys(step.makes, ends[-1]))

    def _append_kernel(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        """Append a kernel behind what it reads, and what adds the gradients that it makes to those before."""
        self._append_parts(kernel, halos, gathered)
        if self.adds_gradients:
            self._segment.extend(kernel.adds)

    def _append_parts(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        """Append a kernel behind what it reads; if it is several, what needs no halo during the exchange.

        Each lasts at least as long as the shortest kernel does, else all of it waits.
        """
        self._await((), gathered)
        self._append_casts(kernel)
        share = 1.0
        if halos and self.context.is_tp_asynchronous:
            share = self.context.sharding.waiting_share(self.context.graph.ops[kernel.ops[0]])
        time = self._time_of(kernel)
        if share == 1 or time.duration_s * min(share, 1 - share) < self.context.min_kernel_s:
            self._await(kernel.inputs, halos)
            self._segment.append(time)
            return
        free, waiting = portion(time, 1 - share, "without halo"), portion(time, share, "with halo")
        self._await(kernel.inputs, [])
        self._segment.append(free)
        self._await((), halos)
        self._segment.append(waiting)

    def _append_casts(self, kernel: Kernel) -> None:
        """Append the casts of what a kernel is the first to read."""
        if kernel.casts:
            self._await(kernel.inputs, [])
            self._segment.extend(kernel.casts)

    def _begin(self, kernel: Kernel, is_replay: bool) -> None:
        """Do what a kernel begins with in front of what it gathers: nothing here."""

    def _agree_on_largest(self, kernel: Kernel) -> None:
        """Let members agree on the largest values of what a kernel's inputs are cast by, as DTensors do."""
        is_of_dtensors = bool(kernel.largest) and self.context.tp_style == DTENSOR
        for group in self.context.sharding.groups if is_of_dtensors else ():
            for size in kernel.largest:
                name = f"all_reduce largest of {kernel.time.module or kernel.time.name} {self.phase}"
                self.collective(name, group, "all_reduce", size, self._deps_on(kernel.inputs))

    def _time_of(self, kernel: Kernel) -> KernelTime:
        """Return a kernel's time, with what adding gradients to those that are there takes."""
        return kernel.adding_time if self.adds_gradients and kernel.adding_time is not None else kernel.time

    def _halo(self, halo: HaloExchange) -> int:
        """Exchange a halo unless that is done, and return the task that brings it: the same both ways, then the rest.

        The first and the last member exchange with one neighbour.
        """
        if halo.tensor not in self._halos:
            deps = self._deps_on([halo.tensor])
            name = f"halo {self._origin(halo.tensor)} {self.phase}"
            before, after = (
                math.ceil(self.context.builder.part_bytes(halo.tensor, share) - 1e-6)
                for share in (halo.before, halo.after)
            )
            both, rest = min(before, after), before - after
            messages = (("halo", 2 * both), ("halo_up", max(0, rest)), ("halo_down", max(0, -rest)))
            for kind, size in messages:
                if size:
                    self._halos[halo.tensor] = self.collective(name, halo.group, kind, size, deps)
        return self._halos[halo.tensor]

    def make_whole(self, tensor: int) -> None:
        """Start the collectives that make a tensor whole."""
        whole = self.context.builder.part_bytes(tensor, self.context.sharding.collective_fraction(tensor))
        size = math.ceil(whole * self._rows_sent(tensor) - 1e-6)
        for comm in self.context.sharding.comms[tensor]:
            if comm.kind == "reduce_scatter" and self._is_copied_apart(tensor):
                self._await((tensor,), [])
                self._provider[tensor] = self._move(tensor, "copied apart", size, size)
            deps = self._deps_on([tensor])
            name = f"{comm.kind} {self._origin(tensor)} {self.phase}"
            self._provider[tensor] = self.collective(name, comm.group, comm.kind, size, deps)

    def _is_copied_apart(self, tensor: int) -> bool:
        """Tell whether a kernel of its own copies what is reduce-scattered along sequences inside the batch.

        Model: where kernels are fused, one that makes it element by element writes it so.
        """
        if self.context.tp_style != DTENSOR:
            return False
        producer = self.context.graph.tensors[tensor].producer
        op = None if producer is None else self.context.graph.ops[producer]
        return op is None or not (op.is_elementwise and self.context.builder.rules.is_fused(op))

    def _exchange_rows(self, tensor: int) -> None:
        """Send rows to the ranks of their experts, or back; vectors of tables once all of them are there."""
        builder = self.context.builder
        bundle = builder.experts.bundle(tensor)
        if not all(t in self._provider for t in bundle):
            return
        self._prepare_rows(tensor)
        deps = self._deps_on(bundle)
        is_whole = tensor in self.context.sharding.comms and not self._is_gathered_behind_dispatch(tensor)
        size = math.ceil(builder.tensor_bytes(tensor, is_whole) * self._rows_sent(tensor) - 1e-6)
        name = f"{builder.experts.exchanged[tensor]} {self._origin(tensor)} {self.phase}"
        if steps := builder.experts.steps(tensor):
            for group, kind, share in steps:
                task = self.collective(f"{name}, {kind}", group, kind, math.ceil(size * share - 1e-6), deps)
                deps = (task,)
            self._provider.update(dict.fromkeys(bundle, deps[0]))
            return
        hops = self.context.hops.hops or (Hop(builder.experts.group, 1.0),)
        tasks = [
            self.collective(name, hop.group, "all_to_all", math.ceil(size * hop.share - 1e-6), deps) for hop in hops
        ]
        if self._follows_routing(tensor):
            self.tasks[tasks[0]] = replace(self.tasks[tasks[0]], is_routed=True)
        task = tasks[-1]
        if len(tasks) > 1:
            self._beside[task] = tasks[0]
        self._provider.update(dict.fromkeys(bundle, task))

    def _prepare_rows(self, tensor: int) -> None:
        """Append what HybridEP does in front of a dispatch of rows, as Megatron-Core calls it.

        Model: behind a router each rank gathers which tokens of all others go to which experts, a byte for each pair,
            reads that for where tokens go and which of its experts they have, and numbers the rows; backward knows
            that. Tokens that cross to other servers are copied to a buffer first. Kernels take what their bytes do.
            Ignored: the same of rows' weights, and DeepEP's exchange of counts.
        Source: metadata_preprocess_core and dispatch_preprocess of deepseek-ai/DeepEP,
            csrc/hybrid_ep/executor/executor.cu, permute_processing in extension/permute.cu; dispatch_with_permute in
            deep_ep/hybrid_ep_buffer.py.
        """
        builder, hops = self.context.builder, self.context.hops
        shape = self.context.graph.tensors[tensor].shape
        are_rows = len(shape) > 1 and shape[-1].at(1) > 1 and builder.experts.exchanged[tensor] == DISPATCH
        if not (hops.hops and are_rows and builder.rules.fusion == MODULES and self.context.dispatcher == HYBRIDEP):
            return
        if self._follows_routing(tensor):
            tokens = builder.num_elements(tensor) / shape[-1].at(1) / hops.per_token
            degree = builder.experts.degree
            maps, own = tokens * degree * hops.num_experts, hops.num_experts / degree
            deps = self._deps_on([tensor])
            name = f"all_gather routing of {self._origin(tensor)} {self.phase}"
            task = self.collective(name, builder.experts.group, "all_gather", math.ceil(maps * _MAP_BYTES - 1e-6), deps)
            self._await((tensor,), [task])
            read, places = maps * _MAP_BYTES, tokens * degree * _PLACE_BYTES
            self._move(tensor, "routing read", read, maps / degree * _MAP_BYTES + places)
            numbers = tokens * hops.num_ranks * own
            self._provider[tensor] = self._move(
                tensor, "rows numbered", numbers * (_MAP_BYTES + _PLACE_BYTES), 2 * numbers * _PLACE_BYTES
            )
        if hops.spans_servers:
            size = builder.tensor_bytes(tensor) / hops.per_token
            self._await((tensor,), [])
            self._provider[tensor] = self._move(tensor, "copied to be sent", size, size)

    def _follows_routing(self, tensor: int) -> bool:
        """Tell whether a router has just decided how many of these rows each expert gets; backward knows that."""
        producer = self.context.graph.tensors[tensor].producer
        is_forward = producer is not None and self.context.graph.ops[producer].phase == "forward"
        return is_forward and tensor in self.context.builder.experts.multiplied

    def _rows_sent(self, tensor: int) -> float:
        """Return what of a tensor of rows is sent: the busiest rank's, narrow where products read them so."""
        builder = self.context.builder
        experts = builder.experts
        if tensor not in experts.exchanged:
            return 1.0
        is_narrow = self.context.sends_narrow and tensor in experts.multiplied
        return experts.sent(tensor) * (sent_width(builder.rules.precision) if is_narrow else 1.0)

    def _await(self, tensors: tuple[int, ...], tasks: list[int]) -> None:
        """Open a new segment if a message is needed, for a tensor or as such, that no segment waits for yet."""
        needed = self._with_beside({self._provider[t] for t in tensors if t in self._provider} | set(tasks))
        needed = {i for i in needed if i < len(self.tasks) and self.tasks[i].kind != "compute"} - self._awaited
        if needed:
            self.close()
            self._segment_deps |= needed
            self._awaited |= needed

    def _deps_on(self, tensors: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        """Return the tasks that make the tensors available, closing the open segment if it is one."""
        providers = self._with_beside({self._provider[t] for t in tensors if t in self._provider})
        if len(self.tasks) in providers:
            self.close()
        return tuple(sorted(providers))

    def _with_beside(self, tasks: set[int]) -> set[int]:
        return tasks | {self._beside[task] for task in tasks if task in self._beside}

    def wait(self, time: KernelTime) -> None:
        """Append what no op of the graph does."""
        self._segment.append(time)

    @property
    def num_kernels(self) -> int:
        """How many kernels have been written."""
        return sum(len(task.kernels) for task in self.tasks) + len(self._segment)

    def close(self) -> None:
        """End the open compute segment."""
        if not self._segment:
            return
        first, last = (kernel.module or "model" for kernel in (self._segment[0], self._segment[-1]))
        name = f"{self.phase} {first}" + (f" to {last}" if last != first else "")
        task = Task(kind="compute", name=name, deps=tuple(sorted(self._segment_deps)), kernels=tuple(self._segment))
        self._segment, self._segment_deps = [], set()
        self.tasks.append(task)

    def _append(self, task: Task) -> int:
        self.close()
        self.tasks.append(task)
        return len(self.tasks) - 1

    def available_from(self, tensors: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tasks that end when the tensors are ready (public form for gradient buckets)."""
        return self._deps_on(tensors)

    def behind_compute(self) -> tuple[int, ...]:
        """Return the latest compute task, closing the open segment."""
        self.close()
        found = next((k for k in range(len(self.tasks) - 1, -1, -1) if self.tasks[k].kind == "compute"), None)
        return () if found is None else (found,)

    def await_tasks(self, tasks: list[int]) -> None:
        """Let what follows wait for messages."""
        self._await((), tasks)

    def _origin(self, tensor: int) -> str:
        """Return the module that makes a tensor, for readers."""
        producer = self.context.graph.tensors[tensor].producer
        return "inputs" if producer is None else self.context.graph.ops[producer].module or "model"

    def _channel(self, tensor: int, boundary: int | None) -> str:
        producer = self.context.graph.tensors[tensor].producer
        label = f"t{tensor}" if producer is None else f"{self.context.graph.ops[producer].name}.t{tensor}"
        return label if boundary is None else f"{label} over boundary {boundary}"


def _listed(by_op: Mapping[int, tuple[Gather, ...]], kernel: Kernel) -> list[Gather]:
    return [gather for op in kernel.ops for gather in by_op.get(op, ())] if by_op else []


def portion(time: KernelTime, share: float, which: str) -> KernelTime:
    """Return a part of a kernel's time and work."""
    return replace(time, name=f"{time.name} ({which})", duration_s=time.duration_s * share, flops=time.flops * share)
