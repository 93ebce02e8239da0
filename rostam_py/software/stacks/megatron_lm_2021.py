"""Megatron-LM of 2021 and 2022, before Megatron-Core."""

from dataclasses import dataclass, field

from rostam_py.costs.programs import PYTORCHS_NORMS
from rostam_py.software.stack import Facts, Job, Rulings, Stack

RELEASES = ("2022", "2021")


@dataclass(kw_only=True)
class MegatronLm2021(Stack):
    """Megatron-LM as in its papers of 2021 and 2022: eager code, gradients reduced after the last backward.

    release: 2021 (Narayanan et al.), or 2022 (Korthikanti et al.), which adds sequence parallelism, tensor-parallel
        all-reduces concurrent with weight gradients, norms in one pass and fp32 gradients.
    """

    SOURCES = (
        "Narayanan et al. 2021 (arXiv 2104.04473), section 4.1: each rank of a stage sends a share that the receivers"
        " gather, and stages wait for it (p2p_communication.py). Korthikanti et al. 2022 (arXiv 2205.05198). Autograd"
        " accumulates gradients in separate kernels (megatron/mpu/layers.py at 02bb1f5), they are clipped"
        " (clip_grads.py), and their buffer is zeroed and divided (allreduce_gradients in"
        " megatron/model/distributed.py); the loss is megatron/mpu/cross_entropy.py, in fp32; the norms of 2021 are"
        " those of apex of 2020 (megatron/model/fused_layer_norm.py), as fast as PyTorch's own (NVIDIA/apex, pull"
        " 1037)"
    )

    release: str = field(default=RELEASES[0], metadata={"choices": RELEASES})

    @property
    def _is_first(self) -> bool:
        return self.release == "2021"

    def kernels(self) -> Rulings:
        """Norms of one pass came in 2022."""
        return {"norms": PYTORCHS_NORMS} if self._is_first else {}

    def hosts(self, facts: Facts) -> Rulings:
        """Eager PyTorch."""
        return {"host": "eager"}

    def strategy(self, job: Job) -> Rulings:
        """Its buffers, loss and pipelines."""
        found: Rulings = {
            "fused_part": "blocks", "accumulation": "separate",
            "clip_gradients": True, "gradient_buffer": "scaled", "rank_order": "tp,cp,dp,pp",
            "overlap_p2p": False, "split_p2p": True,
        }  # fmt: skip
        if job.strategy.shard < 2 and job.num_data_ranks > 1:
            found["overlap_grad_reduce"] = False
        if self._is_first:
            found["asynchronous_tp"] = False
        else:
            found["gradient_precision"] = "fp32"
        if job.is_of_language:
            found["eager_loss"] = "vocab_parallel"
        return found | job.even_stages("even")
