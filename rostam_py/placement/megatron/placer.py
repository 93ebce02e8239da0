"""The megatron placer: tensor parallelism by sharding propagation, pipelines by graph cuts (MODEL D13)."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from rostam_py.costs.numerics import Numerics
from rostam_py.costs.power import limit_notes
from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError, InternalError
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.accumulation import regroup_gradient_sums
from rostam_py.placement.context import SequencePart, split_sequences
from rostam_py.placement.convolution_norms import convolution_norms
from rostam_py.placement.experts.hops import ExpertHops, expert_hops
from rostam_py.placement.experts.routed_tokens import own_rows
from rostam_py.placement.experts.spread import SpreadExperts, find_experts, spread_experts
from rostam_py.placement.kernels import KernelBuilder, cost_model_for
from rostam_py.placement.megatron.backward_split import (
    read_by_weights_alone,
    read_from_elsewhere,
    weight_gradient_ops,
)
from rostam_py.placement.megatron.candidates import candidates
from rostam_py.placement.megatron.context_parallel import BLOCKS, ContextExchange
from rostam_py.placement.megatron.estimate import MegatronEstimator
from rostam_py.placement.megatron.memory.kept import derived_in_kernels, losses_in_kernels, norms_in_convolutions
from rostam_py.placement.megatron.memory.stages import StageMemories, kept_order
from rostam_py.placement.megatron.pipeline import StageAssignment, assign_stages
from rostam_py.placement.megatron.planner import Planner
from rostam_py.placement.megatron.recompute import (
    Recomputation,
    first_blocks,
    recompute_selected,
    replay_blocks,
)
from rostam_py.placement.megatron.recompute_modules import attention_core, is_attention_fused, replays_attention, select
from rostam_py.placement.megatron.stage_parameters import StageParameters
from rostam_py.placement.megatron.templates import write_stage
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.memory.device_memory import check_capacity
from rostam_py.placement.norm_kernels import with_joined_norms
from rostam_py.placement.placer import Placer
from rostam_py.placement.schedule import in_flight_words, stage_program
from rostam_py.placement.sharding import OwnRows, Sharding, propagate
from rostam_py.placement.tables.servers import check_servers, table_server_size
from rostam_py.placement.tables.spread import spread_tables
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
from rostam_py.plan.groups import GroupSet, grid_groups, sharding_groups
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.program_rules import MCORE
from rostam_py.plan.ranks import assign_accelerators
from rostam_py.plan.searched_axes import NO_FACTS, SEARCHED_AXES, ModelFacts, Site, Space, without_axes
from rostam_py.plan.state_sharding import GATHERED_EXPERTS
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import SCHEDULES
from rostam_py.plan.table_groups import HIERARCHICAL, REPLICATED, table_groups
from rostam_py.plan.tasks import MemoryBytes, Stage
from rostam_py.software.rules import rules_of


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
    runs_programs = True
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

    def planner(
        self, graph: OperatorGraph, machine: Machine, routing: str, shared: dict[Any, Any],
        run: Callable[[Strategy], Strategy],
    ) -> Planner | None:  # fmt: skip
        """Return what ranks strategies without placing them; None for models without stacks of equal blocks."""

        def place(short: OperatorGraph, strategy: Strategy, batch: int) -> Plan:
            _, known = self.shared.setdefault(("short", id(short)), (short, {}))  # held, so that its id stays its own
            return MegatronPlacer(run(strategy), self.cost_name, self.cost_config, known).place(short, machine, batch)

        planner = Planner(graph, machine, without_axes(self.strategy), routing, shared, place)
        return planner if planner.can_plan else None

    def fabric_key(self, machine: Machine) -> Hashable:
        """Return the sizes of servers and what collectives hold of an accelerator, where plans depend on them."""
        strategy = self.strategy
        if (
            strategy.tables != HIERARCHICAL
            and strategy.rules.servers_per_token is None
            and not strategy.rules.tp_overlap
        ):
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
        if strategy.rules.ep_overlap and num_microbatches == 1:
            raise ConfigError(
                "software.rules.ep_overlap is true: all-to-alls of experts overlap with another micro-batch, but there"
                f" is one, of {micro_batch:,} samples; set strategy.micro_batch smaller, or leave"
                " software.rules.ep_overlap out"
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
        if not strategy.rules.tp_overlap or per_server <= 1:
            return
        servers = accelerators.reshape(-1, accelerators.shape[-1]) // per_server
        most = max(len(np.unique(members)) for members in servers)
        if most > 1:
            program = "Transformer Engine's user buffers" if strategy.rules.tp_style == MCORE else "symmetric memory"
            raise ConfigError(
                f"software.rules.tp_overlap is true, but a group of strategy.tp = {strategy.tp} lies in {most} servers"
                f" of {per_server} accelerators: {program} reach members of one server (or NVLink domain) alone. Set"
                f" software.rules.tp_overlap=false, or a strategy.tp of at most {per_server} whose groups lie in one"
                " server"
            )

    def _hops(self, graph: OperatorGraph, machine: Machine, accelerators: np.ndarray) -> ExpertHops:
        """Return how rows of experts travel: nothing where one goes to each expert's rank, or ep does not fit."""
        strategy = self.strategy
        if strategy.rules.servers_per_token is None:
            return ExpertHops()
        if "experts" not in self.shared:
            self.shared["experts"] = find_experts(graph)
        experts: SpreadExperts = self.shared["experts"]
        counts = {count for _, count in experts.layers}
        if any(count % strategy.ep for count in counts) or not counts:
            return ExpertHops()  # refused where experts are spread
        if len(counts) != 1 or not experts.per_token.is_integer() or not experts.per_token:
            raise ConfigError(
                f"software.rules.servers_per_token is {strategy.rules.servers_per_token}, but {graph.name} does not"
                " send every token to the same number of equally many experts; leave it out"
            )
        ids = np.arange(accelerators.size).reshape(accelerators.shape)
        (groups, *_) = expert_groups(ids, strategy.ep, strategy.has_whole_experts)
        servers = accelerators.ravel() // machine.fabric.config.accelerators_per_server
        return expert_hops(
            groups.members, servers, counts.pop(), int(experts.per_token), strategy.rules.servers_per_token
        )

    def _builder(
        self, graph: OperatorGraph, machine: Machine, micro_batch: int, rank_share: float = 0.0
    ) -> KernelBuilder:
        """Return the kernels of the sharded graph, made now or by a placer before. Args: rank_share: as of hops."""
        strategy = self.strategy
        if "graph" not in self.shared:
            self.shared["graph"] = regroup_gradient_sums(graph)
        graph = self.shared["graph"]
        if strategy.rules.eager_loss != TORCH and not any(op.role == "pick" for op in graph.ops):
            raise ConfigError(
                f"software.rules.eager_loss is {strategy.rules.eager_loss!r}, but the loss of {graph.name} is no cross"
                " entropy of classes; leave it out"
            )
        if strategy.rules.convolution_norms != APART_NORMS and not convolution_norms(graph):
            raise ConfigError(
                f"software.rules.convolution_norms is {strategy.rules.convolution_norms!r}, but {graph.name} has no"
                " norm of channels between convolutions of 1 x 1 or 3 x 3; leave it out"
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
                fusions=self.shared.setdefault(("fusions", self._part_key(), strategy.rules.eager_norm), {}),
                device=machine.device, rank_share=rank_share,
            )  # fmt: skip
        builder: KernelBuilder = self.shared[key]
        return builder

    def _assignment(self, builder: KernelBuilder) -> StageAssignment:
        """Return the stages of a builder's graph, cut now or by a placer before; builders are kept, and so are ids."""
        strategy = self.strategy
        is_v = SCHEDULES.get(strategy.schedule).is_v
        rules, given = strategy.rules, strategy.placing.layout
        key = ("stages", id(builder), strategy.pp, strategy.virtual_stages, rules.stage_blocks, is_v, given)
        if key not in self.shared:
            seconds = builder.op_seconds() if strategy.pp > 1 else []
            self.shared[key] = assign_stages(
                builder.graph, strategy.pp, seconds, builder.batch, builder.sharding.collected,
                num_chunks=strategy.virtual_stages, stage_blocks=rules.stage_blocks, is_v=is_v, layout=given,
            )  # fmt: skip
        found: StageAssignment = self.shared[key]
        return found

    def _tables_key(self, machine: Machine) -> tuple[object, ...]:
        """Return what the kernels of spread tables depend on besides."""
        strategy = self.strategy
        return () if strategy.tables == REPLICATED else (
            strategy.tables, strategy.placing.table_ids, strategy.num_data_ranks, strategy.optimizer,
            strategy.placing.replicated_tables_bytes, table_server_size(strategy, machine),
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
            strategy.placing.table_ids, table_server_size(strategy, machine), strategy.placing.replicated_tables_bytes,
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
        return (self.strategy.cp, BLOCKS[self.strategy.rules.cp_algorithm] if self.strategy.cp > 1 else 1)

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
            self.exchange = ContextExchange(builder.part, strategy.rules.cp_algorithm, builder, is_kept)
        self.assignment = assignment
        self.parameters = StageParameters(builder, assignment, machine, strategy, num_microbatches)
        self.state = strategy.state_sharding
        splits = SCHEDULES.get(strategy.schedule).splits(strategy.pp)
        self.weight_ops = weight_gradient_ops(graph) if splits else frozenset()
        self.programs = [
            stage_program(
                strategy.schedule,
                s,
                strategy.pp,
                num_microbatches,
                strategy.virtual_stages,
                strategy.num_ahead,
                group=strategy.rules.microbatch_group_size,
            )
            for s in range(strategy.pp)
        ]
        self.derived = {
            t: sources
            for t, sources in derived_in_kernels(graph, builder, self.assignment, self._sent()).items()
            if self._is_fused(t)
        }
        self.derived_losses = losses_in_kernels(graph, builder)
        self.derived |= self.derived_losses | norms_in_convolutions(graph, builder)
        self.recomputation = self._recomputation()
        self.memories = StageMemories(
            self.parameters, self.recomputation, self.derived, self.derived_losses,
            exchange=self.exchange, weight_ops=self.weight_ops, programs=self.programs,
        )  # fmt: skip

    def groups(self, shape: tuple[int, int, int]) -> tuple[GroupSet, ...]:
        """Return the process groups of a (dp, pp, tp) grid."""
        found = grid_groups(shape, self.parameters.tied, self.sharding.inner_degrees, self.strategy.cp)
        ids = np.arange(math.prod(shape)).reshape(shape)
        found += expert_groups(ids, self.strategy.ep, self.strategy.has_whole_experts) + self.hops.groups
        found += table_groups(ids, self.strategy.tables, table_server_size(self.strategy, self.machine))
        found += sharding_groups(shape, self.state.degree, self.state.again_degree) if self.state.level else ()
        if self.parameters.states[EXPERT_DATA].level:
            same = next(one for one in found if one.label == EXPERT_DATA)
            found += (GroupSet("zero", GATHERED_EXPERTS, same.members),)
        return found

    def build_stages(self) -> tuple[Stage, ...]:
        context = self._context()
        memory = self.memories.of_devices(context)
        if self.strategy.check_memory:
            orders = [in_flight_words(kept_order(self.strategy, program)) for program in self.programs]
            check_capacity(self.machine, self.strategy, memory, orders)
        return tuple(self._stage(context, s, memory[s]) for s in range(self.strategy.pp))

    def _context(self) -> TemplateContext:
        kernels = with_joined_norms(self.builder, self.builder.fused(self._barriers(), self.derived, self._classes()))
        kernel_of = {op: k for k, kernel in enumerate(kernels) for op in kernel.ops}
        replays: dict[int, list[int]] = {}
        for op, ops in self.recomputation.points.items():
            found = replays.setdefault(kernel_of[op], [])
            found.extend(k for k in sorted({kernel_of[o] for o in ops}) if k not in found)
        replicas = max(self.strategy.num_data_ranks, self.strategy.num_expert_replicas)
        bucket = self.strategy.rules.bucket_bytes if replicas > 1 else 0
        sent = {t for stage in self.assignment.down for t in stage}
        if any(self.graph.tensors[t].producer in self.weight_ops for t in sent):
            raise InternalError("a stage would wait for the result of a weight gradient's op of another")
        late = read_by_weights_alone(self.graph, self.weight_ops, self.sharding.comms) - sent
        late -= set(self.builder.experts.exchanged)
        rules = self.strategy.rules
        return TemplateContext(
            graph=self.graph, sharding=self.sharding, stages=self.assignment, kernels=kernels, builder=self.builder,
            replays=replays, bucket_bytes=bucket,
            is_tp_asynchronous=self.strategy.is_tp_asynchronous, min_kernel_s=self.machine.min_kernel_s,
            states=self.parameters.states,
            units=self.parameters.units(), exchange=self.exchange, tp_style=rules.tp_style,
            kept_whole=self.memories.kept_whole(),
            is_tp_overlapped=rules.tp_overlap, weight_ops=self.weight_ops, late=frozenset(late), hops=self.hops,
            gradient_buffer=self.parameters.gradient_buffer, overlaps_reductions=rules.overlap_grad_reduce,
            overlaps_messages=rules.overlap_p2p, splits_messages=rules.split_p2p,
            sends_narrow=rules.narrow_dispatch, dispatcher=rules.dispatcher,
            dispatcher_multiprocessors=rules.dispatcher_multiprocessors,
            multiprocessors=self.machine.shared_multiprocessors, first_bucket_bytes=rules.first_bucket_bytes,
        )  # fmt: skip

    def _sent(self) -> set[int]:
        """Return the tensors that go to another stage or to another rank of the sequence's."""
        crossing = {t for flow in (self.assignment.up, self.assignment.down) for stage in flow for t in stage}
        return crossing | (set() if self.exchange is None else set(self.exchange.barriers()))

    def _is_fused(self, tensor: int) -> bool:
        """Tell whether the op that makes a tensor may share a kernel."""
        producer = self._maker(tensor)
        if self.strategy.fused_as == UNFUSED:
            is_fused = self.strategy.rules.eager_norm == FUSED_NORM
            return is_fused and producer is not None and self.builder.norm_numbers[producer] >= 0
        return self.strategy.rules.fused_part == EVERYWHERE or (
            producer is not None and self.builder.rules.is_fused(self.graph.ops[producer])
        )

    def _is_derived(self, tensor: int) -> bool:
        return self.graph.view_roots[tensor] in self.derived

    def _recomputation(self) -> Recomputation:
        """Return what is replayed, and what is kept, or not, for it."""
        strategy, stages = self.strategy, self.assignment.op_stages
        if strategy.recompute == "none":
            return Recomputation()
        if strategy.recompute == "full":
            blocks = first_blocks(self.graph, stages, strategy.recompute_blocks)
            derived = self.derived if strategy.rules.recompute_stops_early else None
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
        is_apart = self.strategy.rules.fused_part != EVERYWHERE
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
        if self.strategy.rules.fused_part == EVERYWHERE:
            return ()
        return (op.block, -1 if self.builder.rules.is_fused(op) else op.id)

    def _maker(self, tensor: int) -> int | None:
        return self.graph.tensors[self.graph.view_roots[tensor]].producer

    def _is_read_apart(self, tensor: int, replayed: set[int]) -> bool:
        """Tell whether forward ops that are not replayed read what a replayed one makes."""
        users = self.graph.readers.get(tensor, ())
        return any(self.graph.ops[u].phase == "forward" and u not in replayed for u in users)

    def _stage(self, context: TemplateContext, stage: int, memory: MemoryBytes) -> Stage:
        parameters = self.parameters
        num_parameters, num_shared = parameters.num_parameters(stage), parameters.num_shared(context, stage)
        optimizer = (
            *parameters.unshared_passes(stage), *parameters.optimizer_kernels(stage, num_shared),
            *parameters.zero_pass(num_shared if self.state.level >= 2 else num_parameters),
        )  # fmt: skip
        written = write_stage(context, stage, self.programs[stage], parameters.gradients(context, stage), optimizer)
        return Stage(
            index=stage,
            templates=written.tasks,
            program=written.program,
            memory=memory,
            num_parameters=num_parameters,
            modules=tuple(self._modules.get(stage, ())),
            flops=written.work.model * self.num_microbatches,
            causal_flops=written.work.causal * self.num_microbatches,
            hardware_flops=written.work.run * self.num_microbatches,
            activation_changes=self.memories.activation_changes[stage],
            gathered_changes=self.memories.gathered[stage].changes(written.gathered, written.tasks),
        )

    @cached_property
    def _modules(self) -> dict[int, dict[str, None]]:
        """Device -> the modules of its forward ops, in order."""
        found: dict[int, dict[str, None]] = {}
        for op in self.graph.ops:
            if op.phase == "forward" and op.module:
                device = self.assignment.devices[self.assignment.op_stages[op.id]]
                found.setdefault(device, {})[op.module] = None
        return found

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
            f" (software.rules.fusion={self.strategy.fused_as}); {counts.num_metadata:,} metadata ops vanished"
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
