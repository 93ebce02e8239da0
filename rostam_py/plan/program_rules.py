"""ProgramRules: what the program that trains does by itself, whatever the strategy.

Example:
    ProgramRules(fusion="none", allocator="torch")
    Strategy(tp=2, rules=ProgramRules(tp_overlap=True))     # set by hand; a program's stack sets the others

The defaults are an ideal program's. A stack (rostam_py/software) chooses all of them from its own flags, and
``software.rules.KEY`` holds one against every stack.
"""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.checks import TRUE_OR_FALSE, is_integer
from rostam_py.collectives.row_exchanges import DISPATCHERS, HYBRIDEP
from rostam_py.costs.optimizers import FUSED as FUSED_STEP
from rostam_py.costs.optimizers import NO_DECAY, OPTIMIZER_KERNELS, SINGLE, STATE_BYTES, WEIGHT_DECAYS
from rostam_py.costs.precision import AUTO, GRADIENT_PRECISIONS
from rostam_py.errors import ConfigError, DegreeError, UnitError
from rostam_py.field_words import in_brackets, value_in_brackets
from rostam_py.plan.fusion import (
    APART_NORMS,
    CONVOLUTION_NORMS,
    EAGER_LOSSES,
    EAGER_NORMS,
    EVERYWHERE,
    FUSED_PARTS,
    FUSIONS,
    TORCH,
)
from rostam_py.plan.fusion import AUTO as FUSION_AUTO
from rostam_py.plan.gradient_buffers import GRADIENT_BUFFERS, NO_BUFFER
from rostam_py.plan.graph_inputs import GRAPH_INPUTS, READ_IN_PLACE
from rostam_py.plan.state_sharding import BUFFERS, SHARD_LAYOUTS
from rostam_py.units import parse_size

