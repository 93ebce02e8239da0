"""Save and load OperatorGraphs as versioned JSON, gzip-compressed if the path ends in .gz.

The file holds tables: tensors, ops, and the distinct splits that ops refer to by index. Integers stay
integers and floats keep every digit, so a loaded graph equals the saved one.
"""

import gzip
import json
import os
import zlib
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph.operator_graph import Affine, Op, OperatorGraph, Split, Tensor

FORMAT = "rostam-operator-graph"
VERSION = 2
_READABLE = (1, VERSION)  # version 1 knows no frozen weights: they are buffers there
_HEADER = ("name", "route", "default_optimizer", "default_precision", "sequence_length", "metadata")


def save_graph(graph: OperatorGraph, path: str) -> None:
    """Write ``graph`` to ``path``, whole or not at all."""
    splits: dict[Split, int] = {}
    ops = [_op_record(op, splits) for op in graph.ops]
    document = {
        "format": FORMAT,
        "version": VERSION,
        **{key: getattr(graph, key) for key in _HEADER},
        "block_names": list(graph.block_names),
        "notes": list(graph.notes),
        "tensors": [_tensor_record(tensor) for tensor in graph.tensors],
        "splits": [_split_record(split) for split in splits],
        "ops": ops,
    }
    data = json.dumps(document, separators=(",", ":")).encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # equal graphs give equal files
    partial = f"{path}.partial"
    with open(partial, "wb") as file:
        file.write(data)
    os.replace(partial, path)


def load_graph(path: str) -> OperatorGraph:
    """Read a graph. Raises: ConfigError if the file is missing, is no graph, or has another version."""
    document = _read(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"{path} is not an operator graph saved by rostam")
    if document.get("version") not in _READABLE:
        known = " and ".join(str(version) for version in _READABLE)
        raise ConfigError(f"{path} has graph version {document.get('version')}; this rostam reads {known}: trace again")
    try:
        splits = [_split(record) for record in document["splits"]]
        return OperatorGraph(
            ops=tuple(_op(record, splits) for record in document["ops"]),
            tensors=tuple(_tensor(record) for record in document["tensors"]),
            block_names=tuple(document["block_names"]),
            notes=tuple(document["notes"]),
            **{key: document[key] for key in _HEADER},
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is a damaged operator graph: {type(error).__name__}: {error}") from error


def _read(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return json.loads(data)
    except OSError as error:
        raise ConfigError(f"cannot read graph {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} is not an operator graph saved by rostam: {error}") from error


def _affine_record(affine: Affine) -> list[float]:
    return [affine.constant, affine.per_sample]


def _split_record(split: Split) -> list[Any]:
    extent = [_affine_record(split.size), split.comm_kind, _affine_record(split.comm_bytes)]
    return [split.kind, split.input_dims, split.output_dims, *extent]


def _split(record: list[Any]) -> Split:
    kind, input_dims, output_dims, size, comm_kind, comm_bytes = record
    return Split(kind, tuple(input_dims), tuple(output_dims), Affine(*size), comm_kind, Affine(*comm_bytes))


def _tensor_record(t: Tensor) -> list[Any]:
    shape = [_affine_record(dim) for dim in t.shape]
    return [shape, t.dtype, t.kind, t.name, t.producer, t.is_saved, t.storage, t.id]


def _tensor(record: list[Any]) -> Tensor:
    shape, dtype, kind, name, producer, is_saved, storage, index = record
    return Tensor(index, tuple(Affine(*dim) for dim in shape), dtype, kind, name, producer, is_saved, storage)


_OP_PLAIN = (
    "id", "name", "module", "phase", "op_type", "arguments", "is_metadata", "is_elementwise", "forward_op",
    "is_accumulation", "block",
)  # fmt: skip
_OP_AFFINE = ("flops", "bytes_read", "bytes_written")


def _op_record(op: Op, splits: dict[Split, int]) -> list[Any]:
    return [
        [getattr(op, key) for key in _OP_PLAIN],
        [_affine_record(getattr(op, key)) for key in _OP_AFFINE],
        op.inputs,
        op.outputs,
        [splits.setdefault(split, len(splits)) for split in op.splits],
    ]


def _op(record: list[Any], splits: list[Split]) -> Op:
    plain, affine, inputs, outputs, split_ids = record
    fields: dict[str, Any] = dict(zip(_OP_PLAIN, plain, strict=True))
    fields.update((key, Affine(*value)) for key, value in zip(_OP_AFFINE, affine, strict=True))
    return Op(
        **fields,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        splits=tuple(splits[i] for i in split_ids),
    )
