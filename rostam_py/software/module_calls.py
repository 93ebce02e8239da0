"""Which module's code runs in front of an op's kernel, in a program of Megatron-Core's modules (plan.host_calls)."""

from collections.abc import Callable, Iterator

from rostam_py.costs.families import is_choice, is_grouped_product, is_matrix_product, op_family
from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.graph import Op, OperatorGraph
from rostam_py.software.wide_ops import norm_numbers


def module_calls(graph: OperatorGraph, is_narrow: Callable[[Op], bool]) -> list[str]:
    """Return of every op the module called in front of it, of plan.host_calls.MEGATRON_CORE, "" for none.

    Model: a product's module is called forward and, in front of the gradient of its weight, backward, as a grouped
        product's; attention's core both ways; a router where it chooses. A norm is a module of its own where others
        than products read it: those that products alone read are in the product's (TELayerNormColumnParallelLinear).
    Args: is_narrow: whether a product's inputs are cast to 8 bits or fewer.
    """
    own_norms = _own_norms(graph)
    return [_call_of(graph, op, is_narrow, own_norms) for op in graph.ops]


def _call_of(graph: OperatorGraph, op: Op, is_narrow: Callable[[Op], bool], own_norms: dict[int, str]) -> str:
    behind = "_backward" if op.phase == "backward" else ""
    if op.id in own_norms:
        return own_norms[op.id]
    if is_matrix_product(op.op_type, op.role):
        if behind and not makes_weight_gradient(op, graph):
            return ""
        kind = "experts" if is_grouped_product(op.op_type) else "product"
        return ("narrow_" if is_narrow(op) else "") + kind + behind
    family = op_family(op.op_type, op.role)
    if family == "attention":
        return "attention" + behind
    return "routing" if is_choice(op.op_type) and not behind else ""


def _own_norms(graph: OperatorGraph) -> dict[int, str]:
    """Return the op that stands for each norm that is a module of its own, forward and backward: its first."""
    numbers = norm_numbers(graph)
    parts: dict[int, list[Op]] = {}
    for op in graph.ops:
        family = op_family(op.op_type, op.role)
        is_whole = numbers[op.id] < 0 and family == "normalization"
        if op.is_metadata or (numbers[op.id] < 0 and not is_whole):
            continue
        whole = op.id if op.forward_op is None else op.forward_op
        parts.setdefault(-1 - whole if is_whole else numbers[op.id], []).append(op)
    found: dict[int, str] = {}
    for ops in parts.values():
        inside = {op.id for op in ops}
        results = [t for op in ops if op.phase == "forward" for t in op.outputs]
        readers = [r for t in results for r in _readers_of(graph, t) if r.id not in inside and r.phase == "forward"]
        if any(not is_matrix_product(one.op_type, one.role) for one in readers):
            firsts = {op.phase: op.id for op in reversed(ops)}
            found |= {op: "norm" if phase == "forward" else "norm_backward" for phase, op in firsts.items()}
    return found


def _readers_of(graph: OperatorGraph, tensor: int) -> Iterator[Op]:
    """Yield the ops that read a tensor or a view of it, views apart."""
    for reader in graph.readers.get(tensor, ()):
        op = graph.ops[reader]
        if op.is_metadata:
            for made in op.outputs:
                yield from _readers_of(graph, made)
        else:
            yield op
