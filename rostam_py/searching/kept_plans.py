"""KeptPlans: plans that a Searcher has placed, and kernel times behind them, kept from machine to machine.

Plans that depend on no fabric are placed once; those that do, by the circuits that it leaves a group, are kept while
searches ask for them.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rostam_py.errors import ConfigError, MemoryCapacityError
from rostam_py.fabrics import build_fabric
from rostam_py.garbage import without_collections
from rostam_py.graph import OperatorGraph
from rostam_py.placement.micro_batch import is_open, micro_batches_by_memory
from rostam_py.placement.placer import Estimator, Placer
from rostam_py.plan import PLACERS, Machine, Plan, Strategy
from rostam_py.plan.strategy_names import RECOMPUTE
from rostam_py.plan.tasks import MemoryBytes
from rostam_py.software.program import Given, Program
from rostam_py.software.ratios import safe_share
from rostam_py.units import format_size


class _PlacedKey(NamedTuple):
    """What a plan depends on. fabric: as its placer's ``fabric_key``, None for any."""

    strategy: str
    batch: int
    num_accelerators: int
    failed: tuple[int, ...]
    fabric: Hashable
    physics: tuple[Any, ...]


@dataclass(slots=True)
class Placed:
    """A plan on some machine of the right size and what estimates it, or why there is none.

    overfull: what the fullest device of a plan would need that does not fit.
    """

    plan: Plan | None
    estimator: Estimator | None
    strategy: Strategy
    reason: str = ""
    overfull: MemoryBytes | None = None


