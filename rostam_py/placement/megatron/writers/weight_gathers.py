"""Gathers of weights that ranks share: when each unit's all-gather starts, and what waits for it.

Model: units are gathered in the order in which a template first uses them, on a stream of their own; a unit is whole
from the start of its gather to the end of the last kernel of the template that reads its weights or, in backward, makes
its gradients. The gather of a unit starts once no more than ``ahead`` other units are whole, those that last not
counted, and never before the device's compute comes to the template: behind an optimizer step the weights are the
updated ones. The first gather of a template is therefore exposed, as FSDP's root exposes it.
Source: PyTorch FSDP2's implicit prefetching (all-gather streams wait for the compute stream at each forward, a unit
ahead); ZeRO 3 (Rajbhandari et al. 2020, section 7.2.2). ``ahead`` None gathers all at once: Megatron-Core's distributed
optimizer with overlap_param_gather.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rostam_py.placement.megatron.weight_units import WeightUnits
from rostam_py.placement.megatron.writers.shard_copies import copied_out
from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.plan.phases import BACKWARD, FORWARD
from rostam_py.plan.tasks import Task

Gathers = list[tuple[str, int]]  # (group, bytes), one after another


@dataclass(slots=True)
class GatherOrder:
    """Of each position of a template: gathers that start before and behind it, and units that end with it."""

    before: dict[int, list[int]] = field(default_factory=dict)
    behind: dict[int, list[int]] = field(default_factory=dict)
    ended: dict[int, list[int]] = field(default_factory=dict)

    def peak(self, sizes: Sequence[int]) -> int:
        """Return the most that is whole at once. Args: sizes: of each unit."""
        whole = most = 0
        for position in sorted({*self.before, *self.behind, *self.ended}):
            whole += sum(sizes[u] for u in self.before.get(position, ()))
            most = max(most, whole)
            whole -= sum(sizes[u] for u in self.ended.get(position, ()))
            whole += sum(sizes[u] for u in self.behind.get(position, ()))
            most = max(most, whole)
        return most


def gather_order(uses: Sequence[tuple[int, ...]], lasting: frozenset[int], ahead: int | None) -> GatherOrder:
    """Return when units are gathered. Args: uses: the units that are used at each position of a template."""
    order = GatherOrder()
    last = {unit: position for position, units in enumerate(uses) for unit in units}
    queue = deque(dict.fromkeys(unit for units in uses for unit in units))
    whole = set[int]()

    def gather(place: list[int]) -> None:
        unit = queue.popleft()
        place.append(unit)
        if unit not in lasting:
            whole.add(unit)

    def fill(place: list[int]) -> None:
        while queue and (ahead is None or queue[0] in lasting or len(whole) <= ahead):
            gather(place)

    fill(order.before.setdefault(0, []))
    for position, units in enumerate(uses):
        while any(unit in queue for unit in units):  # used together with what is still whole
            gather(order.before.setdefault(position, []))
        ended = [unit for unit in units if last[unit] == position]
        if ended:
            order.ended[position] = ended
            whole -= set(ended)
            fill(order.behind.setdefault(position, []))
    return order


class UnitGathers:
    """Write the gathers of one template, and let kernels wait for them.

    Args:
        uses: the units that are used at each position.
        gathers: of each unit (group, bytes), in turn.
        staying: units whose memory is counted as there all the time.
    """

    def __init__(
        self, log: TaskLog, uses: Sequence[tuple[int, ...]], order: GatherOrder, gathers: Sequence[Gathers],
        staying: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        self.log, self.uses, self.order, self.gathers, self.staying = log, uses, order, gathers, staying
        self.copied = set[int]()
        self.tasks: dict[int, list[int]] = {}
        self.changes: list[tuple[int, int]] = []  # (kernels that have run, bytes that are whole from then on)
        if any(uses):
            log.tasks.append(Task(kind="compute", name=f"{log.phase} begins"))

    def before(self, position: int) -> None:
        """Start gathers that begin before a position, whose kernel then waits for the units that it uses."""
        self._gather(self.order.before.get(position, ()))
        self.log.wait_for((), [task for unit in self.uses[position] for task in self.tasks[unit]])
        if self.log.context.state.copies_units:
            for unit in self.uses[position]:
                self._copy_out(unit)

    def behind(self, position: int) -> None:
        """Drop units that end with the kernel of a position, and start gathers that its end lets begin."""
        is_kept = not self.log.context.state.is_resharded
        for unit in () if is_kept else self.order.ended.get(position, ()):
            self._note(unit, -1)
        self._gather(self.order.behind.get(position, ()))

    def _gather(self, units: Iterable[int]) -> None:
        for unit in units:
            deps = self.log.behind_compute()
            self._note(unit, 1)
            name = f"weights.{unit} {self.log.phase}"
            self.tasks[unit] = [
                self.log.collective(name, group, "all_gather", size, deps) for group, size in self.gathers[unit]
            ]

    def _copy_out(self, unit: int) -> None:
        """Copy the weights of a unit out of what was gathered, in front of their first use."""
        size = sum(size for _, size in self.gathers[unit])
        if size and unit not in self.copied:
            self.copied.add(unit)
            self.log.add(copied_out(self.log.context.builder, f"weights.{unit}", self.log.phase, size))

    def _note(self, unit: int, sign: int) -> None:
        if unit in self.staying:
            return
        self.changes.append((self.log.num_kernels, sign * sum(size for _, size in self.gathers[unit])))


def unit_gathers(context: TemplateContext, units: WeightUnits, phase: str = FORWARD) -> list[Gathers]:
    """Return what a gather of each unit in a phase is: of every part that ranks share (group, bytes)."""
    found = []
    for sizes in units.sizes:
        shared = [
            (context.states[replicas], size) for replicas, size in sizes.items() if context.shares_state(replicas)
        ]
        is_again = phase == BACKWARD
        found.append([(state.gathered_again if is_again else state.gathered, size) for state, size in shared])
    return found


def gather_updated(log: TaskLog, gathers: Iterable[Gathers]) -> None:
    """Gather updated weights behind the optimizer, which ends the template; the next forward waits for them."""
    deps = log.behind_compute()
    tasks = [
        log.collective(f"weights.{unit}", group, "all_gather", size, deps)
        for unit, parts in enumerate(gathers)
        for group, size in parts
    ]
    log.tasks.append(Task(kind="compute", name="weights gathered", deps=tuple(tasks)))
