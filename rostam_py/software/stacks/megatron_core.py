"""Megatron-Core with Transformer Engine."""

from dataclasses import dataclass, field
from typing import ClassVar

from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError
from rostam_py.software.stack import Facts, Job, Rulings, Stack

SCOPES = {"attn": "attention", "moe_router": "router"}  # of cuda_graph_scope -> host_graphs

EXCHANGES = {
    "p2p": "ring",
    "all_gather": "all_gather",
    "a2a": "ulysses",
}  # of cp_comm_type -> software.rules.cp_algorithm


@dataclass(kw_only=True)
class MegatronCore(Stack):
    """Megatron-Core and Transformer Engine, eager, with the overlaps that Megatron's example scripts switch on.

    use_distributed_optimizer: shard optimizer state over data-parallel ranks (strategy.shard=1).
    use_megatron_fsdp: shard weights, too (strategy.shard=3); gradients are copied into the buffer that is reduced.
    overlap_grad_reduce, overlap_param_gather: reduce gradients during backward, gather updated weights during forward.
    overlap_p2p_comm: stages compute while they send. With one chunk of layers on each stage they wait nevertheless.
    tp_comm_overlap: matrix products overlap with their all-gathers and reduce-scatters (user buffers). Needs
        sequence_parallel; has no effect on mixtures of experts.
    gradient_accumulation_fusion: the kernel of a weight gradient also adds it to the earlier ones.
    grad_reduce_in_fp32: accumulate and reduce gradients in fp32; false in 16 bits.
    check_for_nan_in_loss_and_grad: read the gradients once more before they are reduced, to find NaNs.
    ddp_average_in_collective: the collective averages gradients; false divides them in a separate kernel.
    cross_entropy_loss_fusion: compute the loss in one kernel; false uses eager vocabulary-parallel kernels in fp32.
    clip_grad: clip gradients to a norm.
    fp8_param_gather: store and gather the weights of 8-bit products in 8 bits.
    cuda_graphs: replay the whole iteration as a CUDA graph. cuda_graph_scope: parts of a layer to replay as CUDA
        graphs: attn, moe_router.
    moe_token_dispatcher_type: alltoall sends a copy of a token to each of its experts; flex sends one to each server
        that holds experts of the token.
    moe_flex_dispatcher_backend: whose kernels flex uses: hybridep or deepep.
    microbatch_group_size_per_vp_stage: number of micro-batches that run through one chunk of layers before the next. If
        unset, the number of pipeline stages.
    moe_deepep_num_sms, moe_hybridep_num_sms: multiprocessors that flex's kernels hold. If unset, the library's own.
    moe_router_num_groups, moe_router_group_topk: number of groups into which experts are divided, in the order of
        ranks, and of groups that a token's experts may be of. With flex they bound the servers that its rows cross to.
    overlap_moe_expert_parallel_comm: send rows of experts while another micro-batch computes.
    account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split: embedding and loss count as a block
        each where blocks are dealt to stages; modelled only together. If unset, where the blocks divide evenly only so.
    cp_comm_type: how context-parallel ranks exchange keys and values: p2p (a ring), all_gather, or a2a (Ulysses).
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ("megatron_bridge", "nemo", "megatron_lm_2021")
    SOURCES = (
        "NVIDIA/Megatron-LM: megatron/training/arguments.py; overlaps as set in"
        " examples/llama/train_llama3_8b_h100_fp8.sh and in the README's weak scaling;"
        " megatron/core/tensor_parallel/cross_entropy.py; pipeline_parallel/schedules.py (stages of one chunk wait for"
        " their sends); clip_grads.py"
    )

    use_distributed_optimizer: bool = False
    use_megatron_fsdp: bool = False
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    overlap_p2p_comm: bool = True
    tp_comm_overlap: bool = False
    gradient_accumulation_fusion: bool = True
    grad_reduce_in_fp32: bool = True
    check_for_nan_in_loss_and_grad: bool = True
    ddp_average_in_collective: bool = False
    cross_entropy_loss_fusion: bool = False
    clip_grad: bool = True
    fp8_param_gather: bool = False
    cuda_graphs: bool = False
    cuda_graph_scope: list[str] = field(default_factory=list, metadata={"items": tuple(SCOPES)})
    moe_token_dispatcher_type: str = field(default="alltoall", metadata={"choices": ("alltoall", "flex")})
    moe_flex_dispatcher_backend: str = field(default="deepep", metadata={"choices": ("hybridep", "deepep")})
    moe_deepep_num_sms: int | None = None
    moe_hybridep_num_sms: int | None = None
    moe_router_num_groups: int | None = None
    moe_router_group_topk: int | None = None
    overlap_moe_expert_parallel_comm: bool = False
    microbatch_group_size_per_vp_stage: int | None = None
    account_for_embedding_in_pipeline_split: bool = False
    account_for_loss_in_pipeline_split: bool = False
    cp_comm_type: str = field(default="p2p", metadata={"choices": tuple(EXCHANGES)})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_groups()
        if self.account_for_embedding_in_pipeline_split != self.account_for_loss_in_pipeline_split:
            raise ConfigError(
                "software.account_for_embedding_in_pipeline_split is"
                f" {str(self.account_for_embedding_in_pipeline_split).lower()} and"
                " software.account_for_loss_in_pipeline_split is"
                f" {str(self.account_for_loss_in_pipeline_split).lower()}; one without the other is not modelled: set"
                " both"
            )

    def _check_groups(self) -> None:
        """Raise ConfigError for groups of experts that are none."""
        groups, most = self.moe_router_num_groups, self.moe_router_group_topk
        if groups is None and most is None:
            return
        said = f"software.moe_router_num_groups is {groups} and software.moe_router_group_topk is {most}"
        if groups is None or most is None or not 1 <= most <= groups:
            raise ConfigError(f"{said}; set both, to integers with 1 <= moe_router_group_topk <= moe_router_num_groups")

    def kernels(self) -> Rulings:
        """FusedAttention, cuDNN's, on Hopper and later; elsewhere the part's own rows answer."""
        return {"attention": "cudnn"}

    def hosts(self, facts: Facts) -> Rulings:
        """Eager code of modules; dropless routing waits for the numbers of each expert's rows."""
        if self.cuda_graphs:
            return {"host": "graphs"}
        found: Rulings = {"host": "transformer_engine"}
        if facts.has_experts:
            found["host_sync"] = "experts"
        if self.cuda_graph_scope:
            found["host_graphs"] = [SCOPES[one] for one in self.cuda_graph_scope]
        return found

    def strategy(self, job: Job) -> Rulings:
        """Megatron-Core's modules, buffers and schedules."""
        strategy = job.strategy
        found: Rulings = {
            "fusion": "modules", "rank_order": "tp,cp,dp,pp", "clip_gradients": self.clip_grad,
            "gradient_buffer": self._buffer(),
        }  # fmt: skip
        if not self.cross_entropy_loss_fusion:
            found |= {"fused_part": "blocks"} | ({"eager_loss": "vocab_parallel"} if job.is_of_language else {})
        precision = get_precision(job.precision)
        if not self.grad_reduce_in_fp32 and "bf16" in precision.gradient_precisions:
            found["gradient_precision"] = "bf16"
        found |= self._sharding(job)
        if strategy.pp > 1:
            found["overlap_p2p"] = self.overlap_p2p_comm and strategy.virtual_stages > 1
        if self.microbatch_group_size_per_vp_stage is not None:
            found["microbatch_group_size"] = self.microbatch_group_size_per_vp_stage
        is_even = self.account_for_loss_in_pipeline_split and strategy.placing.layers is None
        if is_even and strategy.pp > 1:
            found["stage_blocks"] = "even_with_ends"
        else:
            found |= job.even_stages("even", "even_with_ends")
        if strategy.cp > 1 and self.cp_comm_type != "p2p":
            found["cp_algorithm"] = EXCHANGES[self.cp_comm_type]
        if self.overlap_moe_expert_parallel_comm:
            found["ep_overlap"] = True
        can_overlap = strategy.sequence_parallel and precision.in_user_buffers and not job.facts.has_experts
        if can_overlap and self.tp_comm_overlap:
            found["tp_overlap"] = True
        if self.fp8_param_gather and "fp8" in job.precision:
            found["narrow_weights"] = True
        return found | self._rows(job)

    def _buffer(self) -> str:
        if self.check_for_nan_in_loss_and_grad:
            return "checked"
        return "zeroed" if self.ddp_average_in_collective else "scaled"

    def _sharding(self, job: Job) -> Rulings:
        """Return what the flags come to of state shared over data-parallel ranks."""
        found: Rulings = {}
        level = job.strategy.shard
        if level == 1 and self.flags.get("use_distributed_optimizer") is False:
            raise ConfigError(
                "software.use_distributed_optimizer is false, but strategy.shard is 1, which is that optimizer; leave"
                " one of them out"
            )
        for flag, own in (("use_distributed_optimizer", 1), ("use_megatron_fsdp", 3)):
            if flag in self.flags and getattr(self, flag) and level not in (0, own):
                raise ConfigError(
                    f"software.{flag} is true, which means strategy.shard={own}, but strategy.shard is {level}; leave"
                    " one of them out"
                )
        if level == 0 and job.num_data_ranks > 1:
            level = 3 if self.use_megatron_fsdp else int(self.use_distributed_optimizer)
            found["shard"] = level
        if level in (1, 2):
            found["overlap_param_gather"] = self.overlap_param_gather and self.overlap_grad_reduce
        if level < 2:
            found["overlap_grad_reduce"] = self.overlap_grad_reduce
        if level == 3 or not self.gradient_accumulation_fusion:
            found["accumulation"] = "separate"
        return found

    def _rows(self, job: Job) -> Rulings:
        """Return how rows go to their experts."""
        strategy = job.strategy
        if strategy.ep == 1 or self.moe_token_dispatcher_type == "alltoall":
            return {}
        servers = -(-strategy.ep // job.machine.fabric.config.accelerators_per_server)
        found: Rulings = {"servers_per_token": min(servers, self.most_servers(servers))}
        held = self.moe_hybridep_num_sms
        if self.moe_flex_dispatcher_backend == "deepep":
            found["dispatcher"], held = "deepep", self.moe_deepep_num_sms
        if held is not None:
            found["dispatcher_multiprocessors"] = held
        return found

    def most_servers(self, num_servers: int) -> int:
        """Return on how many servers the groups are at most that a token's experts are of.

        Model: groups lie in the order of ranks: several on each server, or each on several, one more where they are not
            aligned with servers.
        """
        groups, most = self.moe_router_num_groups, self.moe_router_group_topk
        if groups is None or most is None:
            return num_servers
        if groups % num_servers == 0:
            return most
        spanned = -(-num_servers // groups)
        return most * (spanned if num_servers % groups == 0 else spanned + 1)
