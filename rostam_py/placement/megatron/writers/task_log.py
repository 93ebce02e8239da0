"""TaskLog: the tasks of one template in execution order, and which of them makes each tensor available.

Compute is fused between communication points: a segment ends where a collective, a send or a full
gradient bucket needs what it has just produced, and a new one begins where a kernel needs a message that
no earlier segment awaited. What does not need a message in flight overlaps with it.

Example:
    log = TaskLog(context, "forward")
    log.add(kernel.time)                       # into the open segment
    log.provide(kernel.outputs, log.open_task)
    log.provide([t], log.collective("all_reduce of t", "tp", "all_reduce", size, log.deps_on([t])))
"""

from collections.abc import Iterable, Mapping

from rostam_py.collectives.row_exchanges import DISPATCHERS
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.plan.program_rules import DTENSOR
from rostam_py.plan.tasks import KernelTime, Task


class TaskLog:
    """Append kernels and messages in execution order; ``tasks`` is the template.

    Attributes:
        provider: tensor -> task that makes it available.
        beside: message -> one that runs at the same time, for the same tensors.
        held: kind -> multiprocessors that a tp group's collectives hold; none where their code is NCCL's.
    """

    def __init__(self, context: TemplateContext, phase: str) -> None:
        self.context, self.phase = context, phase
        self.tasks: list[Task] = []
        self.provider: dict[int, int] = {}
        self.beside: dict[int, int] = {}
        self.held: Mapping[str, int] = {}
        self._segment: list[KernelTime] = []
        self._segment_deps: set[int] = set()
        self._awaited: set[int] = set()  # messages that some segment waits for already

    def add(self, *times: KernelTime) -> None:
        """Append kernels to the open segment."""
        self._segment.extend(times)

    def move(self, tensor: int, what: str, read: float, written: float) -> int:
        """Append a kernel that moves a tensor; return the task that it will be part of."""
        producer = self.context.graph.tensors[tensor].producer
        op = self.context.graph.ops[0 if producer is None else producer]
        self._segment.append(self.context.builder.moved(op, what, read, written))
        return self.open_task

    def append(self, task: Task) -> int:
        """End the open segment, append a task and return its index."""
        self.close()
        self.tasks.append(task)
        return len(self.tasks) - 1

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
        return self.append(
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

    def _multiprocessors(self, group: str, kind: str) -> int:
        """Return what a collective holds of a device where its code is not NCCL's, 0 where it is."""
        if self.held and group in self.context.sharding.groups:
            return self.held.get(kind, 0)
        hops = self.context.hops.hops
        if kind == "all_to_all" and any(hop.group == group for hop in hops):
            own = DISPATCHERS[self.context.dispatcher].multiprocessors
            chosen = self.context.dispatcher_multiprocessors
            return (own if chosen is None else chosen) // len(hops)
        return 0

    def close(self) -> None:
        """End the open compute segment."""
        if not self._segment:
            return
        first, last = (kernel.module or "model" for kernel in (self._segment[0], self._segment[-1]))
        name = f"{self.phase} {first}" + (f" to {last}" if last != first else "")
        task = Task(kind="compute", name=name, deps=tuple(sorted(self._segment_deps)), kernels=tuple(self._segment))
        self._segment, self._segment_deps = [], set()
        self.tasks.append(task)

    def wait_for(self, tensors: tuple[int, ...], tasks: list[int]) -> None:
        """Open a new segment if a message is needed, for a tensor or as such, that no segment waits for yet."""
        needed = self._with_beside({self.provider[t] for t in tensors if t in self.provider} | set(tasks))
        needed = {i for i in needed if i < len(self.tasks) and self.tasks[i].kind != "compute"} - self._awaited
        if needed:
            self.close()
            self._segment_deps |= needed
            self._awaited |= needed

    def deps_on(self, tensors: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        """Return the tasks that make the tensors available, closing the open segment if it is one."""
        providers = self._with_beside({self.provider[t] for t in tensors if t in self.provider})
        if self.open_task in providers:
            self.close()
        return tuple(sorted(providers))

    def provide(self, tensors: Iterable[int], task: int) -> None:
        """Note which task makes tensors available."""
        self.provider.update(dict.fromkeys(tensors, task))

    def _with_beside(self, tasks: set[int]) -> set[int]:
        return tasks | {self.beside[task] for task in tasks if task in self.beside}

    def find_ready(self, tensors: Iterable[int]) -> None:
        """Note that templates before this one, of the same device, have made the tensors.

        They are ready when its compute stream comes to this template: a task without kernels, the first one, says when.
        """
        found = dict.fromkeys(tensors, 0)
        if found and not self.tasks:
            self.tasks.append(Task(kind="compute", name=f"{self.phase} begins"))
        self.provider.update(found)

    def behind_compute(self) -> tuple[int, ...]:
        """Return the latest compute task, closing the open segment."""
        self.close()
        found = next((k for k in range(len(self.tasks) - 1, -1, -1) if self.tasks[k].kind == "compute"), None)
        return () if found is None else (found,)

    @property
    def open_task(self) -> int:
        """The index of the task that the open segment will be."""
        return len(self.tasks)

    @property
    def num_kernels(self) -> int:
        """How many kernels have been written."""
        return sum(len(task.kernels) for task in self.tasks) + len(self._segment)

    def origin(self, tensor: int) -> str:
        """Return the module that makes a tensor, for readers."""
        producer = self.context.graph.tensors[tensor].producer
        return "inputs" if producer is None else self.context.graph.ops[producer].module or "model"