WHERE = "software.rules"  # what the keys stand in
CP_ALGORITHMS = ("ring", "all_gather", "ulysses", "torch")
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
BALANCED, EVEN, EVEN_WITH_ENDS = "balanced", "even", "even_with_ends"
STAGE_BLOCKS = (BALANCED, EVEN, EVEN_WITH_ENDS)
SEPARATE = "separate"
FP32 = "fp32"
MASTER_PRECISIONS, MOMENT_PRECISIONS = (FP32, "bf16", "fp16"), tuple(STATE_BYTES)
ACCUMULATIONS = ("fused", SEPARATE, "free")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ProgramRules:
    """Habits of a training program; those that nothing sets are an ideal program's.

    servers_per_token: maximum number of servers that the experts of one token are on. A row then crosses the network
        once per server and is copied there to its experts (DeepSeek-V3's node-limited routing, DeepEP, HybridEP). If
        unset, one row is sent to the rank of each expert.
    dispatcher: whose kernels send the rows where servers_per_token is set: hybridep (NVIDIA's) or deepep.
    dispatcher_multiprocessors: multiprocessors of a device that the dispatcher's kernels hold while rows travel
        (Megatron's moe_deepep_num_sms and moe_hybridep_num_sms, DeepEP's set_num_sms). If unset, its library's own.
    ep_overlap: overlap the all-to-alls of expert rows with the computation of another micro-batch. The forward of one
        micro-batch and the backward of an earlier one are interleaved part by part, and one more forward runs before
        the first backward (Megatron-Core's overlap_moe_expert_parallel_comm, DualPipe's pairs). Needs schedule 1f1b
        or dual_pipe_v, and virtual_stages > 1 where pp > 1.
    microbatch_group_size: interleaved (virtual_stages > 1, schedule 1f1b), number of micro-batches that run through one
        chunk of layers before the same ones run through the next; from pp to the number of micro-batches (Megatron's
        microbatch_group_size_per_vp_stage). If unset, pp.
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
    bucket_size: size of a gradient bucket: bytes of gradients that one dp all-reduce collects.
    first_bucket: size of the first bucket of an iteration, 1 MiB in PyTorch's DDP. If unset, bucket_size.
    overlap_grad_reduce: the reduction of a bucket starts in backward as soon as the bucket is full, as in PyTorch's DDP
        and with Megatron's overlap_grad_reduce. With false all gradients of a device are reduced after its last
        backward, one bucket for each chunk of layers (shard 0 and 1).
    gradient_precision: precision in which gradients are accumulated and reduced: fp32 (4 bytes), bf16 or fp16 (2
        bytes); auto is fp16 for fp16_mixed without autocast and fp32 otherwise, as in Megatron, torchtitan and PyTorch.
    master_precision: precision of the master copy of the weights, which the optimizer updates: fp32, bf16 or fp16.
        Other than fp32, it needs optimizer_kernels=fused.
    moment_precision: precision of the optimizer's own state, such as Adam's two moments: fp32, bf16, fp16 or fp8
        (Megatron's precision-aware optimizer). Other than fp32, it needs optimizer_kernels=fused.
    clip_gradients: clip gradients to a norm before the optimizer's step, as is usual for language models: one pass
        reads the gradients, another reads and writes them.
    gradient_buffer: further passes over the gradients: none; zeroed, set to zero once per iteration; scaled, as zeroed,
        and scaled before the reduction; checked, as scaled, and read once before they are scaled; copied, each
        parameter's gradient copied into its bucket and back by a separate kernel (shard 0).
    inputs: how an iteration's inputs reach forward: in_place, read where they arrive; copied, each copied by a kernel
        into the captured graph's own tensor; widened, as copied, but what forward reads first arrives in 2 bytes per
        element and a kernel converts it for the model (no recomputation).
    optimizer_kernels: kernels of the optimizer's step: fused, one kernel for all of it; foreach, one for each operation
        of the update over all parameters, the default of torch.optim; or single, one for each operation and each
        parameter (shard 0).
    weight_decay: which weights a separate kernel decays by adding to their gradients: none; products, the weights that
        matrix products read; or all. Needs optimizer_kernels=single, and an optimizer other than adam, whose update
        includes the decay.
    autocast: keep weights in fp32 and cast them as torch.autocast does: one kernel for each weight casts it where
        products and convolutions read it, another casts its gradient back, and the model's inputs that they read are
        cast, too. With false the optimizer writes 16-bit copies of the weights. Needs fp16_mixed or bf16_mixed, fusion
        none and shard 0; gradients are fp32.
    narrow_weights: weights that only matrix products read are stored in the precision of these products, and are
        gathered in it after their update (Transformer Engine's fp8_model_init, Megatron's fp8_param_gather). Needs a
        precision with 8- or 4-bit products that can store weights so.
    narrow_dispatch: rows are sent to experts in the precision of the matrix products, as in DeepSeek-V3 (arXiv
        2412.19437, section 3.3.2); with false in 16 bits, as Megatron-Core's dispatchers send them
        (megatron/core/transformer/moe/fused_a2a.py refuses fp8_dispatch). Needs a precision with 8-bit products that
        can send rows so.
    recompute_stops_early: full recomputation runs a block only as far as its backward needs, as torch.utils.checkpoint
        and compiled code do. Megatron's own checkpoints run all of it.
    cp_algorithm: how the cp ranks exchange keys and values: ring, all_gather, ulysses, or torch (PyTorch's
        context_parallel).
    asynchronous_tp: the tp all-reduce of an input gradient, and the halo exchange of a convolution's output gradient,
        run concurrently with the kernels of the weight gradient, as in Megatron. With false kernels wait for every
        collective of their tp group.
    tp_overlap: run matrix products in parts, each as soon as its part of a gathered input has arrived, or while earlier
        parts are reduce-scattered (with sequence_parallel): Transformer Engine's user buffers, or PyTorch's
        asynchronous tp.
    tp_style: whose implementation of tensor parallelism: mcore (Megatron-Core's), or dtensor (PyTorch's), which copies
        tensors that are gathered and scattered along the sequence and makes kernels wait for every collective, like
        asynchronous_tp=false.
    prefetch: number of units whose weights are gathered ahead of the unit that runs (shard 3).
    reshard_after_forward: free a unit's gathered weights after its forward and gather them again for its backward
        (shard 3).
    reshard_group: number of ranks, for example those of a server, that share a second copy of the weights, out of which
        they are gathered for backward; forward gathers them from all (ZeRO++'s hpZ; an integer as FSDP2's
        reshard_after_forward). If unset, there is none (shard 3).
    overlap_param_gather: gather the updated weights during the forward of the next iteration (shard 1 and 2).
    reduce_every_microbatch: reduce-scatter gradients after every micro-batch (shard 2 and 3). With false whole
        gradients are accumulated and reduced after the last one, as FSDP does in PyTorch's pipelines.
    shard_layout: layout of a unit's shards (shard 3): buffers, flat ones that are gathered and reduced in place; or
        parameters, each sharded by itself and copied out of and into buffers, as in PyTorch's fully_shard.
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
    """

    servers_per_token: int | None = None
    dispatcher: str = field(default=HYBRIDEP, metadata={"choices": tuple(DISPATCHERS)})
    dispatcher_multiprocessors: int | None = None
    ep_overlap: bool = False
    microbatch_group_size: int | None = None
    stage_blocks: str = field(default=BALANCED, metadata={"choices": STAGE_BLOCKS})
    overlap_p2p: bool = True
    split_p2p: bool = False
    bucket_size: Any = field(default="25 MB", metadata={"unit": "size"})
    first_bucket: Any = field(default=None, metadata={"unit": "size"})
    overlap_grad_reduce: bool = True
    gradient_precision: str = field(default=AUTO, metadata={"choices": GRADIENT_PRECISIONS})
    master_precision: str = field(default=FP32, metadata={"choices": MASTER_PRECISIONS})
    moment_precision: str = field(default=FP32, metadata={"choices": MOMENT_PRECISIONS})
    clip_gradients: bool = False
    gradient_buffer: str = field(default=NO_BUFFER, metadata={"choices": GRADIENT_BUFFERS})
    inputs: str = field(default=READ_IN_PLACE, metadata={"choices": GRAPH_INPUTS})
    optimizer_kernels: str = field(default=FUSED_STEP, metadata={"choices": OPTIMIZER_KERNELS})
    weight_decay: str = field(default=NO_DECAY, metadata={"choices": WEIGHT_DECAYS})
    autocast: bool = False
    narrow_weights: bool = False
    narrow_dispatch: bool = False
    recompute_stops_early: bool = False
    cp_algorithm: str = field(default="ring", metadata={"choices": CP_ALGORITHMS})
    asynchronous_tp: bool = True
    tp_overlap: bool = False
    tp_style: str = field(default=MCORE, metadata={"choices": TP_STYLES})
    prefetch: int = 1
    reshard_after_forward: bool = True
    reshard_group: int | None = None
    overlap_param_gather: bool = False
    reduce_every_microbatch: bool = True
    shard_layout: str = field(default=BUFFERS, metadata={"choices": SHARD_LAYOUTS})
    fusion: str = field(default=FUSION_AUTO, metadata={"choices": FUSIONS})
    fused_part: str = field(default=EVERYWHERE, metadata={"choices": FUSED_PARTS})
    eager_loss: str = field(default=TORCH, metadata={"choices": EAGER_LOSSES})
    eager_norm: str = field(default=TORCH, metadata={"choices": EAGER_NORMS})
    convolution_norms: str = field(default=APART_NORMS, metadata={"choices": CONVOLUTION_NORMS})
    cast_kernels: str = field(default=LIBRARY, metadata={"choices": CAST_KERNELS})
    accumulation: str = field(default=ACCUMULATIONS[0], metadata={"choices": ACCUMULATIONS})
    allocator: str = field(default=EXACT, metadata={"choices": ALLOCATORS})
    pipeline_buffers: str = field(default=IN_USE, metadata={"choices": PIPELINE_BUFFERS})

    def __post_init__(self) -> None:
        for name in RULE_NAMES:
            check_rule(name, getattr(self, name))
        count = self.servers_per_token
        if count is not None and (not is_integer(count) or count < 1):
            raise DegreeError(f"{WHERE}.servers_per_token is {count!r}; it must be an integer >= 1")
        group = self.microbatch_group_size
        if group is not None and (not is_integer(group) or group < 1):
            raise DegreeError(f"{WHERE}.microbatch_group_size is {group!r}; it must be an integer >= 1")
        if self.dispatcher != HYBRIDEP and count is None:
            raise ConfigError(
                f"{WHERE}.dispatcher is {self.dispatcher!r}, which is used only with {WHERE}.servers_per_token;"
                f" set that too, or leave {WHERE}.dispatcher out"
            )
        held = self.dispatcher_multiprocessors
        if held is not None and (not is_integer(held) or held < 1):
            raise ConfigError(f"{WHERE}.dispatcher_multiprocessors is {held!r}; it must be an integer >= 1")
        if held is not None and count is None:
            raise ConfigError(
                f"{WHERE}.dispatcher_multiprocessors is {held}, which a dispatcher holds, but {WHERE}.servers_per_token"
                " is not set, without which rows go by NCCL's all-to-all; set that too, or leave it out"
            )
        if self.weight_decay != NO_DECAY and self.optimizer_kernels != SINGLE:
            raise ConfigError(
                f"{WHERE}.weight_decay is {self.weight_decay!r}, which needs {WHERE}.optimizer_kernels to be {SINGLE};"
                f" it is {self.optimizer_kernels!r}"
            )
        for key in ("master_precision", "moment_precision"):
            value = getattr(self, key)
            if value != FP32 and (self.optimizer_kernels != FUSED_STEP or self.autocast):
                raise ConfigError(
                    f"{WHERE}.{key} is {value!r}, which needs {WHERE}.optimizer_kernels={FUSED_STEP} and"
                    f" {WHERE}.autocast=false; they are {self.optimizer_kernels!r} and {str(self.autocast).lower()}"
                )
        if self.autocast and self.gradient_precision not in (AUTO, "fp32"):
            raise ConfigError(
                f"{WHERE}.autocast is true: weights and their gradients are in fp32, so {WHERE}.gradient_precision"
                f" must be fp32 or {AUTO}; it is {self.gradient_precision!r}"
            )
        self._check_buckets()

    def _check_buckets(self) -> None:
        if self.bucket_bytes <= 0:
            raise UnitError(f"{WHERE}.bucket_size is {self.bucket_size!r}; it must be > 0")
        if self.first_bucket is not None and not 0 < self.first_bucket_bytes <= self.bucket_bytes:
            raise UnitError(
                f"{WHERE}.first_bucket is {self.first_bucket!r}; it must be > 0 and at most {WHERE}.bucket_size ="
                f" {self.bucket_size}"
            )

    @classmethod
    def of(cls, given: Any) -> "ProgramRules":
        """Return rules by key, or as they are.

        Raises: ConfigError for what is neither a mapping nor rules, and for unknown keys.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"{WHERE} is {given!r}; it must be a mapping of rules to values, such as {{fusion: none}}"
            )
        for key in given:
            if key not in RULE_NAMES:
                hint = nearest_rule(key, RULE_NAMES) or in_brackets(f"{WHERE}.{key}", given[key])
                raise ConfigError(f"{WHERE}.{key} is not a rule of a strategy{hint}; rules: {', '.join(RULE_NAMES)}")
        return cls(**given)

    @property
    def is_ideal(self) -> bool:
        """Whether every one is an ideal program's."""
        return self == IDEAL_RULES

    @property
    def changed(self) -> dict[str, Any]:
        """Those that are not an ideal program's, by key."""
        return {key: value for key in RULE_NAMES if (value := getattr(self, key)) != getattr(IDEAL_RULES, key)}

    @property
    def bucket_bytes(self) -> int:
        """``bucket_size`` [bytes]."""
        return parse_size(self.bucket_size, f"{WHERE}.bucket_size")

    @property
    def first_bucket_bytes(self) -> int:
        """``first_bucket`` [bytes], ``bucket_size`` where it is None."""
        first = self.bucket_size if self.first_bucket is None else self.first_bucket
        return parse_size(first, f"{WHERE}.first_bucket")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.changed.items())})"


