"""PyTorch's own: DistributedDataParallel, or fully_shard, with or without torch.compile."""

from dataclasses import dataclass
from typing import ClassVar

from rostam_py.costs.programs import PYTORCHS_NORMS
from rostam_py.errors import ConfigError
from rostam_py.software.stack import Facts, Job, Rulings, Stack

EVERYWHERE, BLOCKS, BLOCKS_AND_LOSS = "everything", "blocks", "blocks_and_loss"


@dataclass(kw_only=True)
class PyTorch(Stack):
    """Plain PyTorch: DDP (strategy.shard=0) or FSDP2 (shard=3), compiled, DTensor for tp, torch.distributed.pipelining.

    compile: use torch.compile: on each block of a language model, whose head and loss stay eager, or on all of a model
        without sequences. false is eager code, one kernel for each op.
    gradient_as_bucket_view: for DDP: gradients are views into its buckets; false copies each gradient there and back.
    bucket_cap_mb: for DDP: size of a bucket in MiB.
    fused: AdamW(fused=True), one kernel for the step; false is PyTorch's default, foreach.
    clip_grad_norm: clip gradients to a norm (language models only).
    async_tp: asynchronous tensor parallelism (needs sequence_parallel).
    loss_parallel: keep the logits and the loss split over tp.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ("torchtitan", "fsdp1")
    SOURCES = (
        "pytorch/pytorch: torch/nn/parallel/distributed.py (bucket_cap_mb 25, a first bucket of 1 MiB,"
        " gradient_as_bucket_view False), torch/distributed/fsdp/_fully_shard, torch/optim (foreach),"
        " torch/distributed/pipelining/stage.py and schedules.py, torch/distributed/_functional_collectives.py,"
        " torch/distributed/tensor/parallel/loss.py; its fused attention is FlashAttention-2"
        " (issue 142132), torch.utils.checkpoint stops early since 2.1"
    )

    compile: bool = True
    gradient_as_bucket_view: bool = False
    bucket_cap_mb: int = 25
    fused: bool | None = False
    clip_grad_norm: bool = True
    async_tp: bool = False
    loss_parallel: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bucket_cap_mb < 1:
            raise ConfigError(f"software.bucket_cap_mb is {self.bucket_cap_mb}; it must be >= 1")

    def kernels(self) -> Rulings:
        """PyTorch's fused attention; compiled norms are Inductor's, eager ones PyTorch's own."""
        return {"attention": "flash2"} | ({} if self.compile else {"norms": PYTORCHS_NORMS})

    def hosts(self, facts: Facts) -> Rulings:
        """Compiled or eager code."""
        return {"host": "compiled" if self.compile else "eager"}

    def scope(self, job: Job) -> str:
        """Return what torch.compile reaches (plan.fusion.FUSED_PARTS)."""
        return BLOCKS if job.is_of_language else EVERYWHERE

    @property
    def has_fused_step(self) -> bool:
        """Whether the optimizer's step is one kernel."""
        return bool(self.fused)

    def strategy(self, job: Job) -> Rulings:
        """DDP's or FSDP2's gradients, DTensor's copies, kernels of autograd, the caching allocator."""
        strategy = job.strategy
        found: Rulings = {
            "allocator": "torch", "accumulation": "separate", "tp_style": "dtensor",
            "optimizer_kernels": "fused" if self.has_fused_step else "foreach",
            "clip_gradients": self.clip_grad_norm and job.is_of_language,
        } | self._code(job)  # fmt: skip
        if "fp8" in job.precision:
            found["cast_kernels"] = "inductor"
        if strategy.shard == 3:
            found["shard_layout"] = "parameters"
        elif strategy.shard == 0 and job.num_data_ranks > 1:
            found |= {"first_bucket": "1 MiB", "bucket_size": f"{self.bucket_cap_mb} MiB"}
            if not self.gradient_as_bucket_view:
                found["gradient_buffer"] = "copied"
        if strategy.recompute == "full":
            found["recompute_stops_early"] = True
        if strategy.cp > 1:
            found["cp_algorithm"] = "torch"
        if self.async_tp and strategy.sequence_parallel:
            found["tp_overlap"] = True
        return found | (self._pipeline(job) if strategy.pp > 1 else {})

    def _code(self, job: Job) -> Rulings:
        """Return which ops share a kernel, and what makes the loss."""
        if not self.compile:
            return {"fusion": "none"} | self._loss(job)
        scope = self.scope(job)
        return {} if scope == EVERYWHERE else {"fused_part": scope} | (self._loss(job) if scope == BLOCKS else {})

    def _loss(self, job: Job) -> Rulings:
        is_split = self.loss_parallel and job.strategy.tp > 1 and job.is_of_language
        return {"eager_loss": "loss_parallel"} if is_split else {}

    def _pipeline(self, job: Job) -> Rulings:
        """Stages wait for what they send, and keep places for all micro-batches; FSDP in them keeps whole weights."""
        found: Rulings = {"overlap_p2p": False, "pipeline_buffers": "every_microbatch"}
        found |= job.even_stages("even_with_ends", "even")
        if job.strategy.shard == 3:
            found |= {"reduce_every_microbatch": False, "reshard_after_forward": False}
        return found
