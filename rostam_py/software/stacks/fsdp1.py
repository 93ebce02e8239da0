"""PyTorch's first FSDP, eager: LLM Foundry's, and others of its time."""

from dataclasses import dataclass, field

from rostam_py.costs.programs import PYTORCHS_NORMS
from rostam_py.errors import ConfigError
from rostam_py.software.stack import Facts, Job, Rulings, Stack

RELEASES = ("torch-2.1", "torch-2.0")
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP")


@dataclass(kw_only=True)
class Fsdp1(Stack):
    """PyTorch's first FSDP (FullyShardedDataParallel), eager, as LLM Foundry and others ran it in 2023.

    release: torch-2.1, or torch-2.0, where recomputation runs whole blocks and gradients are reduced in bf16.
    sharding_strategy: FULL_SHARD, or SHARD_GRAD_OP, which keeps gathered weights from forward to backward.
    mixed_precision: precision of gradient reduction: DEFAULT is fp32 (since Composer's pull 2628, with torch-2.1), PURE
        is bf16.
    """

    SOURCES = (
        "mosaicml/llm-foundry, scripts/train/benchmarking at c90b9b3: a unit for each block and one for the rest"
        " (fsdp_wrap_fn, BACKWARD_POST, limit_all_gathers), gradients reduced every micro-batch (Composer's"
        " ddp_sync_context), FlashAttention's one-kernel loss and Composer's two metrics of it (34 bytes per logit,"
        " modelled as PyTorch's eager loss with 36), PyTorch's norms in 16 bits, FlashAttention-2's kernels in place of"
        " the first ones of Triton, DecoupledAdamW as one kernel for each operation of the update;"
        " mosaicml/composer, pull 2628 (reduce_dtype)"
    )

    release: str = field(default=RELEASES[0], metadata={"choices": RELEASES})
    sharding_strategy: str = field(default=_STRATEGIES[0], metadata={"choices": _STRATEGIES})
    mixed_precision: str = field(default="DEFAULT", metadata={"choices": ("DEFAULT", "PURE")})

    def kernels(self) -> Rulings:
        """FlashAttention-2 and PyTorch's own norms."""
        return {"attention": "flash2", "norms": PYTORCHS_NORMS}

    def hosts(self, facts: Facts) -> Rulings:
        """Eager PyTorch."""
        return {"host": "eager"}

    def strategy(self, job: Job) -> Rulings:
        """Its units, gradients and eager code."""
        if job.strategy.shard in (1, 2):
            raise ConfigError(
                f"strategy.shard is {job.strategy.shard}, which FSDP does not run: it shards weights, too; set"
                " strategy.shard=3, or leave it out"
            )
        is_new = self.release == RELEASES[0]
        found: Rulings = {
            "fusion": "modules", "fused_part": "blocks", "accumulation": "separate", "optimizer_kernels": "foreach",
            "clip_gradients": True, "precision": "bf16_mixed", "optimizer": "adam",
            "gradient_precision": "fp32" if is_new and self.mixed_precision == "DEFAULT" else "bf16",
        }  # fmt: skip
        if job.num_data_ranks > 1:
            found["shard"] = 3
            if self.sharding_strategy == "SHARD_GRAD_OP":
                found["reshard_after_forward"] = False
        if is_new and job.strategy.recompute == "full":
            found["recompute_stops_early"] = True
        return found
