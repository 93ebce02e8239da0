"""CostTable: measured durations of ops, keyed by what was run rather than by which model ran it.

Invariant: a key depends on the op type, its arguments and its inputs' shapes (affine in the batch),
dtypes and layouts, so one table serves every batch, and any model with the same layer.
"""

import bisect
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import (
    Any,
    Required,  # pydantic wants these before Python 3.12
)

from typing_extensions import TypedDict

from rostam_py.costs.precision import get_precision
from rostam_py.documents import parse_json, write_whole
from rostam_py.errors import ConfigError
from rostam_py.graph import Op, OperatorGraph, Tensor
from rostam_py.units import MAX_SIMULATED_S

FORMAT = "rostam cost table"
VERSION = 1
_MOST_DIGITS = 18  # of a batch


def _is_quantity(parts: Sequence[float]) -> bool:
    """Tell whether the parts of an Affine are a count at every batch."""
    if len(parts) not in (2, 3) or not all(map(math.isfinite, parts)):
        return False
    pairs = parts[2] if len(parts) == 3 else 0.0
    return pairs >= 0 and parts[1] + 2 * pairs >= 0 and sum(parts) >= 0


@dataclass(slots=True)
class Entry:
    """Measurements of one distinct op.

    seconds: batch -> duration [s], >= 0, at least one. flops, bytes: [constant, per_sample] of the op as traced, >= 0
        at every batch, of work over pairs of samples [constant, per_sample, per_pair]. num_parameters: parameters
        updated (optimizer entries only).
    """

    op_type: str
    seconds: dict[int, float] = field(default_factory=dict)
    flops: list[float] = field(default_factory=lambda: [0.0, 0.0])
    bytes: list[float] = field(default_factory=lambda: [0.0, 0.0])
    num_parameters: int = 0

    def check(self, where: str) -> None:
        """Raise ConfigError for what no measurement can be.

        Args: where: names the entry.
        """
        if not self.op_type:
            raise ConfigError(f"{where}: op_type is empty; it must name the measured op")
        if not self.seconds:
            raise ConfigError(f"{where}: seconds is empty; it needs at least one batch")
        for batch, seconds in self.seconds.items():
            if batch < 1:
                raise ConfigError(f"{where}: seconds has batch {batch}; a batch must be >= 1")
            if not 0 <= seconds < MAX_SIMULATED_S:
                raise ConfigError(
                    f"{where}: seconds at batch {batch} is {seconds!r}; it must be from 0 to {MAX_SIMULATED_S:g}"
                )
        for key in ("flops", "bytes"):
            parts = getattr(self, key)
            if not _is_quantity(parts):
                raise ConfigError(
                    f"{where}: {key} is {parts!r}; it must be [constant, per_sample], >= 0 at every batch"
                )
        if self.num_parameters < 0 or (self.op_type.startswith("optimizer.") and self.num_parameters == 0):
            raise ConfigError(
                f"{where}: num_parameters is {self.num_parameters}; it must be >= 1 for an optimizer, else 0"
            )

    def at(self, batch: float) -> tuple[float, bool]:
        """Return (duration [s], whether ``batch`` lies outside the measured range).

        Model: piecewise linear between measured batches; beyond them the outermost segment goes on,
            kept between proportional scaling and the nearest measurement; one batch alone scales
            in proportion.
        """
        batches = sorted(self.seconds)
        if int(batch) == batch and int(batch) in self.seconds:
            return self.seconds[int(batch)], False
        if len(batches) == 1:
            return self.seconds[batches[0]] * batch / batches[0], True
        upper = min(max(bisect.bisect_left(batches, batch), 1), len(batches) - 1)
        low, high = batches[upper - 1], batches[upper]
        slope = (self.seconds[high] - self.seconds[low]) / (high - low)
        value = self.seconds[low] + slope * (batch - low)
        is_outside = batch < batches[0] or batch > batches[-1]
        if is_outside:
            nearest = batches[0] if batch < batches[0] else batches[-1]
            bounds = sorted((self.seconds[nearest], self.seconds[nearest] * batch / nearest))
            value = min(max(value, bounds[0]), bounds[1])
        return value, is_outside