_FIELDS = {entry.name: entry for entry in dataclasses.fields(ProgramRules)}
RULE_NAMES = tuple(_FIELDS)


def choices_of_rule(name: str) -> tuple[str, ...]:
    """Return the names that a rule takes; nothing for rules of numbers, flags and sizes."""
    return tuple(_FIELDS[name].metadata.get("choices", ()))


def nearest_rule(name: str, known: Sequence[str]) -> str:
    """Return a hint, " (did you mean 'fusion'?)", for a misspelt rule; "" for a word that is like none."""
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]!r}?)" if near else ""


def unit_of_rule(name: str) -> str | None:
    """Return what a rule is measured in, "size"; None for one without a unit."""
    return _FIELDS[name].metadata.get("unit") if name in _FIELDS else None


def check_rule(name: str, value: Any) -> None:
    """Raise ConfigError for a value that a rule cannot have: no name of those known, or neither true nor false."""
    entry = _FIELDS[name]
    allowed = entry.metadata.get("choices")
    if allowed is not None and (not isinstance(value, str) or value not in tuple(allowed)):
        hint = value_in_brackets(name, value)
        raise ConfigError(f"{WHERE}.{name} is {value!r}{hint}; it must be one of: {', '.join(allowed)}")
    if isinstance(entry.default, bool) and not isinstance(value, bool):
        raise ConfigError(f"{WHERE}.{name} is {value!r}; it must be {TRUE_OR_FALSE}")


IDEAL_RULES = ProgramRules()
