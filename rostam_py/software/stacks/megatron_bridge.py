"""Megatron-Bridge: Megatron-Core as NVIDIA's performance recipes configure it."""

from dataclasses import dataclass, field
from typing import ClassVar

from rostam_py.software.stacks.megatron_core import MegatronCore

RELEASES = ("26.02.01", "26.02", "25.11", "25.09")


@dataclass(kw_only=True)
class MegatronBridge(MegatronCore):
    """Megatron-Core as NVIDIA's performance recipes run it: sharded state, bf16 gradients, overlapped tp.

    release: release of its container: 26.02.01, 26.02, 25.11 or 25.09. All other flags are those of megatron_core.
    """

    RATIOS_OF: ClassVar[tuple[str, ...]] = ("megatron_core", "nemo")
    SOURCES = (
        "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and scripts/performance/configs: gradients in bf16"
        " (grad_reduce_in_fp32 False), averaged by the collective; fp8_param_gather in"
        " src/megatron/bridge/training/mixed_precision.py; cross_entropy_fusion_impl te; tp_comm_overlap"
    )

    release: str = field(default=RELEASES[0], metadata={"choices": RELEASES})
    use_distributed_optimizer: bool = True
    tp_comm_overlap: bool = True
    grad_reduce_in_fp32: bool = False
    check_for_nan_in_loss_and_grad: bool = False
    ddp_average_in_collective: bool = True
    cross_entropy_loss_fusion: bool = True
    fp8_param_gather: bool = True
    moe_flex_dispatcher_backend: str = field(default="hybridep", metadata={"choices": ("hybridep", "deepep")})
