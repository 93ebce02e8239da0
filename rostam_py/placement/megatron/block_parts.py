"""Feed-forward parts of repeated blocks: dense ones, mixtures of experts, and the experts that all tokens share.

Example:
    for part in dense_parts(graph):
        part                                   # the forward ops of one block's feed-forward, views included

Model: parts are the modules directly inside a block, by what runs in them, not by their names: products but no
attention. One with ops that run by expert is a mixture, whose modules of two products and more that do not are shared
experts.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from rostam_py.graph import Op, OperatorGraph

_PRODUCTS = 2  # of a feed-forward, at least; a router has one


def dense_parts(graph: OperatorGraph) -> list[set[int]]:
    """Return the ops of each dense feed-forward."""
    return [ids(part) for part in _feed_forwards(graph) if not _has_experts(part)]


def expert_parts(graph: OperatorGraph) -> list[set[int]]:
    """Return the ops of each mixture of experts: its router, experts and shared experts."""
    return [ids(part) for part in _feed_forwards(graph) if _has_experts(part)]


def shared_parts(graph: OperatorGraph) -> list[set[int]]:
    """Return the ops of the shared experts of each mixture."""
    found = []
    for part in _feed_forwards(graph):
        if _has_experts(part):
            inner = (one for one in _modules(part) if not _has_experts(one) and _num_products(one) >= _PRODUCTS)
            found += [ids(one) for one in inner]
    return found


def ids(ops: Iterable[Op]) -> set[int]:
    """Return the ids of ops."""
    return {op.id for op in ops}


def _feed_forwards(graph: OperatorGraph) -> Iterator[list[Op]]:
    blocks: dict[int, list[Op]] = {}
    for op in graph.ops:
        if op.phase == "forward" and op.block >= 0 and op.module:
            blocks.setdefault(op.block, []).append(op)
    for ops in blocks.values():
        for part in _modules(ops):
            has_attention = any(op.role in ("attention", "softmax") for op in part) and not _has_experts(part)
            if not has_attention and (_num_products(part) >= _PRODUCTS or _has_experts(part)):
                yield part


def _modules(ops: list[Op]) -> list[list[Op]]:
    """Return the ops of each module directly inside the one that all of the ops are in."""
    paths = [op.module.split(".") for op in ops]
    depth = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False)))
    found: dict[str, list[Op]] = {}
    for op, path in zip(ops, paths, strict=True):
        if len(path) > depth:
            found.setdefault(path[depth], []).append(op)
    return list(found.values())


def _has_experts(ops: Iterable[Op]) -> bool:
    return any(split.kind == "expert" for op in ops for split in op.splits)


def _num_products(ops: Iterable[Op]) -> int:
    return sum(op.role == "product" for op in ops)