class KeptPlans:
    """Plans of one model. Args: cost, cost_config, software: as ``place`` takes them."""

    def __init__(self, graph: OperatorGraph, cost: str, cost_config: dict[str, Any], software: Given) -> None:
        self.graph, self.cost, self.cost_config = graph, cost, cost_config
        self.program = Program.of(software, graph, cost=cost, is_searched=True)
        self._placed: dict[_PlacedKey, Placed] = {}
        self._asked_for: set[_PlacedKey] = set()  # by the search that runs
        self._shared: dict[str, dict[Any, Any]] = {}  # between placements of each placer

    def __len__(self) -> int:
        return len(self._placed)

    @property
    def known(self) -> set[_PlacedKey]:
        """What the plans that are kept depend on."""
        return set(self._placed)

    def begin(self) -> None:
        """Begin a search."""
        self._asked_for.clear()

    def end(self) -> None:
        """End a search: plans made for a fabric that it did not ask for are dropped."""
        self._placed = {
            key: placed for key, placed in self._placed.items() if key in self._asked_for or key.fabric is None
        }

    def placer(self, machine: Machine, strategy: Strategy) -> Placer:
        shared = self._shared.setdefault(strategy.placer, {})
        config = self.program.costs(self.cost_config, strategy, machine)
        placer: Placer = PLACERS.get(strategy.placer)(strategy, self.cost, config, shared)
        return placer

    def fitted(self, machine: Machine, strategy: Strategy, batch: int, is_fixed: bool = False) -> Placed:
        """Return the strategy's plan with the largest micro-batch and the least recomputation that fit in memory.

        Model: by the upper bound of what measured jobs held, else, where none fits so, as simulated.
        """
        if self.placer(machine, strategy).fits_memory or is_fixed:
            return self.place(machine, strategy, batch)
        share, capacity = self.safe_share(machine, strategy), machine.device.memory_bytes
        safe = self._fitted(machine, strategy, batch, int(share * capacity))
        return safe if safe.plan is not None or share == 1.0 else self._fitted(machine, strategy, batch, capacity)

    def safe_share(self, machine: Machine, strategy: Strategy) -> float:
        """Return the share of a device's memory that a plan may take for its upper bound to fit."""
        try:
            software = self.program.on(strategy, machine)[1]
        except ConfigError:  # it has no plan
            return 1.0
        return safe_share(software, machine.device.name, has_experts=self.program.has_experts)

    def _fitted(self, machine: Machine, strategy: Strategy, batch: int, capacity: int) -> Placed:
        first = self._with_micro_batch_that_fits(machine, strategy, batch, capacity)
        for level in RECOMPUTE[RECOMPUTE.index(strategy.recompute) + 1 :]:
            memory = first.overfull
            if memory is None or memory.total - memory.activations > capacity:
                break  # recomputation frees activations only
            placed = self._with_micro_batch_that_fits(machine, strategy.recomputing(level), batch, capacity)
            if placed.plan is not None:
                return placed
        return first

    def _with_micro_batch_that_fits(self, machine: Machine, strategy: Strategy, batch: int, capacity: int) -> Placed:
        placed = self._within(capacity, machine, strategy, batch)
        if placed.overfull is not None and is_open(strategy):
            for smaller in micro_batches_by_memory(placed.overfull, *strategy.batches(batch), capacity):
                placed = self._within(capacity, machine, replace(strategy, micro_batch=smaller), batch)
                if placed.overfull is None:
                    break
        return placed

    def _within(self, capacity: int, machine: Machine, strategy: Strategy, batch: int) -> Placed:
        """Return the strategy's plan if it takes at most ``capacity`` of memory [bytes], else why it does not fit."""
        placed = self.place(machine, strategy, batch)
        if placed.plan is None or placed.plan.memory_bytes <= capacity or not placed.strategy.check_memory:
            return placed
        size, has = format_size(placed.plan.memory_bytes), format_size(machine.device.memory_bytes)
        reason = f"needs {size} as simulated, more by its upper bound than a device's {has}"
        return Placed(None, None, placed.strategy, reason, placed.plan.fullest_memory)

    def place(self, machine: Machine, strategy: Strategy, batch: int) -> Placed:
        """Return the strategy's plan: made on an ideal fabric, or on this one where the placer reads it."""
        failed = machine.fabric.failures.accelerators
        try:
            given, (strategy, software) = strategy, self.program.on(strategy, machine)
            placer = self.placer(machine, strategy)
            fabric = placer.fabric_key(machine)
        except ConfigError as error:
            return Placed(None, None, strategy, str(error))
        physics = (machine.device.figures, machine.min_kernel_s)
        key = _PlacedKey(_key(strategy), batch, machine.num_accelerators, failed, fabric, physics)
        self._asked_for.add(key)
        if key not in self._placed:
            is_ideal = not placer.reads_fabric and fabric is None
            where = software.on(ideal_machine(machine) if is_ideal else machine)
            found = self._new_plan(placer, where, strategy, batch)
            if found.plan is not None:
                found.plan = self.program.sign(found.plan, given, software)
            self._placed[key] = found
        return self._placed[key]

    def _new_plan(self, placer: Placer, machine: Machine, strategy: Strategy, batch: int) -> Placed:
        try:
            with without_collections():  # plans are many objects without cycles
                plan = placer.place(self.graph, machine, batch)
        except MemoryCapacityError as error:
            if error.memory is None:
                return Placed(None, None, strategy, str(error))
            size, has = format_size(error.memory.total), format_size(machine.device.memory_bytes)
            return Placed(None, None, strategy, f"needs {size} on a device of {has}", error.memory)
        except ConfigError as error:
            return Placed(None, None, strategy, str(error))
        return Placed(plan, placer.estimator(plan), strategy)


def needs_circuits(machine: Machine) -> bool:
    """Tell whether circuits must be set for each plan on a machine."""
    return machine.fabric.is_circuit_switched and machine.fabric.circuits is None


def ideal_machine(machine: Machine) -> Machine:
    """Return a machine on an ideal switch without latency: as many accelerators, failed ones and bandwidth."""
    fabric = build_fabric(
        "electrical_flat", num_accelerators=machine.num_accelerators, latency=0.0,
        accelerator_bandwidth=machine.fabric.config.peak_bandwidth_bytes_per_s,
    )  # fmt: skip
    failed = machine.fabric.failures.accelerators
    if failed:
        fabric = fabric.with_failures(accelerators=failed)
    return replace(machine, fabric=fabric)


def _key(strategy: Strategy) -> str:
    return repr(list(strategy.settings().values()))
