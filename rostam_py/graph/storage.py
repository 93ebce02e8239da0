"""Save and load OperatorGraphs as versioned JSON, gzip-compressed if the path ends in .gz.

The file holds tables: tensors, ops, and the distinct splits that ops refer to by index. Integers stay
integers and floats keep every digit, so a loaded graph equals the saved one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rostam_py.documents import parse_tables, read_text, refused, write_document
from rostam_py.errors import ConfigError
from rostam_py.garbage import without_collections
from rostam_py.graph.ops import Affine, Halo, Op, Part, Split, Tensor
from rostam_py.registry import Registry

FORMAT = "rostam-operator-graph"
VERSION = 8
# version 1 knows no frozen weights: they are buffers there; 1 and 2 no properties of ops; 1 to 3 no parts of splits,
# 1 to 4 not which ops run again; 1 to 5 not of which neighbour a halo is: splits that have one are left out;
# 1 to 6 not which FLOPs of an op repeat others; 1 to 7 no work over pairs of samples
_READABLE = (1, 2, 3, 4, 5, 6, 7, VERSION)
_FIRST_WITH_PROPERTIES = 3
_HEADER = ("name", "route", "default_optimizer", "default_precision", "sequence_length", "metadata")

# Where the properties of ops come from that a file names only: tracing lies above, so it is named as a plug-in is.
_NAMERS = Registry("source of op properties")
_NAMERS.add("torch", "rostam_py.tracing.op_properties:with_properties")
_REPEATS = Registry("source of repeated FLOPs")
_REPEATS.add("torch", "rostam_py.tracing.op_properties:with_repeated_flops")


def is_graph_file(name: str) -> bool:
    """Say whether a model's name is that of a saved graph's file."""
    return name.endswith((".json", ".json.gz"))


def save_graph(graph: Any, path: str | Path) -> None:
    """Write a graph to ``path``, whole or not at all."""
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
            "split_halos": [_halos_record(place, split) for place, split in enumerate(splits) if split.halos],
            "recomputed": [op.id for op in graph.ops if op.is_recomputed],
            "repeated_flops": [
                [op.id, _affine_record(op.repeated_flops)] for op in graph.ops if op.repeated_flops != Affine()
            ],
            "per_pair": [[op.id, found] for op in graph.ops if any(found := _per_pair(op))],
            "ops": ops,
        },
        allow_infinity=True,  # arguments of ops, -inf in a mask say
    )


def read_graph(path: str | Path) -> dict[str, Any]:
    """Return the fields of a saved graph, of the right types.

    Raises: ConfigError if the file is missing, is no graph, or has another version.
    """
    text = read_text(path, FORMAT, _READABLE, "an operator graph")
    where = f"{path} is a damaged operator graph"
    schema = _OlderDocument if text.version < _FIRST_WITH_PROPERTIES else _DOCUMENTS[text.version]
    with without_collections():
        document: _AnyDocument = parse_tables(schema, text.value, text.data, where)
    with refused(where), without_collections():
        affine = _affine_reader()
        ops = _ops(document, _splits(document, affine), affine)
        tensors = tuple(_tensor(record, affine) for record in document.tensors)
        if not isinstance(document, _Version7Document):
            ops = _REPEATS.get("torch")(ops, tensors)
    return {
        "ops": ops,
        "tensors": tensors,
        "block_names": tuple(document.block_names),
        "notes": tuple(document.notes),
        **{key: getattr(document, key) for key in _HEADER},
    }


# The records of all versions, as the functions below write and read them.
_Number = int | float
_AffineRecord = tuple[_Number, _Number]
_Dims = list[int | None]
_SplitRecord = tuple[str, _Dims, _Dims, _AffineRecord, str, _AffineRecord]
_PartRecord = tuple[_AffineRecord, _AffineRecord, _AffineRecord] | None
_SplitPartsRecord = tuple[int, list[_PartRecord], list[_PartRecord]]  # of the split at that place of the table
_SplitHalosRecord = tuple[int, list[tuple[int, int, int, bool, _Number]]]
_TensorRecord = tuple[list[_AffineRecord], str, str, str, int | None, bool, int, int]
_OpPlain = tuple[int, str, str, str, str, Any, bool, bool, int | None, bool, int]
_Affines = tuple[_AffineRecord, _AffineRecord, _AffineRecord]
_PerPairRecord = tuple[_Number, _Number, _Number, _Number]  # of the quantities of _QUANTITIES
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
class _Version5Document(_Version4Document):
    """A file that counts the bytes of halos, not their slices."""

    recomputed: list[int]


@dataclass(slots=True)
class _Version6Document(_Version5Document):
    """A file that does not say which FLOPs repeat others."""

    split_halos: list[_SplitHalosRecord]


@dataclass(slots=True)
class _Version7Document(_Version6Document):
    """A file that knows no work over pairs of samples."""

    repeated_flops: list[tuple[int, _AffineRecord]]


@dataclass(slots=True)
class _Document(_Version7Document):
    per_pair: list[tuple[int, _PerPairRecord]]


@dataclass(slots=True)
class _OlderDocument(_Common):
    """A file whose ops have no properties."""

    ops: list[_OlderOpRecord]


_DOCUMENTS = {
    3: _Version3Document, 4: _Version4Document, 5: _Version5Document, 6: _Version6Document, 7: _Version7Document,
    VERSION: _Document,
}  # fmt: skip
_AnyDocument = (
    _Document
    | _Version7Document
    | _Version6Document
    | _Version5Document
    | _Version4Document
    | _Version3Document
    | _OlderDocument
)
_HALO = "halo"  # comm_kind up to version 5


_AffineReader = Callable[[_AffineRecord], Affine]
_SplitsReader = Callable[[int, list[int]], tuple[Split, ...]]


def _affine_reader() -> _AffineReader:
    """Return what makes records Affines, equal ones one object: most of a graph's are few different ones."""
    known: dict[tuple[_Number, _Number, type, type], Affine] = {}

    def read(record: _AffineRecord) -> Affine:
        constant, per_sample = record
        key = (constant, per_sample, type(constant), type(per_sample))  # 1 and 1.0 are different digits in a file
        found = known.get(key)
        if found is None:
            found = known[key] = Affine(constant, per_sample)
        return found

    return read


