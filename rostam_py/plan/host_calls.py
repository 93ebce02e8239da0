"""What code of Megatron-Core's and Transformer Engine's modules takes of a host beyond launching kernels (MODEL B7).

Example:
    MEGATRON_CORE["attention"].base_s        # 390e-6: a layer's attention but its two products, forward
"""

from collections.abc import Mapping
from typing import NamedTuple


class HostCall(NamedTuple):
    """Seconds that a module's code takes of the CPU that it was measured on. part_s: more for each expert computed."""

    base_s: float
    part_s: float = 0.0


# calibration/host_code.py runs the Python of both packages on a CPU, with a stand-in for Transformer Engine's extension
# that allocates what is asked for and computes nothing, and times it without that: all that a host does but what the
# extension's C++ and the driver take, which is in the launches. Layers of Qwen3 30B's form (8, 16 and 32 experts a
# device, bf16, fp8 by tensor and mxfp8) and dense ones; microseconds, rounded; calibration/measured/
# host_megatron_core.csv has the rows, of which sums of these are within 15%. A layer's total is the measurement; its
# parts are told apart by what modules take alone. The eager activation function's backward, which torch.compile makes
# one kernel, is taken out (80 us).
_US = 1e-6
MEGATRON_CORE: Mapping[str, HostCall] = {
    "product": HostCall(42 * _US),  # TELayerNormColumnParallelLinear, TERowParallelLinear: 49 and 38
    "product_backward": HostCall(55 * _US),  # 60 and 49, with its parameter's hook
    "narrow_product": HostCall(56 * _US),  # 60 and 51
    "narrow_product_backward": HostCall(66 * _US),  # 73 and 60
    "attention": HostCall(390 * _US),  # 150 of it DotProductAttention; rotations, views and the layer's own code
    "attention_backward": HostCall(210 * _US),
    "norm": HostCall(36 * _US),  # of norms that are modules of their own (TENorm): in front of a router, of q and k
    "norm_backward": HostCall(53 * _US),
    "routing": HostCall(270 * _US),  # TopKRouter and the dispatcher up to its all-to-all
    # TEGroupedLinear, once for each of a layer's two; half of the dispatcher's other code each, and of MoELayer's.
    "experts": HostCall(180 * _US, 4.5 * _US),
    "experts_backward": HostCall(163 * _US, 5.5 * _US),
    "narrow_experts": HostCall(230 * _US, 8.0 * _US),
    "narrow_experts_backward": HostCall(163 * _US, 13.0 * _US),
    # A replay is a function of autograd's whose inputs are the module's parameters (make_graphed_callables in
    # transformer_engine/pytorch/graph.py): as a product's.
    "replay": HostCall(55 * _US),
}
# What the schedule that hides all-to-alls of experts behind another micro-batch takes more of a layer, each way
# (overlap_moe_expert_parallel_comm; software.rules.ep_overlap): a plan of five nodes, each forward and backward by
# itself, under its stream, with inputs cut off and an engine's run of its own. calibration/host_overlap_code.py runs
# both schedules of one layer in one process (host_megatron_core_nodes.csv, 4 to 32 experts): the first run's medians of
# what nodes take more, as a share of the plain schedule, times the sums above. Both ways together both runs' median is
# 282. Weight gradients put off (delay_wgrad_compute) are not in it.
MEGATRON_CORE_NODES: Mapping[str, HostCall] = {
    "routing": HostCall(110 * _US),  # in a layer's forward, at what is called once there
    "attention_backward": HostCall(200 * _US),
}
# How many times as long hosts of accelerators take for that code as the CPU of the measurement, a core of Zen 5.
# Published figures differ: of x86 the median of three is taken, which stand for 1.4 to 4.7.
X86_OVER_MEASURED = 2.0
GRACE_OVER_MEASURED = 2.16
# torch's Linear, a Xeon 8480C: 13.5 us (NVIDIA/TransformerEngine, issue 2053, 2025-08), 9.7 with a launch here, 1.4;
# Megatron-Core's module of a product, a host that is not named: 115 us (pull 1191, 2024-09), 57 here, 2.0; both ways
# of te.Linear, an H100's host in 2023: 574 us (issue 445), 121 here, 4.7. te.Linear's forward, two Graces: 90.5 and
# 99.7 us (issue 2053), 44 here.
SOURCE = (
    "Modules' code: measured on a CPU (calibration/measured/host_megatron_core.csv), times 2.0, the median of what"
    " three published comparisons say of x86 (1.4 to 4.7; docs/calibration.md, Hosts)"
)


class LoopCode(NamedTuple):
    """Seconds of a host's that a training loop takes around the replay of its graph, beyond launching kernels.

    step_s: of the optimizer's step, in front of its first launch. turn_s: from the end of the step to the replay.
    replay_s, node_s: of launching the graph, and of each kernel in it.
    """

    step_s: float
    turn_s: float
    replay_s: float
    node_s: float

    def times(self, code: float, driver: float) -> "LoopCode":
        """Return it for a host that takes so many times as long for code, and for what the driver does."""
        return LoopCode(self.step_s * code, self.turn_s * code, self.replay_s * driver, self.node_s * driver)


# A loop of eager PyTorch around a graph of forward and backward, with a gradient scaler, a scripted step of 16
# parameters and an iterator of DALI's that is asked for four samples at a time, measured as the modules above, but at
# the rhythm of such a loop (calibration/loop_code.py; calibration/measured/host_loop.csv): 114 us of the step less 83
# of its 48 kernels' own; 5.4 of the scaler's update and 58 to the next replay. Replays: 2 us and 0.2 for each kernel on
# a Xeon Silver 4208 by CUDA 11.8, before 12.6 made straight lines constant (NVIDIA, "Constant Time Launch for
# Straight-Line CUDA Graphs", 2024-09); a kernel of the graph is launched when its own share has passed (own choice).
GRAPHED_LOOP = LoopCode(32 * _US, 64 * _US, 2.0 * _US, 0.2 * _US)
# Labels of kernels that stand at that loop's turns: those that copy a graph's inputs, the first inside the graph and
# the first of the optimizer's step.
INPUT, REPLAY, STEP = "input", "replayed", "step"


class GraphedPart(NamedTuple):
    """A part of a layer that can be a CUDA graph. what: it holds. replayed_at: calls, where its replay is counted."""

    what: str
    modules: frozenset[str]
    replayed_at: frozenset[str]


GRAPHED = {
    "attention": GraphedPart(
        "norm, attention and their products (Megatron-Core's cuda_graph_scope attn)",
        frozenset({"norm1", "attention"}),
        frozenset({"attention", "attention_backward"}),
    ),
    "router": GraphedPart(
        "the norm in front of it, router and the dispatcher's numbers (moe_router and moe_preprocess)",
        frozenset({"norm2", "router"}),
        frozenset({"routing", "product_backward", "narrow_product_backward"}),
    ),
}


def graphed_part(module: str) -> str:
    """Return the part of a layer that a module is in, of GRAPHED, by names of this package's models; "" if none."""
    names = set(module.split("."))
    return next((part for part, one in GRAPHED.items() if names & one.modules), "")
