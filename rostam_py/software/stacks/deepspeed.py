"""DeepSpeed: ZeRO around eager PyTorch."""

from dataclasses import dataclass, field
from typing import ClassVar

from rostam_py.costs.precision import get_precision
from rostam_py.costs.programs import PYTORCHS_NORMS
from rostam_py.errors import ConfigError
from rostam_py.software.stack import Facts, Job, Rulings, Stack

_STAGES = (0, 1, 2, 3)


@dataclass(kw_only=True)
class DeepSpeed(Stack):
    """DeepSpeed's engine around an eager PyTorch model, as Hugging Face's Trainer runs it. None of it is measured.

    stage: of ZeRO (zero_optimization.stage); if unset, strategy.shard's.
    overlap_comm: reduce gradients on a stream of their own during backward; if unset, true for stage 3 alone, as in its
        configuration. With false a reduction takes its turn among the kernels (stages 0 and 1; the others overlap).
    reduce_bucket_size: elements of a gradient bucket.
    gradient_clipping: clip gradients to a norm.
    grad_accum_dtype: of summed and reduced gradients: that of the weights' copies (bf16 or fp16), or fp32.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ("fsdp1",)
    SOURCES = (
        "deepspeedai/DeepSpeed at 1b88ac36: deepspeed/runtime/zero/config.py (reduce_bucket_size 5e8 elements,"
        " contiguous_gradients, overlap_comm by stage), runtime/engine.py (gradients in the model's dtype where"
        " data_types.grad_accum_dtype is unset), ops/adam/fused_adam.py (one kernel), runtime/pipe/engine.py (no ZeRO"
        " above stage 1 in a pipeline); eager PyTorch else: its norms and its attention, FlashAttention-2"
        " (pytorch/pytorch, issue 142132). No row of a published job"
    )

    stage: int | None = None
    overlap_comm: bool | None = None
    reduce_bucket_size: int = 500_000_000
    gradient_clipping: bool = True
    grad_accum_dtype: str | None = field(default=None, metadata={"choices": ("bf16", "fp16", "fp32")})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage is not None and self.stage not in _STAGES:
            raise ConfigError(f"software.stage is {self.stage!r}; it must be one of: {', '.join(map(str, _STAGES))}")
        if self.overlap_comm is not None and not isinstance(self.overlap_comm, bool):
            raise ConfigError(f"software.overlap_comm is {self.overlap_comm!r}; it must be true or false")
        if self.reduce_bucket_size < 1:
            raise ConfigError(f"software.reduce_bucket_size is {self.reduce_bucket_size}; it must be >= 1")

    def kernels(self) -> Rulings:
        """PyTorch's fused attention and its own norms."""
        return {"attention": "flash2", "norms": PYTORCHS_NORMS}

    def hosts(self, facts: Facts) -> Rulings:
        """Eager PyTorch."""
        return {"host": "eager"}

    def strategy(self, job: Job) -> Rulings:
        """ZeRO's buckets, gradients and gathers around eager code."""
        strategy = job.strategy
        found: Rulings = {
            "fusion": "none", "allocator": "torch", "accumulation": "separate",
            "clip_gradients": self.gradient_clipping and job.is_of_language,
        } | self._gradients(job)  # fmt: skip
        level = self._level(job)
        if level != strategy.shard:
            found["shard"] = level
        does_overlap = level == 3 if self.overlap_comm is None else self.overlap_comm
        if level < 2:
            found["overlap_grad_reduce"] = does_overlap
        if strategy.cp > 1:
            found["cp_algorithm"] = "ulysses"  # DeepSpeed-Ulysses is its sequence parallelism
        if strategy.pp > 1:
            found["overlap_p2p"] = False
        if strategy.recompute == "full":
            found["recompute_stops_early"] = True  # torch.utils.checkpoint
        return found

    def _level(self, job: Job) -> int:
        given = job.strategy.shard
        level = given if self.stage is None else self.stage
        if job.strategy.pp > 1 and level > 1:
            raise ConfigError(
                f"strategy.pp is {job.strategy.pp} and {'strategy.shard' if given else 'software.stage'} is {level}:"
                " DeepSpeed's pipelines run ZeRO stages 0 and 1 alone (runtime/pipe/engine.py)"
            )
        if self.stage is None or job.num_data_ranks == 1:
            return given
        if given not in (0, self.stage):
            raise ConfigError(
                f"software.stage is {self.stage}, but strategy.shard is {given}, which is the stage, too; leave one of"
                " them out"
            )
        return self.stage

    def _gradients(self, job: Job) -> Rulings:
        """Return precision and buckets of gradients."""
        precision = get_precision(job.precision)
        own = "fp16" if "fp16" in job.precision else "bf16"
        kind = self.grad_accum_dtype or (own if own in precision.gradient_precisions else "fp32")
        size = self.reduce_bucket_size * (4 if kind == "fp32" else 2)
        return {"gradient_precision": kind, "bucket_size": f"{size} B"}
