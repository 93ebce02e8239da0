"""Checks of an OperatorGraph: every id names something, every quantity can be one; done once, at its making."""

import math
from collections.abc import Collection
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph.vocabulary import DTYPE_BYTES, PARTIAL, PHASES, ROLES, SPLIT_KINDS, TENSOR_KINDS

_COMM_KINDS = ("", "all_reduce")
_MOST_SLICES = 2**16
_MOST = 2.0**62  # elements, bytes and FLOPs of one op; the largest real ones are below 1e16


class _Wrong(Exception):
    """What is wrong, to be said after where: the text of a place is made only for one that is wrong."""


def check_graph(graph: Any) -> None:
    """Raise ConfigError naming the first op, tensor or split that cannot be.

    Cost: linear in ops, tensors and different splits.
    """
    where = f"graph {graph.name!r}"
    if graph.sequence_length < 0:
        raise ConfigError(f"{where}: sequence_length is {graph.sequence_length}; it must be >= 0")
    # What was found right, by id: quantities and splits are shared by many ops.
    right: set[int] = set()
    for index, tensor in enumerate(graph.tensors):
        try:
            _check_tensor(index, tensor, len(graph.ops), right)
        except _Wrong as wrong:
            raise ConfigError(f"{where}: tensor {index}{wrong}") from None
    ranks = [len(tensor.shape) for tensor in graph.tensors]
    fits: set[tuple[Any, ...]] = set()
    for index, op in enumerate(graph.ops):
        try:
            _check_op(index, op, graph, right)
            _check_splits(op, ranks, fits, right)
        except _Wrong as wrong:
            raise ConfigError(f"{where}: op {index} ({op.name!r}){wrong}") from None
    _check_writers(where, graph)


def _check_tensor(index: int, tensor: Any, num_ops: int, right: set[int]) -> None:
    if tensor.id != index:
        raise _Wrong(f" has id {tensor.id}; ids count from 0")
    _check_choice("kind", tensor.kind, TENSOR_KINDS)
    _check_choice("dtype", tensor.dtype, DTYPE_BYTES)
    for place, dim in enumerate(tensor.shape):
        if id(dim) not in right:
            _check_quantity(f"shape[{place}]", dim, right)
    if tensor.producer is not None and not 0 <= tensor.producer < num_ops:
        raise _Wrong(f" has producer {tensor.producer}; ops are 0 to {num_ops - 1}")
    if tensor.storage < -1:
        raise _Wrong(f" has storage {tensor.storage}; it must be >= 0, or -1 for its own")


def _check_op(index: int, op: Any, graph: Any, right: set[int]) -> None:
    if op.id != index:
        raise _Wrong(f" has id {op.id}; ids count from 0")
    _check_choice("phase", op.phase, PHASES)
    for key, tensors in (("inputs", op.inputs), ("outputs", op.outputs)):
        for tensor in tensors:
            if not 0 <= tensor < len(graph.tensors):
                raise _Wrong(f": {key} name tensor {tensor}; tensors are 0 to {len(graph.tensors) - 1}")
    for key in ("flops", "bytes_read", "bytes_written", "repeated_flops"):
        value = getattr(op, key)
        if id(value) not in right:
            _check_quantity(key, value, right)
    repeated = op.repeated_flops
    grows_faster = repeated.per_sample > op.flops.per_sample or repeated.per_pair > op.flops.per_pair
    if repeated.at(1) > op.flops.at(1) or grows_faster:
        raise _Wrong(f" repeats {repeated.at(1):g} FLOPs at batch 1; it has {op.flops.at(1):g}")
    if op.forward_op is not None and not 0 <= op.forward_op < len(graph.ops):
        raise _Wrong(f" has forward_op {op.forward_op}; ops are 0 to {len(graph.ops) - 1}")
    if not -1 <= op.block < max(1, len(graph.block_names)):
        raise _Wrong(f" has block {op.block}; blocks are 0 to {len(graph.block_names) - 1}, or -1")
    _check_choice("role", op.role, ROLES)
    for places in op.linear_in:
        is_ascending = list(places) == sorted(set(places))
        if places and not (is_ascending and 0 <= places[0] <= places[-1] < len(op.inputs)):
            raise _Wrong(
                f" has {list(places)} in linear_in; it must be places of its {len(op.inputs)} inputs, ascending"
            )


