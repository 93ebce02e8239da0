"""Gradient buckets: which gradients are reduced together, and when their reductions start."""

from dataclasses import dataclass

from rostam_py.placement.megatron.template_writer import TemplateContext, TemplateWriter


@dataclass(frozen=True, slots=True)
class Gradient:
    """A parameter's gradient on one stage: the tensors it is summed from and its local bytes.

    summed_group: tp groups whose members hold summands of it. tied_group: stages that hold the parameter too.
    """

    name: str
    leaves: tuple[int, ...]
    num_bytes: int
    tied_group: str = ""
    summed_group: str = ""


class Buckets:
    """Fill gradient buckets in the order in which gradients become ready and start their all-reduces."""

    def __init__(self, context: TemplateContext, writer: TemplateWriter, gradients: list[Gradient]) -> None:
        self.context, self.writer = context, writer
        self.waiting = {g.name: set(g.leaves) for g in gradients}
        self.by_leaf: dict[int, list[Gradient]] = {}
        for g in gradients:
            for leaf in g.leaves:
                self.by_leaf.setdefault(leaf, []).append(g)
        self.open: list[Gradient] = []
        self.open_bytes = self.count = 0
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
        if not self.context.bucket_bytes:
            return
        self.open.append(gradient)
        self.open_bytes += gradient.num_bytes
        if self.open_bytes >= self.context.bucket_bytes:
            self._start()

    def _start(self) -> None:
        leaves = tuple(t for g in self.open for t in g.leaves)
        deps = self.writer.available_from(leaves)
        task = self.writer.collective(
            f"gradients.{self.count}", "dp", "all_reduce", self.open_bytes, _latest(self.writer, deps)
        )
        self.reduced_by.update({g.name: task for g in self.open})
        self.open, self.open_bytes, self.count = [], 0, self.count + 1

    def flush(self) -> None:
        """Start what is left: the last bucket, then what tp groups hold summands of, then tied gradients."""
        if self.open:
            self._start()
        for name, groups in (("summed", self.summed), ("tied", self.tied)):
            for group, gradients in sorted(groups.items()):
                self._reduce(f"{name}_gradients.{group}", group, gradients)

    def _reduce(self, name: str, group: str, gradients: list[Gradient]) -> None:
        """Start the all-reduce of gradients behind what has reduced them so far."""
        leaves = tuple(t for g in gradients for t in g.leaves)
        size = sum(g.num_bytes for g in gradients)
        deps = {self.reduced_by[g.name] for g in gradients if g.name in self.reduced_by}
        waits = tuple(sorted(deps)) or _latest(self.writer, self.writer.available_from(leaves))
        task = self.writer.collective(name, group, "all_reduce", size, waits)
        self.reduced_by.update({g.name: task for g in gradients})


def _latest(writer: TemplateWriter, deps: tuple[int, ...]) -> tuple[int, ...]:
    """Drop all compute tasks except the last: they run in order."""
    compute = [d for d in deps if writer.tasks[d].kind == "compute"]
    return tuple(sorted({d for d in deps if writer.tasks[d].kind != "compute"} | set(compute[-1:])))
