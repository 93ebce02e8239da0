"""Gradient buckets: which gradients are reduced together, and when their reductions start.

Model: a bucket is all-reduced over the dp ranks; where they share gradients or the optimizer's state (ZeRO) it is
reduce-scattered, and the share is summed over the copies of the state, the tp group's members and the stages that hold
summands of it: behind the last micro-batch, as in Megatron-Core.
"""

from collections import Counter

from rostam_py.placement.megatron.gradients import Gradient
from rostam_py.placement.megatron.template_writer import TemplateContext, TemplateWriter

_Key = tuple[str, int]  # data group, unit


class Buckets:
    """Fill gradient buckets in the order in which gradients become ready and start their reductions.

    Args: is_last: of the iteration's micro-batches, behind which sums over other groups run as well.
    """

    def __init__(
        self, context: TemplateContext, writer: TemplateWriter, gradients: list[Gradient], is_last: bool = True
    ) -> None:
        self.context, self.writer, self.is_last = context, writer, is_last
        self.waiting = {g.name: set(g.leaves) for g in gradients}
        self.by_leaf: dict[int, list[Gradient]] = {}
        for g in gradients:
            for leaf in g.leaves:
                self.by_leaf.setdefault(leaf, []).append(g)
        self.open: dict[_Key, list[Gradient]] = {}  # gradients of the buckets that are being filled
        self.open_bytes: Counter[_Key] = Counter()
        self.unit_sizes = Counter((g.data_group, g.unit) for g in gradients)
        self.started: list[list[Gradient]] = []
        self.summed: dict[str, list[Gradient]] = {}
        self.tied: dict[str, list[Gradient]] = {}
        self.reduced_by: dict[str, int] = {}

    def add(self, tensors: tuple[int, ...]) -> None:
        """Note that the tensors are final; start the bucket they fill."""
        for t in tensors:
            for gradient in self.by_leaf.get(t, ()):
                waiting = self.waiting[gradient.name]
                waiting.discard(t)
                if not waiting:
                    self._ready(gradient)

    def _ready(self, gradient: Gradient) -> None:
        if gradient.summed_group:
            self.summed.setdefault(gradient.summed_group, []).append(gradient)
        if gradient.tied_group:
            self.tied.setdefault(gradient.tied_group, []).append(gradient)
        if not self.context.bucket_bytes or not gradient.data_group:
            return
        key = gradient.data_group, gradient.unit
        self.open.setdefault(key, []).append(gradient)
        self.open_bytes[key] += gradient.num_bytes
        if self._is_full(key):
            self._start(self.open.pop(key))
            self.open_bytes[key] = 0

    def _is_full(self, key: _Key) -> bool:
        """Tell whether an open bucket starts: a unit with its last gradient, others with so many bytes."""
        if key[1] >= 0:
            return len(self.open[key]) == self.unit_sizes[key]
        return self.open_bytes[key] >= self.context.bucket_bytes

    def _start(self, bucket: list[Gradient]) -> None:
        state, writer = self.context.states[bucket[0].data_group], self.writer
        deps = _latest(writer, writer.available_from(tuple(t for g in bucket for t in g.leaves)))
        size, name = sum(g.num_bytes for g in bucket), f"gradients.{len(self.started)}"
        task = writer.collective(name, *state.gradient_collective, size, deps)
        if state.copies_group and self.is_last:
            task = writer.collective(f"{name} of copies", state.copies_group, "all_reduce", state.share(size), (task,))
        self.reduced_by.update({g.name: task for g in bucket})
        self.started.append(bucket)

    def flush(self) -> None:
        """Start what is left: the last bucket, then what tp groups hold summands of, then tied gradients."""
        for bucket in self.open.values():
            self._start(bucket)
        self.open = {}
        if not self.is_last:
            return
        for name, groups in (("summed", self.summed), ("tied", self.tied)):
            for group, gradients in sorted(groups.items()):
                self._reduce(f"{name}_gradients.{group}", group, gradients)

    def _reduce(self, name: str, group: str, gradients: list[Gradient]) -> None:
        """Start the all-reduce of gradients behind what has reduced them so far."""
        leaves = tuple(t for g in gradients for t in g.leaves)
        sizes: Counter[str] = Counter()
        for g in gradients:
            sizes[g.data_group] += g.num_bytes
        size = sum(self.context.states[replicas].share(of) if replicas else of for replicas, of in sizes.items())
        deps = {self.reduced_by[g.name] for g in gradients if g.name in self.reduced_by}
        waits = tuple(sorted(deps)) or _latest(self.writer, self.writer.available_from(leaves))
        task = self.writer.collective(name, group, "all_reduce", size, waits)
        self.reduced_by.update({g.name: task for g in gradients})


def _latest(writer: TemplateWriter, deps: tuple[int, ...]) -> tuple[int, ...]:
    """Drop all compute tasks except the last: they run in order."""
    compute = [d for d in deps if writer.tasks[d].kind == "compute"]
    return tuple(sorted({d for d in deps if writer.tasks[d].kind != "compute"} | set(compute[-1:])))
