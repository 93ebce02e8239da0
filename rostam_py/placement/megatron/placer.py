"""The megatron placer: tensor parallelism by sharding propagation, pipelines by graph cuts (MODEL D13)."""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.numerics import Numerics
from rostam_py.costs.optimizers import DECAYED_PRODUCTS, NO_DECAY, SINGLE
from rostam_py.costs.power import limit_notes
from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError, InternalError
from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph
from rostam_py.placement.accumulation import regroup_gradient_sums
from rostam_py.placement.context import SequencePart, split_sequences
from rostam_py.placement.convolution_norms import convolution_norms
from rostam_py.placement.expert_hops import ExpertHops, expert_hops
from rostam_py.placement.experts import SpreadExperts, find_experts, spread_experts
from rostam_py.placement.kernels import KernelBuilder, cost_model_for
from rostam_py.placement.megatron.backward_split import (
    held_for_weights,
    read_by_weights_alone,
    read_from_elsewhere,
    weight_gradient_ops,
)
from rostam_py.placement.megatron.block_memory import block_bytes
from rostam_py.placement.megatron.candidates import candidates
from rostam_py.placement.megatron.context_parallel import BLOCKS, ContextExchange
from rostam_py.placement.megatron.estimate import MegatronEstimator
from rostam_py.placement.megatron.gathered_memory import GatheredMemory, gathered_memory, unit_gradient_bytes
from rostam_py.placement.megatron.gradient_passes import reduction_passes, zero_pass
from rostam_py.placement.megatron.gradients import ALL_DATA, Gradient
from rostam_py.placement.megatron.kept import derived_in_kernels, losses_in_kernels, norms_in_convolutions
from rostam_py.placement.megatron.message_memory import Messages, stage_messages
from rostam_py.placement.megatron.offload import Offload, offload
from rostam_py.placement.megatron.pipeline import StageAssignment, assign_stages
from rostam_py.placement.megatron.planner import Planner
from rostam_py.placement.megatron.recompute import (
    Recomputation,
    first_blocks,
    recompute_selected,
    replay_blocks,
)
from rostam_py.placement.megatron.recompute_modules import attention_core, is_attention_fused, replays_attention, select
from rostam_py.placement.megatron.reserved_memory import reserved_for_gathers, reserved_in_turn
from rostam_py.placement.megatron.resident_memory import Resident, resident_memory
from rostam_py.placement.megatron.template_writer import TemplateContext
from rostam_py.placement.megatron.templates import write_stage
from rostam_py.placement.megatron.turn_memory import Turn, turn_bytes
from rostam_py.placement.megatron.user_buffers import user_buffer_bytes
from rostam_py.placement.megatron.weight_gathers import unit_gathers
from rostam_py.placement.megatron.weight_units import WeightUnits, block_units
from rostam_py.placement.memory import check_capacity, full_recompute_bytes, stage_memory, stored_bytes
from rostam_py.placement.norm_kernels import with_joined_norms
from rostam_py.placement.placer import Placer
from rostam_py.placement.routed_tokens import own_rows
from rostam_py.placement.schedule import in_flight_words, stage_program
from rostam_py.placement.sharding import OwnRows, Sharding, propagate
from rostam_py.placement.tables import check_servers, spread_tables, table_server_size
from rostam_py.plan.data import Batches
from rostam_py.plan.expert_groups import EXPERT_DATA, expert_groups
from rostam_py.plan.fusion import (
    APART_NORMS,
    EPILOGUE,
    EVERYWHERE,
    FUSED_NORM,
    MODULES,
    POINTWISE,
    PRODUCER,
    TORCH,
    UNFUSED,
)
from rostam_py.plan.gradient_buffers import GRADIENT_BUFFERS, GradientBuffer
from rostam_py.plan.groups import GroupSet, grid_groups, sharding_groups
from rostam_py.plan.host_calls import STEP
from rostam_py.plan.machine import Machine
from rostam_py.plan.pairs import backwards_first
from rostam_py.plan.phases import BACKWARD, FORWARD, WEIGHT, chunk_of, phase_of
from rostam_py.plan.plan import Plan
from rostam_py.plan.program import Program
from rostam_py.plan.ranks import assign_accelerators
from rostam_py.plan.searched_axes import NO_FACTS, SEARCHED_AXES, ModelFacts, Site, Space, without_axes
from rostam_py.plan.state_sharding import GATHERED_EXPERTS
from rostam_py.plan.strategy import DTENSOR, EXACT, IN_USE, MCORE, SCHEDULES, Strategy
from rostam_py.plan.table_groups import HIERARCHICAL, REPLICATED, table_groups
from rostam_py.plan.tasks import KernelTime, MemoryBytes, Stage
from rostam_py.software.product_inputs import narrow_weights
from rostam_py.software.rules import rules_of
from rostam_py.software.weight_casts import updated_casts


