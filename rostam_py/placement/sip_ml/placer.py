"""The sip_ml placer: Algorithm 1 of SiP-ML (MODEL D13, D14), k-way model parallelism inside l groups.

Partition every op into sub-ops, place them on one group of k devices within the circuit degree, replicate to
the l groups, and let every device join one all-reduce ring with its counterparts. A plan has one stage per
device of a group: stage i is what device i of every group runs. Memory is what is kept for backward, the loss as wide
as other activations, without what the loss hands on when backward begins (megatron/memory/turn.py).
"""

import math
from collections import OrderedDict
from collections.abc import Iterator

from rostam_py.costs.model import CostModel
from rostam_py.costs.numerics import Numerics
from rostam_py.costs.power import limit_notes
from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError, MemoryCapacityError
from rostam_py.graph import OperatorGraph
from rostam_py.placement.accumulation import regroup_gradient_sums
from rostam_py.placement.kernel_work import NO_WORK
from rostam_py.placement.kernels import KernelBuilder, cost_model_for
from rostam_py.placement.placer import Placer
from rostam_py.placement.sharding import propagate
from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement, place_in_window
from rostam_py.placement.sip_ml.candidates import candidates
from rostam_py.placement.sip_ml.estimate import SipMlEstimator
from rostam_py.placement.sip_ml.group import GroupPlacement
from rostam_py.placement.sip_ml.kept import check_group_room
from rostam_py.placement.sip_ml.partition import partition
from rostam_py.placement.sip_ml.reach import circuit_limit, group_window
from rostam_py.placement.sip_ml.receipts import received_bytes
from rostam_py.placement.sip_ml.sub_op_memory import untrained_memory
from rostam_py.placement.sip_ml.sub_op_templates import GroupTemplates, write_templates
from rostam_py.placement.sip_ml.sub_ops import KERNEL, SubOpGraph, build_sub_ops
from rostam_py.placement.sip_ml.window import Window, circuits_in_group
from rostam_py.plan.data import Batches
from rostam_py.plan.groups import model_parallel_groups
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.program import Program
from rostam_py.plan.ranks import assign_accelerators
from rostam_py.plan.searched_axes import NO_FACTS, ModelFacts, Space
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import KernelTime, MemoryBytes, Stage
from rostam_py.software.rules import Rules
from rostam_py.units import parse_time


