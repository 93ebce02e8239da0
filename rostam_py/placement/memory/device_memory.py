"""Memory of one device: parameters, gradients, optimizer state and activations in flight (MODEL D15).

Model: parameters are trained and frozen weights and buffers, of which only the trained ones have gradients
and optimizer state. Activations are the tensors that the trace keeps for backward, the model's own inputs
that backward reads among them, memory shared between them counted once, in the run's precision, each
divided over tp as it is sharded, with the halos that convolutions keep, except what fused backward kernels compute
again (graph/derived.py). A stage's program is walked: a forward
adds what its chunk keeps of a micro-batch, a backward frees it, except what a weight gradient that runs apart still
reads, which that frees. Full recomputation keeps the inputs of every block and one block's activations; selective
recomputation drops what only the attention core produces. Ranks that share state (ZeRO) hold their part of it, the
whole of a unit only while it runs; frozen weights and buffers are whole on every rank. Where backward begins the
loss's gradients count (megatron/memory/turn.py), and for an allocator what blocks hand on (megatron/memory/blocks.py).
Ignores other working buffers (gradient buckets among them), fragmentation and the framework's context.
"""

from collections.abc import Iterable

from rostam_py.costs.numerics import Numerics
from rostam_py.errors import MemoryCapacityError
from rostam_py.graph import WEIGHT_KINDS, OperatorGraph
from rostam_py.placement.memory.local_bytes import LocalBytes
from rostam_py.plan.machine import Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import MEMORY_PARTS, RARE_PARTS, MemoryBytes
from rostam_py.units import format_size


def stage_memory(
    held: tuple[int, int, int],
    activation_bytes: float,
    numerics: Numerics,
    untrained_bytes: int = 0,
    gathered_bytes: int = 0,
    added_bytes: int = 0,
    staying_bytes: int = 0,
    reserved_bytes: int = 0,
    buffer_bytes: int = 0,
    message_bytes: int = 0,
) -> MemoryBytes:
    """Return the memory of one device.

    Args:
        held: trained parameters of which it holds (weights, gradients, optimizer state).
        activation_bytes: at their most, of all micro-batches in flight, kept inputs included.
        untrained_bytes: of frozen weights and buffers.
        gathered_bytes: the most that units which share their state hold whole at once.
        staying_bytes: of units that stay whole. reserved_bytes: that an allocator holds besides.
        buffer_bytes: that tensor parallelism communicates through.
        message_bytes: of all micro-batches, that a stage receives and gives.
        added_bytes: by which trained weights are more, or less, for what of them is in the products' width.
    """
    weights, gradients, state = held
    return MemoryBytes(
        parameters=weights * numerics.held_weight_bytes + added_bytes + untrained_bytes,
        gradients=gradients * numerics.gradient_bytes,
        optimizer_state=state * numerics.state_bytes,
        activations=round(activation_bytes),
        gathered=gathered_bytes,
        staying=staying_bytes,
        reserved=reserved_bytes,
        user_buffers=buffer_bytes,
        messages=message_bytes,
    )


def stored_bytes(graph: OperatorGraph, builder: LocalBytes, tensors: Iterable[int]) -> float:
    """Return the local bytes of a set of tensors, shared storage counted once.

    Model: what is kept gathered over cp has a buffer of its own. The storage that its part is a view of is kept next to
    it if it holds more, as the output of a fused product holds the queries.
    """
    by_storage: dict[int, float] = {}
    parts: dict[int, float] = {}  # storage -> bytes of the parts in it that are kept gathered
    gathered = 0.0
    for t in tensors:
        tensor = graph.tensors[t]
        if tensor.kind in WEIGHT_KINDS:
            continue
        key = tensor.storage if tensor.storage >= 0 else -2 - t
        size, times = builder.stored_bytes(t), builder.kept_times.get(t, 1)
        if times > 1:
            gathered += size
            size /= times
            parts[key] = parts.get(key, 0.0) + size
        by_storage[key] = max(by_storage.get(key, 0.0), size)
    return gathered + sum(size for key, size in by_storage.items() if size > parts.get(key, 0.0) * (1 + 1e-9))


def full_recompute_bytes(
    graph: OperatorGraph, builder: LocalBytes, saved: set[int], block_inputs: dict[int, set[int]]
) -> tuple[float, float]:
    """Return (bytes kept for every micro-batch, bytes of the block being recomputed).

    Args: saved: saved tensors of the stage. block_inputs: block -> tensors it reads from outside.
    """
    own_block = {t: _only_block(graph, t) for t in saved}
    kept = {t for t, block in own_block.items() if block not in block_inputs}
    kept = kept.union(*block_inputs.values())
    inner = (
        stored_bytes(graph, builder, {t for t, b in own_block.items() if b == block} - kept) for block in block_inputs
    )
    return stored_bytes(graph, builder, kept), max(inner, default=0.0)


def _only_block(graph: OperatorGraph, tensor: int) -> int:
    """Return the block that alone makes the tensor and reads it in backward, else -1."""
    producer = graph.tensors[tensor].producer
    if producer is None:
        return -1
    users = [graph.ops[u] for u in graph.consumers[tensor]]
    blocks = {op.block for op in users if op.phase == "backward" and not op.is_metadata} | {graph.ops[producer].block}
    return blocks.pop() if len(blocks) == 1 else -1


def check_capacity(machine: Machine, strategy: Strategy, stages: list[MemoryBytes], in_flight: list[str]) -> None:
    """Raise MemoryCapacityError if a stage needs more than one accelerator has. Args: in_flight: in words."""
    capacity = machine.device.memory_bytes
    worst = max(range(len(stages)), key=lambda s: stages[s].total)
    need = stages[worst]
    if need.total <= capacity:
        return
    parts = [
        f"{format_size(getattr(need, part))} of {name}"
        for part, name in MEMORY_PARTS.items()
        if part not in RARE_PARTS or getattr(need, part)
    ]
    raise MemoryCapacityError(
        f"stage {worst} of {len(stages)} needs {format_size(need.total)} on each device, but {machine.device.name}"
        f" has {format_size(capacity)}: {format_size(need.total - capacity)} too much. It holds"
        f" {', '.join(parts[:-1])} and {parts[-1]}"
        f" ({in_flight[worst]}). {_advice(strategy)}",
        need,
    )


def _advice(strategy: Strategy) -> str:
    """Return what makes a plan smaller, of what its strategy does not do yet."""
    found = ["raise strategy.tp or pp", "lower micro_batch"]
    found += ["set strategy.recompute=full"] if strategy.recompute != "full" else []
    found += ["set strategy.shard=3"] if strategy.shard < 3 and strategy.num_data_ranks > 1 else []
    return f"{', '.join(found[:-1])} or {found[-1]}".capitalize()
