"""torchtitan: PyTorch's own parallelisms, each block compiled by itself."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from rostam_py.errors import ConfigError
from rostam_py.software.stack import Job, Rulings
from rostam_py.software.stacks.pytorch import BLOCKS, BLOCKS_AND_LOSS, PyTorch

RELEASES = ("2025-06", "2025-02", "2024-12", "2024-06")
_BF16 = "bf16_mixed"
_FLOAT8 = {"tensorwise": "fp8_mixed", "rowwise": "fp8_row_mixed"}


@dataclass(kw_only=True)
class Torchtitan(PyTorch):
    """torchtitan: FSDP2 over all data-parallel ranks, blocks compiled one by one, bf16, AdamW.

    release: 2024-06 (its own fused norms), 2024-12 (blocks compiled), 2025-02 (fused AdamW) or 2025-06 (loss compiled).
    compile: torchtitan's compile.enable. float8: 8-bit matrix products of torchao, tensorwise or rowwise; sets
        strategy.precision.
    enable_fsdp_float8_all_gather: gather weights in 8 bits (needs tensorwise).
    data_parallel_shard_degree: -1 shards weights over all data-parallel ranks (strategy.shard=3); 1 shards nothing.
    fused: use a fused AdamW step; null takes the default of the release. All other flags are those of pytorch.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ()
    SOURCES = (
        "pytorch/torchtitan: torchtitan/parallelisms/parallelize_llama.py at 004b314 (blocks compiled, FSDP in"
        " pipelines), pull 755 (loss not compiled), pull 1033 of 2025-06 (loss compiled), pull 881 of 2025-02 (AdamW"
        " fused), pull 437 (copies of gathered sequences), pull 728 (context parallelism), pulls 604 and 781 (stages"
        " and micro-batches); max_norm 1.0 in its configurations; expandable segments in run_llama_train.sh"
    )

    release: str = field(default=RELEASES[0], metadata={"choices": RELEASES})
    compile: bool = False
    float8: str | None = field(default=None, metadata={"choices": tuple(_FLOAT8)})
    enable_fsdp_float8_all_gather: bool = False
    data_parallel_shard_degree: int = -1
    fused: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data_parallel_shard_degree not in (-1, 1):
            raise ConfigError(
                f"software.data_parallel_shard_degree is {self.data_parallel_shard_degree}; it must be -1 (all"
                " data-parallel ranks) or 1 (no sharding); for others set strategy.shard=3 strategy.shard_group=N"
            )
        if self.fused not in (None, True, False):
            raise ConfigError(f"software.fused is {self.fused!r}; it must be true, false or null")
        if self.enable_fsdp_float8_all_gather and self.float8 != "tensorwise":
            raise ConfigError(
                "software.enable_fsdp_float8_all_gather is true, which needs software.float8=tensorwise; it is"
                f" {self.float8!r}"
            )

    def kernels(self) -> Rulings:
        """FlashAttention-2; norms as one kernel, its own Triton one before 2024-12 included."""
        return {"attention": "flash2"}

    def scope(self, job: Job) -> str:
        """Blocks, each by itself, and since 2025-06 the loss."""
        return BLOCKS_AND_LOSS if self.release >= "2025-06" else BLOCKS

    @property
    def has_fused_step(self) -> bool:
        """Since pull 881, unless told otherwise."""
        return self.release >= "2025-02" if self.fused is None else self.fused

    def insists(self, job: Job) -> frozenset[str]:
        """Return precision where float8 replaces bf16's products. Raises: ConfigError where it is another."""
        wanted, given = _FLOAT8.get(self.float8 or ""), job.strategy.precision
        if wanted is None or given in (None, wanted):
            return frozenset()
        if given != _BF16:
            raise ConfigError(
                f"software.float8 is {self.float8!r}, which sets strategy.precision={wanted}, but strategy.precision is"
                f" {given!r}; leave one of them out"
            )
        return frozenset({"precision"})

    def strategy(self, job: Job) -> Rulings:
        """As PyTorch's own; FSDP2, and 8 bits where float8 is set."""
        if job.strategy.shard in (1, 2) or (job.strategy.shard and self.data_parallel_shard_degree == 1):
            raise ConfigError(
                f"strategy.shard is {job.strategy.shard}, which torchtitan with software.data_parallel_shard_degree="
                f"{self.data_parallel_shard_degree} does not run: it shards weights, too (shard 3), or, with 1, nothing"
            )
        if job.strategy.tp > 1 and job.is_of_language:
            job = job._replace(strategy=replace(job.strategy, sequence_parallel=True))
        if job.strategy.shard == 0 and self.data_parallel_shard_degree == -1 and job.num_data_ranks > 1:
            job = job._replace(strategy=replace(job.strategy, shard=3))
        found = super().strategy(job) | {
            "shard": job.strategy.shard, "sequence_parallel": job.strategy.sequence_parallel,
            "precision": _FLOAT8.get(self.float8 or "", _BF16), "optimizer": "adam",
            "cast_kernels": "inductor",
        }  # fmt: skip
        if not self.compile and self.release < "2024-12":
            found["eager_norm"] = "fused"
        if self.enable_fsdp_float8_all_gather:
            found["narrow_weights"] = True
        return found