class MegatronPlacer(Placer):
    """Turn a graph, a machine and a Strategy(dp, tp, cp, pp) into a Plan.

    Plans which differ in dp, pp or recomputation alone share what depends on tp and micro-batch: sharding and timed
    kernels.
    """

    AXES = ("dp", "tp", "cp", "pp")
    INNER_AXES = ("ep",)
    reads_fabric = False
    fits_memory = False
    shards_state = True
    buffers_gradients = True
    FUSIONS = (POINTWISE, EPILOGUE, MODULES, UNFUSED, PRODUCER)
    SEARCHED = tuple(SEARCHED_AXES)

    def candidates(
        self, num_accelerators: int, batch: int, space: Space | None = None, facts: ModelFacts = NO_FACTS
    ) -> Iterator[Strategy]:
        """Yield the strategies on all accelerators that a search considers, all else as in this placer's own."""
        searched = Space.of(self.strategy) if space is None else space
        return candidates(without_axes(self.strategy), Site(num_accelerators, batch, facts), searched)

    def estimator(self, plan: Plan) -> MegatronEstimator:
        """Return what estimates a plan of this placer."""
        return MegatronEstimator(plan)

    def doubts(self, graph: OperatorGraph) -> list[str]:
        """Return what of the strategy is legal, but hardly meant: recomputation that frees next to nothing."""
        if self.strategy.replayed_modules != ("core_attn",) or not is_attention_fused(graph):
            return []
        return [
            f"strategy.recompute=selective replays the attention of {graph.name} to free a log-sum-exp for each row:"
            " it is one fused kernel, which keeps nothing else inside. Name modules that free more in"
            " strategy.recompute_modules, for example [layernorm,activation] or [every_other_product], or set"
            " strategy.recompute=full"
        ]

    def planner(self, graph: OperatorGraph, machine: Machine, routing: str, shared: dict[Any, Any]) -> Planner | None:
        """Return what ranks strategies without placing them; None for models without stacks of equal blocks."""

        def place(short: OperatorGraph, strategy: Strategy, batch: int) -> Plan:
            _, known = self.shared.setdefault(("short", id(short)), (short, {}))  # held, so that its id stays its own
            return MegatronPlacer(strategy, self.cost_name, self.cost_config, known).place(short, machine, batch)

        planner = Planner(graph, machine, without_axes(self.strategy), routing, shared, place)
        return planner if planner.can_plan else None

    def fabric_key(self, machine: Machine) -> Hashable:
        """Return the sizes of servers and what collectives hold of an accelerator, where plans depend on them."""
        strategy = self.strategy
        if strategy.tables != HIERARCHICAL and strategy.servers_per_token is None and not strategy.tp_overlap:
            return None
        return machine.fabric.config.accelerators_per_server, machine.shared_multiprocessors

    def place(self, graph: OperatorGraph, machine: Machine, global_batch: int) -> Plan:
        """Return the plan.

        Raises: DegreeError for degrees that do not fit; MemoryCapacityError for a plan that does not; ConfigError for
            recomputation of a model that checkpoints its own regions, and for products overlapped with collectives of a
            tensor-parallel group that spans servers.
        Cost: linear in ops, plus pp x candidate cuts^2.
        """
        strategy = self.strategy
        if strategy.recompute != "none" and any(op.is_recomputed for op in graph.ops):
            raise ConfigError(
                f"strategy.recompute is {strategy.recompute!r}; it must be 'none' for {graph.name}, which checkpoints"
                " its own regions: they would run again twice"
            )
        accelerators = assign_accelerators(strategy, machine)
        self._check_reach(machine, accelerators)
        micro_batch, num_microbatches = strategy.batches(global_batch)
        if strategy.ep_overlap and num_microbatches == 1:
            raise ConfigError(
                "strategy.ep_overlap is true: all-to-alls of experts overlap with another micro-batch, but there is"
                f" one, of {micro_batch:,} samples; set strategy.micro_batch smaller, or leave strategy.ep_overlap out"
            )
        hops = self._hops(graph, machine, accelerators)
        builder = self._builder(graph, machine, micro_batch, hops.rank_share)
        if (size := table_server_size(strategy, machine)) > 1:
            check_servers(accelerators.ravel(), size, machine.fabric.config.accelerators_per_server)
        job = _Job(builder, self._assignment(builder), machine, strategy, num_microbatches, hops=hops)
        graph = job.graph
        stages = job.build_stages()
        batches = Batches(global_batch, micro_batch, num_microbatches)
        return Plan.on_grid(
            graph.name, machine, strategy, batches, stages, accelerators,
            groups=job.groups(accelerators.shape),
            algorithms=dict(strategy.algorithms),
            notes=(*job.notes(), *graph.notes), cost=self.cost_name,
            precision=job.numerics.precision, optimizer=job.numerics.optimizer,
            sequence_length=graph.sequence_length,
            max_circuit_degree=strategy.max_circuit_degree,
        )  # fmt: skip

    def _check_reach(self, machine: Machine, accelerators: np.ndarray) -> None:
        """Refuse products that overlap with copies between members that cannot write into each other's memory.

        Model: what NVLink does not join, servers or racks. Where a fabric has none, all reach each other.
        Source: NVIDIA/TransformerEngine, issue 1071 (one node) and pull request 1470 (racks joined by NVLink).
            PyTorch's symmetric memory maps the other members' memory as well (pytorch/pytorch, pull request 128582).
        """
        strategy, per_server = self.strategy, machine.fabric.config.accelerators_per_server
        if not strategy.tp_overlap or per_server <= 1:
            return
        servers = accelerators.reshape(-1, accelerators.shape[-1]) // per_server
        most = max(len(np.unique(members)) for members in servers)
        if most > 1:
            program = "Transformer Engine's user buffers" if strategy.tp_style == MCORE else "symmetric memory"
            raise ConfigError(
                f"strategy.tp_overlap is true, but a group of strategy.tp = {strategy.tp} lies in {most} servers of"
                f" {per_server} accelerators: {program} reach members of one server (or NVLink domain) alone. Set"
                f" strategy.tp_overlap=false, or a strategy.tp of at most {per_server} whose groups lie in one server"
            )

    def _hops(self, graph: OperatorGraph, machine: Machine, accelerators: np.ndarray) -> ExpertHops:
        """Return how rows of experts travel: nothing where one goes to each expert's rank, or ep does not fit."""
        strategy = self.strategy
        if strategy.servers_per_token is None:
            return ExpertHops()
        if "experts" not in self.shared:
            self.shared["experts"] = find_experts(graph)
        experts: SpreadExperts = self.shared["experts"]
        counts = {count for _, count in experts.layers}
        if any(count % strategy.ep for count in counts) or not counts:
            return ExpertHops()  # refused where experts are spread
        if len(counts) != 1 or not experts.per_token.is_integer() or not experts.per_token:
            raise ConfigError(
                f"strategy.servers_per_token is {strategy.servers_per_token}, but {graph.name} does not send"
                " every token to the same number of equally many experts; leave it out"
            )
        ids = np.arange(accelerators.size).reshape(accelerators.shape)
        (groups, *_) = expert_groups(ids, strategy.ep, strategy.has_whole_experts)
        servers = accelerators.ravel() // machine.fabric.config.accelerators_per_server
        return expert_hops(groups.members, servers, counts.pop(), int(experts.per_token), strategy.servers_per_token)

    def _builder(
        self, graph: OperatorGraph, machine: Machine, micro_batch: int, rank_share: float = 0.0
    ) -> KernelBuilder:
        """Return the kernels of the sharded graph, made now or by a placer before. Args: rank_share: as of hops."""
        strategy = self.strategy
        if "graph" not in self.shared:
            self.shared["graph"] = regroup_gradient_sums(graph)
        graph = self.shared["graph"]
        if strategy.eager_loss != TORCH and not any(op.role == "pick" for op in graph.ops):
            raise ConfigError(
                f"strategy.eager_loss is {strategy.eager_loss!r}, but the loss of {graph.name} is no cross entropy of"
                " classes; leave it out"
            )
        if strategy.convolution_norms != APART_NORMS and not convolution_norms(graph):
            raise ConfigError(
                f"strategy.convolution_norms is {strategy.convolution_norms!r}, but {graph.name} has no norm of"
                " channels between convolutions of 1 x 1 or 3 x 3; leave it out"
            )
        numerics = strategy.numerics(graph)
        part = self._part(graph)
        rules = rules_of(strategy, numerics.precision, numerics.gradient_bytes)
        key = (
            rules, strategy.tp, strategy.sequence_parallel, strategy.ep, strategy.has_whole_experts, self._part_key(),
            micro_batch, machine.min_kernel_s, machine.device.figures, rank_share, *self._tables_key(machine),
        )  # fmt: skip
        if key not in self.shared:
            cost = cost_model_for(self.cost_name, self.cost_config, graph, machine)
            local = graph if part is None else part.graph
            sharding = self._sharding(local, micro_batch)
            self.shared[key] = KernelBuilder(
                local, sharding, cost, rules, micro_batch,
                experts=self._spread(local, sharding, machine, micro_batch, numerics), part=part,
                fusions=self.shared.setdefault(("fusions", self._part_key(), strategy.eager_norm), {}),
                device=machine.device, rank_share=rank_share,
            )  # fmt: skip
        builder: KernelBuilder = self.shared[key]
        return builder

    def _assignment(self, builder: KernelBuilder) -> StageAssignment:
        """Return the stages of a builder's graph, cut now or by a placer before; builders are kept, and so are ids."""
        strategy = self.strategy
        key = ("stages", id(builder), strategy.pp, strategy.virtual_stages, strategy.stage_blocks)
        if key not in self.shared:
            seconds = builder.op_seconds() if strategy.pp > 1 else []
            self.shared[key] = assign_stages(
                builder.graph, strategy.pp, seconds, builder.batch, builder.sharding.collected,
                num_chunks=strategy.virtual_stages, stage_blocks=strategy.stage_blocks,
            )  # fmt: skip
        found: StageAssignment = self.shared[key]
        return found

    def _tables_key(self, machine: Machine) -> tuple[object, ...]:
        """Return what the kernels of spread tables depend on besides."""
        strategy = self.strategy
        return () if strategy.tables == REPLICATED else (
            strategy.tables, strategy.table_ids, strategy.num_data_ranks, strategy.optimizer,
            strategy.replicated_tables_bytes, table_server_size(strategy, machine),
        )  # fmt: skip

    def _spread(
        self, graph: OperatorGraph, sharding: Sharding, machine: Machine, micro_batch: int, numerics: Numerics
    ) -> SpreadExperts:
        """Return what of the model data-parallel ranks do not all hold: experts, or embedding tables."""
        strategy = self.strategy
        if strategy.tables == REPLICATED or strategy.num_data_ranks == 1:
            return spread_experts(graph, strategy.ep, sharding.expert_ways)
        held = numerics.parameter_bytes + numerics.state_bytes
        return spread_tables(
            graph, strategy.tables, strategy.num_data_ranks, micro_batch, held, machine.device.memory_bytes,
            strategy.table_ids, table_server_size(strategy, machine), strategy.replicated_tables_bytes,
        )  # fmt: skip

    def _sharding(self, graph: OperatorGraph, micro_batch: int) -> Sharding:
        degree, is_split = self.strategy.tp, self.strategy.sequence_parallel
        is_whole = self.strategy.has_whole_experts
        is_routed = is_whole or (is_split and self.strategy.ep > 1)  # a tp rank routes its own tokens
        key = ("sharding", degree, is_split, is_routed, is_whole, self._part_key(), micro_batch)
        if key not in self.shared:
            own = own_rows(graph, are_experts_split=not is_whole) if is_routed else OwnRows()
            self.shared[key] = propagate(graph, degree, micro_batch, is_split, own)
        sharding: Sharding = self.shared[key]
        return sharding

    def _part_key(self) -> tuple[int, int]:
        """Return what tells parts of the model apart: the ranks that share a sequence, and their blocks of it."""
        return (self.strategy.cp, BLOCKS[self.strategy.cp_algorithm] if self.strategy.cp > 1 else 1)

    def _part(self, graph: OperatorGraph) -> SequencePart | None:
        """Return what one rank of those that share a sequence runs, made now or by a placer before."""
        degree, blocks = self._part_key()
        if degree == 1:
            return None
        key = ("part", degree, blocks)
        if key not in self.shared:
            self.shared[key] = split_sequences(graph, degree, blocks)
        part: SequencePart = self.shared[key]
        return part


