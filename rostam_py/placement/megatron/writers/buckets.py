"""Gradient buckets: which gradients are reduced together, and when their reductions start.

Model: a bucket is all-reduced over the dp ranks; where they share gradients or the optimizer's state (ZeRO) it is
reduce-scattered, and the share is summed over the copies of the state, the tp group's members and the stages that hold
summands of it: behind the last micro-batch, as in Megatron-Core. What a device's templates leave to a later one, that
reduces: sums over other groups come with the last one.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from rostam_py.placement.megatron.gradient_passes import copies, reduction_passes
from rostam_py.placement.megatron.gradients import Gradient
from rostam_py.placement.megatron.writers.shard_copies import copied_in
from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.plan.phases import BACKWARD, FULL, WEIGHT

_Key = tuple[str, int]  # data group, unit


@dataclass(slots=True)
class Pending:
    """Gradients of a device that are final, but not reduced, when one of its templates ends.

    buckets: that have not started. summed, tied: group -> gradients that its members, or several stages, hold.
    reduced: name -> data group of those whose bucket has started.
    """

    buckets: list[list[Gradient]] = field(default_factory=list)
    summed: dict[str, list[Gradient]] = field(default_factory=dict)
    tied: dict[str, list[Gradient]] = field(default_factory=dict)
    reduced: dict[str, str] = field(default_factory=dict)

    def gradients(self) -> list[Gradient]:
        """Return all of them."""
        return [g for group in (*self.buckets, *self.summed.values(), *self.tied.values()) for g in group]


class Buckets:
    """Fill gradient buckets in the order in which gradients become ready and start their reductions.

    Args:
        gradients: that are final in the log's template.
        is_last: of the iteration's micro-batches, behind which sums over other groups run as well.
        pending: what the device's templates before it have left.
        later: data groups of the gradients that the device's later templates make, None for its last one. The last
            bucket of another group is left to that: what its optimizer waits for, it must have started.
    """

    def __init__(
        self, log: TaskLog, gradients: list[Gradient], *, is_last: bool = True,
        pending: Pending | None = None, later: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        self.log, self.context, self.is_last, self.later = log, log.context, is_last, later
        before = Pending() if pending is None else pending
        self.carried, self.summed, self.tied = before.buckets, before.summed, before.tied
        self.reduced_before = before.reduced
        here = {leaf for g in gradients for leaf in g.leaves if self._is_made_here(leaf)}
        log.find_ready(sorted({leaf for g in (*gradients, *before.gradients()) for leaf in g.leaves} - here))
        self.groups = {g.name: g.data_group for g in gradients}
        self.waiting = {g.name: here.intersection(g.leaves) for g in gradients}
        self.by_leaf: dict[int, list[Gradient]] = {}
        for g in gradients:
            for leaf in g.leaves:
                self.by_leaf.setdefault(leaf, []).append(g)
        self.open: dict[_Key, list[Gradient]] = {}  # gradients of the buckets that are being filled
        self.open_bytes: Counter[_Key] = Counter()
        self.unit_sizes = Counter((g.data_group, g.unit) for g in gradients)
        self.started: list[list[Gradient]] = []
        self.reduced_by: dict[str, int] = {}
        self.last_reduced: int | None = None  # the task that reduced the bucket before
        for g in gradients:
            if not self.waiting[g.name]:
                self._ready(g)

    def _is_made_here(self, leaf: int) -> bool:
        producer = self.context.graph.tensors[leaf].producer
        if producer is None:
            return False
        phase = self.context.phase_of(self.context.graph.ops[producer])
        return phase == self.log.phase or (self.log.phase == FULL and phase in (BACKWARD, WEIGHT))

    def add(self, tensors: tuple[int, ...]) -> None:
        """Note that the tensors are final; start the bucket they fill."""
        for t in tensors:
            for gradient in self.by_leaf.get(t, ()):
                waiting = self.waiting[gradient.name]
                if t in waiting:
                    waiting.remove(t)
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
        if self.context.overlaps_reductions and self._is_full(key):
            self._start(self.open.pop(key))
            self.open_bytes[key] = 0

    def _is_held(self, data_group: str) -> bool:
        """Tell whether a data group's open bucket is left to the device's last template: its last, or any bucket."""
        if self.later is None:
            return False
        if not self.context.overlaps_reductions:
            return True
        if data_group in self.later:
            return False
        return not any(self.waiting[name] for name, group in self.groups.items() if group == data_group)

    def _is_full(self, key: _Key) -> bool:
        """Tell whether an open bucket starts: a unit with its last gradient, others with so many bytes."""
        if key[1] >= 0:
            return len(self.open[key]) == self.unit_sizes[key]
        is_first = key[0] not in self.reduced_before.values() and not any(
            bucket[0].data_group == key[0] for bucket in self.started
        )
        limit = self.context.first_bucket_bytes if is_first else self.context.bucket_bytes
        return self.open_bytes[key] >= limit

    def _start(self, bucket: list[Gradient]) -> None:
        state, log = self.context.states[bucket[0].data_group], self.log
        size, name = sum(g.num_bytes for g in bucket), f"gradients.{len(self.started)}"
        if state.copies_units:
            self._copy_in(bucket, name, size)
        if state.copies_units or not self.context.overlaps_reductions:
            deps = log.behind_compute()
        else:
            deps = _latest(log, log.deps_on(tuple(t for g in bucket for t in g.leaves)))
        deps = self._behind_passes(bucket, deps)
        task = log.collective(name, *state.gradient_collective, size, deps)
        if state.copies_group and self.is_last:
            task = log.collective(f"{name} of copies", state.copies_group, "all_reduce", state.share(size), (task,))
        # Buckets of a group end in the order in which they begin: this one after those of templates before.
        self.last_reduced = task
        before = [name for name, data in self.reduced_before.items() if data == bucket[0].data_group]
        for name in before:
            self.reduced_by[name] = task
            del self.reduced_before[name]
        self.reduced_by.update({g.name: task for g in bucket})
        self.started.append(bucket)

    def _copy_in(self, bucket: Sequence[Gradient], name: str, size: int) -> None:
        """Copy a unit's gradients into what is reduced, once the unit before has been."""
        if self.last_reduced is not None:
            self.log.wait_for((), [self.last_reduced])
        count, is_summed = sum(g.num_parameters for g in bucket), not self.context.state.reduces_every_microbatch
        self.log.add(copied_in(self.context.builder, name, count, size, is_summed))

    def _behind_passes(self, bucket: Sequence[Gradient], deps: tuple[int, ...]) -> tuple[int, ...]:
        """Check, scale or copy a bucket where that is done; return what its reduction waits for."""
        builder, log, buffer = self.context.builder, self.log, self.context.gradient_buffer
        sizes = [g.num_bytes for g in bucket]
        passes = (
            *reduction_passes(builder.cost, builder.rules.precision, buffer, sum(sizes)),
            *copies(builder.cost, builder.rules.precision, buffer, sizes, "copied in"),
        )
        if not passes:
            return deps
        log.wait_for((), [d for d in deps if log.tasks[d].kind != "compute"])
        for time in passes:
            log.add(time)
        return log.behind_compute()

    def leave(self) -> Pending:
        """End a template that others follow: start the open buckets that are not held, and return what is left."""
        held = [bucket for (data_group, _), bucket in self.open.items() if self._is_held(data_group)]
        for bucket in self.open.values():
            if bucket not in held:
                self._start(bucket)
        reduced = {g.name: g.data_group for bucket in self.started for g in bucket}
        return Pending([*self.carried, *held], self.summed, self.tied, self.reduced_before | reduced)

    def flush(self) -> None:
        """Start what is left: the last bucket, then what tp groups hold summands of, then tied gradients."""
        self._start_open()
        if not self.is_last:
            return
        for name, groups in (("summed", self.summed), ("tied", self.tied)):
            for group, gradients in sorted(groups.items()):
                self._reduce(f"{name}_gradients.{group}", group, gradients)
        self._copy_out()

    def _copy_out(self) -> None:
        """Copy what has been reduced back where that is done."""
        builder, reduced = self.context.builder, sorted(set(self.reduced_by.values()))
        sizes = [g.num_bytes for bucket in self.started for g in bucket]
        passes = copies(builder.cost, builder.rules.precision, self.context.gradient_buffer, sizes, "copied out")
        if passes and reduced:
            self.log.wait_for((), reduced)
            for time in passes:
                self.log.add(time)

    def _start_open(self) -> None:
        for bucket in (*self.carried, *self.open.values()):
            self._start(bucket)
        self.carried, self.open = [], {}

    def _reduce(self, name: str, group: str, gradients: list[Gradient]) -> None:
        """Start the all-reduce of gradients behind what has reduced them so far."""
        leaves = tuple(t for g in gradients for t in g.leaves)
        sizes: Counter[str] = Counter()
        for g in gradients:
            sizes[g.data_group] += g.num_bytes
        size = sum(self.context.states[replicas].share(of) if replicas else of for replicas, of in sizes.items())
        deps = {self.reduced_by[g.name] for g in gradients if g.name in self.reduced_by}
        waits = tuple(sorted(deps)) or _latest(self.log, self.log.deps_on(leaves))
        task = self.log.collective(name, group, "all_reduce", size, waits)
        self.reduced_by.update({g.name: task for g in gradients})


def _latest(log: TaskLog, deps: tuple[int, ...]) -> tuple[int, ...]:
    """Drop all compute tasks except the last: they run in order."""
    compute = [d for d in deps if log.tasks[d].kind == "compute"]
    return tuple(sorted({d for d in deps if log.tasks[d].kind != "compute"} | set(compute[-1:])))
