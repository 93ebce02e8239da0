"""StageMemories: what the devices of a pipeline need (MODEL D15), before anything that they run is written."""

import math
from collections.abc import Sequence
from itertools import zip_longest

from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError
from rostam_py.graph import WEIGHT_KINDS, Derived
from rostam_py.placement.megatron.backward_split import held_for_weights
from rostam_py.placement.megatron.context_parallel import ContextExchange
from rostam_py.placement.megatron.memory.blocks import block_bytes
from rostam_py.placement.megatron.memory.gathered import GatheredMemory, gathered_memory, unit_gradient_bytes
from rostam_py.placement.megatron.memory.messages import Messages, stage_messages
from rostam_py.placement.megatron.memory.reserved import reserved_for_gathers, reserved_in_turn
from rostam_py.placement.megatron.memory.resident import Resident, resident_memory
from rostam_py.placement.megatron.memory.turn import Turn, turn_bytes
from rostam_py.placement.megatron.offload import Offload, offload
from rostam_py.placement.megatron.recompute import Recomputation, first_blocks
from rostam_py.placement.megatron.stage_parameters import StageParameters
from rostam_py.placement.megatron.weight_units import WeightUnits
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.megatron.writers.user_buffers import user_buffer_bytes
from rostam_py.placement.megatron.writers.weight_gathers import Gathers, unit_gathers
from rostam_py.placement.memory.device_memory import full_recompute_bytes, stage_memory, stored_bytes
from rostam_py.plan.pairs import backwards_first
from rostam_py.plan.phases import BACKWARD, FORWARD, FULL, WEIGHT, chunk_of, phase_of
from rostam_py.plan.program import Program
from rostam_py.plan.program_rules import DTENSOR, EXACT, IN_USE, MCORE
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import MemoryBytes


