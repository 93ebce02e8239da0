"""KernelTable: measured times of an accelerator's kernels by kind and shape, as ``make calibrate`` ships them.

Invariant: a row states the shape that ran and its time, so that a table depends on no model; ``fit`` says how its rows
are interpolated and ``held_out`` how well, ``device`` whose peaks its efficiencies refer to.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.costs.kernel_kinds import BY_LENGTH, Array, Columns, KernelKind, kernel_kind
from rostam_py.costs.kernel_surface import Box, Fit, Surface
from rostam_py.documents import parse_json, write_whole
from rostam_py.errors import ConfigError

FORMAT = "rostam kernel table"
VERSION = 2
QUERIES_OF_A_BLOCK = 128  # of attention, on one multiprocessor: FlashAttention-2, 3.3 (64 or 128, larger ones first)
TABLES = Path(__file__).parent / "tables"  # the shipped ones, NAME.kernels.json for each accelerator that has one
MAX_HELD_OUT, MAX_HELD_OUT_SIGNED = 0.08, 0.04  # mean absolute and mean signed error allowed on what was not fitted


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """What the kernels ran on: the peaks that efficiencies are shares of [FLOP/s, bytes/s]; arithmetic 0: not used."""

    name: str
    peak_flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    multiprocessors: int = 0


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors on rows that were not fitted: every second one, predicted from the others as shares of its time.

    signed: mean, above 0 where predictions are too slow. absolute: mean absolute error. worst: of the largest amount.
    """

    rows: int
    absolute: float
    signed: float
    worst: float

    @property
    def is_miss(self) -> bool:
        """Whether the errors break the rule."""
        return self.absolute > MAX_HELD_OUT or abs(self.signed) > MAX_HELD_OUT_SIGNED


@dataclass(frozen=True)
class KernelSeries:
    """Measurements of one kind and precision from one source.

    kind: a name in KERNEL_KINDS. precision: key of ``Accelerator.peak_flops_per_s``; "" where none matters.
    element_bytes: of an operand. source: names the file and what was measured. columns: field to (N,). seconds: (N,).
    source_spread: median of (largest / smallest - 1) over shapes that several sources measured, 0 where there is one.
    held_out: None for too few rows. program: of attention and norms, whose kernels these are (``programs``), "" where a
        source does not tell.
    """

    kind: str
    precision: str
    source: str
    device: MeasuredDevice
    element_bytes: float
    columns: Columns
    seconds: Array
    fit: Fit
    source_spread: float = 0.0
    held_out: HeldOut | None = None
    program: str = ""

    @property
    def of_kind(self) -> KernelKind:
        """The kind, looked up."""
        return kernel_kind(self.kind)

    @property
    def numbers(self) -> str:
        """What the kernels compute on or, of those without arithmetic, read."""
        return self.precision or f"{8 * self.element_bytes:g} bits"

    def ideal_s(self, fixed_s: float) -> Array:
        """Return the time (N,) of each row at the device's peaks, plus a fixed time [s]."""
        flops, traffic = self.of_kind.flops(self.columns), self.of_kind.traffic(self.columns, self.element_bytes)
        return ideal_time(flops, traffic, self.device.peak_flops_per_s, self.device) + fixed_s

    def log_ratios(self, fixed_s: float) -> Array:
        """Return log(measured / ideal time), (N,)."""
        return np.asarray(np.log(self.seconds / self.ideal_s(fixed_s)))

    @cached_property
    def surface(self) -> Surface:
        """The surface through ``log_ratios`` in the fit's space; made when first asked for."""
        points = self.of_kind.spaces[self.fit.space](self.columns, self.device.multiprocessors)
        return Surface(points, self.log_ratios(self.fit.fixed_s), self.fit.scales, self.fit.noise)

    @cached_property
    def box(self) -> Box:
        """The box of measured sizes."""
        return Box(self.of_kind.sizes(self.columns))

    def ratios(self, columns: Columns, multiprocessors: int) -> Array:
        """Return measured over ideal time of shapes (Q,) on a device of so many multiprocessors."""
        return np.asarray(np.exp(self.surface.at(self.of_kind.spaces[self.fit.space](columns, multiprocessors))))

    def seconds_of(self, columns: Columns) -> Array:
        """Return the time of shapes (Q,) on the device measured [s]."""
        flops, traffic = self.of_kind.flops(columns), self.of_kind.traffic(columns, self.element_bytes)
        ideal_s = ideal_time(flops, traffic, self.device.peak_flops_per_s, self.device)
        return predicted_s(self.ratios(columns, self.device.multiprocessors), ideal_s, self.fit.fixed_s)

    def distances(self, columns: Columns) -> Array:
        """Return how far outside the measured sizes shapes (Q,) are, summed over sizes [octaves].

        Model: rows of attention that are told apart by length alone fill the device; so many octaves as kernels do not,
            with a block of 128 queries of a head on each multiprocessor (FlashAttention-2, 3.3), they are outside.
        """
        found = self.box.distance(self.of_kind.sizes(columns))
        if self.fit.space != BY_LENGTH:
            return found
        blocks = columns["batch"] * columns["heads"] * np.ceil(columns["sequence"] / QUERIES_OF_A_BLOCK)
        return np.asarray(found + np.maximum(0.0, np.log2(self.device.multiprocessors / blocks)))