def _check_splits(op: Any, ranks: list[int], fits: set[tuple[Any, ...]], right: set[int]) -> None:
    """Check an op's splits. Args: ranks: of all tensors. fits: splits and ranks that were found to go together."""
    sides = (op.inputs, op.outputs)
    of_sides = tuple(tuple([ranks[tensor] for tensor in side]) for side in sides) if op.splits else ()
    for split in op.splits:
        if (id(split), of_sides) not in fits:
            _check_dims(split, "input_dims", op.inputs, ranks)
            _check_dims(split, "output_dims", op.outputs, ranks)
            fits.add((id(split), of_sides))
    for split in op.splits:
        if id(split) not in right:
            _check_split(split, right)
            right.add(id(split))


def _check_dims(split: Any, key: str, tensors: tuple[int, ...], ranks: list[int]) -> None:
    dims, least = getattr(split, key), PARTIAL if key == "output_dims" else 0
    parts = getattr(split, key.replace("dims", "parts"))
    if parts and len(parts) != len(tensors):
        raise _Wrong(f": split {split.kind} has {len(parts)} {key[:-5]}_parts for {len(tensors)} tensors")
    if len(dims) != len(tensors):
        raise _Wrong(f": split {split.kind} has {len(dims)} {key} for {len(tensors)} tensors")
    for dim, tensor in zip(dims, tensors, strict=True):
        if dim is not None and not least <= dim < ranks[tensor]:
            raise _Wrong(f": split {split.kind} has {dim} in {key}; tensor {tensor} has {ranks[tensor]} dimensions")


def _check_halos(split: Any) -> None:
    for halo in split.halos:
        if not 0 <= halo.place < len(split.input_dims) or split.input_dims[halo.place] is None:
            raise _Wrong(f": split {split.kind} has a halo of input {halo.place}, which it does not split")
        if not 0 < halo.share <= 1:
            raise _Wrong(f": split {split.kind} has a halo of share {halo.share!r}; it must be in (0, 1]")
        slices = (halo.before, halo.after)
        if min(slices) < 0 or not 0 < max(slices) <= _MOST_SLICES:
            raise _Wrong(
                f": split {split.kind} has a halo of {halo.before} and {halo.after} slices; both must be from 0 to"
                f" {_MOST_SLICES}, not both 0"
            )


def _check_split(split: Any, right: set[int]) -> None:
    _check_choice("split kind", split.kind, SPLIT_KINDS)
    _check_choice(f"comm_kind of split {split.kind}", split.comm_kind, _COMM_KINDS)
    _check_halos(split)
    _check_quantity(f"size of split {split.kind}", split.size, right)
    _check_quantity(f"comm_bytes of split {split.kind}", split.comm_bytes, right)
    for part in (*split.input_parts, *split.output_parts):
        if part is not None:
            for key in ("outer", "start", "length"):
                _check_quantity(f"{key} of a part of split {split.kind}", getattr(part, key), right)
            if part.outer.at(1) < 1:
                raise _Wrong(f": split {split.kind} has a part of {part.outer.at(1)!r} in outer; least 1")


def _check_writers(where: str, graph: Any) -> None:
    """Check that ops stand in an order in which they can run: each reads only what an earlier one wrote."""
    for op in graph.ops:
        for tensor in op.outputs:
            if graph.tensors[tensor].producer != op.id:
                raise ConfigError(
                    f"{where}: op {op.id} ({op.name!r}) writes tensor {tensor}, whose producer is"
                    f" {graph.tensors[tensor].producer}"
                )
        for tensor in op.inputs:
            producer = graph.tensors[tensor].producer
            if producer is not None and producer >= op.id:
                raise ConfigError(
                    f"{where}: op {op.id} ({op.name!r}) reads tensor {tensor} before op {producer} writes it"
                )
    for tensor in graph.tensors:
        if tensor.producer is not None and tensor.id not in graph.ops[tensor.producer].outputs:
            raise ConfigError(f"{where}: tensor {tensor.id} has producer {tensor.producer}, which does not write it")


def _check_quantity(what: str, value: Any, right: set[int]) -> None:
    """Check that a quantity is a count at every batch >= 1, and note that it is."""
    parts: tuple[float, ...] = (value.constant, value.per_sample, value.per_pair)
    if not all(map(math.isfinite, parts)) or value.per_pair < 0 or value.per_sample + 2 * value.per_pair < 0:
        parts = parts if value.per_pair else parts[:2]
        raise _Wrong(f": {what} is {list(parts)!r}; all must be finite, what a sample adds >= 0")
    if not 0 <= value.at(1) < _MOST:
        raise _Wrong(f": {what} is {value.at(1)!r} at batch 1; it must be from 0 to 2^62")
    right.add(id(value))


def _check_choice(key: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise _Wrong(f" has {key} {value!r}; it must be one of: {', '.join(map(repr, allowed))}")
