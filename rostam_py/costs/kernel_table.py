"""KernelTable: measured times of an accelerator's kernels by kind and shape, as ``make calibrate`` ships them.

Invariant: a row states the shape that ran and its time, so that a table depends on no model; ``fit`` says how its rows
are interpolated and ``held_out`` how well, ``device`` whose peaks its efficiencies refer to.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rostam_py.costs.kernel_kinds import (
    BY_LENGTH,
    GROUPED_STAGES,
    LAYOUTS,
    Array,
    Columns,
    KernelKind,
    kernel_kind,
)
from rostam_py.costs.kernel_surface import Box, Fit, Surface
from rostam_py.documents import parse_json, write_whole
from rostam_py.errors import ConfigError

FORMAT = "rostam kernel table"
VERSION = 2
QUERIES_OF_A_BLOCK = 128  # of attention, on one multiprocessor: FlashAttention-2, 3.3 (64 or 128, larger ones first)
TABLES = Path(__file__).parent / "tables"  # the shipped ones, NAME.kernels.json for each accelerator that has one
_ONCE = np.ones(1)
_CODES = {"layout": LAYOUTS, "stage": GROUPED_STAGES}  # columns of rows that name one of these by its place
_MOST = 1e15  # of a size, a count of bytes, or microseconds: beyond any kernel's, and products of five are finite
_ALWAYS = ("space", "scales", "noise", "fixed_s")  # of a fit, in its file
MAX_HELD_OUT, MAX_HELD_OUT_SIGNED = 0.08, 0.04  # mean absolute and mean signed error allowed on what was not fitted


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """What the kernels ran on: the peaks that efficiencies are shares of [FLOP/s, bytes/s]; arithmetic 0: not used."""

    name: str
    peak_flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    multiprocessors: int = 0


class Predicted(NamedTuple):
    """What a series says of shapes on a device, each (Q,).

    seconds: their times; none is below the longer of arithmetic and traffic at the data sheet's rates, so that no peak
    is exceeded. ideal_s: the ideal times that the fit refers to, with its fixed time. least_s: those of the data sheet.
    weights: how many times the FLOPs count in the fit's ideal time.
    """

    seconds: Array
    ideal_s: Array
    least_s: Array
    weights: Array


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


@dataclass(frozen=True, kw_only=True)
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

    def ideal_s(self, fit: Fit) -> Array:
        """Return the time (N,) of each row at the device's peaks, as a fit counts it, with its fixed time [s]."""
        flops, traffic = self.of_kind.flops(self.columns), self.of_kind.traffic(self.columns, self.element_bytes)
        counted = flops * self._weights(self.columns, fit)
        return ideal_time(counted, traffic, self.device.peak_flops_per_s, self.device) + fit.fixed_s

    def log_ratios(self, fit: Fit) -> Array:
        """Return log(measured / ideal time), (N,), by the ideal time of a fit."""
        return np.asarray(np.log(self.seconds / self.ideal_s(fit)))

    def _weights(self, columns: Columns, fit: Fit) -> Array:
        """Return how many times the FLOPs of shapes count, (Q,); beyond the measured loops as in the nearest one."""
        steps = self.of_kind.loop
        if steps is None or (fit.share, fit.lost) == (1.0, 0.0):
            return _ONCE
        low, high = self._loops
        return fit.weights(np.clip(steps(columns), low, high))

    @cached_property
    def _loops(self) -> tuple[float, float]:
        """The least and the most steps of the measured rows' inner loops."""
        steps = self.of_kind.loop
        measured = np.zeros(1) if steps is None else steps(self.columns)
        return float(measured.min()), float(measured.max())

    def heard(self, asked: Columns) -> Columns:
        """Return what is asked, with the fields that the rows are silent about as they have them."""
        return {**asked, **{name: asked[other] * at if other else at for name, (other, at) in self._silent.items()}}

    @cached_property
    def _silent(self) -> dict[str, tuple[str, Array]]:
        return self.of_kind.silent(self.columns)

    @cached_property
    def surface(self) -> Surface:
        """The surface through ``log_ratios`` in the fit's space; made when first asked for."""
        points = self.of_kind.spaces[self.fit.space](self.columns, self.device.multiprocessors)
        return Surface(points, self.log_ratios(self.fit), self.fit.scales, self.fit.noise)

    @cached_property
    def box(self) -> Box:
        """The box of measured sizes."""
        return Box(self._sizes(self.columns))

    def _sizes(self, columns: Columns) -> Array:
        return self.of_kind.spaces[BY_LENGTH](columns, 0) if self.is_by_length else self.of_kind.sizes(columns)

    def ratios(self, columns: Columns, multiprocessors: int) -> Array:
        """Return measured over the fit's ideal time of shapes (Q,) on a device of so many multiprocessors."""
        return np.asarray(np.exp(self.surface.at(self.of_kind.spaces[self.fit.space](columns, multiprocessors))))

    def seconds_of(self, columns: Columns) -> Array:
        """Return the time of shapes (Q,) on the device measured [s]."""
        flops, traffic = self.of_kind.flops(columns), self.of_kind.traffic(columns, self.element_bytes)
        return self.predicted(columns, flops, traffic, self.device.peak_flops_per_s, self.device).seconds

    def predicted(self, columns: Columns, flops: Array, traffic: Any, peak: float, device: Any) -> "Predicted":
        """Return what a series says of shapes on a device.

        Args:
            flops: useful FLOPs (Q,).
            traffic: bytes (Q,).
            peak: of the device [FLOP/s].
            device: with a memory bandwidth and multiprocessors.
        """
        weights, least_s = self._weights(columns, self.fit), ideal_time(flops, traffic, peak, device)
        counted_s = least_s if weights is _ONCE else ideal_time(flops * weights, traffic, peak, device)
        ideal_s = counted_s + self.fit.fixed_s
        seconds = np.maximum(self.ratios(columns, device.multiprocessors) * ideal_s, least_s)
        return Predicted(seconds, ideal_s, least_s, weights)

    def distances(self, columns: Columns) -> Array:
        """Return how far outside the measured sizes shapes (Q,) are, summed over sizes [octaves].

        Model: rows of attention that are told apart by length alone fill the device; so many octaves as kernels do not,
            with a block of 128 queries of a head on each multiprocessor (FlashAttention-2, 3.3), they are outside.
        """
        found = self.box.distance(self._sizes(columns))
        if not self.is_by_length:
            return found
        blocks = columns["batch"] * columns["heads"] * np.ceil(columns["sequence"] / QUERIES_OF_A_BLOCK)
        return np.asarray(found + np.maximum(0.0, np.log2(self.device.multiprocessors / blocks)))

    @property
    def is_by_length(self) -> bool:
        """Whether rows of attention are told apart by length alone, all of as many tokens of one width."""
        return self.fit.space == BY_LENGTH

    def filling(self, sequence: float, head_size: float) -> tuple[float, float]:
        """Return the samples and heads that rows told apart by length alone have at a length and size of heads."""
        tokens, width = (
            self.columns["batch"] * self.columns["sequence"],
            self.columns["heads"] * self.columns["head_size"],
        )
        return float(tokens[0] / sequence), float(width[0] / head_size)