class SipMlPlacer(Placer):
    """Turn a graph, a machine and a Strategy(dp, mp, placer="sip_ml") into a Plan; groups placed once are shared."""

    AXES = ("dp", "mp")
    SEARCHED = ("dp", "micro_batch", "recompute")  # its candidates take a batch at once, and keep all

    def candidates(
        self, num_accelerators: int, batch: int, space: Space | None = None, facts: ModelFacts = NO_FACTS
    ) -> Iterator[Strategy]:
        """Yield the strategies on all accelerators that a search considers, all else as in this placer's own."""
        return candidates(self.strategy, num_accelerators, batch, space)

    def place(self, graph: OperatorGraph, machine: Machine, global_batch: int) -> Plan:
        """Return the plan.

        Raises: DegreeError for degrees that do not fit; MemoryCapacityError for a plan that does not;
            ConfigError for settings that Algorithm 1 has no meaning for.
        Cost: sub-ops x devices of a group; the groups are not walked one by one.
        """
        strategy = self.strategy
        self.check(machine)
        window = group_window(strategy, machine)
        accelerators = assign_accelerators(strategy, machine)
        batch, _ = strategy.batches(global_batch)
        graph = self._regrouped(graph)
        group = self.place_group(graph, machine, batch, window)
        written = write_templates(
            group.sub_ops, group.placed, strategy.mp, strategy.rules.bucket_bytes, strategy.dp > 1,
            list(group.optimizers), window,
        )  # fmt: skip
        numerics = _numerics(strategy, graph)
        return Plan.on_grid(
            graph.name, machine, strategy, Batches(global_batch, batch, 1),
            _stages(group, written, strategy, numerics), accelerators,
            groups=model_parallel_groups(strategy.dp, strategy.mp), algorithms=dict(strategy.algorithms),
            notes=(*group.notes, *graph.notes), cost=self.cost_name,
            precision=numerics.precision, optimizer=numerics.optimizer, sequence_length=graph.sequence_length,
            max_circuit_degree=strategy.max_circuit_degree, details=group,
        )  # fmt: skip

    def check(self, machine: Machine) -> None:
        """Refuse settings that Algorithm 1 has no meaning for, and circuits too few for the groups."""
        _check(self.strategy)
        group_window(self.strategy, machine)

    def place_group(self, graph: OperatorGraph, machine: Machine, batch: int, window: Window | None) -> GroupPlacement:
        """Return Algorithm 1's placement on one group; it depends on no bandwidth, and is kept (MODEL D14).

        Args: graph: with gradient sums regrouped. batch: samples of one group.
        Raises: MemoryCapacityError where it does not fit, which is kept as well.
        """
        strategy = self.strategy
        numerics = _numerics(strategy, graph)
        capacity = machine.device.memory_bytes if strategy.check_memory else None
        settings = (strategy.mp, strategy.placing.quantum, strategy.placing.weight_splits, machine.min_kernel_s)
        key = (*settings, machine.device.figures, batch, window, numerics, capacity)
        if key not in self.shared:
            try:
                self.shared[key] = self._new_group(graph, machine, batch, window, numerics, capacity)
            except MemoryCapacityError as error:
                self.shared[key] = MemoryCapacityError(str(error))  # without the frames of the attempt
        found = self.shared[key]
        if isinstance(found, MemoryCapacityError):
            raise found
        group: GroupPlacement = found
        return group

    def _new_group(
        self, graph: OperatorGraph, machine: Machine, batch: int, window: Window | None, numerics: Numerics,
        capacity: int | None,
    ) -> GroupPlacement:  # fmt: skip
        """Return Algorithm 1's placement on one group."""
        strategy = self.strategy
        check_group_room(graph, batch, numerics, strategy.mp, capacity)
        cost = cost_model_for(self.cost_name, self.cost_config, graph, machine)
        is_sliced = strategy.placing.weight_splits == "sliced"
        sub_ops = _sub_ops(graph, strategy, cost, batch, numerics, is_sliced)
        try:
            placed = _place(sub_ops, strategy.mp, window, capacity)
        except MemoryCapacityError:
            if is_sliced or strategy.mp == 1:
                raise
            is_sliced = True
            sub_ops = _sub_ops(graph, strategy, cost, batch, numerics, is_sliced)
            placed = _place(sub_ops, strategy.mp, window, capacity)
        counts = _local_parameters(sub_ops, placed, strategy)
        kernels = tuple(_optimizer_kernel(n, numerics, cost) for n in counts)
        notes = _notes(
            sub_ops, placed, strategy, circuit_limit(strategy, machine), window, cost, machine.accelerator_watts
        )
        if is_sliced and strategy.placing.weight_splits != "sliced":
            notes.append("weight matrices lie in slices: copies of them, where less would be sent, do not fit")
        received = received_bytes(sub_ops, placed, strategy.mp, window)
        return GroupPlacement(sub_ops, placed, window, kernels, float(received.max()), tuple(notes))

    def _regrouped(self, graph: OperatorGraph) -> OperatorGraph:
        key = ("regrouped", id(graph))
        if key not in self.shared:
            self.shared[key] = (graph, regroup_gradient_sums(graph))  # held, so that its id stays its own
        found: OperatorGraph = self.shared[key][1]
        return found

    def estimator(self, plan: Plan) -> SipMlEstimator:
        """Return what estimates a plan of this placer."""
        return SipMlEstimator(plan)

    def fabric_key(self, machine: Machine) -> Window | None:
        """Return the window that the fabric leaves the groups, which is all that their placement depends on."""
        return group_window(self.strategy, machine)

    def lower_bound_s(self, graph: OperatorGraph, machine: Machine, global_batch: int) -> float:
        """Return what an iteration takes at least [s]: a group's sub-ops and optimizer, or what a device receives."""
        batch, _ = self.strategy.batches(global_batch)
        window = group_window(self.strategy, machine)
        group = self.place_group(self._regrouped(graph), machine, batch, window)
        return max(group.makespan_s, group.most_received_bytes / machine.fabric.config.peak_bandwidth_bytes_per_s)


def _check(strategy: Strategy) -> None:
    if strategy.recompute != "none":
        raise ConfigError(
            f"strategy.recompute is {strategy.recompute!r}; with strategy.placer=sip_ml it must be 'none': Algorithm 1"
            " keeps all activations"
        )
    if strategy.micro_batch is not None:
        raise ConfigError(
            f"strategy.micro_batch is {strategy.micro_batch}; strategy.placer=sip_ml runs a group's whole batch at"
            " once, leave it out"
        )


def _place(sub_ops: SubOpGraph, num_devices: int, window: Window | None, capacity: float | None) -> SubOpPlacement:
    return place_in_window([node.node() for node in sub_ops.nodes], num_devices, window, capacity)