@dataclass
class CostTable:
    """Measured ops with provenance.

    provenance: device, accelerator, torch version, threads, precision, batches, date, command, clock.
    entries: key (``op_key`` or ``optimizer_key``) -> Entry.
    """

    provenance: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the table as JSON; the file appears whole or not at all."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "provenance": self.provenance,
            "entries": {key: asdict(entry) for key, entry in sorted(self.entries.items())},
        }
        write_whole(path, (json.dumps(document, indent=0) + "\n").encode())

    @staticmethod
    def load(path: str | Path) -> "CostTable":
        """Read a table that ``save`` wrote.

        Raises: ConfigError if the file is missing or not a cost table of this version.
        """
        where = f"cost table {str(path)!r}"
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"{where} cannot be read: {error.strerror or error}") from error
        header = parse_json(_Header, data, where)
        if header.format != FORMAT or header.version != VERSION:
            raise ConfigError(f"{str(path)!r} is not a {FORMAT} of version {VERSION}")
        document = parse_json(_Document, data, where)
        try:
            get_precision(document.provenance["precision"])
        except ConfigError as error:
            raise ConfigError(f"{where}: provenance.precision: {error}") from error
        if document.provenance.get("threads", 0) < 0:
            raise ConfigError(f"{where}: provenance.threads is {document.provenance['threads']}; it must be >= 0")
        if not all(batch >= 1 for batch in document.provenance["batches"]):
            raise ConfigError(f"{where}: provenance.batches is {document.provenance['batches']}; each must be >= 1")
        entries = {key: _entry(record, f"{where}: entries.{key}") for key, record in document.entries.items()}
        for key, entry in entries.items():
            if not key.startswith(f"{entry.op_type}:"):
                raise ConfigError(f"{where}: entries.{key} has op_type {entry.op_type!r}; the key must start with it")
        return CostTable(dict(document.provenance), entries)


@dataclass(slots=True)
class _Header:
    """What says whether the rest is worth reading."""

    format: str = ""
    version: int = 0


class _Provenance(TypedDict, total=False):
    """Where the measurements come from; other keys are kept as they are."""

    accelerator: Required[str]
    precision: Required[str]
    device: Required[str]
    batches: Required[list[int]]
    torch: str
    threads: int
    skipped: list[str]
    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012


@dataclass(slots=True)
class _EntryRecord:
    """An Entry as JSON holds it: batches are text."""

    op_type: str
    seconds: dict[str, float]
    flops: list[float]
    bytes: list[float]
    num_parameters: int


@dataclass(slots=True)
class _Document:
    """A cost table's file."""

    format: str
    version: int
    provenance: _Provenance
    entries: dict[str, _EntryRecord]


def _entry(record: _EntryRecord, where: str) -> Entry:
    """Return the Entry of its JSON form.

    Raises: ConfigError for what no measurement can be.
    """
    for batch in record.seconds:
        if not (batch.isascii() and batch.isdecimal() and len(batch) <= _MOST_DIGITS):
            raise ConfigError(f"{where}: seconds has batch {batch[:40]!r}; a batch must be an integer >= 1")
    fields = asdict(record) | {"seconds": {int(batch): seconds for batch, seconds in record.seconds.items()}}
    entry = Entry(**fields)
    entry.check(where)
    return entry


def op_key(op: Op, graph: OperatorGraph, precision: str = "fp32") -> str:
    """Return the key of an op of ``graph``: op type and a digest of all that its duration depends on."""
    parts = [op.op_type, op.arguments, [tensor_signature(graph, graph.tensors[t]) for t in op.inputs]]
    # An op in the backward pass finds its inputs in another state of the caches than in the forward pass.
    parts += [precision, op.phase]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
    return f"{op.op_type}:{digest}"


def tensor_signature(graph: OperatorGraph, tensor: Tensor) -> list[Any]:
    """Return shape, dtype and how the tensor was viewed (its layout) since the op that wrote it."""
    shape = [[dim.constant, dim.per_sample] for dim in tensor.shape]
    views = [[op.op_type, op.arguments, place] for op, place in view_chain(graph, tensor)]
    # A weight is read from memory, an activation often from a cache: see profile_timing.
    return [shape, tensor.dtype, views, owner_of(graph, tensor).producer is None]


def view_chain(graph: OperatorGraph, tensor: Tensor) -> list[tuple[Op, int]]:
    """Return the metadata-only ops between ``tensor`` and the tensor that owns its memory, latest first.

    Returns: pairs of an op and which of its outputs the chain goes through.
    """
    chain: list[tuple[Op, int]] = []
    while tensor.producer is not None and graph.ops[tensor.producer].is_metadata:
        op = graph.ops[tensor.producer]
        if not op.inputs:
            break
        chain.append((op, op.outputs.index(tensor.id)))
        tensor = graph.tensors[op.inputs[0]]
    return chain


def owner_of(graph: OperatorGraph, tensor: Tensor) -> Tensor:
    """Return the tensor that owns the memory that ``tensor`` is a view of, maybe itself."""
    chain = view_chain(graph, tensor)
    return graph.tensors[chain[-1][0].inputs[0]] if chain else tensor


def optimizer_key(optimizer: str, graph: OperatorGraph, precision: str = "fp32") -> str:
    """Return the key of an optimizer step over all parameters of ``graph``."""
    shapes = sorted([round(dim.at(1)) for dim in p.shape] for p in graph.parameters)
    digest = hashlib.sha256(json.dumps([optimizer, shapes, precision]).encode()).hexdigest()[:24]
    return f"optimizer.{optimizer}:{digest}"