class StageMemories:
    """Memory of the devices of one pipeline.

    activation_changes, gathered: by device, filled by ``of_devices``: what templates take and give back, and whole
    weights as they come and go.
    Args: weight_ops: of backward that run apart (zero-bubble schedules). derived, derived_losses: what backward
        computes again. programs: of every device.
    """

    def __init__(
        self, parameters: StageParameters, recomputation: Recomputation, derived: Derived, derived_losses: Derived,
        *, exchange: ContextExchange | None, weight_ops: frozenset[int], programs: Sequence[Program],
    ) -> None:  # fmt: skip
        self.parameters, self.recomputation = parameters, recomputation
        self.derived, self.derived_losses = derived, derived_losses
        self.exchange, self.weight_ops, self.programs = exchange, weight_ops, programs
        self.builder, self.graph, self.sharding = parameters.builder, parameters.graph, parameters.sharding
        self.assignment, self.machine, self.strategy = parameters.assignment, parameters.machine, parameters.strategy
        self.numerics, self.state = parameters.numerics, parameters.state
        self.num_microbatches = parameters.num_microbatches
        self.messages = self._messages()
        self.activation_changes: list[dict[str, tuple[float, float]]] = []
        self.gathered: list[GatheredMemory] = []
        self.slack: list[float] = []  # of every stage, bytes by which it takes more before than with gradients
        self.passing: list[float] = []  # of every stage, bytes that a block's kernels hand on beyond what counts

    def of_devices(self, context: TemplateContext) -> list[MemoryBytes]:
        """Return what every device needs; activations at their most while its program runs."""
        self.builder.kept_times = {} if self.exchange is None else self.exchange.kept_times()
        is_full = self.strategy.recompute == "full"
        self.builder.kept_times.update(dict.fromkeys(self._gathered_for_backward(is_full), self.sharding.degree))
        wide = self.numerics.parameter_bytes
        width = (self.parameters.copied_bytes + (0 if self.strategy.rules.narrow_weights else wide)) / wide
        widths = dict.fromkeys(self.parameters.products_weights, width)
        residents = resident_memory(self.graph, self.builder, self.assignment, is_full, widths)
        saved = self._saved_by_stage()
        turns = turn_bytes(self.graph, context.kernels, self.builder, self.assignment, saved, self.derived)
        context.offload = self._offload(saved)
        blocks = self._passing_in_blocks(context, saved)
        changes = self._activation_changes(residents, saved, turns, blocks, context.offload.freed_bytes)
        gradient_bytes = unit_gradient_bytes(
            self.state, get_precision(self.numerics.precision).tensor_bytes, self.numerics.gradient_bytes
        )
        result = []
        for s, program in enumerate(kept_order(self.strategy, program) for program in self.programs):
            chunks = self.assignment.chunks(s)
            by_template = {name: changes[chunks[chunk_of(name) or 0]][phase_of(name)] for name in program.counts()}
            untrained = sum(residents[k].weights for k in chunks)
            count, shared = self.parameters.num_parameters(s), self.parameters.num_shared(context, s)
            held = self.state.held(count, shared)
            if not self.state.level:  # of tables all rows are held, gradients are of those that were looked up
                held = count, shared, count
            self.gathered.append(gathered_memory(context, chunks, gradient_bytes, self.slack))
            self.activation_changes.append(by_template)
            most = program.peak(by_template)
            gathered = math.ceil(self.gathered[-1].peak(program, by_template) - most - 1e-6)
            result.append(
                stage_memory(
                    held, most, self.numerics,
                    untrained_bytes=untrained,
                    gathered_bytes=gathered,
                    added_bytes=self.parameters.added_bytes(s),
                    staying_bytes=self._staying(context, s),
                    reserved_bytes=self._reserved(context, s, shared),
                    buffer_bytes=user_buffer_bytes(context),
                    message_bytes=self._message_bytes(chunks),
                )
            )  # fmt: skip
        return result

    def _messages(self) -> list[Messages]:
        """Return what stages hold of messages of all micro-batches."""
        if self.strategy.rules.pipeline_buffers == IN_USE or self.strategy.pp == 1:
            return [Messages()] * self.assignment.num_stages
        return stage_messages(self.graph, self.assignment)

    def _message_bytes(self, chunks: Sequence[int]) -> int:
        """Return the bytes of messages that a device holds for the stages that it has."""
        found = sum(self.messages[chunk].num_bytes(self.builder) for chunk in chunks)
        return math.ceil(found * self.num_microbatches - 1e-6)

    def _reserved(self, context: TemplateContext, device: int, num_shared: int) -> int:
        """Return the bytes that an allocator holds besides what lives at once.

        Args: num_shared: a device's share of the parameters.
        """
        if self.strategy.rules.allocator == EXACT:
            return 0
        chunks = self.assignment.chunks(device)
        found = max(self.passing[chunk] for chunk in chunks)
        found += sum(
            reserved_in_turn(self._logits_bytes(chunk), self.slack[chunk], gradients)
            for chunk, gradients in zip_longest(chunks, self.gathered[-1].gradients, fillvalue=0)
        )
        if self.state.shares_weights:
            ahead = self.state.prefetch if self.state.is_resharded else 0
            found += reserved_for_gathers(context, chunks, ahead)
            found += 0 if self.state.reduces_every_microbatch else num_shared * self.numerics.gradient_bytes
        return math.ceil(found)

    def _passing_in_blocks(self, context: TemplateContext, saved: list[set[int]]) -> list[float]:
        """Return the most bytes that kernels of a block's backward hand to one another, of every stage."""
        if self.strategy.rules.allocator == EXACT:
            return [0.0] * self.assignment.num_stages
        is_full, exchange = self.strategy.recompute == "full", self.exchange
        return block_bytes(
            self.graph, context.kernels, self.builder, self.assignment, saved, self.derived,
            kept_whole=self._gathered_for_backward(is_full), copies=self.strategy.rules.tp_style == DTENSOR,
            is_replayed=is_full, inside=None if exchange is None else exchange.bytes_inside,
        )  # fmt: skip

    def _logits_bytes(self, stage: int) -> float:
        """Return the bytes of what an eager loss makes fp32 copies of, where nothing else holds it."""
        widened = self.builder.widened - self.messages[stage].given
        made = (t for t in widened if (op := self.graph.tensors[t].producer) is not None
                and self.assignment.op_stages[op] == stage)  # fmt: skip
        return sum(self.builder.tensor_bytes(t) for t in made)

    def _staying(self, context: TemplateContext, stage: int) -> int:
        """Return the bytes of a device's units of weights that stay whole from forward to backward."""
        if not self.state.shares_weights:
            return 0
        found = [
            (context.units[chunk], unit_gathers(context, context.units[chunk]))
            for chunk in self.assignment.chunks(stage)
        ]
        staying = sum(size for units, gathers in found for unit in units.staying for _, size in gathers[unit])
        return staying + self._second_copy(found)

    def _second_copy(self, found: list[tuple[WeightUnits, list[Gathers]]]) -> int:
        """Return the bytes of a device's part of a second copy of the weights, of those that do not stay whole."""
        ranks = self.state.again_degree
        left = ((units, k, parts) for units, gathers in found for k, parts in enumerate(gathers) if ranks)
        return sum(-(-size // ranks) for units, k, parts in left if k not in units.staying for _, size in parts)

    def _activation_changes(
        self,
        residents: list[Resident],
        saved: list[set[int]],
        turns: list[Turn],
        blocks: list[float],
        offloaded: float,
    ) -> list[dict[str, tuple[float, float]]]:
        """Return what each phase of a stage's micro-batch takes when it begins and when it has ended [bytes].

        Model: a block that is recomputed takes its activations for as long as the backward runs, as does the largest of
            what is replayed at once of less than blocks, when what the loss and the head kept is gone; before the first
            block's backward, what the loss hands on.
        Args:
            saved: what every stage keeps.
            turns: passing bytes of every stage between forward and backward.
            blocks: passing bytes of every stage in a block's backward, for what an allocator holds.
            offloaded: bytes that lie in the host's memory.
        """
        held = held_for_weights(self.graph, self.weight_ops, self.assignment.op_stages, self.assignment.num_stages)
        found = []
        self.slack, self.passing = [], []
        roots = self.graph.view_roots
        for s, tensors in enumerate(saved):
            if self.strategy.recompute == "full":
                kept, extra = full_recompute_bytes(self.graph, self.builder, tensors, self._block_inputs(s))
            else:
                kept, extra = stored_bytes(self.graph, self.builder, tensors), self._replayed_bytes(s)
            kept += residents[s].inputs - offloaded
            extra = max(0.0, extra - turns[s].freed)
            in_block = extra + blocks[s]
            extra = max(extra, turns[s].with_weights)
            self.slack.append(turns[s].before - extra)
            extra = max(extra, turns[s].before)
            self.passing.append(max(0.0, in_block - extra))
            read_later = {source for t in held[s] for source in self.derived.get(roots[t], (t,))}
            later = stored_bytes(self.graph, self.builder, read_later)
            changes = {FORWARD: (kept, 0.0), BACKWARD: (extra, later - kept - extra), WEIGHT: (0.0, -later)}
            found.append(changes | {FULL: (extra, -kept - extra)})
        return found

    def _offload(self, saved: list[set[int]]) -> Offload:
        """Return what lies in the host's memory between forward and backward."""
        count, device = self.strategy.offload_blocks, self.machine.device
        if not count:
            return Offload()
        if not device.host_bandwidth_bytes_per_s:
            known = [one.name for one in ACCELERATORS.values() if one.host_bandwidth_bytes_per_s]
            raise ConfigError(
                f"strategy.offload_blocks is {count}, but accelerator {device.name} has no host_bandwidth_bytes_per_s;"
                f" set strategy.offload_blocks=0, or in Python get_accelerator({device.name!r}).with_overrides('mine',"
                f" host_bandwidth_bytes_per_s=...). Accelerators with one: {', '.join(known)}"
            )
        every = sorted(first_blocks(self.graph, self.assignment.op_stages, None))
        if count >= len(every):
            raise ConfigError(
                f"strategy.offload_blocks is {count}; it must be less than the {len(every)} blocks of {self.graph.name}"
            )
        return offload(self.graph, self.builder, saved[0], every, count, device.host_bandwidth_bytes_per_s)

    def _replayed_bytes(self, stage: int) -> float:
        """Return the most bytes that one replay makes of what is not kept."""
        dropped, most = self.recomputation.dropped, 0.0
        for op, replayed in self.recomputation.points.items():
            if self.assignment.op_stages[op] == stage:
                made = {t for o in replayed for t in self.graph.ops[o].outputs if t in dropped}
                kept = {t for t in made if self.graph.tensors[t].is_saved}
                most = max(most, stored_bytes(self.graph, self.builder, kept))
        return most

    def _saved_by_stage(self) -> list[set[int]]:
        """Return what every stage keeps for backward: the saved tensors it makes or receives, but for messages that
        lie in places of their own.
        """
        stages = self.assignment
        dropped, also_kept = self.recomputation.dropped, self.recomputation.kept
        saved: list[set[int]] = [set() for _ in range(stages.num_stages)]
        for t in self.graph.tensors:
            if t.id in also_kept and t.producer is not None:
                saved[stages.op_stages[t.producer]].add(t.id)
            if not t.is_saved or t.kind in WEIGHT_KINDS or t.id in dropped or self._is_derived(t.id):
                continue
            users = [u for u in self.graph.consumers[t.id] if self.graph.ops[u].phase == "backward"]
            where = {stages.op_stages[u] for u in users if not self.graph.ops[u].is_metadata}
            if not where and t.producer is not None:
                where = {stages.op_stages[t.producer]}
            for s in where:
                saved[s].add(t.id)
        for made, sources in self.derived_losses.items():
            producer = self.graph.tensors[made].producer
            if producer is not None:
                saved[stages.op_stages[producer]].update(sources)
        roots = self.graph.view_roots
        # What is kept for a loss that makes its gradient in forward is made by it.
        apart = {t for sources in self.derived_losses.values() for t in sources if self.builder.rules.splits_loss}
        return [
            {t for t in own if t in apart or roots[t] not in one.held}
            for own, one in zip(saved, self.messages, strict=True)
        ]

    def _block_inputs(self, stage: int) -> dict[int, set[int]]:
        """Return what every block of a stage reads from outside itself."""
        inputs: dict[int, set[int]] = {}
        replayed = self.recomputation.replayed
        roots, local, held = self.assignment.roots, self.assignment.is_local, self.messages[stage].held
        for op in self.graph.ops:
            if op.phase != "forward" or op.id not in replayed or self.assignment.op_stages[op.id] != stage:
                continue
            block = inputs.setdefault(op.block, set())
            for t in op.inputs:
                producer = None if roots[t] in held else self.graph.tensors[roots[t]].producer
                if not local[t] and producer is not None and self.graph.ops[producer].block != op.block:
                    block.add(roots[t])
        return inputs

    def _gathered_for_backward(self, is_full: bool = False) -> frozenset[int]:
        """Return the forward tensors that backward reads as forward, or their replay, has gathered them.

        Args: is_full: but for what blocks read, which is kept in parts until they are replayed.
        """
        if self.strategy.rules.tp_style == MCORE:
            return frozenset()
        ops, tensors = self.graph.ops, self.graph.tensors
        read = {
            gather.tensor
            for op, found in self.sharding.gathers.items() if ops[op].phase == "backward"
            for gather in found
        }  # fmt: skip
        if is_full:
            inputs = (self._block_inputs(s).values() for s in range(self.assignment.num_stages))
            read = read.difference(*(t for found in inputs for t in found))
        return frozenset(
            t for t in read if (maker := tensors[t].producer) is not None and ops[maker].phase == "forward"
        )

    def kept_whole(self) -> frozenset[int]:
        """Return the forward tensors that backward reads as they were gathered, where they are kept so."""
        replayed, tensors = self.recomputation.replayed, self.graph.tensors
        return frozenset(t for t in self._gathered_for_backward() if tensors[t].producer not in replayed)

    def _is_derived(self, tensor: int) -> bool:
        return self.graph.view_roots[tensor] in self.derived


def kept_order(strategy: Strategy, program: Program) -> Program:
    """Return a program as activations come and go: of two that take turns the forward's as the backward's go."""
    return backwards_first(program) if strategy.rules.ep_overlap else program
