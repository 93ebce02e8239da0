"""StrategyFields: the keys of a strategy, and what follows from them."""

from dataclasses import dataclass, field, replace
from typing import Any

from rostam_py.costs.optimizers import OPTIMIZERS
from rostam_py.costs.precision import PRECISIONS
from rostam_py.errors import DegreeError
from rostam_py.plan.expert_groups import EXPERT_DATA
from rostam_py.plan.fusion import AUTO as FUSION_AUTO
from rostam_py.plan.fusion import BLOCKS, EVERYWHERE, UNFUSED
from rostam_py.plan.placing import PLACING_NAMES, Placing
from rostam_py.plan.program_rules import MCORE, RULE_NAMES, SEPARATE, ProgramRules
from rostam_py.plan.state_sharding import GATHERED_EXPERTS, StateSharding, sharding_degree
from rostam_py.plan.strategy_names import (
    AUTO_MAPPING,
    MAPPINGS,
    PLACERS,
    RECOMPUTE,
    RECOMPUTE_MODULES,
    SCHEDULES,
    algorithms,
    collectives,
)
from rostam_py.plan.table_groups import REPLICATED, TABLE_PLACES


# Field metadata, of every schema: "unit" of what carries one as text; "choices", the names that a field takes, a
# container or what returns one; of a mapping "keys", too, and then "choices" takes the key.
@dataclass(kw_only=True, slots=True, repr=False)
class StrategyFields:
    """Degrees, schedule and numerics of one training job.

    dp: data-parallel degree, the number of replicas of the model. If unset, the replicas fill the machine.
    tp: tensor-parallel degree, the number of accelerators that split every layer (placer megatron).
    cp: context-parallel degree, the number of accelerators that share one sequence (placer megatron).
    pp: pipeline-parallel degree, the number of stages into which the layers are cut (placer megatron).
    mp: number of devices of one model-parallel group; there are dp groups (placer sip_ml).
    ep: expert-parallel degree (placer megatron). It adds no devices: the dp x cp ranks form groups of ep consecutive
        ranks. Each group holds all experts of a layer, spread over its ranks, which exchange token rows.
    expert_tp: number of ranks of a tp group that split each expert. If unset, or tp, all of them do. 1 keeps each
        expert whole on one rank: ep then divides tp x cp x dp, ranks being taken in this order (needs
        sequence_parallel).
    tables: placement of embedding tables: replicated, on every rank; sharded, each on one dp rank, or split by rows
        where it exceeds the rank's memory; balanced, as sharded, and also split by rows where that balances lookups;
        columns, some columns of every table on each rank; hierarchical, balanced over servers, with the rows of a table
        over the ranks of its server, which sum their lookups before servers exchange them. All except replicated need
        dp to be the only degree > 1.
    micro_batch: samples of one micro-batch of one replica. Default: 1 with a pipeline; without one, the largest divisor
        of global_batch / dp that fits in memory.
    schedule: order of a pipeline's forwards and backwards: 1f1b, gpipe, zb_h1 (zero bubble: weight gradients are
        computed separately, to fill pipeline bubbles; same as 1f1b where pp is 1), zb_v (zero bubble with
        virtual_stages=2 in a V: the last stage is on the device of the first one), or dual_pipe_v (the same V, whose
        forwards and backwards run in pairs, for at least 2 x pp micro-batches).
    virtual_stages: number of chunks of layers on each stage, for interleaved 1f1b; 2 for zb_v and dual_pipe_v.
        Interleaved, the number of micro-batches must be a multiple of pp (or software.rules.microbatch_group_size).
    precision: training precision: fp32, tf32, bf16_mixed or fp16_mixed; with 8-bit matrix products fp8_mixed (a scale
        for each tensor, from its current values), fp8_delayed_mixed (from earlier values), fp8_row_mixed (a scale for
        each row or column), fp8_block_mixed (for each 128 values) or mxfp8_mixed (for each 32 values); with 4-bit ones
        nvfp4_mixed. If unset, the model's own.
    optimizer: sgd, momentum, adagrad or adam. If unset, the model's own.
    recompute: activation recomputation (checkpointing): none, selective (only recompute_modules) or full (the forward
        of every block runs again before its backward).
    recompute_modules: modules that selective recomputation runs again, by default core_attn. Kinds are core_attn,
        layernorm, activation, mla_up_proj, moe_act, every_other_product and, each with all that it computes, mlp, moe
        and shared_experts; paths of modules such as "blocks.*.mlp" are possible, too.
    recompute_blocks: number of blocks that full recomputation covers, the first ones of each stage or chunk. If unset,
        all.
    offload_blocks: number of first blocks whose activations are kept in host memory (pp = 1, no recomputation).
    sequence_parallel: split the ops between tensor-parallel regions (norms, dropout, residual sums) along the sequence,
        whose length tp must divide. An all-reduce becomes a reduce-scatter and an all-gather of the same bytes,
        activations are kept in parts, and backward gathers the inputs of the regions again.
    shard: ZeRO level, over the dp x cp ranks: 0 shards nothing; 1 shards optimizer state (Megatron's distributed
        optimizer); 2 gradients as well; 3 weights, too (FSDP). At level 3 the units are the repeated blocks, whose
        weights are whole only while they run.
    shard_group: number of ranks over which one copy of the state is sharded, for example those of a server. Gradients
        are then also summed over the copies (hybrid sharding, HSDP). If unset, all dp x cp ranks.
    placer: megatron, or sip_ml (SiP-ML's Algorithm 1).
    placing: particulars of how the placer places, as a mapping: strategy.placing.quantum and others.
    max_circuit_degree: maximum number of peers of a device. sip_ml places within it; other plans that exceed it are
        refused; collectives with algorithm auto are rings. If unset, the fabric's limit.
    rank_order: the axes, fastest first, as "tp,cp,pp,dp" or a list. mp takes the place of pp, and cp may be left out
        where it is 1.
    mapping: which accelerator each rank is on: linear, consecutive ones; blocks, groups of tp, then cp, on compact
        blocks of a torus, HammingMesh or HyperX; auto (the default), the faster of these two; random
        (strategy.mapping=random strategy.placing.mapping_seed=2; in Python also mapping="random(2)"); or a list with
        the accelerator of every rank.
    allow_idle: the job may leave accelerators unused.
    accelerators: list of the accelerators that it may use, in order.
    algorithms: algorithm of each collective, as a mapping (rostam list collectives), for example
        strategy.algorithms.all_reduce=ring. Those not named use auto: the algorithm with the least predicted time for
        their ranks and bytes, or a ring on fabrics whose circuits are set once.
    check_memory: refuse a plan that does not fit in memory (MODEL D15).
    rules: habits of the training program that are set by hand, as software.rules does it (plan/program_rules.py); a
        program's own hold where they are not set.
    """

    dp: Any = None  # an int, or None: what fills the machine
    tp: int = 1
    cp: int = 1
    pp: int = 1
    mp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    tables: str = field(default=REPLICATED, metadata={"choices": TABLE_PLACES})
    micro_batch: int | None = None
    schedule: str = field(default="1f1b", metadata={"choices": SCHEDULES})
    virtual_stages: int = 1
    precision: str | None = field(default=None, metadata={"choices": PRECISIONS})
    optimizer: str | None = field(default=None, metadata={"choices": OPTIMIZERS})
    recompute: str = field(default="none", metadata={"choices": RECOMPUTE})
    recompute_modules: list[str] | None = None
    recompute_blocks: int | None = None
    offload_blocks: int = 0
    sequence_parallel: bool = False
    shard: int = 0
    shard_group: int | None = None
    placer: str = field(default="megatron", metadata={"choices": PLACERS})
    placing: Placing = field(default_factory=Placing)
    max_circuit_degree: int | None = None
    rank_order: Any = field(default="tp,cp,pp,dp", metadata={"is_sequence": True})
    mapping: Any = field(default=AUTO_MAPPING, metadata={"choices": MAPPINGS})
    allow_idle: bool = False
    accelerators: list[int] | None = None
    algorithms: dict[str, str] = field(default_factory=dict, metadata={"keys": collectives, "choices": algorithms})
    check_memory: bool = True
    rules: ProgramRules = field(default_factory=ProgramRules)

    def value(self, key: str) -> Any:
        """Return the value of a key, of the rules and of the placing by their own names."""
        part = self.rules if key in RULE_NAMES else self.placing if key in PLACING_NAMES else self
        return getattr(part, key)

    @property
    def fused_as(self) -> str:
        """Which ops share a kernel, one of FUSIONS but auto."""
        return PLACERS.get(self.placer).FUSIONS[0] if self.rules.fusion == FUSION_AUTO else self.rules.fusion

    @property
    def has_eager_loss(self) -> bool:
        """The loss shares no kernel."""
        return self.fused_as == UNFUSED or self.rules.fused_part == BLOCKS

    @property
    def has_eager_head(self) -> bool:
        """Whether ops outside repeated blocks, the loss aside, share no kernel."""
        return self.fused_as == UNFUSED or self.rules.fused_part != EVERYWHERE

    @property
    def replayed_modules(self) -> tuple[str, ...]:
        """Modules that selective recomputation replays."""
        if self.recompute != "selective":
            return ()
        return tuple(self.recompute_modules or RECOMPUTE_MODULES[:1])

    @property
    def is_tp_asynchronous(self) -> bool:
        """Whether kernels that need no result of a tp group's collective run concurrently with it."""
        return self.rules.asynchronous_tp and self.rules.tp_style == MCORE

    @property
    def num_ranks(self) -> int:
        """Accelerators the job uses.

        Raises: DegreeError where dp is left open: ``place`` fills it in.
        """
        if self.dp is None:
            raise DegreeError("strategy.dp is not set: it is known once the strategy is placed; give it a number here")
        return int(self.dp * self.num_ranks_of_replica)

    @property
    def num_ahead(self) -> int:
        """Forwards in front of the first backward beyond those that the pipeline needs."""
        return int(self.rules.ep_overlap and SCHEDULES.get(self.schedule).runs_ahead)

    @property
    def num_ranks_of_replica(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.cp * self.pp * self.mp

    @property
    def num_data_ranks(self) -> int:
        """Ranks that hold the same weights, except those of experts: of all replicas and all parts of a sequence."""
        return int(self.dp * self.cp)

    @property
    def has_whole_experts(self) -> bool:
        """Whether tp ranks hold whole experts where all else is split."""
        return self.tp > 1 and self.expert_tp == 1

    @property
    def num_expert_ranks(self) -> int:
        """Ranks of a stage and tp rank that spread experts; of a stage where tp ranks hold whole ones."""
        return self.num_data_ranks * (self.tp if self.has_whole_experts else 1)

    @property
    def num_expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.num_expert_ranks // self.ep

    @property
    def num_stages(self) -> int:
        """Different programs that the devices of one replica run: pipeline stages, or the mp devices of sip_ml."""
        return self.pp * self.mp

    @property
    def shape(self) -> tuple[int, int, int]:
        """The grid of ranks: (dp x cp, stages, tp), the cp ranks of a replica one behind the other."""
        return self.dp * self.cp, self.num_stages, self.tp

    @property
    def order(self) -> tuple[str, ...]:
        """The axes of ``rank_order``, fastest first."""
        return tuple(part.strip() for part in str(self.rank_order).split(",") if part.strip())

    @property
    def state_sharding(self) -> StateSharding:
        """How the dp (x cp) ranks share the state; one rank alone shares nothing."""
        degree = sharding_degree(self.dp, self.cp, self.shard, self.shard_group)
        if degree == 1:
            return StateSharding()
        num_copies = self.num_data_ranks // degree
        return StateSharding(
            level=self.shard, degree=degree, num_copies=num_copies, prefetch=self.rules.prefetch,
            is_resharded=self.rules.reshard_after_forward, is_gather_overlapped=self.rules.overlap_param_gather,
            is_reduced_often=self.rules.reduce_every_microbatch, layout=self.rules.shard_layout,
            again_degree=self.rules.reshard_group or 0,
        )  # fmt: skip

    @property
    def copies_gradients(self) -> bool:
        """Whether a kernel for each parameter copies its gradient into what every micro-batch reduces."""
        state = self.state_sharding
        return self.rules.accumulation == SEPARATE and state.reduces_every_microbatch and not state.copies_units

    @property
    def expert_state_sharding(self) -> StateSharding:
        """How the ranks that hold the same experts share their state."""
        degree, of_all = self.num_expert_replicas, self.state_sharding
        level = of_all.level if self.ep > 1 and degree > 1 else 0
        return replace(of_all, level=level, degree=degree, reduced=EXPERT_DATA, gathered=GATHERED_EXPERTS)
