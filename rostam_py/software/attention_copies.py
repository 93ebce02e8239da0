"""What Megatron-Core copies between its product of queries, keys and values and attention, and which ops rotate.

Model: a row of that product has each key head's queries, its key and its value side by side. Where queries and keys are
rotated on their way to attention, a member of several key heads, with several query heads for each, copies its queries
together first (a reshape that no view is); values are copied, since attention's kernels read them where they lie only
if keys lie beside them; keys are read by their rotation where they lie. In backward a kernel joins the gradients of all
three, which come from three kernels. Where nothing lies between the product and attention that reads and writes in
place, and nothing is copied. Copies are counted with attention's kernel, which they run in front of.
Ignores: what norms of heads (Qwen3) copy of keys, and a rotation of all three at once
(fused_single_qkv_rope, off by default).
Source: get_query_key_value_tensors in megatron/core/transformer/attention.py of NVIDIA/Megatron-LM; get_qkv_layout and
_SplitAlongDim.backward in transformer_engine/pytorch/attention/dot_product_attention of NVIDIA/TransformerEngine, whose
pull request 2122 names both: "extra memcopies due to value.contiguous() during FPROP and concatenating the q,k,v
dgrads".
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rostam_py.costs.families import op_family
from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph

_QUERY, _KEY, _VALUE = range(3)


@dataclass(frozen=True, slots=True)
class Copied:
    """What is copied in front of attention, as its product makes it.

    queries, values: tensors. keys: the tensor of keys, whose first dimension behind the samples' at attention is of
        key heads: num_key_heads of all members. is_grouped: several query heads share a key head.
    """

    queries: int
    values: int
    keys: int
    num_key_heads: float
    is_grouped: bool


@dataclass(frozen=True, slots=True)
class AttentionCopies:
    """of: forward op of attention -> what is copied in front of it. joined: forward product -> the tensors that it and
    those that it is one with make, whose gradients are joined. rotations: forward ops that rotate queries and keys.
    """

    of: Mapping[int, Copied]
    joined: Mapping[int, tuple[int, ...]]
    rotations: frozenset[int]


def attention_copies(
    graph: OperatorGraph, joint: Sequence[tuple[int, ...]], is_pointwise: Callable[[Op], bool]
) -> AttentionCopies:
    """Return what is copied around attention.

    Args: joint: forward products that are one (``joint_forward``). is_pointwise: tells ops that a rotation may be of.
    Cost: linear in ops.
    """
    of, joined, rotations = dict[int, Copied](), dict[int, tuple[int, ...]](), set[int]()
    for group in (one for one in joint if len(one) > _VALUE):
        ways = [way for product in group if (way := _way(graph, graph.ops[product])) is not None]
        places = {way.place: way for way in ways}
        if len(ways) != len(group) or sorted(places) != [_QUERY, _KEY, _VALUE] or len({w.attention for w in ways}) > 1:
            continue
        if not (places[_QUERY].between and places[_KEY].between) or places[_VALUE].between:
            continue
        read = [t for t in graph.ops[ways[0].attention].inputs if len(graph.tensors[t].shape) == 4]
        heads = [graph.tensors[t].shape[1].at(1) for t in read[:2]]
        of[ways[0].attention] = Copied(
            places[_QUERY].made, places[_VALUE].made, places[_KEY].made, heads[1], heads[0] > heads[1]
        )
        joined.update(dict.fromkeys(group, tuple(way.made for way in ways)))
        between = (op for place in (_QUERY, _KEY) for op in places[place].between)
        rotations.update(op for op in between if is_pointwise(graph.ops[op]))
    return AttentionCopies(of, joined, frozenset(rotations))


@dataclass(frozen=True, slots=True)
class _Way:
    """From a product to attention. made: by the product. place: of attention's input. between: ops, views apart."""

    made: int
    attention: int
    place: int
    between: frozenset[int]


def _way(graph: OperatorGraph, product: Op) -> _Way | None:
    """Return the way of what a product makes to the one op of attention that reads it, None where there is no such.

    Cost: linear in the ops on the way; nearest ones come first, so that behind others than such products it ends soon.
    """
    between, ends, roots = set[int](), set[tuple[int, int]](), graph.view_roots
    pending, seen = deque(product.outputs), set(product.outputs)
    while pending and len(ends) < 2:
        t = pending.popleft()
        for reader in graph.readers.get(t, ()):
            op = graph.ops[reader]
            if op.phase != "forward":
                continue
            if op_family(op.op_type, op.role) == "attention":
                read = [u for u in op.inputs if len(graph.tensors[u].shape) == 4]
                ends.update((reader, place) for place, u in enumerate(read[:3]) if roots[u] == roots[t])
                continue
            if not (op.is_metadata or _adds_bias(graph, op)):
                between.add(reader)
            fresh = [u for u in op.outputs if u not in seen]
            seen.update(fresh)
            pending += fresh
    if len(ends) != 1:
        return None
    ((attention, place),) = ends
    return _Way(product.outputs[0], attention, place, frozenset(between))


def _adds_bias(graph: OperatorGraph, op: Op) -> bool:
    """Tell whether an op adds a weight to what a product makes, as the product itself does there."""
    kinds = [graph.tensors[graph.view_roots[t]].kind for t in op.inputs]
    return op.role == "sum" and any(kind in WEIGHT_KINDS for kind in kinds)
