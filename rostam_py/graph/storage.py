"""Save and load OperatorGraphs as versioned JSON, gzip-compressed if the path ends in .gz.

The file holds tables: tensors, ops, and the distinct splits that ops refer to by index. Integers stay
integers and floats keep every digit, so a loaded graph equals the saved one.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rostam_py.documents import parse_json, read_data, refused, write_document
from rostam_py.errors import ConfigError
from rostam_py.graph.ops import Affine, Op, Part, Split, Tensor
from rostam_py.registry import Registry

FORMAT = "rostam-operator-graph"
VERSION = 5
# version 1 knows no frozen weights: they are buffers there; 1 and 2 no properties of ops; 1 to 3 no parts of splits,
# 1 to 4 not which ops run again
_READABLE = (1, 2, 3, 4, VERSION)
_FIRST_WITH_PROPERTIES = 3
_HEADER = ("name", "route", "default_optimizer", "default_precision", "sequence_length", "metadata")

# Where the properties of ops come from that a file names only: tracing lies above, so it is named as a plug-in is.
_NAMERS = Registry("source of op properties")
_NAMERS.add("torch", "rostam_py.tracing.op_properties:with_properties")


def is_graph_file(name: str) -> bool:
    """Say whether a model's name is that of a saved graph's file."""
    return name.endswith((".json", ".json.gz"))


def save_graph(graph: Any, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
    """Write a graph to ``path``, whole or not at all.

    Args: about: more that the file is to hold, of no meaning to a reader of the graph.
    """
    splits: dict[Split, int] = {}
    ops = [_op_record(op, splits) for op in graph.ops]
    write_document(
        path,
        {
            "format": FORMAT,
            "version": VERSION,
            **{key: getattr(graph, key) for key in _HEADER},
            "block_names": list(graph.block_names),
            "notes": list(graph.notes),
            "tensors": [_tensor_record(tensor) for tensor in graph.tensors],
            "splits": [_split_record(split) for split in splits],
            "split_parts": [_parts_record(place, split) for place, split in enumerate(splits) if split.has_parts],
            "recomputed": [op.id for op in graph.ops if op.is_recomputed],
            "ops": ops,
            **(about or {}),
        },
        allow_infinity=True,  # arguments of ops, -inf in a mask say
    )


def read_graph(path: str | Path) -> dict[str, Any]:
    """Return the fields of a saved graph, of the right types.

    Raises: ConfigError if the file is missing, is no graph, or has another version.
    """
    data, version = read_data(path, FORMAT, _READABLE, "an operator graph")
    return graph_fields(data, version, path)


def read_graph_with(path: str | Path, schema: Any) -> tuple[Any, Callable[[], dict[str, Any]]]:
    """Return what a file holds besides its graph (``save_graph``'s about), and a function that reads the graph.

    Args: schema: a dataclass of what is wanted besides; what it has no field for is passed over.
    Raises: ConfigError as ``read_graph``, or if what is besides the graph does not fit its schema.
    """
    data, version = read_data(path, FORMAT, _READABLE, "an operator graph")
    return parse_json(schema, data, f"{path} is a damaged operator graph"), lambda: graph_fields(data, version, path)


def graph_fields(data: bytes, version: int, path: str | Path) -> dict[str, Any]:
    """Return the fields of a saved graph. Args: as ``read_data`` returns them; path: for errors."""
    where = f"{path} is a damaged operator graph"
    schema = _OlderDocument if version < _FIRST_WITH_PROPERTIES else _DOCUMENTS[version]
    with _without_collections():
        document: _AnyDocument = parse_json(schema, data, where)
    with refused(where), _without_collections():
        ops = _ops(document, _splits(document))
        tensors = tuple(_tensor(record) for record in document.tensors)
    return {
        "ops": ops,
        "tensors": tensors,
        "block_names": tuple(document.block_names),
        "notes": tuple(document.notes),
        **{key: getattr(document, key) for key in _HEADER},
    }


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the collector from walking again and again through many objects of which none is garbage: half the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# The records of all versions, as the functions below write and read them.
_Number = int | float
_AffineRecord = tuple[_Number, _Number]
_Dims = list[int | None]
_SplitRecord = tuple[str, _Dims, _Dims, _AffineRecord, str, _AffineRecord]
_PartRecord = tuple[_AffineRecord, _AffineRecord, _AffineRecord] | None
_SplitPartsRecord = tuple[int, list[_PartRecord], list[_PartRecord]]  # of the split at that place of the table
_TensorRecord = tuple[list[_AffineRecord], str, str, str, int | None, bool, int, int]
_OpPlain = tuple[int, str, str, str, str, Any, bool, bool, int | None, bool, int]
_Affines = tuple[_AffineRecord, _AffineRecord, _AffineRecord]
_OlderOpRecord = tuple[_OpPlain, _Affines, list[int], list[int], list[int]]
_OpRecord = tuple[_OpPlain, _Affines, list[int], list[int], list[int], str, list[list[int]]]


@dataclass(slots=True)
class _Common:
    """What the file of a graph holds in every version, besides its ops."""

    name: str
    route: str
    default_optimizer: str
    default_precision: str
    sequence_length: int
    metadata: dict[str, Any]
    block_names: list[str]
    notes: list[str]
    tensors: list[_TensorRecord]
    splits: list[_SplitRecord]


@dataclass(slots=True)
class _Version3Document(_Common):
    """A file whose splits have no parts."""

    ops: list[_OpRecord]


@dataclass(slots=True)
class _Version4Document(_Version3Document):
    """A file that does not say which ops run again."""

    split_parts: list[_SplitPartsRecord]


@dataclass(slots=True)
class _Document(_Version4Document):
    recomputed: list[int]


@dataclass(slots=True)
class _OlderDocument(_Common):
    """A file whose ops have no properties."""

    ops: list[_OlderOpRecord]


_DOCUMENTS = {3: _Version3Document, 4: _Version4Document, VERSION: _Document}
_AnyDocument = _Document | _Version4Document | _Version3Document | _OlderDocument


def _affine_record(affine: Affine) -> list[float]:
    return [affine.constant, affine.per_sample]


def _split_record(split: Split) -> list[Any]:
    extent = [_affine_record(split.size), split.comm_kind, _affine_record(split.comm_bytes)]
    return [split.kind, split.input_dims, split.output_dims, *extent]


def _split(record: _SplitRecord) -> Split:
    kind, input_dims, output_dims, size, comm_kind, comm_bytes = record
    return Split(kind, tuple(input_dims), tuple(output_dims), Affine(*size), comm_kind, Affine(*comm_bytes))


def _parts_record(place: int, split: Split) -> list[Any]:
    def record(part: Part | None) -> list[list[float]] | None:
        return None if part is None else [_affine_record(x) for x in (part.outer, part.start, part.length)]

    return [place, [record(part) for part in split.input_parts], [record(part) for part in split.output_parts]]


def _splits(document: _AnyDocument) -> list[Split]:
    splits = [_split(record) for record in document.splits]
    for place, *sides in document.split_parts if isinstance(document, _Version4Document) else ():
        if not 0 <= place < len(splits):
            raise ConfigError(f"split_parts names split {place}; there are {len(splits)} from 0")
        inputs, outputs = (
            tuple(None if part is None else Part(*(Affine(*x) for x in part)) for part in side) for side in sides
        )
        splits[place] = replace(splits[place], input_parts=inputs, output_parts=outputs)
    return splits


def _tensor_record(t: Tensor) -> list[Any]:
    shape = [_affine_record(dim) for dim in t.shape]
    return [shape, t.dtype, t.kind, t.name, t.producer, t.is_saved, t.storage, t.id]


def _tensor(record: _TensorRecord) -> Tensor:
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
        op.role,
        op.linear_in,
    ]


def _ops(document: _AnyDocument, splits: list[Split]) -> tuple[Op, ...]:
    if isinstance(document, _Version3Document):
        ops = [_op(k, one[:5], splits, one[5], one[6]) for k, one in enumerate(document.ops)]
        for index in document.recomputed if isinstance(document, _Document) else ():
            if not 0 <= index < len(ops):
                raise ConfigError(f"recomputed names op {index}; there are {len(ops)} from 0")
            ops[index] = replace(ops[index], is_recomputed=True)
        return tuple(ops)
    named: tuple[Op, ...] = _NAMERS.get("torch")(_op(k, one, splits) for k, one in enumerate(document.ops))
    return named


def _op(
    place: int, record: _OlderOpRecord, splits: list[Split], role: str = "", linear_in: Sequence[Sequence[int]] = ()
) -> Op:
    plain, affine, inputs, outputs, split_ids = record
    for index in split_ids:
        if not 0 <= index < len(splits):
            raise ConfigError(f"ops[{place}] has split {index}; there are {len(splits)} from 0")
    fields: dict[str, Any] = dict(zip(_OP_PLAIN, plain, strict=True))
    fields.update((key, Affine(*value)) for key, value in zip(_OP_AFFINE, affine, strict=True))
    return Op(
        **fields,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        splits=tuple(splits[i] for i in split_ids),
        role=role,
        linear_in=tuple(map(tuple, linear_in)),
    )
