"""Checks of an OperatorGraph: every id names something, every quantity can be one; done once, at its making."""

import math
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph.vocabulary import DTYPE_BYTES, PARTIAL, PHASES, ROLES, SPLIT_KINDS, TENSOR_KINDS

_COMM_KINDS = ("", "all_reduce", "halo")
_MOST = 2.0**62  # elements, bytes and FLOPs of one op; the largest real ones are below 1e16


def check_graph(graph: Any) -> None:
    """Raise ConfigError naming the first op, tensor or split that cannot be.

    Cost: linear in ops, tensors and splits.
    """
    where = f"graph {graph.name!r}"
    if graph.sequence_length < 0:
        raise ConfigError(f"{where}: sequence_length is {graph.sequence_length}; it must be >= 0")
    for index, tensor in enumerate(graph.tensors):
        _check_tensor(f"{where}: tensor {index}", index, tensor, len(graph.ops))
    split_shapes: set[int] = set()
    for index, op in enumerate(graph.ops):
        _check_op(f"{where}: op {index} ({op.name!r})", index, op, graph)
        for split in op.splits:
            if id(split) not in split_shapes:
                _check_split(f"{where}: op {index} ({op.name!r})", split)
                split_shapes.add(id(split))
    _check_writers(where, graph)


def _check_tensor(where: str, index: int, tensor: Any, num_ops: int) -> None:
    if tensor.id != index:
        raise ConfigError(f"{where} has id {tensor.id}; ids count from 0")
    _check_choice(where, "kind", tensor.kind, TENSOR_KINDS)
    _check_choice(where, "dtype", tensor.dtype, tuple(DTYPE_BYTES))
    for place, dim in enumerate(tensor.shape):
        _check_quantity(f"{where}: shape[{place}]", dim)
    if tensor.producer is not None and not 0 <= tensor.producer < num_ops:
        raise ConfigError(f"{where} has producer {tensor.producer}; ops are 0 to {num_ops - 1}")
    if tensor.storage < -1:
        raise ConfigError(f"{where} has storage {tensor.storage}; it must be >= 0, or -1 for its own")


def _check_op(where: str, index: int, op: Any, graph: Any) -> None:
    if op.id != index:
        raise ConfigError(f"{where} has id {op.id}; ids count from 0")
    _check_choice(where, "phase", op.phase, PHASES)
    for key in ("inputs", "outputs"):
        for tensor in getattr(op, key):
            if not 0 <= tensor < len(graph.tensors):
                raise ConfigError(f"{where}: {key} name tensor {tensor}; tensors are 0 to {len(graph.tensors) - 1}")
    for key in ("flops", "bytes_read", "bytes_written"):
        _check_quantity(f"{where}: {key}", getattr(op, key))
    if op.forward_op is not None and not 0 <= op.forward_op < len(graph.ops):
        raise ConfigError(f"{where} has forward_op {op.forward_op}; ops are 0 to {len(graph.ops) - 1}")
    if not -1 <= op.block < max(1, len(graph.block_names)):
        raise ConfigError(f"{where} has block {op.block}; blocks are 0 to {len(graph.block_names) - 1}, or -1")
    _check_choice(where, "role", op.role, ROLES)
    for places in op.linear_in:
        if not places or list(places) != sorted(set(places)) or not 0 <= places[0] <= places[-1] < len(op.inputs):
            raise ConfigError(
                f"{where} has {list(places)} in linear_in; it must be places of its {len(op.inputs)} inputs, ascending"
            )
    for split in op.splits:
        _check_dims(where, split, "input_dims", [graph.tensors[tensor] for tensor in op.inputs])
        _check_dims(where, split, "output_dims", [graph.tensors[tensor] for tensor in op.outputs])


def _check_dims(where: str, split: Any, key: str, tensors: list[Any]) -> None:
    dims, least = getattr(split, key), PARTIAL if key == "output_dims" else 0
    parts = getattr(split, key.replace("dims", "parts"))
    if parts and len(parts) != len(tensors):
        raise ConfigError(f"{where}: split {split.kind} has {len(parts)} {key[:-5]}_parts for {len(tensors)} tensors")
    if len(dims) != len(tensors):
        raise ConfigError(f"{where}: split {split.kind} has {len(dims)} {key} for {len(tensors)} tensors")
    for dim, tensor in zip(dims, tensors, strict=True):
        if dim is not None and not least <= dim < len(tensor.shape):
            raise ConfigError(
                f"{where}: split {split.kind} has {dim} in {key}; tensor {tensor.id} has {len(tensor.shape)} dimensions"
            )


def _check_split(where: str, split: Any) -> None:
    _check_choice(where, "split kind", split.kind, SPLIT_KINDS)
    _check_choice(where, f"comm_kind of split {split.kind}", split.comm_kind, _COMM_KINDS)
    _check_quantity(f"{where}: size of split {split.kind}", split.size)
    _check_quantity(f"{where}: comm_bytes of split {split.kind}", split.comm_bytes)
    for part in (*split.input_parts, *split.output_parts):
        if part is not None:
            for key in ("outer", "start", "length"):
                _check_quantity(f"{where}: {key} of a part of split {split.kind}", getattr(part, key))
            if part.outer.at(1) < 1:
                raise ConfigError(f"{where}: split {split.kind} has a part of {part.outer.at(1)!r} in outer; least 1")


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


def _check_quantity(where: str, value: Any) -> None:
    """Check that a quantity is a count at every batch >= 1."""
    if not (math.isfinite(value.constant) and math.isfinite(value.per_sample)) or value.per_sample < 0:
        raise ConfigError(
            f"{where} is [{value.constant!r}, {value.per_sample!r}]; both must be finite, the second >= 0"
        )
    if not 0 <= value.at(1) < _MOST:
        raise ConfigError(f"{where} is {value.at(1)!r} at batch 1; it must be from 0 to 2^62")


def _check_choice(where: str, key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{where} has {key} {value!r}; it must be one of: {', '.join(map(repr, allowed))}")