def ideal_time(flops: Any, traffic: Any, peak: float, device: Any) -> Any:
    """Return the longer of arithmetic at ``peak`` and traffic at the device's memory bandwidth [s]."""
    arithmetic = flops / peak if peak else np.zeros_like(flops)
    return np.maximum(arithmetic, traffic / device.memory_bandwidth_bytes_per_s)


def predicted_s(ratios: Array, ideal_s: Array, fixed_s: float) -> Array:
    """Return times (Q,) of ratios and ideal times: none is below the ideal one, so that no peak is exceeded."""
    return np.maximum(ratios * (ideal_s + fixed_s), ideal_s)


@dataclass(frozen=True)
class KernelTable:
    """All series of one accelerator. provenance: where the rows come from, see docs/calibration.md."""

    accelerator: str
    provenance: Mapping[str, Any]
    series: tuple[KernelSeries, ...] = field(default=())

    def text(self) -> str:
        """Return the table's file: JSON, a line for each row; the same rows give the same bytes."""
        head = {"format": FORMAT, "version": VERSION, "accelerator": self.accelerator, "provenance": self.provenance}
        blocks = [_block(series) for series in self.series]
        return json.dumps(head, indent=1)[:-2] + ',\n "series": [\n' + ",\n".join(blocks) + "\n ]\n}\n"

    def save(self, path: str | Path) -> None:
        """Write the table; the file appears whole or not at all."""
        write_whole(path, self.text().encode())

    @staticmethod
    def load(path: str | Path) -> "KernelTable":
        """Read a table that ``save`` wrote.

        Raises: ConfigError if the file is missing, or not a kernel table of this version, or its rows do not fit.
        """
        where = f"kernel table {str(path)!r}"
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"{where} cannot be read: {error.strerror or error}") from error
        is_shipped = Path(path).parent == TABLES  # checked by tests; the checks' library takes 0.1 s to load
        document = _as_shipped(data) if is_shipped else parse_json(_Document, data, where)
        if document.format != FORMAT or document.version != VERSION:
            raise ConfigError(f"{str(path)!r} is not a {FORMAT} of version {VERSION}")
        series = tuple(_series(one, f"{where}: series[{number}]") for number, one in enumerate(document.series))
        return KernelTable(document.accelerator, document.provenance, series)


def shipped_table(accelerator: str) -> Path | None:
    """Return the path of the table shipped for an accelerator, None if there is none."""
    path = TABLES / f"{accelerator}.kernels.json"
    return path if path.is_file() else None


