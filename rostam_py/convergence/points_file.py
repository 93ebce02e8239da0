"""Curves from CSV files: one's own by convergence=path/to/file.csv, and those that are shipped in data/.

Example:
    # target: 75.9% top-1
    # samples_per_epoch: 1281167
    batch,epochs
    4096,40
    8192,42

Rows that share a batch are runs of it: their mean is the point, their least and most its band. Lines "# key: value"
say what the figures are; HEAD has the keys.
"""

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from rostam_py.convergence.curve import BATCH_UNITS, FORMS, SAMPLE_KINDS, Curve, Point
from rostam_py.errors import ConfigError

SUFFIX = ".csv"
# What a row may count towards the target, besides "batch".
AMOUNTS = ("iterations", "epochs", *BATCH_UNITS)
HEAD = MappingProxyType({
    "target": "the quality that is reached",
    "source": "source of the figures",
    "model": "the model that was measured; left out, the curve fits any",
    "samples": f"kind of sample: {', '.join(SAMPLE_KINDS)}",
    "optimizer": "of the runs",
    "batch_unit": f"of the column batch: {' or '.join(BATCH_UNITS)}; samples by default",
    "tokens_per_sample": "where batches or amounts are tokens",
    "samples_per_epoch": "where the column epochs is given",
    "form": f"{', '.join(FORMS)}; log_log by default, single with one batch",
    "note": "a remark, which results repeat",
})  # fmt: skip
_DATA = Path(__file__).parent / "data"


def is_curve_file(name: str) -> bool:
    """Say whether a curve's name is a file's."""
    return name.endswith(SUFFIX)


def shipped_curve(name: str) -> Curve:
    """Return the curve NAME of data/NAME.csv."""
    return _read_curve(str(_DATA / f"{name}{SUFFIX}"), name, 0)


def load_curve(path: str | Path) -> Curve:
    """Return the curve of a CSV file, named as the file is.

    Raises: ConfigError naming file, line, column and value, and the allowed values.
    """
    path = Path(path)
    try:
        is_there = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        is_there = False
    if not is_there:
        raise ConfigError(f"convergence is {str(path)!r}, but there is no such file; columns: {_columns_said()}")
    return _read_curve(str(path), str(path), path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read_curve(path: str, name: str, stamp: int) -> Curve:
    head, rows = _split(path)
    tokens = _whole(path, head, "tokens_per_sample", 1)
    unit = head.get("batch_unit", ("", BATCH_UNITS[0]))[1]
    _check_choice(path, head, "batch_unit", BATCH_UNITS)
    _check_choice(path, head, "samples", SAMPLE_KINDS)
    _check_choice(path, head, "form", FORMS)
    if unit == "tokens" and "tokens_per_sample" not in head:
        raise ConfigError(f"{path}: batch_unit is tokens; say how many a sample has: # tokens_per_sample: 2048")
    runs = _runs(path, head, rows, unit, tokens)
    points = tuple(
        Point(batch, min(found), max(found), sum(found) / len(found)) for batch, found in sorted(runs.items())
    )
    form = head["form"][1] if "form" in head else ("single" if len(points) == 1 else "log_log")
    model = head.get("model", (0, ""))[1]
    try:
        curve = Curve(
            name=name, models=(model,) if model else (), target=head.get("target", (0, "the target of the file"))[1],
            source=head.get("source", (0, f"the file {path}"))[1], points=points, form=form,
            optimizer=head.get("optimizer", (0, ""))[1], batch_unit=unit,
            tokens_per_sample=tokens if unit == "tokens" else 1,
            sample_kind=head.get("samples", (0, ""))[1], notes=(head["note"][1],) if "note" in head else (),
        )  # fmt: skip
        _ = curve.fit if form == "fit" else None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return curve


def _split(path: str) -> tuple[dict[str, tuple[int, str]], list[tuple[int, list[str]]]]:
    """Return {key: (line, value)} of the head, and (line, fields) of the rows, names of columns first."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    head: dict[str, tuple[int, str]] = {}
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            key, colon, value = line.lstrip("# ").partition(":")
            if not colon or key.strip() not in HEAD or key.strip() in head:
                why = "is given twice" if key.strip() in head else f"is none of: {', '.join(HEAD)}"
                raise ConfigError(f"{path}, line {number}: key {key.strip()!r} {why}")
            head[key.strip()] = (number, value.strip())
        elif line.strip():
            rows.append((number, _cells(path, number, line)))
    if len(rows) < 2:
        raise ConfigError(f"{path} has no rows; a line of column names, then a row per point: {_columns_said()}")
    return head, rows


def _cells(path: str, number: int, line: str) -> list[str]:
    try:
        return [one.strip() for one in next(csv.reader([line]))]
    except csv.Error as error:
        raise ConfigError(f"{path}, line {number}: {error}") from error


def _columns_said() -> str:
    return f"batch, and one of {', '.join(AMOUNTS)}"


def _runs(
    path: str, head: dict[str, tuple[int, str]], rows: list[tuple[int, list[str]]], unit: str, tokens: int
) -> dict[int, list[float]]:
    """Return the iterations of every run by its batch."""
    (line, columns), *rest = rows
    amounts = [one for one in columns if one in AMOUNTS]
    if len(amounts) != 1 or sorted(columns) != sorted(["batch", *amounts]):
        raise ConfigError(f"{path}, line {line}: columns are {', '.join(columns)}; they must be {_columns_said()}")
    amount = amounts[0]
    per_batch = tokens if unit == "samples" and amount == "tokens" else 1  # of the amount in one of the batch's units
    scale = 1.0 / per_batch
    if amount == "epochs":
        if "samples_per_epoch" not in head:
            raise ConfigError(f"{path}: column epochs needs the line # samples_per_epoch: 1281167")
        scale = float(_whole(path, head, "samples_per_epoch", 1) * (tokens if unit == "tokens" else 1))
    elif amount == "tokens" and "tokens_per_sample" not in head:
        raise ConfigError(f"{path}: column tokens needs the line # tokens_per_sample: 2048")
    elif amount == "samples" and unit == "tokens":
        scale = float(tokens)
    runs: dict[int, list[float]] = {}
    for number, fields in rest:
        if len(fields) != len(columns):
            raise ConfigError(f"{path}, line {number}: {len(fields)} fields; the columns are {', '.join(columns)}")
        values = dict(zip(columns, fields, strict=True))
        batch = _number(path, number, "batch", values["batch"], is_whole=True)
        given = _number(path, number, amount, values[amount])
        runs.setdefault(int(batch), []).append(given if amount == "iterations" else given * scale / batch)
    return runs


def _number(path: str, line: int, column: str, text: str, is_whole: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf") or (is_whole and value != int(value)):
        kind = "a whole number >= 1" if is_whole else "a number > 0"
        raise ConfigError(f"{path}, line {line}, column {column}: {text!r} is not {kind}")
    return value


def _whole(path: str, head: dict[str, tuple[int, str]], key: str, default: int) -> int:
    line, text = head.get(key, (0, str(default)))
    return int(_number(path, line, key, text, is_whole=True))


def _check_choice(path: str, head: dict[str, tuple[int, str]], key: str, allowed: Sequence[str]) -> None:
    if key in head and head[key][1] not in allowed:
        line, value = head[key]
        raise ConfigError(f"{path}, line {line}: {key} is {value!r}; allowed: {', '.join(allowed)}")