def ideal_time(flops: Any, traffic: Any, peak: float, device: Any) -> Any:
    """Return the longer of arithmetic at ``peak`` and traffic at the device's memory bandwidth [s]."""
    arithmetic = flops / peak if peak else np.zeros_like(flops)
    return np.maximum(arithmetic, traffic / device.memory_bandwidth_bytes_per_s)


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
    share: float = 1.0
    lost: float = 0.0


@dataclass(slots=True, kw_only=True)
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
        "held_out": None if series.held_out is None else asdict(series.held_out), "fit": _fit_record(series.fit),
        "fields": [*names, "microseconds"],
    } | ({"program": series.program} if series.program else {})  # fmt: skip
    columns = [[_short(value) for value in series.columns[name]] for name in names]
    times = [_short(float(f"{value * 1e6:.4g}")) for value in series.seconds]
    rows = ",\n".join(json.dumps(list(row), separators=(",", ":")) for row in zip(*columns, times, strict=True))
    return json.dumps(head)[:-1] + ', "rows": [\n' + rows + "]}"


def _fit_record(fit: Fit) -> dict[str, Any]:
    """Return a fit as a file holds it: without what is as it mostly is."""
    plain = Fit(fit.space, fit.scales, fit.noise, fit.fixed_s)
    return {name: value for name, value in asdict(fit).items() if name in _ALWAYS or value != getattr(plain, name)}