def _affine_record(affine: Affine) -> list[float]:
    return [affine.constant, affine.per_sample]


def _split_record(split: Split) -> list[Any]:
    extent = [_affine_record(split.size), split.comm_kind, _affine_record(split.comm_bytes)]
    return [split.kind, split.input_dims, split.output_dims, *extent]


def _split(record: _SplitRecord, affine: _AffineReader) -> Split:
    kind, input_dims, output_dims, size, comm_kind, comm_bytes = record
    return Split(kind, tuple(input_dims), tuple(output_dims), affine(size), comm_kind, affine(comm_bytes))


def _parts_record(place: int, split: Split) -> list[Any]:
    def record(part: Part | None) -> list[list[float]] | None:
        return None if part is None else [_affine_record(x) for x in (part.outer, part.start, part.length)]

    return [place, [record(part) for part in split.input_parts], [record(part) for part in split.output_parts]]


def _halos_record(place: int, split: Split) -> list[Any]:
    return [place, [[h.place, h.before, h.after, h.is_kept, h.share] for h in split.halos]]


def _splits(document: _AnyDocument, affine: _AffineReader) -> list[Split | None]:
    splits = [_split(record, affine) for record in document.splits]
    for place, *sides in document.split_parts if isinstance(document, _Version4Document) else ():
        if not 0 <= place < len(splits):
            raise ConfigError(f"split_parts names split {place}; there are {len(splits)} from 0")
        inputs, outputs = (tuple(None if part is None else Part(*map(affine, part)) for part in side) for side in sides)
        splits[place] = replace(splits[place], input_parts=inputs, output_parts=outputs)
    if not isinstance(document, _Version6Document):
        return [None if split.comm_kind == _HALO else split for split in splits]
    for place, halos in document.split_halos:
        if not 0 <= place < len(splits):
            raise ConfigError(f"split_halos names split {place}; there are {len(splits)} from 0")
        splits[place] = replace(splits[place], halos=tuple(Halo(*halo) for halo in halos))
    return [*splits]


