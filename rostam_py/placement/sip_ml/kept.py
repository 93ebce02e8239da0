"""What a sip_ml group keeps for backward, and the memory that it takes at least however its ops are split."""

from rostam_py.costs.numerics import Numerics
from rostam_py.costs.precision import tensor_bytes_factor
from rostam_py.errors import MemoryCapacityError
from rostam_py.graph import WEIGHT_KINDS, OperatorGraph
from rostam_py.graph.vocabulary import DTYPE_BYTES
from rostam_py.units import format_size


def width_factor(graph: OperatorGraph, tensor: int, numerics: Numerics) -> float:
    """Return a tensor's bytes in a run over those that were traced."""
    t = graph.tensors[tensor]
    if tensor in graph.gradient_tensors:
        return numerics.gradient_bytes / DTYPE_BYTES[t.dtype]
    return 1.0 if t.kind == "loss" else tensor_bytes_factor(numerics.precision, t.dtype)


def saved_bytes(graph: OperatorGraph, batch: float, numerics: Numerics) -> dict[int, float]:
    """Return the bytes kept for backward by the computed tensor that holds them, shared storage once."""
    by_root: dict[int, float] = {}
    seen: dict[int, int] = {}
    for t in graph.tensors:
        if not t.is_saved or t.kind in WEIGHT_KINDS:
            continue
        root = graph.view_roots[t.id]
        key = t.storage if t.storage >= 0 else -2 - root
        root = seen.setdefault(key, root)
        size = t.num_bytes(batch) * width_factor(graph, t.id, numerics)
        by_root[root] = max(by_root.get(root, 0.0), size)
    return by_root


def check_group_room(
    graph: OperatorGraph, batch: float, numerics: Numerics, num_devices: int, capacity: float | None
) -> None:
    """Refuse a group whose devices have no room together for one copy of its state and of what backward reads.

    Args: batch: samples of the group. capacity: of one device [bytes], None without a limit.
    Raises: MemoryCapacityError.
    Cost: one pass over the tensors; no op is split.
    """
    if capacity is None:
        return
    made = {t for op in graph.ops for t in op.outputs}
    kept = sum(size for t, size in saved_bytes(graph, batch, numerics).items() if t in made)
    raise_without_room(graph.num_parameters * numerics.held_bytes + kept, num_devices, capacity)


def raise_without_room(need_bytes: float, num_devices: int, capacity: float) -> None:
    """Raise MemoryCapacityError where devices together have no room for what a group keeps."""
    if need_bytes <= capacity * num_devices:
        return
    each = need_bytes / num_devices
    raise MemoryCapacityError(
        f"a device of a model-parallel group of {num_devices} would need {format_size(round(each))} or more, but one"
        f" accelerator has {format_size(round(capacity))}: {format_size(round(each - capacity))} too much. Raise"
        " strategy.mp, lower the global batch, or take a larger accelerator"
    )
