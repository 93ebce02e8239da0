"""StageParameters: which device of a pipeline holds which parameters, and what updating them takes."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from rostam_py.costs.optimizers import DECAYED_PRODUCTS, NO_DECAY, SINGLE
from rostam_py.costs.precision import get_precision
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.gradient_passes import reduction_passes, zero_pass
from rostam_py.placement.megatron.gradients import ALL_DATA, Gradient
from rostam_py.placement.megatron.pipeline import StageAssignment
from rostam_py.placement.megatron.weight_units import WeightUnits, block_units
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.plan.expert_groups import EXPERT_DATA
from rostam_py.plan.gradient_buffers import GRADIENT_BUFFERS, GradientBuffer
from rostam_py.plan.host_calls import STEP
from rostam_py.plan.machine import Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.product_inputs import narrow_weights
from rostam_py.software.weight_casts import updated_casts


class StageParameters:
    """Parameters of the stages of one placement.

    holders: parameter -> the devices of a pipeline that hold it. tied: those of parameters that several hold.
    products_weights: weights that products of narrow formats read.
    """

    def __init__(
        self, builder: KernelBuilder, assignment: StageAssignment, machine: Machine, strategy: Strategy,
        num_microbatches: int,
    ) -> None:  # fmt: skip
        self.builder, self.graph, self.sharding, self.cost = builder, builder.graph, builder.sharding, builder.cost
        self.assignment, self.machine, self.strategy = assignment, machine, strategy
        self.num_microbatches, self.numerics = num_microbatches, strategy.numerics(builder.graph)
        self.state = strategy.state_sharding
        self.states = {ALL_DATA: self.state, EXPERT_DATA: strategy.expert_state_sharding}
        self.holders = {name: assignment.holders(name) for name in assignment.parameter_stages}
        self.tied = tuple(sorted({devices for devices in self.holders.values() if len(devices) > 1}))
        self.local_parameters = {
            t.name: math.ceil(
                t.num_elements(1) * self.sharding.tensor_fraction(t.id) * builder.experts.share(t.id) - 1e-6
            )
            for t in self.graph.parameters
        }
        self.parameter_ids = {t.name: t.id for t in self.graph.parameters}
        precision = get_precision(self.numerics.precision)
        self.products_weights = narrow_weights(self.graph) if precision.casts else frozenset[int]()
        self.copied_bytes = precision.copied_weight_bytes(machine.device.transposes_fp8)
        self.expert_parameters = {t.name for t in self.graph.parameters if t.id in builder.experts.divided}

    def num_parameters(self, stage: int) -> int:
        """Return the parameters that a device of a pipeline's stage holds."""
        return sum(self.local_parameters[name] for name, devices in self.holders.items() if stage in devices)

    def num_shared(self, context: TemplateContext, stage: int) -> int:
        """Return the parameters that a device updates: all of its stage, or its share of them.

        Shares are padded: of each unit where weights are shared, else of all that the stage holds.
        """
        parts: list[Mapping[str, int]] = []
        if self.state.shares_weights:
            parts += [part for chunk in self.assignment.chunks(stage) for part in context.units[chunk].parts]
        else:
            counts: Counter[str] = Counter()
            for name, devices in self.holders.items():
                counts[self._data_group(name)] += self.local_parameters[name] if stage in devices else 0
            parts.append(counts)
        untouched = self.builder.experts.untouched(self.builder.batch * self.num_microbatches)
        return -untouched + sum(
            self.states[replicas].share(count) if replicas else count
            for one in parts
            for replicas, count in one.items()
        )

    def optimizer_kernels(self, stage: int, num_parameters: int) -> tuple[KernelTime, ...]:
        """Return the update of as many parameters, and the casts of the weights that an iteration's products read."""
        if not num_parameters:
            return ()
        counts, decayed = [num_parameters], set[int]()
        if self.strategy.rules.optimizer_kernels == SINGLE:  # which shares no parameter
            held = self.local_parameters | self.builder.experts.updated(self.builder.batch * self.num_microbatches)
            names = [name for name, devices in self.holders.items() if stage in devices]
            counts = [held[name] for name in names]
            decayed = {place for place, name in enumerate(names) if self.parameter_ids[name] in self._decayed}
        known: dict[float, KernelTime] = {}
        updates: list[KernelTime] = []
        for call in self.numerics.optimizer_calls(counts, decayed):
            size = call.bytes_read + call.bytes_written
            known[size] = known.get(size) or KernelTime.of(self.cost, call, "optimizer")
            updates.append(known[size] if updates else replace(known[size], calls=STEP))
        transposes, num_cast = self.machine.device.transposes_fp8, self._num_cast(stage)
        return (*updates, *updated_casts(self.cost, self.strategy, self.numerics.precision, num_cast, transposes))

    @cached_property
    def _decayed(self) -> frozenset[int]:
        """The parameters that kernels of their own decay."""
        graph, which = self.graph, self.strategy.rules.weight_decay
        if which == NO_DECAY:
            return frozenset()
        of_products = {
            graph.view_roots[t] for op in graph.ops if op.role == "product" and op.phase == "forward" for t in op.inputs
        }
        return frozenset(
            t.id for t in graph.parameters if which != DECAYED_PRODUCTS or (t.id in of_products and len(t.shape) > 1)
        )

    def unshared_passes(self, stage: int) -> tuple[KernelTime, ...]:
        """Return the passes over gradients that are reduced with no replica's."""
        held = (name for name, devices in self.holders.items() if stage in devices and not self._data_group(name))
        size = sum(self.local_parameters[name] for name in held) * self.numerics.gradient_bytes
        return reduction_passes(self.cost, self.numerics.precision, self.gradient_buffer, size)

    def zero_pass(self, num_parameters: int) -> tuple[KernelTime, ...]:
        """Return the pass that sets so many gradients to zero, where the buffer has one."""
        size = num_parameters * self.numerics.gradient_bytes
        return zero_pass(self.cost, self.numerics.precision, self.gradient_buffer, size)

    def gradients(self, context: TemplateContext, stage: int) -> dict[int, list[Gradient]]:
        """Return the device's parameter gradients by the chunk that ends them; a tied one is its own contribution."""
        size, chunks = self.numerics.gradient_bytes, self.assignment.chunks(stage)
        found: dict[int, list[Gradient]] = {chunk: [] for chunk in range(len(chunks))}
        for t in self.graph.gradients:
            devices = self.holders.get(t.name, ())
            if stage not in devices or t.producer is None:
                continue
            parts = self.assignment.tied_gradients.get(t.name)
            if parts is None:
                own = {self.assignment.parameter_stages[t.name][0]: [t.id]}
            else:
                own = {s: parts[s] for s in chunks if parts.get(s)}
            if own:  # backwards run from the highest chunk to the lowest
                tied = f"tied{self.tied.index(devices)}" if len(devices) > 1 else ""
                summed, count = self.sharding.summed.get(t.name, ""), self.local_parameters[t.name]
                if self.strategy.has_whole_experts and t.name in self.expert_parameters:
                    summed = ""  # tp ranks are among those that its data group is of
                leaves = tuple(leaf for leaves in own.values() for leaf in leaves)
                ends = min(own)
                unit = context.units[ends].of_parameter.get(t.name, -1) if context.units else -1
                gradient = Gradient(
                    t.name, leaves, count * size, tied_group=tied, summed_group=summed, num_parameters=count,
                    weight_bytes=self.weight_bytes(t.name), unit=unit, data_group=self._data_group(t.name),
                )  # fmt: skip
                found[chunks.index(ends)].append(gradient)
        return found

    def _data_group(self, parameter: str) -> str:
        """Return the groups of replicas that hold the parameter, "" if there is one replica of it."""
        if parameter not in self.expert_parameters:
            return ALL_DATA if self.strategy.num_data_ranks > 1 else ""
        return EXPERT_DATA if self.strategy.ep > 1 and self.strategy.num_expert_replicas > 1 else ""

    def weight_bytes(self, parameter: str) -> int:
        """Return the bytes of a device's part of a trained weight as it is gathered."""
        width: float = self.numerics.parameter_bytes
        if self.strategy.rules.narrow_weights and self.parameter_ids[parameter] in self.products_weights:
            width = get_precision(self.numerics.precision).gathered_weight_bytes
        return math.ceil(self.local_parameters[parameter] * width)

    def _num_cast(self, stage: int) -> int:
        """Return a device's trained weights that lie in the products' width, alone or besides."""
        here = (name for name, devices in self.holders.items() if stage in devices)
        return sum(self.local_parameters[name] for name in here if self.parameter_ids[name] in self.products_weights)

    def added_bytes(self, stage: int) -> int:
        """Return by how much the trained weights that a device holds are more for the copies that products read.

        Model: copies of weights that ranks share last no longer than what is gathered, and are not counted.
        """
        here = [name for name, devices in self.holders.items() if stage in devices]
        wide = self.numerics.parameter_bytes
        if not self.numerics.held_weight_bytes:
            return 0
        if self.state.shares_weights:
            return (
                sum(self.weight_bytes(name) - self.local_parameters[name] * wide for name in here) // self.state.degree
            )
        held = self.copied_bytes - (wide if self.strategy.rules.narrow_weights else 0)
        return math.ceil(self._num_cast(stage) * held - 1e-6)

    def units(self) -> dict[int, WeightUnits]:
        """Return what every stage gathers together where ranks share weights."""
        if not self.state.shares_weights:
            return {}
        graph, stages = self.graph, self.assignment
        held = {
            name: (self._data_group(name), count, self.weight_bytes(name))
            for name, count in self.local_parameters.items()
        }
        has_root, is_kept = self.state.copies_units, self.state.gathers_once
        return {s: block_units(graph, stages, s, held, has_root, is_kept) for s in range(stages.num_stages)}

    @property
    def gradient_buffer(self) -> GradientBuffer:
        """What is done to gradients besides accumulating and reducing them."""
        return GRADIENT_BUFFERS[self.strategy.rules.gradient_buffer]
