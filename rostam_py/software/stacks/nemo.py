"""NeMo as MLPerf's Llama submissions run it."""

from dataclasses import dataclass, field
from typing import ClassVar

from rostam_py.software.stack import Job, Rulings
from rostam_py.software.stacks.megatron_bridge import MegatronBridge

RELEASES = ("mlperf-5.1",)


@dataclass(kw_only=True)
class Nemo(MegatronBridge):
    """NeMo on Megatron-Core as MLPerf's Llama submissions run it: whole iterations as CUDA graphs, 8-bit gathers.

    release: round of the submissions: mlperf-5.1. bucket_size: size of a gradient bucket. use_te_ops: fuse the sums of
    LoRA adapters with matrix products. All other flags are those of megatron_bridge.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ("megatron_core", "megatron_bridge")
    SOURCES = (
        "mlcommons/training_results_v5.1 at 4da2d1cd: grad_reduce_in_fp32=False, average_in_collective=True,"
        " check_for_nan_in_grad=False, clip_grad=1.0 (Lambda/.../pretrain.py), FP8_PARAM_GATHER and FP8_RECIPE"
        " (NVIDIA/.../config_common.sh), BUCKET_SIZE (Lambda's conf/custom.yaml), USE_TE_OPS"
        " (nemo/collections/llm/peft/lora.py of GigaComputing's code)"
    )

    release: str = field(default=RELEASES[0], metadata={"choices": RELEASES})
    cuda_graphs: bool = True
    bucket_size: str = field(default="100 MB", metadata={"unit": "size"})
    use_te_ops: bool = False

    def strategy(self, job: Job) -> Rulings:
        """As Megatron-Core's; buckets of one weight each, about 100 MB of Llama 3.1 8B's fused ones."""
        found = super().strategy(job) | {"bucket_size": self.bucket_size}
        return found | ({"fusion": "pointwise"} if self.use_te_ops else {})