def _splits_reader(splits: list[Split | None]) -> _SplitsReader:
    """Return what makes the splits of an op a tuple, equal ones one object: those of equal blocks are told by it."""
    known: dict[tuple[int, ...], tuple[Split, ...]] = {}

    def read(place: int, indices: list[int]) -> tuple[Split, ...]:
        key = tuple(indices)
        if key not in known:
            for index in key:
                if not 0 <= index < len(splits):
                    raise ConfigError(f"ops[{place}] has split {index}; there are {len(splits)} from 0")
            known[key] = tuple([one for index in key if (one := splits[index]) is not None])
        return known[key]

    return read


def _tensor_record(t: Tensor) -> list[Any]:
    shape = [_affine_record(dim) for dim in t.shape]
    return [shape, t.dtype, t.kind, t.name, t.producer, t.is_saved, t.storage, t.id]


def _tensor(record: _TensorRecord, affine: _AffineReader) -> Tensor:
    shape, dtype, kind, name, producer, is_saved, storage, index = record
    return Tensor(index, tuple(map(affine, shape)), dtype, kind, name, producer, is_saved, storage)


_OP_PLAIN = (
    "id", "name", "module", "phase", "op_type", "arguments", "is_metadata", "is_elementwise", "forward_op",
    "is_accumulation", "block",
)  # fmt: skip
_OP_AFFINE = ("flops", "bytes_read", "bytes_written")
_QUANTITIES = (*_OP_AFFINE, "repeated_flops")


def _per_pair(op: Op) -> list[float]:
    return [getattr(op, key).per_pair for key in _QUANTITIES]


def _with_per_pair(op: Op, record: _PerPairRecord) -> Op:
    found = zip(_QUANTITIES, record, strict=True)
    return replace(op, **{key: replace(getattr(op, key), per_pair=part) for key, part in found})


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


def _ops(document: _AnyDocument, splits: list[Split | None], affine: _AffineReader) -> tuple[Op, ...]:
    known = _splits_reader(splits)
    if isinstance(document, _Version3Document):
        recomputed = set(document.recomputed) if isinstance(document, _Version5Document) else set()
        repeated = dict(document.repeated_flops) if isinstance(document, _Version7Document) else {}
        pairs = dict(document.per_pair) if isinstance(document, _Document) else {}
        for table, named in (("recomputed", recomputed), ("repeated_flops", repeated), ("per_pair", pairs)):
            for index in sorted(named):
                if not 0 <= index < len(document.ops):
                    raise ConfigError(f"{table} names op {index}; there are {len(document.ops)} from 0")
        ops = [
            _op(place, one, known, affine, place in recomputed, affine(repeated.get(place, (0, 0))))
            for place, one in enumerate(document.ops)
        ]
        for place, record in pairs.items():
            ops[place] = _with_per_pair(ops[place], record)
        return tuple(ops)
    with_names: tuple[Op, ...] = _NAMERS.get("torch")(
        _op(place, one, known, affine, False, Affine()) for place, one in enumerate(document.ops)
    )
    return with_names


def _op(
    place: int,
    record: _OlderOpRecord | _OpRecord,
    splits: _SplitsReader,
    affine: _AffineReader,
    is_recomputed: bool,
    repeated_flops: Affine,
) -> Op:
    plain, (flops, bytes_read, bytes_written), inputs, outputs, split_ids, *properties = record
    of_op: Any = properties or ("", ())
    role, linear_in = of_op
    index, name, module, phase, op_type, arguments, is_metadata, is_elementwise, forward_op, is_sum, block = plain
    return Op(  # by place: by name it takes three times as long, and graphs have 10,000 of them
        index, name, module, phase, op_type, tuple(inputs), tuple(outputs), arguments, affine(flops),
        affine(bytes_read), affine(bytes_written), is_metadata, is_elementwise, forward_op, is_sum, block,
        splits(place, split_ids), role, tuple(map(tuple, linear_in)), is_recomputed, repeated_flops,
    )  # fmt: skip