class _Job:
    """One placement in progress: shard, cut, fuse, write templates, add up memory."""

    def __init__(
        self, builder: KernelBuilder, assignment: StageAssignment, machine: Machine, strategy: Strategy,
        num_microbatches: int, hops: ExpertHops,
    ) -> None:  # fmt: skip
        self.hops = hops
        self.builder, self.graph, self.sharding, self.cost = builder, builder.graph, builder.sharding, builder.cost
        self.machine, self.strategy, self.num_microbatches = machine, strategy, num_microbatches
        self.numerics = strategy.numerics(builder.graph)
        graph = self.graph
        self.exchange = None
        if builder.part is not None:
            is_kept = not replays_attention(graph, strategy.recompute, strategy.replayed_modules)
            self.exchange = ContextExchange(builder.part, strategy.cp_algorithm, builder, is_kept)
        self.assignment = assignment
        self.state = strategy.state_sharding
        self.states = {ALL_DATA: self.state, EXPERT_DATA: strategy.expert_state_sharding}
        names = self.assignment.parameter_stages
        self.holders = {name: self.assignment.holders(name) for name in names}
        self.tied = tuple(sorted({devices for devices in self.holders.values() if len(devices) > 1}))
        splits = SCHEDULES.get(strategy.schedule).splits(strategy.pp)
        self.weight_ops = weight_gradient_ops(graph) if splits else frozenset()
        self.programs = [
            stage_program(
                strategy.schedule, s, strategy.pp, num_microbatches, strategy.virtual_stages, strategy.num_ahead
            )
            for s in range(strategy.pp)
        ]
        self.local_parameters = {
            t.name: math.ceil(
                t.num_elements(1) * self.sharding.tensor_fraction(t.id) * builder.experts.share(t.id) - 1e-6
            )
            for t in graph.parameters
        }
        self.parameter_ids = {t.name: t.id for t in graph.parameters}
        precision = get_precision(self.numerics.precision)
        self.products_weights = narrow_weights(graph) if precision.casts else frozenset[int]()
        self.copied_bytes = precision.copied_weight_bytes(machine.device.transposes_fp8)
        self.derived = {
            t: sources
            for t, sources in derived_in_kernels(graph, builder, self.assignment, self._sent()).items()
            if self._is_fused(t)
        }
        self.derived_losses = losses_in_kernels(graph, builder)
        self.derived |= self.derived_losses | norms_in_convolutions(graph, builder)
        self.recomputation = self._recomputation()
        self.messages = self._messages()
        self.activation_changes: list[dict[str, tuple[float, float]]] = []  # by device of the pipeline
        self.gathered: list[GatheredMemory] = []  # the same
        self.slack: list[float] = []  # of every stage, bytes by which it takes more before than with gradients
        self.passing: list[float] = []  # of every stage, bytes that a block's kernels hand on beyond what counts
        self.expert_parameters = {t.name for t in graph.parameters if t.id in builder.experts.divided}

    def groups(self, shape: tuple[int, int, int]) -> tuple[GroupSet, ...]:
        """Return the process groups of a (dp, pp, tp) grid."""
        found = grid_groups(shape, self.tied, self.sharding.inner_degrees, self.strategy.cp)
        ids = np.arange(math.prod(shape)).reshape(shape)
        found += expert_groups(ids, self.strategy.ep, self.strategy.has_whole_experts) + self.hops.groups
        found += table_groups(ids, self.strategy.tables, table_server_size(self.strategy, self.machine))
        found += sharding_groups(shape, self.state.degree) if self.state.level else ()
        if self.states[EXPERT_DATA].level:
            same = next(one for one in found if one.label == EXPERT_DATA)
            found += (GroupSet("zero", GATHERED_EXPERTS, same.members),)
        return found

    def build_stages(self) -> tuple[Stage, ...]:
        context = self._context()
        memory = self._memory(context)
        if self.strategy.check_memory:
            check_capacity(
                self.machine, memory, [in_flight_words(self._kept_order(program)) for program in self.programs]
            )
        return tuple(self._stage(context, s, memory[s]) for s in range(self.strategy.pp))

    def _context(self) -> TemplateContext:
        kernels = with_joined_norms(self.builder, self.builder.fused(self._barriers(), self.derived, self._classes()))
        kernel_of = {op: k for k, kernel in enumerate(kernels) for op in kernel.ops}
        replays: dict[int, list[int]] = {}
        for op, ops in self.recomputation.points.items():
            found = replays.setdefault(kernel_of[op], [])
            found.extend(k for k in sorted({kernel_of[o] for o in ops}) if k not in found)
        replicas = max(self.strategy.num_data_ranks, self.strategy.num_expert_replicas)
        bucket = self.strategy.bucket_bytes if replicas > 1 else 0
        sent = {t for stage in self.assignment.down for t in stage}
        if any(self.graph.tensors[t].producer in self.weight_ops for t in sent):
            raise InternalError("a stage would wait for the result of a weight gradient's op of another")
        late = read_by_weights_alone(self.graph, self.weight_ops, self.sharding.comms) - sent
        late -= set(self.builder.experts.exchanged)
        return TemplateContext(
            graph=self.graph, sharding=self.sharding, stages=self.assignment, kernels=kernels, builder=self.builder,
            replays=replays, bucket_bytes=bucket,
            is_tp_asynchronous=self.strategy.is_tp_asynchronous, min_kernel_s=self.machine.min_kernel_s,
            states=self.states,
            units=self._units(), exchange=self.exchange, tp_style=self.strategy.tp_style, kept_whole=self._kept_whole(),
            is_tp_overlapped=self.strategy.tp_overlap, weight_ops=self.weight_ops, late=frozenset(late), hops=self.hops,
            gradient_buffer=self.gradient_buffer, overlaps_reductions=self.strategy.overlap_grad_reduce,
            overlaps_messages=self.strategy.overlap_p2p, splits_messages=self.strategy.split_p2p,
            sends_narrow=self.strategy.narrow_dispatch, dispatcher=self.strategy.dispatcher,
            multiprocessors=self.machine.shared_multiprocessors, first_bucket_bytes=self.strategy.first_bucket_bytes,
        )  # fmt: skip

    def _kept_whole(self) -> frozenset[int]:
        """Return the forward tensors that backward reads as they were gathered, where they are kept so."""
        replayed, tensors = self.recomputation.replayed, self.graph.tensors
        return frozenset(t for t in self._gathered_for_backward() if tensors[t].producer not in replayed)

    def _gathered_for_backward(self, is_full: bool = False) -> frozenset[int]:
        """Return the forward tensors that backward reads as forward, or their replay, has gathered them.

        Args: is_full: but for what blocks read, which is kept in parts until they are replayed.
        """
        if self.strategy.tp_style == MCORE:
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

    @property
    def gradient_buffer(self) -> GradientBuffer:
        """What is done to gradients besides accumulating and reducing them."""
        return GRADIENT_BUFFERS[self.strategy.gradient_buffer]

    def _sent(self) -> set[int]:
        """Return the tensors that go to another stage or to another rank of the sequence's."""
        crossing = {t for flow in (self.assignment.up, self.assignment.down) for stage in flow for t in stage}
        return crossing | (set() if self.exchange is None else set(self.exchange.barriers()))

    def _is_fused(self, tensor: int) -> bool:
        """Tell whether the op that makes a tensor may share a kernel."""
        producer = self._maker(tensor)
        if self.strategy.fused_as == UNFUSED:
            is_fused = self.strategy.eager_norm == FUSED_NORM
            return is_fused and producer is not None and self.builder.norm_numbers[producer] >= 0
        return self.strategy.fused_part == EVERYWHERE or (
            producer is not None and self.builder.rules.is_fused(self.graph.ops[producer])
        )

    def _is_derived(self, tensor: int) -> bool:
        return self.graph.view_roots[tensor] in self.derived

    def _units(self) -> dict[int, WeightUnits]:
        """Return what every stage gathers together where ranks share weights."""
        if not self.state.shares_weights:
            return {}
        graph, stages = self.graph, self.assignment
        held = {
            name: (self._data_group(name), count, self._weight_bytes(name))
            for name, count in self.local_parameters.items()
        }
        has_root, is_kept = self.state.copies_units, self.state.gathers_once
        return {s: block_units(graph, stages, s, held, has_root, is_kept) for s in range(stages.num_stages)}

    def _recomputation(self) -> Recomputation:
        """Return what is replayed, and what is kept, or not, for it."""
        strategy, stages = self.strategy, self.assignment.op_stages
        if strategy.recompute == "none":
            return Recomputation()
        if strategy.recompute == "full":
            blocks = first_blocks(self.graph, stages, strategy.recompute_blocks)
            derived = self.derived if strategy.recompute_stops_early else None
            return Recomputation(replay_blocks(self.graph, stages, blocks, self.weight_ops, derived))
        sent = self._sent() | set(self.sharding.comms) | set(self.builder.experts.exchanged)
        selection = select(self.graph, strategy.replayed_modules, self.derived, sent)
        found = recompute_selected(
            self.graph, selection, stages, self.assignment.is_local, self.derived, self.weight_ops
        )  # fmt: skip
        if strategy.fused_as == UNFUSED:
            found = replace(found, kept=found.kept | selection.cached)
        return found

    def _barriers(self) -> set[int]:
        """Return the tensors no kernel may fuse across: communicated, summed later, or replayed apart."""
        replayed = self.recomputation.replayed if self.strategy.recompute == "selective" else set()
        cores = {op for core in attention_core(self.graph) for op in core} if replayed else set()
        barriers = self._sent() | set(self.sharding.comms) | set(self.builder.experts.exchanged)
        barriers |= {t for t in read_from_elsewhere(self.graph, self.weight_ops) if not self._is_derived(t)}
        for op in self.graph.ops:
            if op.is_elementwise or self.strategy.fused_as != PRODUCER:  # others start a kernel of their own
                barriers.update(gather.tensor for gather in self.sharding.gathers.get(op.id, ()))
            if self.sharding.inner_comms(op.id) or op.id in self.assignment.skipped:
                barriers.update(t for t in op.outputs if t not in self.derived_losses)
            if op.id in replayed and op.id in cores:
                barriers.update(op.outputs)
                barriers.update(op.inputs)
            elif op.id in replayed:  # the replayed ops that feed one another may be one kernel
                barriers.update(t for t in op.inputs if self._maker(t) not in replayed)
                barriers.update(t for t in op.outputs if self._is_read_apart(t, replayed))
            if op.id in self.assignment.skipped:
                barriers.update(op.inputs)
        return barriers

    def _classes(self) -> dict[int, tuple[int, ...]] | None:
        """Return what tells ops apart that cannot share a kernel, None for nothing.

        Model: stages, templates and replays; where parts of the model are fused, those and each op outside them.
        """
        is_apart = self.strategy.fused_part != EVERYWHERE
        replayed = self.recomputation.replayed if self.strategy.recompute == "selective" else set()
        if self.strategy.fused_as == PRODUCER or not (replayed or self.weight_ops or self.strategy.pp > 1 or is_apart):
            return None
        skipped, stages = self.assignment.skipped, self.assignment.op_stages
        return {
            op.id: (stages[op.id], op.id in self.weight_ops, op.id in replayed, op.id in skipped, *self._own_part(op))
            for op in self.graph.ops
        }

    def _own_part(self, op: Op) -> tuple[int, ...]:
        """Return the part of the model by itself that an op's kernel lies in: its block, the loss or the op alone."""
        if self.strategy.fused_part == EVERYWHERE:
            return ()
        return (op.block, -1 if self.builder.rules.is_fused(op) else op.id)

    def _maker(self, tensor: int) -> int | None:
        return self.graph.tensors[self.graph.view_roots[tensor]].producer

    def _is_read_apart(self, tensor: int, replayed: set[int]) -> bool:
        """Tell whether forward ops that are not replayed read what a replayed one makes."""
        users = self.graph.readers.get(tensor, ())
        return any(self.graph.ops[u].phase == "forward" and u not in replayed for u in users)

    def _stage(self, context: TemplateContext, stage: int, memory: MemoryBytes) -> Stage:
        num_parameters = self._num_parameters(stage)
        num_shared = self._num_shared(context, stage)
        optimizer = (
            *self._unshared_passes(stage), *self._optimizer_kernels(stage, num_shared),
            *self._zero_pass(num_shared if self.state.level >= 2 else self._num_parameters(stage)),
        )  # fmt: skip
        written = write_stage(context, stage, self.programs[stage], self._gradients(context, stage), optimizer)
        return Stage(
            index=stage,
            templates=written.tasks,
            program=written.program,
            memory=memory,
            num_parameters=num_parameters,
            modules=self._modules(stage),
            flops=written.work.model * self.num_microbatches,
            causal_flops=written.work.causal * self.num_microbatches,
            hardware_flops=written.work.run * self.num_microbatches,
            activation_changes=self.activation_changes[stage],
            gathered_changes=self.gathered[stage].changes(written.gathered, written.tasks),
        )

    def _num_parameters(self, stage: int) -> int:
        return sum(self.local_parameters[name] for name, devices in self.holders.items() if stage in devices)

    def _num_shared(self, context: TemplateContext, stage: int) -> int:
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

    def _modules(self, stage: int) -> tuple[str, ...]:
        ops, chunks = self.graph.ops, self.assignment.chunks(stage)
        names = (op.module for op in ops if op.phase == "forward" and self.assignment.op_stages[op.id] in chunks)
        return tuple(dict.fromkeys(n for n in names if n))

    def _optimizer_kernels(self, stage: int, num_parameters: int) -> tuple[KernelTime, ...]:
        """Return the update of as many parameters, and the casts of the weights that an iteration's products read."""
        if not num_parameters:
            return ()
        counts, decayed = [num_parameters], set[int]()
        if self.strategy.optimizer_kernels == SINGLE:  # which shares no parameter
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
        graph, which = self.graph, self.strategy.weight_decay
        if which == NO_DECAY:
            return frozenset()
        of_products = {
            graph.view_roots[t] for op in graph.ops if op.role == "product" and op.phase == "forward" for t in op.inputs
        }
        return frozenset(
            t.id for t in graph.parameters if which != DECAYED_PRODUCTS or (t.id in of_products and len(t.shape) > 1)
        )

    def _unshared_passes(self, stage: int) -> tuple[KernelTime, ...]:
        """Return the passes over gradients that are reduced with no replica's."""
        held = (name for name, devices in self.holders.items() if stage in devices and not self._data_group(name))
        size = sum(self.local_parameters[name] for name in held) * self.numerics.gradient_bytes
        return reduction_passes(self.cost, self.numerics.precision, self.gradient_buffer, size)

    def _zero_pass(self, num_parameters: int) -> tuple[KernelTime, ...]:
        size = num_parameters * self.numerics.gradient_bytes
        return zero_pass(self.cost, self.numerics.precision, self.gradient_buffer, size)

    def _gradients(self, context: TemplateContext, stage: int) -> dict[int, list[Gradient]]:
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
                    t.name, leaves, count * size, tied, summed, count, self._weight_bytes(t.name), unit,
                    self._data_group(t.name),
                )  # fmt: skip
                found[chunks.index(ends)].append(gradient)
        return found

    def _data_group(self, parameter: str) -> str:
        """Return the groups of replicas that hold the parameter, "" if there is one replica of it."""
        if parameter not in self.expert_parameters:
            return ALL_DATA if self.strategy.num_data_ranks > 1 else ""
        return EXPERT_DATA if self.strategy.ep > 1 and self.strategy.num_expert_replicas > 1 else ""

    def _memory(self, context: TemplateContext) -> list[MemoryBytes]:
        """Return what every device needs; activations at their most while its program runs."""
        self.builder.kept_times = {} if self.exchange is None else self.exchange.kept_times()
        is_full = self.strategy.recompute == "full"
        self.builder.kept_times.update(dict.fromkeys(self._gathered_for_backward(is_full), self.sharding.degree))
        wide = self.numerics.parameter_bytes
        width = (self.copied_bytes + (0 if self.strategy.narrow_weights else wide)) / wide
        widths = dict.fromkeys(self.products_weights, width)
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
        for s, program in enumerate(map(self._kept_order, self.programs)):
            chunks = self.assignment.chunks(s)
            by_template = {name: changes[chunks[chunk_of(name) or 0]][phase_of(name)] for name in program.counts()}
            untrained = sum(residents[k].weights for k in chunks)
            count, shared = self._num_parameters(s), self._num_shared(context, s)
            held = self.state.held(count, shared)
            if not self.state.level:  # of tables all rows are held, gradients are of those that were looked up
                held = count, shared, count
            self.gathered.append(gathered_memory(context, chunks, gradient_bytes, self.slack))
            self.activation_changes.append(by_template)
            most = program.peak(by_template)
            gathered = math.ceil(self.gathered[-1].peak(program, by_template) - most - 1e-6)
            result.append(
                stage_memory(
                    held, most, self.numerics, untrained, gathered, self._added_bytes(s), self._staying(context, s),
                    self._reserved(context, s, shared), user_buffer_bytes(context), self._message_bytes(chunks),
                )
            )  # fmt: skip
        return result

    def _messages(self) -> list[Messages]:
        """Return what stages hold of messages of all micro-batches."""
        if self.strategy.pipeline_buffers == IN_USE or self.strategy.pp == 1:
            return [Messages()] * self.assignment.num_stages
        return stage_messages(self.graph, self.assignment)

    def _message_bytes(self, chunks: range) -> int:
        """Return the bytes of messages that a device holds for the stages that it has."""
        found = sum(self.messages[chunk].num_bytes(self.builder) for chunk in chunks)
        return math.ceil(found * self.num_microbatches - 1e-6)

    def _reserved(self, context: TemplateContext, device: int, num_shared: int) -> int:
        """Return the bytes that an allocator holds besides what lives at once.

        Args: num_shared: a device's share of the parameters.
        """
        if self.strategy.allocator == EXACT:
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
        if self.strategy.allocator == EXACT:
            return [0.0] * self.assignment.num_stages
        is_full, exchange = self.strategy.recompute == "full", self.exchange
        return block_bytes(
            self.graph, context.kernels, self.builder, self.assignment, saved, self.derived,
            kept_whole=self._gathered_for_backward(is_full), copies=self.strategy.tp_style == DTENSOR,
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
        return sum(size for units, gathers in found for unit in units.staying for _, size in gathers[unit])

    def _kept_order(self, program: Program) -> Program:
        """Return a program as activations come and go: of two that take turns the forward's as the backward's go."""
        return backwards_first(program) if self.strategy.ep_overlap else program

    def _weight_bytes(self, parameter: str) -> int:
        """Return the bytes of a device's part of a trained weight as it is gathered."""
        width: float = self.numerics.parameter_bytes
        if self.strategy.narrow_weights and self.parameter_ids[parameter] in self.products_weights:
            width = get_precision(self.numerics.precision).gathered_weight_bytes
        return math.ceil(self.local_parameters[parameter] * width)

    def _num_cast(self, stage: int) -> int:
        """Return a device's trained weights that lie in the products' width, alone or besides."""
        here = (name for name, devices in self.holders.items() if stage in devices)
        return sum(self.local_parameters[name] for name in here if self.parameter_ids[name] in self.products_weights)

    def _added_bytes(self, stage: int) -> int:
        """Return by how much the trained weights that a device holds are more for the copies that products read.

        Model: copies of weights that ranks share last no longer than what is gathered, and are not counted.
        """
        here = [name for name, devices in self.holders.items() if stage in devices]
        wide = self.numerics.parameter_bytes
        if not self.numerics.held_weight_bytes:
            return 0
        if self.state.shares_weights:
            return (
                sum(self._weight_bytes(name) - self.local_parameters[name] * wide for name in here) // self.state.degree
            )
        held = self.copied_bytes - (wide if self.strategy.narrow_weights else 0)
        return math.ceil(self._num_cast(stage) * held - 1e-6)

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
            found.append({FORWARD: (kept, 0.0), BACKWARD: (extra, later - kept - extra), WEIGHT: (0.0, -later)})
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

    def notes(self) -> list[str]:
        """Return what a reader of the plan should know."""
        found = [] if self.exchange is None else self.exchange.notes()
        if self.sharding.replicated:
            whole = ", ".join(f"{name} x{count}" for name, count in sorted(self.sharding.replicated.items()))
            found.append(f"run whole on every member of a tp group: {whole}")
        if self.sharding.spatial:
            parts = ", ".join(f"{name} x{count}" for name, count in sorted(self.sharding.spatial.items()))
            found.append(f"split along space over a tp group, halos between neighbours: {parts}")
        if self.strategy.sequence_parallel:
            kinds = Counter(comm.kind for comms in self.sharding.comms.values() for comm in comms)
            found.append(
                f"split along the sequence between regions of tp: {kinds['reduce_scatter']} reduce-scatters in place of"
                f" all-reduces; all-reduces left: {kinds['all_reduce']}"
            )
        for size, padded in sorted(self.sharding.padded.items()):
            found.append(f"padded for tp={self.strategy.tp}: an axis of {size} to {padded}")
        counts = self.builder
        found.append(
            f"{counts.num_kernels:,} kernels for {counts.num_kernels + counts.num_fused:,} ops"
            f" (strategy.fusion={self.strategy.fused_as}); {counts.num_metadata:,} metadata ops vanished"
        )
        found += self.builder.experts.notes()
        if self.hops.hops:
            servers = f"{self.hops.num_servers:.3g}"
            found.append(
                f"a token's rows cross to {servers} server{'' if servers == '1' else 's'}, once to each, on average"
            )
        found += [note] if (note := get_precision(self.numerics.precision).note) else []
        if self.state.level:
            found.append(self.state.describe())
        if self.strategy.recompute == "selective":
            found.append(f"selective recomputation replays {', '.join(self.strategy.replayed_modules)}")
        found += limit_notes(self.cost, self.machine.accelerator_watts)
        return found + _counted(self.cost.notes())


def _counted(notes: list[str]) -> list[str]:
    return list(Counter(notes))