def _sub_ops(
    graph: OperatorGraph, strategy: Strategy, cost: CostModel, batch: int, numerics: Numerics, is_sliced: bool
) -> SubOpGraph:
    rules = Rules(precision=numerics.precision, gradient_bytes=numerics.gradient_bytes)
    builder = KernelBuilder(graph, propagate(graph, 1, batch), cost, rules, batch)
    quantum_s = parse_time(strategy.placing.quantum, "strategy.placing.quantum")
    parts = partition(graph, batch, strategy.mp, builder.op_seconds(), quantum_s, is_sliced=is_sliced)
    return build_sub_ops(graph, parts, cost, batch, numerics)


def _local_parameters(sub_ops: SubOpGraph, placed: SubOpPlacement, strategy: Strategy) -> list[int]:
    """Return the parameters each device of a group updates."""
    counts = [0] * strategy.mp
    for count, node in sub_ops.parameters.values():
        for d in placed.devices[node]:
            counts[d] += count
    return counts


def _optimizer_kernel(count: int, numerics: Numerics, cost: CostModel) -> KernelTime | None:
    if not count:
        return None
    call = numerics.optimizer_call(count)
    return KernelTime.of(cost, call, "optimizer")


def _numerics(strategy: Strategy, graph: OperatorGraph) -> Numerics:
    """Return the run's numerics. Raises: ConfigError for precisions that sub-ops cannot have."""
    numerics = strategy.numerics(graph)
    precision = numerics.precision
    if get_precision(precision).others:
        raise ConfigError(
            f"strategy.precision is {precision!r}; strategy.placer=sip_ml keeps all that a sub-op saves in one width:"
            f" take {get_precision(precision).others}, or strategy.placer=megatron"
        )
    return numerics


def _stages(
    group: GroupPlacement, written: GroupTemplates, strategy: Strategy, numerics: Numerics
) -> tuple[Stage, ...]:
    sub_ops, placed = group.sub_ops, group.placed
    counts = _local_parameters(sub_ops, placed, strategy)
    untrained = untrained_memory(sub_ops, placed, strategy.mp)
    work = sum((node.work for node in sub_ops.nodes), NO_WORK)
    modules: list[OrderedDict[str, None]] = [OrderedDict() for _ in range(strategy.mp)]
    for node, devices in zip(sub_ops.nodes, placed.devices, strict=True):
        if node.kind == KERNEL and node.phase == "forward" and node.time is not None and node.time.module:
            for d in devices:
                modules[d][node.time.module] = None
    stages = []
    for d in range(strategy.mp):
        held = untrained[d]
        fixed = counts[d] * numerics.held_bytes
        made = max(0.0, placed.memory_bytes[d] - fixed - held.frozen - held.placed)
        memory = MemoryBytes(
            parameters=counts[d] * numerics.parameter_bytes + held.frozen + math.ceil(held.buffers - 1e-6),
            gradients=counts[d] * numerics.gradient_bytes, optimizer_state=counts[d] * numerics.state_bytes,
            activations=round(made + held.inputs),
        )  # fmt: skip
        stages.append(
            Stage(
                index=d,
                templates={"iteration": written.tasks[d]},
                program=Program.of([("iteration", 0)]),
                memory=memory,
                num_parameters=counts[d],
                modules=tuple(modules[d]),
                flops=work.model / strategy.mp,
                causal_flops=work.causal / strategy.mp,
                hardware_flops=written.flops[d],
            )
        )
    return tuple(stages)


def _notes(
    sub_ops: SubOpGraph, placed: SubOpPlacement, strategy: Strategy, degree: int | None, window: Window | None,
    cost: CostModel, accelerator_watts: float | None,
) -> list[str]:  # fmt: skip
    kernels = [node for node in sub_ops.nodes if node.kind == KERNEL]
    total = sum(node.num_parts for node in kernels)
    notes = [f"{len(kernels)} kernels as {total} sub-ops of about {strategy.placing.quantum} on {strategy.mp} devices"]
    notes.append(
        f"{sub_ops.num_metadata} metadata ops vanished, {sub_ops.num_fused} element-wise ops fused into producers"
    )
    if sub_ops.num_unsplit:
        notes.append(f"run whole on one device, without a legal split: {sub_ops.num_unsplit} ops")
    if window is not None:
        own = circuits_in_group(degree or strategy.mp, strategy.dp > 1)
        ring = ", and 1 for its data-parallel ring" if strategy.dp > 1 else ""
        notes.append(
            f"mp = {strategy.mp} exceeds the circuit degree {degree} ({own} for a device's own group{ring}):"
            f" {strategy.placing.window} window applies"
        )
    if placed.num_relocations:
        notes.append(f"{placed.num_relocations} relocations to keep within the circuit degree and the memory")
    if placed.num_out_of_range:
        notes.append(
            f"relocation did not end: {placed.num_out_of_range} sub-ops read another out of range; devices in between"
            " forward the data"
        )
    notes += limit_notes(cost, accelerator_watts)
    return notes + list(dict.fromkeys(cost.notes()))
