"""Strategy: one explicit way to train a model on many accelerators.

Example:
    Strategy(dp=128, tp=8)                                # 1,024 accelerators, no pipeline
    Strategy(pp=96, tp=4, recompute="full", schedule="1f1b")
    Strategy(dp=8, cp=16, tp=8, pp=16)                    # sequences of 131,072 tokens, each on 16 x 8 accelerators
    Strategy(dp=8, tp=2, pp=2, ep=4)                      # 32 accelerators, experts spread over 4 of the 8 replicas
    Strategy(dp=64, mp=16, placer="sip_ml")               # Algorithm 1: sub-ops anywhere in groups of 16
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rostam_py.checks import check_booleans, check_integers, check_seed, is_integer
from rostam_py.collectives.row_exchanges import DISPATCHERS, HYBRIDEP
from rostam_py.costs.numerics import Numerics
from rostam_py.costs.optimizers import FUSED as FUSED_STEP
from rostam_py.costs.optimizers import NO_DECAY, OPTIMIZER_KERNELS, OPTIMIZERS, SINGLE, WEIGHT_DECAYS, get_optimizer
from rostam_py.costs.precision import AUTO, GRADIENT_PRECISIONS, PRECISIONS, Precision, get_precision, gradient_bytes
from rostam_py.errors import ConfigError, DegreeError, UnitError
from rostam_py.field_words import value_in_brackets
from rostam_py.graph import OperatorGraph
from rostam_py.graph.model_size import ModelSize
from rostam_py.html import html_pairs
from rostam_py.keywords import check_keywords
from rostam_py.plan.expert_groups import EXPERT_DATA
from rostam_py.plan.fusion import (
    APART_NORMS,
    BLOCKS,
    BLOCKS_AND_LOSS,
    CONVOLUTION_NORMS,
    EAGER_LOSSES,
    EAGER_NORMS,
    EPILOGUE,
    EVERYWHERE,
    FUSED_PARTS,
    FUSIONS,
    MODULES,
    POINTWISE,
    TORCH,
    UNFUSED,
)
from rostam_py.plan.fusion import AUTO as FUSION_AUTO
from rostam_py.plan.gradient_buffers import GRADIENT_BUFFERS, NO_BUFFER
from rostam_py.plan.graph_inputs import GRAPH_INPUTS, READ_IN_PLACE
from rostam_py.plan.machine import PHYSICS
from rostam_py.plan.state_sharding import (
    BUFFERS,
    GATHERED_EXPERTS,
    SHARD_LAYOUTS,
    StateSharding,
    check_sharding,
    sharding_degree,
)
from rostam_py.plan.table_groups import REPLICATED, TABLE_PLACES
from rostam_py.plan.table_ids import ID_PROFILES, UNIFORM
from rostam_py.registry import Registry
from rostam_py.units import check_simulated, parse_size, parse_time

AXES = ("tp", "cp", "pp", "dp")
UNNAMED_AT_1 = ("cp",)  # axes that words leave out where they are not used
INNER_AXES = ("ep",)  # degrees that add no devices
WINDOWS = ("symmetric", "paper")
WEIGHT_SPLITS = ("least_sent", "sliced")
CP_ALGORITHMS = ("ring", "all_gather", "ulysses", "torch")
RECOMPUTE = ("none", "selective", "full")  # from least memory saved to most: a search tries them in turn
# Modules that selective recomputation names, in addition to paths (placement/megatron/recompute_modules.py).
EVERY_OTHER_PRODUCT = "every_other_product"
RECOMPUTE_MODULES = ("core_attn", "layernorm", "activation", "mla_up_proj", EVERY_OTHER_PRODUCT)
AUTO_MAPPING, BLOCKS_MAPPING, LINEAR_MAPPING = "auto", "blocks", "linear"
MAPPED = (AUTO_MAPPING, BLOCKS_MAPPING)  # on blocks of the fabric, where it has any (plan/mapping.py)
MAPPINGS = (*MAPPED, LINEAR_MAPPING, "random")
MCORE, DTENSOR = "mcore", "dtensor"
TP_STYLES = {
    MCORE: "Megatron-Core's: sequences are the outer dimension, so gathers and reduce-scatters need no copy;"
    " inputs of products are kept in parts and gathered again in backward, concurrently with other products",
    DTENSOR: "PyTorch's: sequences are inside the batch, so gathers and reduce-scatters need copies;"
    " inputs of products are kept whole, or gathered by their replay; kernels wait for"
    " every collective, and collectives for the kernels before them",
}
EXACT, TORCH_ALLOCATOR = "exact", "torch"
ALLOCATORS = {
    EXACT: "memory is the peak of live tensors",
    TORCH_ALLOCATOR: "memory is that held by PyTorch's caching allocator: the peak of each stream, and blocks of"
    " 16-bit logits that no fp32 tensor fits",
}
IN_USE, EVERY_MICROBATCH = "in_use", "every_microbatch"
PIPELINE_BUFFERS = {
    IN_USE: "a stage holds what its micro-batches keep for backward, and no more of what they send",
    EVERY_MICROBATCH: "torch.distributed.pipelining's to PyTorch 2.7: a stage has a place for each micro-batch's input"
    " and for the gradient of each one's output, and keeps every output, the last stage's logits, for an iteration",
}
LIBRARY, INDUCTOR = "library", "inductor"
CAST_KERNELS = {
    LIBRARY: "Transformer Engine's, which write copies by columns as fast as those by rows",
    INDUCTOR: "torchao's, as PyTorch's compiler makes them: a copy by columns for each product that reads one, written"
    " at a part of memory's rate; with tp_style=dtensor largest values are all-reduced over tp before",
}
AUTOCAST_TO, _FP32 = ("fp16_mixed", "bf16_mixed"), "fp32"
BALANCED, EVEN, EVEN_WITH_ENDS = "balanced", "even", "even_with_ends"
STAGE_BLOCKS = (BALANCED, EVEN, EVEN_WITH_ENDS)
SEPARATE = "separate"
ACCUMULATIONS = ("fused", SEPARATE, "free")
MOVED = {key: f"machine.{key}" for key in PHYSICS}  # what used to be a strategy's -> its key now
PLACERS = Registry("placer")
PLACERS.add("megatron", "rostam_py.placement.megatron.placer:MegatronPlacer")
PLACERS.add("sip_ml", "rostam_py.placement.sip_ml.placer:SipMlPlacer")
SCHEDULES = Registry("schedule")
SCHEDULES.add("1f1b", "rostam_py.placement.schedules.one_f_one_b:OneForwardOneBackward")
SCHEDULES.add("gpipe", "rostam_py.placement.schedules.gpipe:GPipe")
SCHEDULES.add("zb_h1", "rostam_py.placement.schedules.zb_h1:ZeroBubbleH1")


def _collectives() -> list[str]:
    from rostam_py.collectives.rank_groups import collectives  # loads the core

    return list(collectives())


def _algorithms(collective: str) -> tuple[str, ...]:
    from rostam_py.collectives.rank_groups import algorithm_names  # loads the core

    return ("auto", *algorithm_names(collective))


# Field metadata, of every schema: "unit" of what carries one as text; "choices", the names that a field takes, a
# container or what returns one; of a mapping "keys", too, and then "choices" takes the key.
@dataclass(kw_only=True, slots=True, repr=False)
class Strategy:
    """Degrees, schedule and numerics of one training job.

    dp: data-parallel degree, the replicas of the model; None fills the machine.
    tp: tensor-parallel degree, the accelerators that split every layer (placer megatron).
    pp: pipeline-parallel degree, the stages that layers are cut into (placer megatron).
    cp: context-parallel degree, the accelerators that share one sequence (placer megatron). cp_algorithm: how they
        exchange keys and values: ring, all_gather, ulysses, or torch, PyTorch's context_parallel.
    ep: expert-parallel degree (placer megatron). It adds no devices: each ep consecutive ranks of dp x cp spread the
        experts of every layer over themselves and exchange rows; the other ranks hold the same experts.
    expert_tp: ranks of a tp group that split every expert: None, or tp, takes all of them; with 1 experts are whole on
        a rank, and ep divides tp x cp x dp, whose ranks are taken in this order (needs sequence_parallel).
    servers_per_token: limit of servers per token: its rows cross once to each server that holds its experts, and
        are copied there (DeepSeek-V3's node-limited routing, DeepEP, HybridEP); None sends one to each expert's rank.
    dispatcher: whose kernels send rows with servers_per_token: hybridep (NVIDIA's) or deepep.
    ep_overlap: all-to-alls of expert rows overlap with another micro-batch: a forward and the backward of an
        earlier micro-batch are interleaved part by part, with one forward more before the first (Megatron-Core's
        overlap_moe_expert_parallel_comm, DualPipe's pairs); with schedule 1f1b, and several chunks where pp > 1.
    tables: placement of embedding tables: replicated; sharded, whole on one dp rank each, or in parts by rows where one
        exceeds a rank (placement/tables.py); balanced, cut by rows where that also balances lookups; columns: some
        columns of each on every rank; hierarchical, balanced over servers, rows over the ranks of each, which sum
        their lookups before servers exchange them. All except the first need dp alone.
    replicated_tables: tables of at most this size, optimizer state included, are replicated on every rank.
    table_ids: frequency of lookups of rows of tables that are not replicated: uniform, or a data set's
        measured frequencies (plan/table_ids.py), with which fewer distinct rows are updated.
    mp: devices of one model-parallel group, of which there are dp (placer sip_ml).
    micro_batch: samples of one micro-batch on one replica; default 1 with a pipeline, without one the largest divisor
        of global_batch / dp that fits in memory.
    schedule: order of a pipeline's forwards and backwards: 1f1b, gpipe, or zb_h1 (zero bubble: weight gradients run
        separately and fill bubbles; same as 1f1b where pp is 1).
    virtual_stages: chunks of layers per stage of 1f1b (interleaved; needs micro-batches in a multiple of pp).
    stage_blocks: number of repeated blocks per stage, or chunk: balanced, so that the slowest device is as fast as
        possible; even, the same in each, with all ops before the blocks in the first and those after them in the last
        (Megatron's default); or even_with_ends, the same, where both count as a block (its
        account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split).
    overlap_p2p: a stage computes while its outputs are sent to the next one; False waits for the send at the end of
        every chunk's forward and backward, as Megatron does without its overlap_p2p_comm.
    split_p2p: each member of a tp group sends its share of an output that all of them hold, and the receivers gather it
        (Megatron's scatter_gather_tensors_in_pipeline); tensors split by sequence_parallel are sent unchanged.
    bucket_size: gradient bytes that start one dp all-reduce. first_bucket: gradient bytes that start an iteration's
        first one, 1 MiB in PyTorch's DDP; None takes bucket_size.
    overlap_grad_reduce: reductions of gradients start with the backward that fills their buckets, as in PyTorch's DDP
        and Megatron's overlap_grad_reduce; False reduces all of them after a device's last backward, one bucket for
        each chunk of layers (shard 0 and 1).
    precision: fp32, tf32, bf16_mixed, fp16_mixed; with 8 bits fp8_mixed (a scale for each tensor, of its values),
        fp8_delayed_mixed (of earlier values), fp8_row_mixed (for each row or column), fp8_block_mixed (for each 128
        values) or mxfp8_mixed (for each 32); or nvfp4_mixed; optimizer: sgd, momentum, adagrad or adam; None takes the
        model's own.
    gradient_precision: precision of gradient accumulation and reduction: fp32 (4 bytes), bf16 or fp16 (2); auto is fp16
        for fp16_mixed without autocast, else fp32, as in Megatron, torchtitan and PyTorch.
    clip_gradients: clip gradients to a norm before the optimizer's step, as trainers of language models do: one pass
        reads them, another reads and writes them.
    gradient_buffer: further operations on gradients: none, zeroed once per iteration, also scaled before they are
        reduced, or also checked before that; or copied into buckets and back, each parameter's by itself (shard 0).
    autocast: weights are held in fp32; a kernel for each casts it where products and convolutions read it, and its
        gradient back, as torch.autocast, also the model's inputs that they read; otherwise the optimizer writes copies
        in 16 bits. Needs fp16_mixed or bf16_mixed, fusion none and shard 0; gradients are fp32.
    inputs: in_place, forward reads them where they arrive; copied, kernels copy each into a captured graph's own tensor
        before it; widened, what it reads first also comes in 2 bytes per element, and a kernel makes the
        model's of it (no recomputation).
    optimizer_kernels: fused, one kernel for the whole step; foreach, one for each part of it, as torch.optim's default;
        or single, one for each part and parameter (shard 0).
    weight_decay: none, or the weights whose decay another kernel adds to each gradient: products, those that matrix
        products read, or all (single kernels, of an optimizer other than adam, whose update has it).
    narrow_weights: weights read only by matrix products are stored, and gathered after their update, in the precision
        of the products (Transformer Engine's fp8_model_init, Megatron's fp8_param_gather); needs a precision of
        narrow products.
    narrow_dispatch: rows are sent to experts in the precision of products, as in DeepSeek-V3 (arXiv 2412.19437, section
        3.3.2); otherwise in 16 bits, as by Megatron-Core's dispatchers (megatron/core/transformer/moe/fused_a2a.py
        refuses fp8_dispatch). Needs a precision that sends them narrow.
    recompute: none, selective (recompute_modules) or full (every block's forward again before its backward).
    recompute_modules: modules that selective recomputation replays (default core_attn): kinds, core_attn, layernorm,
        activation, mla_up_proj, every_other_product, or paths of modules such as "blocks.*.mlp".
    recompute_blocks: number of first blocks of each stage, or chunk, for full recomputation; None takes all.
    recompute_stops_early: full recomputation runs a block only as far as its backward needs, as torch.utils.checkpoint
        and compiled code do; Megatron's own checkpoints run all of it.
    offload_blocks: number of first blocks whose activations are kept in host memory (pp = 1, no recomputation).
    asynchronous_tp: the all-reduce of an input gradient over tp, and the halo of a convolution's output gradient, run
        concurrently with the weight gradient's kernels, as in Megatron; False makes kernels wait for every collective
        of their tp group.
    sequence_parallel: ops between tensor-parallel regions (norms, dropout, residual sums) are split along the
        sequence, which tp must divide: an all-reduce becomes a reduce-scatter and an all-gather of the same bytes,
        activations are kept in parts, and backward gathers the inputs of the regions again.
    tp_style: whose implementation splits over tp: mcore, Megatron-Core's, or dtensor, PyTorch's, which copies tensors
        gathered and scattered along sequences and makes kernels wait for every collective, like asynchronous_tp=false.
    tp_overlap: products run in parts, each as soon as its part of a gathered input has arrived, or while earlier parts
        are reduce-scattered (with sequence_parallel): Transformer Engine's user buffers, or PyTorch's asynchronous tp.
    shard: ZeRO level, over the dp x cp ranks: 1 shards optimizer state (Megatron's distributed optimizer), 2 gradients
        as well, 3 weights too (FSDP), whose units, the repeated blocks, are whole only while they run.
    shard_group: number of these ranks that share one copy, for example a server's; gradients are also summed over the
        copies (hybrid sharding). None takes all.
    prefetch: units whose weights are gathered ahead of the running one (shard 3).
    reshard_after_forward: drop a unit's weights after its forward and gather them again for its backward (shard 3).
    overlap_param_gather: gather the updated weights during the next iteration's forward (shard 1 and 2).
    reduce_every_microbatch: reduce-scatter gradients after every micro-batch (shard 2 and 3); False accumulates whole
        gradients and reduces them after the last one, as FSDP does in PyTorch's pipelines.
    shard_layout: layout of a unit's shards (shard 3): buffers, gathered and reduced in place, or parameters,
        each cut by itself and copied, as PyTorch's fully_shard does.
    placer: megatron, or sip_ml (Algorithm 1). rank_order: the axes, fastest first, as "tp,cp,pp,dp" or a list; mp takes
        the place of pp, and cp may be left out where it is 1.
    quantum: target length of sip_ml's sub-ops; 10 us in SiP-ML's evaluation (3.2).
    weight_splits: how sip_ml's sub-ops split weight matrices: least_sent, so that a group sends least (3.2), possibly
        with copies on every device, and sliced where those do not fit the memory; sliced, one copy in each group.
    max_circuit_degree: maximum number of peers of a device: sip_ml places within it, other plans beyond it are
        refused; collectives of algorithm auto are rings. None takes the fabric's limit.
    window: which devices of a group may exchange data if mp exceeds the degree, symmetric or paper (MODEL D14).
    mapping: linear, ranks on consecutive accelerators; blocks, groups of tp, then cp, on compact blocks of a torus,
        HammingMesh or HyperX; auto (the default), the faster of both; random (strategy.mapping=random
        strategy.mapping_seed=2; in Python also mapping="random(2)"), or a list with the accelerator of every rank.
    mapping_seed: seed of the random mapping, 0 to 2^64 - 1.
    allow_idle: the job may leave accelerators unused. accelerators: accelerators that it may use, in order.
    algorithms: collective -> algorithm (rostam list collectives). Others take the one with the least predicted time
        for their ranks and bytes (auto), a ring on fabrics whose circuits are set once.
    fusion: which ops share a kernel (MODEL B7): pointwise (the default of the megatron placer), epilogue, none (eager
        code), or producer, in which element-wise ops add no time to products (the default of sip_ml).
    fused_part: scope of fusion: everything; blocks, each repeated one by itself, so that the head and the loss are
        eager; or blocks_and_loss, so that only the head is eager.
    eager_loss: kernels of the loss where it is not fused (fusion=none, fused_part=blocks): torch's,
        Megatron-LM's (vocab_parallel) or DTensor's (loss_parallel).
    eager_norm: kernels of norms written out in the model where they are not fused: torch's, op by op in fp32,
        or fused ones.
    convolution_norms: where channel norms between convolutions of 1 x 1 and 3 x 3 run: apart, in separate kernels;
        forward, inside the convolutions, and backward with activations and sums; or both, inside them backward as
        well (needs 16 bits, fusion=pointwise or epilogue, tp and pp 1, no recomputation;
        placement/convolution_norms.py).
    cast_kernels: whose kernels cast the inputs of 8-bit products: library's (Transformer Engine), or torchao's code
        compiled by PyTorch (inductor).
    accumulation: how a micro-batch's weight gradients are added to earlier ones: fused (the default) reads them in
        the kernel that computes the new ones, as Megatron's gradient_accumulation_fusion; separate adds each
        parameter's in a separate kernel, as PyTorch's autograd, or, where every micro-batch's gradients are
        reduce-scattered, copies them into the reduced buffer (Megatron-FSDP); free takes no time. The sip_ml placer
        ignores it: its groups run their whole batch at once, so there is one micro-batch.
    allocator: memory is the peak of live tensors (exact), or the memory held by PyTorch's allocator (torch).
    pipeline_buffers: messages that stages hold: those of micro-batches in flight (in_use), or those of all
        micro-batches of an iteration, outputs too (every_microbatch), as torch.distributed.pipelining.
    check_memory: refuse a plan that does not fit (MODEL D15).
    """

    dp: Any = None  # an int, or None: what fills the machine
    tp: int = 1
    cp: int = 1
    pp: int = 1
    mp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    servers_per_token: int | None = None
    dispatcher: str = field(default=HYBRIDEP, metadata={"choices": tuple(DISPATCHERS)})
    ep_overlap: bool = False
    tables: str = field(default=REPLICATED, metadata={"choices": TABLE_PLACES})
    replicated_tables: Any = field(default="0 B", metadata={"unit": "size"})
    table_ids: str = field(default=UNIFORM, metadata={"choices": ID_PROFILES})
    micro_batch: int | None = None
    schedule: str = field(default="1f1b", metadata={"choices": SCHEDULES})
    virtual_stages: int = 1
    stage_blocks: str = field(default=BALANCED, metadata={"choices": STAGE_BLOCKS})
    overlap_p2p: bool = True
    split_p2p: bool = False
    bucket_size: Any = field(default="25 MB", metadata={"unit": "size"})
    first_bucket: Any = field(default=None, metadata={"unit": "size"})
    overlap_grad_reduce: bool = True
    precision: str | None = field(default=None, metadata={"choices": PRECISIONS})
    gradient_precision: str = field(default=AUTO, metadata={"choices": GRADIENT_PRECISIONS})
    optimizer: str | None = field(default=None, metadata={"choices": OPTIMIZERS})
    clip_gradients: bool = False
    gradient_buffer: str = field(default=NO_BUFFER, metadata={"choices": GRADIENT_BUFFERS})
    inputs: str = field(default=READ_IN_PLACE, metadata={"choices": GRAPH_INPUTS})
    optimizer_kernels: str = field(default=FUSED_STEP, metadata={"choices": OPTIMIZER_KERNELS})
    weight_decay: str = field(default=NO_DECAY, metadata={"choices": WEIGHT_DECAYS})
    autocast: bool = False
    narrow_weights: bool = False
    narrow_dispatch: bool = False
    recompute: str = field(default="none", metadata={"choices": RECOMPUTE})
    recompute_modules: list[str] | None = None
    recompute_blocks: int | None = None
    recompute_stops_early: bool = False
    offload_blocks: int = 0
    cp_algorithm: str = field(default="ring", metadata={"choices": CP_ALGORITHMS})
    asynchronous_tp: bool = True
    sequence_parallel: bool = False
    tp_overlap: bool = False
    tp_style: str = field(default=MCORE, metadata={"choices": TP_STYLES})
    shard: int = 0
    shard_group: int | None = None
    prefetch: int = 1
    reshard_after_forward: bool = True
    overlap_param_gather: bool = False
    reduce_every_microbatch: bool = True
    shard_layout: str = field(default=BUFFERS, metadata={"choices": SHARD_LAYOUTS})
    placer: str = field(default="megatron", metadata={"choices": PLACERS})
    quantum: Any = field(default="10 us", metadata={"unit": "time"})
    weight_splits: str = field(default="least_sent", metadata={"choices": WEIGHT_SPLITS})
    max_circuit_degree: int | None = None
    window: str = field(default="symmetric", metadata={"choices": WINDOWS})
    rank_order: Any = field(default="tp,cp,pp,dp", metadata={"is_sequence": True})
    mapping: Any = field(default=AUTO_MAPPING, metadata={"choices": MAPPINGS})
    mapping_seed: int = 0
    allow_idle: bool = False
    accelerators: list[int] | None = None
    algorithms: dict[str, str] = field(default_factory=dict, metadata={"keys": _collectives, "choices": _algorithms})
    fusion: str = field(default=FUSION_AUTO, metadata={"choices": FUSIONS})
    fused_part: str = field(default=EVERYWHERE, metadata={"choices": FUSED_PARTS})
    eager_loss: str = field(default=TORCH, metadata={"choices": EAGER_LOSSES})
    eager_norm: str = field(default=TORCH, metadata={"choices": EAGER_NORMS})
    convolution_norms: str = field(default=APART_NORMS, metadata={"choices": CONVOLUTION_NORMS})
    cast_kernels: str = field(default=LIBRARY, metadata={"choices": CAST_KERNELS})
    accumulation: str = field(default=ACCUMULATIONS[0], metadata={"choices": ACCUMULATIONS})
    allocator: str = field(default=EXACT, metadata={"choices": ALLOCATORS})
    pipeline_buffers: str = field(default=IN_USE, metadata={"choices": PIPELINE_BUFFERS})
    check_memory: bool = True

    def __new__(cls, *_: Any, **given: Any) -> "Strategy":
        """Refuse keys that have moved, by their new names, and unknown ones by what they are called here."""
        for key in given:
            if key in MOVED:
                raise ConfigError(f"strategy.{key} is {MOVED[key]} now: Machine(..., {key}={given[key]!r})")
        check_keywords(cls, given)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        check_booleans("strategy", self)
        for key in (*AXES, "mp", *INNER_AXES):
            if key != "dp" or self.dp is not None:
                _check_degree(key, getattr(self, key))
        if self.max_circuit_degree is not None:
            _check_degree("max_circuit_degree", self.max_circuit_degree)
        _check_choice("window", self.window, WINDOWS)
        _check_choice("weight_splits", self.weight_splits, WEIGHT_SPLITS)
        self._check_fusion()
        _check_choice("accumulation", self.accumulation, ACCUMULATIONS)
        _check_choice("cast_kernels", self.cast_kernels, tuple(CAST_KERNELS))
        _check_choice("pipeline_buffers", self.pipeline_buffers, tuple(PIPELINE_BUFFERS))
        _check_choice("cp_algorithm", self.cp_algorithm, CP_ALGORITHMS)
        if self.micro_batch is not None:
            _check_degree("micro_batch", self.micro_batch)
        _check_choice("schedule", self.schedule, tuple(SCHEDULES))
        _check_choice("stage_blocks", self.stage_blocks, STAGE_BLOCKS)
        self._check_recompute()
        if self.placer not in PLACERS:
            PLACERS.get(self.placer)
        self._check_axes()
        self._check_sequence_parallel()
        self._check_chunks()
        self._check_sharding()
        self._check_experts()
        self._check_tables()
        self._check_order()
        _check_choice("optimizer_kernels", self.optimizer_kernels, tuple(OPTIMIZER_KERNELS))
        _check_choice("gradient_precision", self.gradient_precision, GRADIENT_PRECISIONS)
        if self.precision is not None:
            self._check_precision(self.precision)
            self._check_user_buffers(self.precision)
        self._check_narrow("narrow_weights", lambda one: one.gathered_weight_bytes > 0)
        self._check_narrow("narrow_dispatch", lambda one: one.sent_bytes < one.tensor_bytes)
        if self.optimizer is not None:
            get_optimizer(self.optimizer)
        self._check_mapping()
        self._check_quantities()
        self._check_algorithms()

    def _check_narrow(self, key: str, can: Callable[[Precision], bool]) -> None:
        """Raise ConfigError for a key of narrow products that is true with a precision which cannot have it so."""
        known = [name for name, one in PRECISIONS.items() if can(one)]
        if getattr(self, key) and self.precision not in known:
            raise ConfigError(
                f"strategy.{key} is {getattr(self, key)!r}, which needs strategy.precision to be one of:"
                f" {', '.join(known)}; it is {self.precision!r}"
            )

    def _check_fusion(self) -> None:
        _check_choice("gradient_buffer", self.gradient_buffer, tuple(GRADIENT_BUFFERS))
        if self.gradient_buffer != NO_BUFFER and not PLACERS.get(self.placer).buffers_gradients:
            raise ConfigError(
                f"strategy.gradient_buffer is {self.gradient_buffer!r}; with strategy.placer={self.placer} it must be"
                f" {NO_BUFFER!r}"
            )
        _check_choice("fusion", self.fusion, tuple(FUSIONS))
        _check_choice("fused_part", self.fused_part, tuple(FUSED_PARTS))
        if self.fused_part != EVERYWHERE and self.fused_as not in (POINTWISE, EPILOGUE, MODULES):
            raise ConfigError(
                f"strategy.fused_part is {self.fused_part!r}, which needs strategy.fusion to be one of: {POINTWISE},"
                f" {EPILOGUE}, {MODULES}; it is {self.fused_as!r}"
            )
        for key, known, what, need, parts in (  # a need that is unread does not load the placer
            ("eager_loss", EAGER_LOSSES, "a loss that shares", "has_eager_loss", BLOCKS),
            ("eager_norm", EAGER_NORMS, "norms that share", "has_eager_head", f"{BLOCKS} or {BLOCKS_AND_LOSS}"),
        ):
            value = getattr(self, key)
            _check_choice(key, value, tuple(known))
            if value != TORCH and not getattr(self, need):
                raise ConfigError(
                    f"strategy.{key} is {value!r}, which needs {what} no kernel: strategy.fusion={UNFUSED} or"
                    f" strategy.fused_part={parts}"
                )
        self._check_convolution_norms()
        self._check_eager_kernels()
        if self.fusion == FUSION_AUTO:  # placers are not loaded for it
            return
        fusions = PLACERS.get(self.placer).FUSIONS
        if self.fusion not in fusions:
            raise ConfigError(
                f"strategy.fusion is {self.fusion!r}; with strategy.placer={self.placer} it must be one of:"
                f" {', '.join((FUSION_AUTO, *fusions))}"
            )

    def _check_eager_kernels(self) -> None:
        """Refuse kernels of eager code where other code shares them out."""
        for key, value, said in (
            ("gradient_buffer", "copied", "'copied'"), ("optimizer_kernels", "single", "'single'"),
            ("autocast", True, "true"),
        ):  # fmt: skip
            if getattr(self, key) == value and self.shard:
                raise ConfigError(f"strategy.{key} is {said}, which needs strategy.shard to be 0; it is {self.shard}")
        _check_choice("weight_decay", self.weight_decay, tuple(WEIGHT_DECAYS))
        if self.weight_decay != NO_DECAY and self.optimizer_kernels != SINGLE:
            raise ConfigError(
                f"strategy.weight_decay is {self.weight_decay!r}, which needs strategy.optimizer_kernels to be"
                f" {SINGLE}; it is {self.optimizer_kernels!r}"
            )
        _check_choice("inputs", self.inputs, tuple(GRAPH_INPUTS))
        if self.inputs != READ_IN_PLACE:
            placer = type(self).__dataclass_fields__["placer"].default
            for key, needed in (("placer", placer), ("recompute", "none")):
                if getattr(self, key) != needed:
                    raise ConfigError(
                        f"strategy.inputs is {self.inputs!r}, which needs strategy.{key} to be {needed}; it is"
                        f" {getattr(self, key)!r}"
                    )
        if not self.autocast:
            return
        if self.fused_as != UNFUSED:
            raise ConfigError(
                f"strategy.autocast is true, which needs strategy.fusion to be {UNFUSED}; it is {self.fused_as!r}"
            )
        if self.gradient_precision not in (AUTO, _FP32):
            raise ConfigError(
                f"strategy.autocast is true: gradients of weights in fp32 are cast back to it, so that"
                f" strategy.gradient_precision must be {_FP32} or {AUTO}; it is {self.gradient_precision!r}"
            )

    def _check_precision(self, precision: str) -> None:
        """Raise ConfigError for settings that do not go with a precision, the strategy's or the model's own."""
        gradient_bytes(precision, self.gradient_precision)
        is_own = "" if self.precision is not None else ", the model's own"
        if self.autocast and precision not in AUTOCAST_TO:
            raise ConfigError(
                f"strategy.autocast is true, which needs strategy.precision to be {' or '.join(AUTOCAST_TO)}; it is"
                f" {precision!r}{is_own}"
            )
        if self.convolution_norms != APART_NORMS and get_precision(precision).tensor_bytes != 2:
            narrow = ", ".join(name for name, one in PRECISIONS.items() if one.tensor_bytes == 2)
            raise ConfigError(
                f"strategy.convolution_norms is {self.convolution_norms!r}, whose kernels are of 16 bits; it needs"
                f" strategy.precision to be one of: {narrow}; it is {precision!r}{is_own}"
            )

    def _check_convolution_norms(self) -> None:
        _check_choice("convolution_norms", self.convolution_norms, tuple(CONVOLUTION_NORMS))
        if self.convolution_norms == APART_NORMS:
            return
        needs = (
            ("fusion", self.fused_as, (POINTWISE, EPILOGUE)), ("fused_part", self.fused_part, (EVERYWHERE,)),
            ("tp", self.tp, (1,)), ("pp", self.pp, (1,)), ("recompute", self.recompute, ("none",)),
        )  # fmt: skip
        for key, value, allowed in needs:
            if value not in allowed:
                raise ConfigError(
                    f"strategy.convolution_norms is {self.convolution_norms!r}, which needs strategy.{key} to be"
                    f" {' or '.join(map(str, allowed))}; it is {value!r}"
                )

    @property
    def fused_as(self) -> str:
        """Which ops share a kernel, one of FUSIONS but auto."""
        return PLACERS.get(self.placer).FUSIONS[0] if self.fusion == FUSION_AUTO else self.fusion

    @property
    def has_eager_loss(self) -> bool:
        """The loss shares no kernel."""
        return self.fused_as == UNFUSED or self.fused_part == BLOCKS

    @property
    def has_eager_head(self) -> bool:
        """Whether ops outside repeated blocks, the loss aside, share no kernel."""
        return self.fused_as == UNFUSED or self.fused_part != EVERYWHERE

    def _check_recompute(self) -> None:
        _check_choice("recompute", self.recompute, RECOMPUTE)
        _check_choice("allocator", self.allocator, tuple(ALLOCATORS))
        for key, unset, level in (
            ("recompute_modules", None, "selective"), ("recompute_blocks", None, "full"),
            ("recompute_stops_early", False, "full"),
        ):  # fmt: skip
            if getattr(self, key) != unset and self.recompute != level:
                raise ConfigError(
                    f"strategy.{key} is {getattr(self, key)!r}, but strategy.recompute is {self.recompute!r}; set"
                    f" strategy.recompute={level}, or leave strategy.{key} out"
                )
        if self.recompute_blocks is not None:
            _check_degree("recompute_blocks", self.recompute_blocks)
        self._check_offload()
        if self.recompute_modules is None:
            return
        names = [self.recompute_modules] if isinstance(self.recompute_modules, str) else list(self.recompute_modules)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(
                f"strategy.recompute_modules is {self.recompute_modules!r}; it must list kinds of modules"
                f" ({', '.join(RECOMPUTE_MODULES)}) or paths of modules, for example 'blocks.*.mlp'"
            )
        self.recompute_modules = names

    def _check_offload(self) -> None:
        count = self.offload_blocks
        if not is_integer(count) or count < 0:
            raise ConfigError(f"strategy.offload_blocks is {count!r}; it must be an integer >= 0")
        needed = {"placer": type(self).__dataclass_fields__["placer"].default, "pp": 1, "recompute": "none"}
        for key, value in needed.items():
            if count and getattr(self, key) != value:
                raise ConfigError(
                    f"strategy.offload_blocks is {count}, which needs strategy.{key}={value}; it is"
                    f" {getattr(self, key)!r}"
                )

    @property
    def replayed_modules(self) -> tuple[str, ...]:
        """Modules that selective recomputation replays."""
        if self.recompute != "selective":
            return ()
        return tuple(self.recompute_modules or RECOMPUTE_MODULES[:1])

    def recomputing(self, level: str) -> "Strategy":
        """Return this strategy at another level of recomputation, all of it."""
        return replace(
            self, recompute=level, recompute_modules=None, recompute_blocks=None, recompute_stops_early=False
        )

    def _check_axes(self) -> None:
        """Raise DegreeError for degrees that the placer does not know."""
        given = [key for key in (*AXES, "mp") if getattr(self, key) not in (None, 1)]
        own = PLACERS.get(self.placer).AXES if given else ()
        for key in given:
            if key not in own:
                others = [name for name in PLACERS.names() if key in PLACERS.get(name).AXES]
                instead = f", or set strategy.placer={' or '.join(others)}" if others else ""
                raise DegreeError(
                    f"strategy.{key} is {getattr(self, key)}; strategy.placer={self.placer} takes"
                    f" {' and '.join(f'strategy.{axis}' for axis in own)} instead{instead}"
                )

    def _check_order(self) -> None:
        if isinstance(self.rank_order, list | tuple):
            self.rank_order = ",".join(map(str, self.rank_order))
        listed = {*self.order, "cp"} if self.cp == 1 else set(self.order)
        if listed != set(AXES) or len(set(self.order)) != len(self.order):
            also = "" if self.cp == 1 else f" (cp is {self.cp})"
            raise ConfigError(
                f"strategy.rank_order is {self.rank_order!r}; it must list tp, cp, pp and dp once each, fastest first,"
                f" for example 'tp,cp,pp,dp'; cp may be left out only where it is 1{also}"
            )

    def _check_sharding(self) -> None:
        check_sharding(
            self.shard, self.shard_group, self.prefetch, is_resharded=self.reshard_after_forward,
            is_gather_overlapped=self.overlap_param_gather, is_reduced_often=self.reduce_every_microbatch,
            is_reduction_overlapped=self.overlap_grad_reduce, layout=self.shard_layout,
        )  # fmt: skip
        if self.shard and not PLACERS.get(self.placer).shards_state:
            raise ConfigError(
                f"strategy.shard is {self.shard}, but strategy.placer={self.placer} keeps all of a parameter's state"
                " where its ops run; it must be 0"
            )
        if self.dp is not None:
            sharding_degree(self.dp, self.cp, self.shard, self.shard_group)

    def _check_experts(self) -> None:
        """Raise DegreeError for an ep that the placer does not know, or that does not divide the replicas."""
        self._check_ep_overlap()
        self._check_expert_tp()
        _check_choice("dispatcher", self.dispatcher, tuple(DISPATCHERS))
        if self.dispatcher != HYBRIDEP and self.servers_per_token is None:
            raise ConfigError(
                f"strategy.dispatcher is {self.dispatcher!r}, which sends rows with strategy.servers_per_token alone;"
                " set that too, or leave strategy.dispatcher out"
            )
        if self.servers_per_token is not None:
            _check_degree("servers_per_token", self.servers_per_token)
            if self.ep == 1:
                raise ConfigError(
                    f"strategy.servers_per_token is {self.servers_per_token}, which needs strategy.ep > 1"
                )
        if self.ep == 1:
            return
        if "ep" not in PLACERS.get(self.placer).INNER_AXES:
            others = [name for name in PLACERS.names() if "ep" in PLACERS.get(name).INNER_AXES]
            raise DegreeError(
                f"strategy.ep is {self.ep}, but strategy.placer={self.placer} does not spread experts over replicas: it"
                f" places their ops inside a group; set strategy.placer={' or '.join(others)}"
            )
        if self.dp is not None and self.num_expert_ranks % self.ep:
            axes = ["dp", *(["cp"] if self.cp > 1 else []), *(["tp"] if self.has_whole_experts else [])]
            degrees = " x ".join(str(getattr(self, axis)) for axis in axes) + " = " if len(axes) > 1 else ""
            hint = ""
            if self.tp > 1 and not self.has_whole_experts:
                hint = "; with strategy.expert_tp=1 experts are not split by tp, and it may divide tp x cp x dp"
            raise DegreeError(
                f"strategy.ep is {self.ep}; it must divide strategy.{' x '.join(axes)} = {degrees}"
                f"{self.num_expert_ranks}{hint}"
            )
        if self.shard_group is not None:
            raise ConfigError(
                f"strategy.ep is {self.ep} and strategy.shard_group {self.shard_group}: copies of the state are not"
                " modelled where experts have replicas of their own; leave strategy.shard_group out, or set ep=1"
            )

    def _check_ep_overlap(self) -> None:
        if not self.ep_overlap:
            return
        said = "strategy.ep_overlap is true: rows of experts travel while another micro-batch computes"
        if self.ep == 1:
            raise ConfigError(f"{said}, but strategy.ep is 1, which sends none; set strategy.ep > 1, or leave it out")
        if not SCHEDULES.get(self.schedule).runs_ahead:
            able = [name for name in SCHEDULES if SCHEDULES.get(name).runs_ahead]
            raise ConfigError(f"{said}; strategy.schedule is {self.schedule}, it must be {' or '.join(able)}")
        if self.shard == 3:
            raise ConfigError(
                f"{said}; strategy.shard is 3, and units gathered for two micro-batches at once are not modelled; it"
                " must be 0, 1 or 2"
            )
        if self.pp > 1 and self.virtual_stages == 1:
            raise ConfigError(
                f"{said}; with one chunk of layers on each of strategy.pp = {self.pp} stages a backward needs the"
                " forward in front of it, so strategy.virtual_stages must be > 1"
            )

    def _check_expert_tp(self) -> None:
        if self.expert_tp is None:
            return
        _check_degree("expert_tp", self.expert_tp)
        said = f"strategy.expert_tp is {self.expert_tp}"
        if "ep" not in PLACERS.get(self.placer).INNER_AXES:
            raise DegreeError(f"{said}, but strategy.placer={self.placer} has no tp groups; leave it out")
        if self.expert_tp not in (1, self.tp):
            raise DegreeError(
                f"{said}; it must be 1, experts whole on a rank, or strategy.tp = {self.tp}, which splits every expert"
            )
        if self.has_whole_experts and not self.sequence_parallel:
            raise ConfigError(
                f"{said} and strategy.tp {self.tp}: without strategy.sequence_parallel=true all {self.tp} ranks would"
                " route and send the same tokens (Megatron-Core asks for it, too). Set it, or leave expert_tp out"
            )

    def _check_user_buffers(self, precision: str) -> None:
        if self.tp_overlap and self.tp_style == MCORE and not PRECISIONS[precision].in_user_buffers:
            known = ", ".join(name for name, one in PRECISIONS.items() if one.in_user_buffers)
            raise ConfigError(
                f"strategy.tp_overlap is true and strategy.precision is {precision!r}, which Transformer Engine's user"
                f" buffers do not take; set strategy.tp_overlap=false, or a precision of: {known}"
            )

    def _check_sequence_parallel(self) -> None:
        _check_choice("tp_style", self.tp_style, tuple(TP_STYLES))
        if self.tp_overlap and not (self.sequence_parallel and self.asynchronous_tp):
            needed = "sequence_parallel" if not self.sequence_parallel else "asynchronous_tp"
            raise ConfigError(
                "strategy.tp_overlap is true: it overlaps products with their reduce-scatters and all-gathers; set"
                f" strategy.{needed}=true, or strategy.tp_overlap=false"
            )
        if not self.sequence_parallel:
            return
        if "tp" not in PLACERS.get(self.placer).AXES:
            raise ConfigError(
                f"strategy.sequence_parallel is true, but strategy.placer={self.placer} has no tensor-parallel groups,"
                " over which sequences would be split; set strategy.placer=megatron and strategy.tp > 1"
            )
        if self.tp == 1:
            raise ConfigError(
                "strategy.sequence_parallel is true, but strategy.tp is 1: the sequence is split over the members of a"
                " tensor-parallel group. Set strategy.tp > 1, or strategy.sequence_parallel=false"
            )
        if SCHEDULES.get(self.schedule).splits_backward:
            whole = [name for name in SCHEDULES if not SCHEDULES.get(name).splits_backward]
            raise ConfigError(
                f"strategy.sequence_parallel is true, but strategy.schedule={self.schedule} runs weight gradients"
                " apart, and what both halves of a backward gather again is not modelled; set"
                f" strategy.schedule={' or '.join(whole)}"
            )

    def _check_chunks(self) -> None:
        """Raise DegreeError for chunks that the pipeline cannot have."""
        _check_degree("virtual_stages", self.virtual_stages)
        if self.virtual_stages == 1:
            return
        said = f"strategy.virtual_stages is {self.virtual_stages}"
        if "pp" not in PLACERS.get(self.placer).AXES:
            raise DegreeError(f"{said}, but strategy.placer={self.placer} has no pipeline; it must be 1")
        if self.pp == 1:
            raise DegreeError(f"{said}, but strategy.pp is 1, which leaves nothing to interleave; it must be 1")
        if not SCHEDULES.get(self.schedule).takes_chunks:
            able = [name for name in SCHEDULES if SCHEDULES.get(name).takes_chunks]
            raise DegreeError(
                f"{said}, but strategy.schedule={self.schedule} runs one chunk of layers on each stage; it must be 1,"
                f" or strategy.schedule {' or '.join(able)}"
            )

    def _check_tables(self) -> None:
        _check_choice("tables", self.tables, TABLE_PLACES)
        _check_choice("table_ids", self.table_ids, ID_PROFILES)
        if self.table_ids != UNIFORM and self.tables == REPLICATED:
            raise ConfigError(
                f"strategy.table_ids is {self.table_ids!r}, but strategy.tables is {self.tables!r}, whose gradients are"
                f" whole tables; it must be {UNIFORM!r}, or strategy.tables one of: {', '.join(TABLE_PLACES[1:])}"
            )
        if self.replicated_tables_bytes and self.tables == REPLICATED:
            raise ConfigError(
                f"strategy.replicated_tables is {self.replicated_tables!r}, but strategy.tables is {self.tables!r}, so"
                f" that all are; leave it out, or set strategy.tables to one of: {', '.join(TABLE_PLACES[1:])}"
            )
        others = [key for key in ("tp", "cp", "pp", "mp", "ep") if getattr(self, key) != 1]
        changes = [f"strategy.{key}=1" for key in others] + (["strategy.shard=0"] if self.shard else [])
        if self.tables != REPLICATED and (changes or "ep" not in PLACERS.get(self.placer).INNER_AXES):
            raise ConfigError(
                f"strategy.tables is {self.tables!r}, which takes strategy.dp and strategy.placer=megatron alone; set"
                f" {', '.join(changes) or 'the placer'}, or strategy.tables=replicated"
            )

    def _check_algorithms(self) -> None:
        if not isinstance(self.algorithms, Mapping):
            raise ConfigError(
                f"strategy.algorithms is {self.algorithms!r}; it must be a mapping of collectives to algorithms, for"
                " example strategy.algorithms.all_reduce=ring"
            )
        for name, algorithm in self.algorithms.items():
            _check_choice("algorithms key", name, tuple(_collectives()))
            _check_choice(f"algorithms.{name}", algorithm, _algorithms(name))

    def _check_mapping(self) -> None:
        check_seed("strategy.mapping_seed", self.mapping_seed)
        if isinstance(self.mapping, str):
            if self.mapping not in MAPPINGS and random_seed(self.mapping) is None:
                raise ConfigError(
                    f"strategy.mapping is {self.mapping!r}; it must be auto, blocks, linear, random (its seed is"
                    " strategy.mapping_seed) or a list with the accelerator of every rank"
                )
        else:
            self.mapping = _id_list("mapping", self.mapping)
            if self.accelerators is not None:
                raise ConfigError("strategy.accelerators and a list in strategy.mapping exclude each other; give one")
        if self.accelerators is not None:
            self.accelerators = _id_list("accelerators", self.accelerators)

    def _check_quantities(self) -> None:
        if parse_size(self.bucket_size, "strategy.bucket_size") <= 0:
            raise UnitError(f"strategy.bucket_size is {self.bucket_size!r}; it must be > 0")
        if self.first_bucket is not None and not 0 < self.first_bucket_bytes <= self.bucket_bytes:
            raise UnitError(
                f"strategy.first_bucket is {self.first_bucket!r}; it must be > 0 and at most strategy.bucket_size ="
                f" {self.bucket_size}"
            )
        if parse_time(self.quantum, "strategy.quantum") <= 0:
            raise UnitError(f"strategy.quantum is {self.quantum!r}; it must be > 0")
        check_simulated(parse_time(self.quantum, "strategy.quantum"), "strategy.quantum")

    @property
    def is_tp_asynchronous(self) -> bool:
        """Whether kernels that need no result of a tp group's collective run concurrently with it."""
        return self.asynchronous_tp and self.tp_style == MCORE

    @property
    def num_ranks(self) -> int:
        """Accelerators the job uses.

        Raises: DegreeError where dp is left open: ``place`` fills it in.
        """
        if self.dp is None:
            raise DegreeError("strategy.dp is open, and fills the machine when it is placed; give it a number here")
        return int(self.dp * self.num_ranks_of_replica)

    @property
    def num_ahead(self) -> int:
        """Forwards in front of the first backward beyond those that the pipeline needs."""
        return int(self.ep_overlap)

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

    def degrees(self) -> dict[str, int]:
        """Return the degrees that the placer knows, by axis."""
        return {axis: getattr(self, axis) for axis in PLACERS.get(self.placer).AXES}

    def named_degrees(self) -> dict[str, int]:
        """Return the degrees that words name: all but those of axes that few strategies use, where they are 1."""
        return {axis: n for axis, n in self.degrees().items() if n != 1 or axis not in UNNAMED_AT_1}

    def describe(self) -> str:
        """Return the degrees in words, e.g. "dp 16 x mp 8"."""
        words = " x ".join(
            f"{axis} {'open' if degree is None else degree}" for axis, degree in self.named_degrees().items()
        )
        return words + "".join(f", {axis} {degree}" for axis, degree in self.inner_degrees().items())

    def inner_degrees(self) -> dict[str, int]:
        """Return the degrees that add no devices, by axis, where they are not 1."""
        return {axis: getattr(self, axis) for axis in INNER_AXES if getattr(self, axis) != 1}

    def _changed(self) -> dict[str, Any]:
        """Return every setting that is not the default."""
        default = type(self)()
        found = {entry.name: (getattr(self, entry.name), getattr(default, entry.name)) for entry in fields(self)}
        return {name: value for name, (value, unset) in found.items() if value != unset}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._changed().items())})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the degrees, and every setting that is not the default."""
        changed = {k: value for k, value in self._changed().items() if k not in (*AXES, "mp", *INNER_AXES)}
        size = {"accelerators used": "all" if self.dp is None else f"{self.num_ranks:,} accelerators"}
        return html_pairs(f"strategy {self.describe()}", size | changed)

    @property
    def order(self) -> tuple[str, ...]:
        """The axes of ``rank_order``, fastest first."""
        return tuple(part.strip() for part in str(self.rank_order).split(",") if part.strip())

    @property
    def bucket_bytes(self) -> int:
        """``bucket_size`` [bytes]."""
        return parse_size(self.bucket_size, "strategy.bucket_size")

    @property
    def replicated_tables_bytes(self) -> int:
        """``replicated_tables`` [bytes]."""
        return parse_size(self.replicated_tables, "strategy.replicated_tables")

    @property
    def first_bucket_bytes(self) -> int:
        """``first_bucket`` [bytes], ``bucket_size`` where it is None."""
        first = self.bucket_size if self.first_bucket is None else self.first_bucket
        return parse_size(first, "strategy.first_bucket")

    @property
    def state_sharding(self) -> StateSharding:
        """How the dp (x cp) ranks share the state; one rank alone shares nothing."""
        degree = sharding_degree(self.dp, self.cp, self.shard, self.shard_group)
        if degree == 1:
            return StateSharding()
        num_copies = self.num_data_ranks // degree
        return StateSharding(
            self.shard,
            degree,
            num_copies,
            self.prefetch,
            self.reshard_after_forward,
            self.overlap_param_gather,
            self.reduce_every_microbatch,
            self.shard_layout,
        )

    @property
    def copies_gradients(self) -> bool:
        """Whether a kernel for each parameter copies its gradient into what every micro-batch reduces."""
        state = self.state_sharding
        return self.accumulation == SEPARATE and state.reduces_every_microbatch and not state.copies_units

    @property
    def expert_state_sharding(self) -> StateSharding:
        """How the ranks that hold the same experts share their state."""
        degree, of_all = self.num_expert_replicas, self.state_sharding
        level = of_all.level if self.ep > 1 and degree > 1 else 0
        return replace(of_all, level=level, degree=degree, reduced=EXPERT_DATA, gathered=GATHERED_EXPERTS)

    def numerics(self, graph: OperatorGraph | ModelSize) -> Numerics:
        """Return precision, optimizer and precision of gradients: the strategy's, else the model's.

        Raises: ConfigError for gradients that the precision cannot have, and what else does not go with it.
        """
        precision = self.precision or graph.default_precision
        self._check_precision(precision)
        optimizer = self.optimizer or graph.default_optimizer
        if self.weight_decay != NO_DECAY and optimizer == "adam":
            raise ConfigError(
                f"strategy.weight_decay is {self.weight_decay!r}, but the step of adam has its decay already; leave it"
                " out, or set another strategy.optimizer"
            )
        return Numerics(
            precision, optimizer,
            _FP32 if self.autocast else self.gradient_precision, self.clip_gradients, self.optimizer_kernels,
            holds_copy=self.shard < 3 or self.shard_layout == BUFFERS, writes_copy=not self.autocast,
        )  # fmt: skip

    def batches(self, global_batch: int) -> tuple[int, int]:
        """Return (samples of a micro-batch, micro-batches of one replica) (MODEL D16).

        Raises: DegreeError if global_batch is not micro_batch x num_microbatches x dp.
        """
        _check_degree("global_batch", global_batch)
        if global_batch % self.dp:
            raise DegreeError(f"global_batch is {global_batch}; it must be divisible by strategy.dp = {self.dp}")
        local = global_batch // self.dp
        micro = self.micro_batch if self.micro_batch is not None else (local if self.pp == 1 else 1)
        if local % micro:
            raise DegreeError(
                f"global_batch is {global_batch}, so a replica (strategy.dp = {self.dp}) gets {local} samples;"
                f" that must be divisible by strategy.micro_batch = {micro}"
            )
        if self.virtual_stages > 1 and local // micro % self.pp:
            raise DegreeError(
                f"a replica has {local // micro} micro-batches ({local} samples, {micro} each); with"
                f" strategy.virtual_stages = {self.virtual_stages} they must be a multiple of strategy.pp = {self.pp}"
            )
        return micro, local // micro


def random_seed(mapping: str) -> int | None:
    """Return the seed of "random(SEED)", None for any other text."""
    match = re.fullmatch(r"random\(\s*(\d+)\s*\)", mapping)
    return int(match.group(1)) if match else None


def _check_degree(key: str, value: object) -> None:
    where = key if key == "global_batch" else f"strategy.{key}"
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DegreeError(f"{where} is {value!r}; it must be an integer >= 1")


def _check_choice(key: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        hint = value_in_brackets(key, value)
        raise ConfigError(f"strategy.{key} is {value!r}{hint}; it must be one of: {', '.join(allowed)}")


def _id_list(key: str, value: Any) -> list[int]:
    ids: list[int] = check_integers(f"strategy.{key}", value).tolist()
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise ConfigError(f"strategy.{key} names accelerator {twice} more than once; every id may occur once")
    return ids