def _short(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)


def _check_rows(rows: Array, fields: list[str], where: str) -> None:
    """Refuse rows that no kernel can have: sizes and times that are not positive numbers, codes that mean nothing.

    Raises: ConfigError, naming the first such row and its column.
    """
    for place, name in enumerate(fields):
        column, codes = rows[:, place], _CODES.get(name)
        if codes is not None:
            wrong, allowed = ~np.isin(column, range(len(codes))), f"0 to {len(codes) - 1} ({', '.join(codes)})"
        else:
            wrong, allowed = ~((column > 0) & (column <= _MOST)), f"a number above 0 and at most {_MOST:g}"
        if wrong.any():
            row = int(wrong.argmax())
            raise ConfigError(f"{where}: rows[{row}] has {name} {column[row]:g}; it must be {allowed}")


def _check_device(record: _SeriesRecord, where: str) -> None:
    """Refuse what the measured device, or an operand's element, cannot be. Raises: ConfigError."""
    given = {f"device.{name}": record.device.get(name) for name in ("peak_flops_per_s", "memory_bandwidth_bytes_per_s")}
    for name, value in {**given, "element_bytes": record.element_bytes}.items():
        least = 0.0 if name == "device.peak_flops_per_s" and not record.precision else math.ulp(0.0)
        if not isinstance(value, int | float) or not least <= value < math.inf:
            raise ConfigError(f"{where}: {name} is {value!r}; it must be a number above 0")
    if not isinstance(record.device.get("name"), str):
        raise ConfigError(f"{where}: device.name is {record.device.get('name')!r}; it must be text")
    units = record.device.get("multiprocessors")
    if not isinstance(units, int | float) or not 0 <= units < math.inf:
        raise ConfigError(f"{where}: device.multiprocessors is {units!r}; it must be a number of at least 0")


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
    _check_rows(rows, record.fields, where)
    _check_device(record, where)
    if record.fit.space not in kind.spaces:
        raise ConfigError(f"{where}: fit.space is {record.fit.space!r}; it must be one of {', '.join(kind.spaces)}")
    columns = {name: rows[:, place] for place, name in enumerate(kind.fields)}
    num_scales = kind.spaces[record.fit.space](columns, 0).shape[1]
    if num_scales != len(record.fit.scales) or not all(0 < scale < math.inf for scale in record.fit.scales):
        raise ConfigError(f"{where}: fit.scales is {record.fit.scales}; it needs one above 0 for each coordinate")
    device = MeasuredDevice(
        str(record.device["name"]), float(record.device["peak_flops_per_s"]),
        float(record.device["memory_bandwidth_bytes_per_s"]), int(record.device["multiprocessors"]),
    )  # fmt: skip
    if not 0 <= record.fit.noise < math.inf or not 0 <= record.fit.fixed_s < math.inf:
        raise ConfigError(
            f"{where}: fit.noise is {record.fit.noise}, fit.fixed_s {record.fit.fixed_s}; each must be a number of at"
            " least 0"
        )
    if not 0 < record.fit.share <= 1 or not 0 <= record.fit.lost < math.inf:
        raise ConfigError(
            f"{where}: fit.share is {record.fit.share}, fit.lost {record.fit.lost}; a share is above 0 and at most 1, a"
            " number of steps at least 0"
        )
    fit = Fit(
        record.fit.space, tuple(record.fit.scales), record.fit.noise, record.fit.fixed_s, record.fit.share,
        record.fit.lost,
    )  # fmt: skip
    return KernelSeries(
        kind=record.kind, precision=record.precision, source=record.source, device=device,
        element_bytes=record.element_bytes, columns=columns, seconds=rows[:, -1] * 1e-6, fit=fit,
        source_spread=record.source_spread, held_out=record.held_out, program=record.program,
    )  # fmt: skip
