"""MaxText: JAX and XLA on GPUs."""

from dataclasses import dataclass, field
from typing import ClassVar

from rostam_py.errors import ConfigError
from rostam_py.software.stack import Facts, Job, Rulings, Stack

# remat_policy -> strategy.recompute
_REMAT = {"minimal": "none", "full": "full"}
_QUANTIZATION = {"": None, "fp8": "fp8_delayed_mixed"}


@dataclass(kw_only=True)
class MaxText(Stack):
    """MaxText on GPUs: one program compiled by XLA, sharded as FSDP by its partitioner. None of it is measured.

    ici_fsdp_parallelism: -1 shards weights over all data-parallel ranks (strategy.shard=3); 1 shards nothing. If unset,
        strategy.shard's; MaxText's own default is -1.
    remat_policy: minimal keeps the outputs of matrix products (strategy.recompute=none), full recomputes whole blocks.
        If unset, strategy.recompute's; MaxText's own default is full.
    quantization: fp8 for 8-bit products with delayed scales (strategy.precision=fp8_delayed_mixed); empty for none.
    gradient_clipping_threshold: clip gradients to a norm.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ()
    SOURCES = (
        "AI-Hypercomputer/maxtext, MaxText/configs/base.yml at 000e9355 (remat_policy, ici_fsdp_parallelism -1,"
        " gradient_clipping_threshold 1.0, weight_dtype float32, in which gradients are reduced); NVIDIA's JAX toolbox"
        " sets XLA's latency-hiding scheduler, so that collectives run beside kernels; attention is cuDNN's"
        " (cudnn_flash_te). XLA fuses element-wise chains, as Inductor does, and its host runs ahead of the device."
        " No row of a published job"
    )

    ici_fsdp_parallelism: int | None = None
    remat_policy: str | None = field(default=None, metadata={"choices": tuple(_REMAT)})
    quantization: str = field(default="", metadata={"choices": tuple(_QUANTIZATION)})
    gradient_clipping_threshold: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ici_fsdp_parallelism not in (None, -1, 1):
            raise ConfigError(
                f"software.ici_fsdp_parallelism is {self.ici_fsdp_parallelism!r}; it must be -1 (shard weights over all"
                " data-parallel ranks) or 1 (no sharding); for others set strategy.shard=3 strategy.shard_group=N"
            )

    def kernels(self) -> Rulings:
        """cuDNN's attention."""
        return {"attention": "cudnn"}

    def hosts(self, facts: Facts) -> Rulings:
        """One compiled program, whose host is ahead of the device."""
        return {"host": "graphs"}

    def insists(self, job: Job) -> frozenset[str]:
        """Return nothing: what the strategy says stays, flags that say otherwise are refused."""
        self._check("ici_fsdp_parallelism", "shard", {None: None, -1: 3, 1: 0}[self.ici_fsdp_parallelism], job)
        if job.strategy.schedule != "1f1b" and job.strategy.pp > 1:
            raise ConfigError(
                f"strategy.schedule is {job.strategy.schedule!r}, which MaxText has not; it must be '1f1b', which"
                " stands for its own pipelines"
            )
        if self.remat_policy is not None:
            self._check("remat_policy", "recompute", _REMAT[self.remat_policy], job)
        return frozenset()

    def strategy(self, job: Job) -> Rulings:
        """XLA's fusions, sharding and buffers."""
        strategy = job.strategy
        found: Rulings = {
            "fusion": "pointwise", "accumulation": "separate", "optimizer_kernels": "fused",
            "clip_gradients": self.gradient_clipping_threshold and job.is_of_language,
        }  # fmt: skip
        if self.ici_fsdp_parallelism == -1 and job.num_data_ranks > 1:
            found["shard"] = 3
        if self.remat_policy is not None and _REMAT[self.remat_policy] != strategy.recompute:
            found["recompute"] = _REMAT[self.remat_policy]
        if precision := _QUANTIZATION[self.quantization]:
            found["precision"] = precision
        if strategy.cp > 1:
            found["cp_algorithm"] = "all_gather"
        return found

    def _check(self, flag: str, key: str, wanted: object, job: Job) -> None:
        default, given = {"shard": 0, "recompute": "none"}[key], job.strategy.value(key)
        if wanted is not None and given not in (default, wanted):
            raise ConfigError(
                f"software.{flag} is {getattr(self, flag)!r}, which means strategy.{key}={wanted}, but strategy.{key}"
                f" is {given}; leave one of them out"
            )