@dataclass(slots=True)
class _FitRecord:
    space: str
    scales: list[float]
    noise: float
    fixed_s: float


@dataclass(slots=True)
class _SeriesRecord:
    kind: str
    precision: str
    source: str
    device: dict[str, str | float]
    element_bytes: float
    source_spread: float
    held_out: HeldOut | None
    fit: _FitRecord
    fields: list[str]
    rows: list[list[float]]
    program: str = ""


@dataclass(slots=True)
class _Document:
    """A kernel table's file."""

    format: str
    version: int
    accelerator: str
    provenance: dict[str, Any]
    series: list[_SeriesRecord]


def _as_shipped(data: bytes) -> _Document:
    document = json.loads(data)
    series = [
        one | {"fit": _FitRecord(**one["fit"]), "held_out": one["held_out"] and HeldOut(**one["held_out"])}
        for one in document["series"]
    ]
    return _Document(**document | {"series": [_SeriesRecord(**one) for one in series]})


def _block(series: KernelSeries) -> str:
    names = series.of_kind.fields
    head = {
        "kind": series.kind, "precision": series.precision, "source": series.source, "device": asdict(series.device),
        "element_bytes": _short(series.element_bytes), "source_spread": series.source_spread,
        "held_out": None if series.held_out is None else asdict(series.held_out), "fit": asdict(series.fit),
        "fields": [*names, "microseconds"],
    } | ({"program": series.program} if series.program else {})  # fmt: skip
    columns = [[_short(value) for value in series.columns[name]] for name in names]
    times = [_short(float(f"{value * 1e6:.4g}")) for value in series.seconds]
    rows = ",\n".join(json.dumps(list(row), separators=(",", ":")) for row in zip(*columns, times, strict=True))
    return json.dumps(head)[:-1] + ', "rows": [\n' + rows + "]}"


def _short(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)


def _series(record: _SeriesRecord, where: str) -> KernelSeries:
    """Return the series of its JSON form.

    Raises: ConfigError for what no measurement can be.
    """
    kind = kernel_kind(record.kind, f"{where}: kind")
    if record.fields != [*kind.fields, "microseconds"]:
        raise ConfigError(f"{where}: fields is {record.fields}; {record.kind} has {[*kind.fields, 'microseconds']}")
    if not record.rows or any(len(row) != len(record.fields) for row in record.rows):
        raise ConfigError(f"{where}: rows must be at least one, each of {len(record.fields)} numbers")
    rows = np.asarray(record.rows, dtype=float)
    if not (np.isfinite(rows).all() and (rows[:, -1] > 0).all() and (rows >= 0).all()):
        raise ConfigError(f"{where}: rows holds a number below 0, a time of 0 or one that is not finite")
    if record.fit.space not in kind.spaces:
        raise ConfigError(f"{where}: fit.space is {record.fit.space!r}; it must be one of {', '.join(kind.spaces)}")
    columns = {name: rows[:, place] for place, name in enumerate(kind.fields)}
    if kind.spaces[record.fit.space](columns, 0).shape[1] != len(record.fit.scales) or min(record.fit.scales) <= 0:
        raise ConfigError(f"{where}: fit.scales is {record.fit.scales}; it needs one above 0 for each coordinate")
    device = MeasuredDevice(
        str(record.device["name"]), float(record.device["peak_flops_per_s"]),
        float(record.device["memory_bandwidth_bytes_per_s"]), int(record.device["multiprocessors"]),
    )  # fmt: skip
    fit = Fit(record.fit.space, tuple(record.fit.scales), record.fit.noise, record.fit.fixed_s)
    return KernelSeries(
        record.kind, record.precision, record.source, device, record.element_bytes, columns, rows[:, -1] * 1e-6, fit,
        record.source_spread, record.held_out, record.program,
    )  # fmt: skip
