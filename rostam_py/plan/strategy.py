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
    TORCH_ALLOCATOR: "memory is what PyTorch's caching allocator holds: the peak of each stream, and blocks of"
    " 16-bit logits, into which no fp32 tensor fits",
}
IN_USE, EVERY_MICROBATCH = "in_use", "every_microbatch"
PIPELINE_BUFFERS = {
    IN_USE: "a stage holds what its micro-batches in flight keep for backward, and no buffers for sends beyond that",
    EVERY_MICROBATCH: "as torch.distributed.pipelining up to PyTorch 2.7: a stage has a buffer for each micro-batch's"
    " input and for the gradient of its output, and keeps every output (logits, on the last stage) for an iteration",
}
LIBRARY, INDUCTOR = "library", "inductor"
CAST_KERNELS = {
    LIBRARY: "Transformer Engine's, which write column-wise copies as fast as row-wise ones",
    INDUCTOR: "torchao's, compiled by PyTorch: a column-wise copy for each product that reads one, written at a"
    " fraction of the memory bandwidth; with tp_style=dtensor the largest values are all-reduced over tp before",
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

    dp: data-parallel degree, the number of replicas of the model. If unset, the replicas fill the machine.
    tp: tensor-parallel degree, the number of accelerators that split every layer (placer megatron).
    pp: pipeline-parallel degree, the number of stages into which the layers are cut (placer megatron).
    cp: context-parallel degree, the number of accelerators that share one sequence (placer megatron). cp_algorithm: how
        the cp ranks exchange keys and values: ring, all_gather, ulysses, or torch (PyTorch's context_parallel).
    ep: expert-parallel degree (placer megatron). It adds no devices: the dp x cp ranks form groups of ep consecutive
        ranks. Each group holds all experts of a layer, spread over its ranks, which exchange token rows.
    expert_tp: number of ranks of a tp group that split each expert. If unset, or tp, all of them do. 1 keeps each
        expert whole on one rank: ep then divides tp x cp x dp, ranks being taken in this order (needs
        sequence_parallel).
    servers_per_token: maximum number of servers that the experts of one token are on. A row then crosses the network
        once per server and is copied there to its experts (DeepSeek-V3's node-limited routing, DeepEP, HybridEP). If
        unset, one row is sent to the rank of each expert.
    dispatcher: whose kernels send the rows where servers_per_token is set: hybridep (NVIDIA's) or deepep.
    ep_overlap: overlap the all-to-alls of expert rows with the computation of another micro-batch. The forward of one
        micro-batch and the backward of an earlier one are interleaved part by part, and one more forward runs before
        the first backward (Megatron-Core's overlap_moe_expert_parallel_comm, DualPipe's pairs). Needs schedule 1f1b,
        and virtual_stages > 1 where pp > 1.
    tables: placement of embedding tables: replicated, on every rank; sharded, each on one dp rank, or split by rows
        where it exceeds the rank's memory (placement/tables.py); balanced, as sharded, and also split by rows where
        that balances lookups; columns, some columns of every table on each rank; hierarchical, balanced over servers,
        with the rows of a table over the ranks of its server, which sum their lookups before servers exchange them. All
        except replicated need dp to be the only degree > 1.
    replicated_tables: maximum size of a table, optimizer state included, that is replicated on every rank whatever
        tables says.
    table_ids: how often the rows of tables that are not replicated are looked up: uniform, or the measured frequencies
        of a data set such as criteo_1tb (plan/table_ids.py), with which fewer distinct rows are updated.
    mp: number of devices of one model-parallel group; there are dp groups (placer sip_ml).
    micro_batch: samples of one micro-batch of one replica. Default: 1 with a pipeline; without one, the largest divisor
        of global_batch / dp that fits in memory.
    schedule: order of a pipeline's forwards and backwards: 1f1b, gpipe, or zb_h1 (zero bubble: weight gradients are
        computed separately, to fill pipeline bubbles; same as 1f1b where pp is 1).
    virtual_stages: number of chunks of layers on each stage, for interleaved 1f1b. The number of micro-batches must be
        a multiple of pp.
    stage_blocks: how the repeated blocks are divided among stages, or among chunks: balanced, so that the slowest
        device is as fast as possible; even, the same number in each, with all ops before the blocks in the first and
        all ops after them in the last (Megatron's default); or even_with_ends, where the ops before and those after
        each count as one block (Megatron's account_for_embedding_in_pipeline_split and
        account_for_loss_in_pipeline_split).
    overlap_p2p: a stage computes while its outputs are sent to the next one. With false it waits for the send at the
        end of every forward and backward of a chunk, as Megatron does without its overlap_p2p_comm.
    split_p2p: where all members of a tp group hold the same output, each sends only its share, and the receivers gather
        the shares (Megatron's scatter_gather_tensors_in_pipeline). Tensors that sequence_parallel splits are sent
        unchanged.
    bucket_size: size of a gradient bucket: bytes of gradients that one dp all-reduce collects. first_bucket: size of
        the first bucket of an iteration, 1 MiB in PyTorch's DDP. If unset, bucket_size.
    overlap_grad_reduce: the reduction of a bucket starts in backward as soon as the bucket is full, as in PyTorch's DDP
        and with Megatron's overlap_grad_reduce. With false all gradients of a device are reduced after its last
        backward, one bucket for each chunk of layers (shard 0 and 1).
    precision: training precision: fp32, tf32, bf16_mixed or fp16_mixed; with 8-bit matrix products fp8_mixed (a scale
        for each tensor, from its current values), fp8_delayed_mixed (from earlier values), fp8_row_mixed (a scale for
        each row or column), fp8_block_mixed (for each 128 values) or mxfp8_mixed (for each 32 values); with 4-bit ones
        nvfp4_mixed. If unset, the model's own. optimizer: sgd, momentum, adagrad or adam. If unset, the model's own.
    gradient_precision: precision in which gradients are accumulated and reduced: fp32 (4 bytes), bf16 or fp16 (2
        bytes); auto is fp16 for fp16_mixed without autocast and fp32 otherwise, as in Megatron, torchtitan and PyTorch.
    clip_gradients: clip gradients to a norm before the optimizer's step, as is usual for language models: one pass
        reads the gradients, another reads and writes them.
    gradient_buffer: further passes over the gradients: none; zeroed, set to zero once per iteration; scaled, as zeroed,
        and scaled before the reduction; checked, as scaled, and read once before they are scaled; copied, each
        parameter's gradient copied into its bucket and back by a separate kernel (shard 0).
    autocast: keep weights in fp32 and cast them as torch.autocast does: one kernel for each weight casts it where
        products and convolutions read it, another casts its gradient back, and the model's inputs that they read are
        cast, too. With false the optimizer writes 16-bit copies of the weights. Needs fp16_mixed or bf16_mixed, fusion
        none and shard 0; gradients are fp32.
    inputs: how an iteration's inputs reach forward: in_place, read where they arrive; copied, each copied by a kernel
        into the captured graph's own tensor; widened, as copied, but what forward reads first arrives in 2 bytes per
        element and a kernel converts it for the model (no recomputation).
    optimizer_kernels: kernels of the optimizer's step: fused, one kernel for all of it; foreach, one for each operation
        of the update over all parameters, the default of torch.optim; or single, one for each operation and each
        parameter (shard 0).
    weight_decay: which weights a separate kernel decays by adding to their gradients: none; products, the weights that
        matrix products read; or all. Needs optimizer_kernels=single, and an optimizer other than adam, whose update
        includes the decay.
    narrow_weights: weights that only matrix products read are stored in the precision of these products, and are
        gathered in it after their update (Transformer Engine's fp8_model_init, Megatron's fp8_param_gather). Needs a
        precision with 8- or 4-bit products that can store weights so.
    narrow_dispatch: rows are sent to experts in the precision of the matrix products, as in DeepSeek-V3 (arXiv
        2412.19437, section 3.3.2); with false in 16 bits, as Megatron-Core's dispatchers send them
        (megatron/core/transformer/moe/fused_a2a.py refuses fp8_dispatch). Needs a precision with 8-bit products that
        can send rows so.
    recompute: activation recomputation (checkpointing): none, selective (only recompute_modules) or full (the forward
        of every block runs again before its backward).
    recompute_modules: modules that selective recomputation runs again, by default core_attn. Kinds are core_attn,
        layernorm, activation, mla_up_proj and every_other_product; paths of modules such as "blocks.*.mlp" are
        possible, too.
    recompute_blocks: number of blocks that full recomputation covers, the first ones of each stage or chunk. If unset,
        all.
    recompute_stops_early: full recomputation runs a block only as far as its backward needs, as torch.utils.checkpoint
        and compiled code do. Megatron's own checkpoints run all of it.
    offload_blocks: number of first blocks whose activations are kept in host memory (pp = 1, no recomputation).
    asynchronous_tp: the tp all-reduce of an input gradient, and the halo exchange of a convolution's output gradient,
        run concurrently with the kernels of the weight gradient, as in Megatron. With false kernels wait for every
        collective of their tp group.
    sequence_parallel: split the ops between tensor-parallel regions (norms, dropout, residual sums) along the sequence,
        whose length tp must divide. An all-reduce becomes a reduce-scatter and an all-gather of the same bytes,
        activations are kept in parts, and backward gathers the inputs of the regions again.
    tp_style: whose implementation of tensor parallelism: mcore (Megatron-Core's), or dtensor (PyTorch's), which copies
        tensors that are gathered and scattered along the sequence and makes kernels wait for every collective, like
        asynchronous_tp=false.
    tp_overlap: run matrix products in parts, each as soon as its part of a gathered input has arrived, or while earlier
        parts are reduce-scattered (with sequence_parallel): Transformer Engine's user buffers, or PyTorch's
        asynchronous tp.
    shard: ZeRO level, over the dp x cp ranks: 0 shards nothing; 1 shards optimizer state (Megatron's distributed
        optimizer); 2 gradients as well; 3 weights, too (FSDP). At level 3 the units are the repeated blocks, whose
        weights are whole only while they run.
    shard_group: number of ranks over which one copy of the state is sharded, for example those of a server. Gradients
        are then also summed over the copies (hybrid sharding, HSDP). If unset, all dp x cp ranks.
    prefetch: number of units whose weights are gathered ahead of the unit that runs (shard 3).
    reshard_after_forward: free a unit's gathered weights after its forward and gather them again for its backward
        (shard 3).
    overlap_param_gather: gather the updated weights during the forward of the next iteration (shard 1 and 2).
    reduce_every_microbatch: reduce-scatter gradients after every micro-batch (shard 2 and 3). With false whole
        gradients are accumulated and reduced after the last one, as FSDP does in PyTorch's pipelines.
    shard_layout: layout of a unit's shards (shard 3): buffers, flat ones that are gathered and reduced in place; or
        parameters, each sharded by itself and copied out of and into buffers, as in PyTorch's fully_shard.
    placer: megatron, or sip_ml (SiP-ML's Algorithm 1). rank_order: the axes, fastest first, as "tp,cp,pp,dp" or a list.
        mp takes the place of pp, and cp may be left out where it is 1.
    quantum: target duration of sip_ml's sub-ops; 10 us in SiP-ML's evaluation (3.2).
    weight_splits: how sip_ml's sub-ops split weight matrices: least_sent, so that a group sends the least (3.2),
        possibly with a copy on every device, and sliced where these copies do not fit in memory; or sliced, one copy in
        each group.
    max_circuit_degree: maximum number of peers of a device. sip_ml places within it; other plans that exceed it are
        refused; collectives with algorithm auto are rings. If unset, the fabric's limit.
    window: which devices of a group may exchange data where mp exceeds max_circuit_degree: symmetric or paper (MODEL
        D14).
    mapping: which accelerator each rank is on: linear, consecutive ones; blocks, groups of tp, then cp, on compact
        blocks of a torus, HammingMesh or HyperX; auto (the default), the faster of these two; random
        (strategy.mapping=random strategy.mapping_seed=2; in Python also mapping="random(2)"); or a list with the
        accelerator of every rank.
    mapping_seed: seed of the random mapping, 0 to 2^64 - 1.
    allow_idle: the job may leave accelerators unused. accelerators: list of the accelerators that it may use, in order.
    algorithms: algorithm of each collective, as a mapping (rostam list collectives), for example
        strategy.algorithms.all_reduce=ring. Those not named use auto: the algorithm with the least predicted time for
        their ranks and bytes, or a ring on fabrics whose circuits are set once.
    fusion: which ops share a kernel (MODEL B7): auto, the placer's default; pointwise, chains of element-wise ops (the
        default of the megatron placer); epilogue, also a product with the activation behind it; modules, chains inside
        one module at a time; none, every op is a kernel (eager code); or producer, element-wise ops add no time to the
        ops that produce their inputs (the default of sip_ml).
    fused_part: which part of the model is fused: everything; blocks, each repeated block by itself, so that head and
        loss are eager; or blocks_and_loss, so that only the head is eager.
    eager_loss: whose kernels compute the loss where it is not fused (fusion=none, fused_part=blocks): torch, PyTorch's;
        vocab_parallel, Megatron-LM's; or loss_parallel, DTensor's.
    eager_norm: kernels of norms that the model writes out op by op, where they are not fused: torch, one for each op,
        in fp32; or fused, one kernel.
    convolution_norms: where norms of channels (batch norms) between convolutions of 1 x 1 and 3 x 3 run: apart, in
        separate kernels; forward, inside the convolutions in forward, and with activations and sums in backward; or
        both, inside the convolutions in backward as well. The last two need 16 bits, fusion=pointwise or epilogue, tp
        and pp 1 and no recomputation (placement/convolution_norms.py).
    cast_kernels: whose kernels cast the inputs of 8-bit products: library (Transformer Engine's) or inductor (torchao's
        code, compiled by PyTorch).
    accumulation: how the weight gradients of a micro-batch are added to earlier ones: fused (the default), in the
        kernel that computes them, as with Megatron's gradient_accumulation_fusion; separate, by another kernel for each
        parameter, as in PyTorch's autograd (where every micro-batch's gradients are reduce-scattered, this kernel
        copies them into the reduced buffer, as in Megatron-FSDP); or free, in no time. The sip_ml placer ignores it:
        its groups run their whole batch as one micro-batch.
    allocator: what counts as used memory: exact, the peak of live tensors; or torch, what PyTorch's caching allocator
        holds.
    pipeline_buffers: buffers for messages that a stage holds: in_use, those of micro-batches in flight; or
        every_microbatch, those of all micro-batches of an iteration, outputs included, as in
        torch.distributed.pipelining.
    check_memory: refuse a plan that does not fit in memory (MODEL D15).
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
                f"strategy.autocast is true: weights and their gradients are in fp32, so strategy.gradient_precision"
                f" must be {_FP32} or {AUTO}; it is {self.gradient_precision!r}"
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
                f"strategy.convolution_norms is {self.convolution_norms!r}, whose kernels have 16-bit inputs; it needs"
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
                    f"strategy.offload_blocks is {count}, which needs strategy.{key}={value}; strategy.{key} is"
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
                f"strategy.shard is {self.shard}, but strategy.placer={self.placer} does not shard state: a parameter's"
                " state is where its ops run; strategy.shard must be 0"
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
                f"strategy.dispatcher is {self.dispatcher!r}, which is used only with strategy.servers_per_token;"
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
                hint = "; with strategy.expert_tp=1 tp does not split experts, and ep may divide tp x cp x dp"
            raise DegreeError(
                f"strategy.ep is {self.ep}; it must divide strategy.{' x '.join(axes)} = {degrees}"
                f"{self.num_expert_ranks}{hint}"
            )
        if self.shard_group is not None:
            raise ConfigError(
                f"strategy.ep is {self.ep} and strategy.shard_group is {self.shard_group}: hybrid sharding"
                " together with expert parallelism is not modelled; leave strategy.shard_group out, or set ep=1"
            )

    def _check_ep_overlap(self) -> None:
        if not self.ep_overlap:
            return
        said = "strategy.ep_overlap is true: rows of experts are sent while another micro-batch computes"
        if self.ep == 1:
            raise ConfigError(f"{said}, but none are sent with strategy.ep=1; set strategy.ep > 1, or leave it out")
        if not SCHEDULES.get(self.schedule).runs_ahead:
            able = [name for name in SCHEDULES if SCHEDULES.get(name).runs_ahead]
            raise ConfigError(f"{said}; strategy.schedule is {self.schedule}; it must be {' or '.join(able)}")
        if self.shard == 3:
            raise ConfigError(
                f"{said}; strategy.shard is 3, and units gathered for two micro-batches at once are not modelled; it"
                " must be 0, 1 or 2"
            )
        if self.pp > 1 and self.virtual_stages == 1:
            raise ConfigError(
                f"{said}; with one chunk of layers on each of strategy.pp = {self.pp} stages a backward has to"
                " wait for the forward before it, so strategy.virtual_stages must be > 1"
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
                "strategy.tp_overlap is true: products overlap with their reduce-scatters and all-gathers, which needs"
                f" strategy.{needed}=true; set that, or strategy.tp_overlap=false"
            )
        if not self.sequence_parallel:
            return
        if "tp" not in PLACERS.get(self.placer).AXES:
            raise ConfigError(
                f"strategy.sequence_parallel is true, but strategy.placer={self.placer} has no tensor-parallel groups"
                " that could split the sequence; set strategy.placer=megatron and strategy.tp > 1"
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
                " separately, and the gathers that both halves of a backward then repeat are not modelled; set"
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
            raise DegreeError(f"{said}, but strategy.pp is 1, so there are no stages to interleave; it must be 1")
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
                f"strategy.table_ids is {self.table_ids!r}, but strategy.tables is {self.tables!r}: gradients are"
                f" whole tables; it must be {UNIFORM!r}, or strategy.tables one of: {', '.join(TABLE_PLACES[1:])}"
            )
        if self.replicated_tables_bytes and self.tables == REPLICATED:
            raise ConfigError(
                f"strategy.replicated_tables is {self.replicated_tables!r}, but strategy.tables is {self.tables!r}, so"
                f" all are replicated; leave it out, or set strategy.tables to one of: {', '.join(TABLE_PLACES[1:])}"
            )
        others = [key for key in ("tp", "cp", "pp", "mp", "ep") if getattr(self, key) != 1]
        changes = [f"strategy.{key}=1" for key in others] + (["strategy.shard=0"] if self.shard else [])
        if self.tables != REPLICATED and (changes or "ep" not in PLACERS.get(self.placer).INNER_AXES):
            raise ConfigError(
                f"strategy.tables is {self.tables!r}, which needs strategy.placer=megatron and no degree > 1"
                f" except dp; set {', '.join(changes) or 'the placer'}, or strategy.tables=replicated"
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
            raise DegreeError("strategy.dp is not set: it is known once the strategy is placed; give it a number here")
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
                f"strategy.weight_decay is {self.weight_decay!r}, but adam's step already includes the decay; leave"
                " weight_decay out, or set another strategy.optimizer"
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
