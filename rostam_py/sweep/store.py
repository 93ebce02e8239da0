"""Store: finished points on disk, one file a point, written and then renamed; folded into Parquet parts.

A worker writes a point's JSON file (0.1 ms; a Parquet file of one row takes 1.3 ms and 12 kB) as soon as the point is
done, so a kill at any time loses only what was being computed. The driver folds finished files into parts. A point in
a file and in a part at once (killed between the two) counts once.

    store/<key>.json        {"key", "wall_s", "row"}
    store/part-<hash>.parquet
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostam_py import errors
from rostam_py.documents import parse_json
from rostam_py.errors import ConfigError
from rostam_py.sweep.columns import JOB_COLUMNS, column_types, polars_schema

WORKER_LOST = "WorkerLost"
# Errors that a point always ends in. Others (a lost worker, a full disk) are the machine's: the next sweep tries again.
_FINAL = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.RostamError)
}


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file in the same folder, then rename it: readers see all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


@contextlib.contextmanager
def writing(folder: str | Path) -> Iterator[None]:
    """Turn what a full disk, or a folder that went away, raises inside into a ConfigError that says what to do."""
    try:
        yield
    except Exception as error:
        # Polars raises ComputeError where the system refuses to write, with the system's reason or without.
        is_polars = type(error).__module__.startswith("polars")
        if not isinstance(error, OSError) and not is_polars:
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{folder} cannot be written ({reason}); make room or choose another out=DIR, and run the command"
            " again: finished points are kept"
        ) from error


def write_point(folder: str | Path, row: Mapping[str, Any], wall_s: float) -> None:
    """Store one finished point. Called by workers, and by the driver for workers that do not see the folder.

    Raises: ConfigError where the folder cannot be written.
    """
    document = {"key": row["key"], "wall_s": wall_s, "row": row}
    with writing(folder):
        write_atomically(Path(folder) / f"{row['key']}.json", json.dumps(document).encode())


def has_point(folder: str | Path, key: str) -> bool:
    """Say whether a point's own file exists (before it is folded)."""
    return (Path(folder) / f"{key}.json").exists()


class Store:
    """Finished points below one folder.

    Args: folder: made if missing.
    notes: what ``fold`` set aside and why, one line each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def finished(self) -> dict[str, float]:
        """Return {key: wall seconds} of all points that need not run again."""
        frame = self._parts(["key", "error_type", "wall_s"])
        found: dict[str, float] = {}
        for key, error_type, wall_s in frame.iter_rows():
            if error_type is None or error_type in _FINAL:
                found[key] = wall_s
        for document in self._documents():
            if document.row.get("error_type") in (None, *_FINAL):
                found[document.key] = document.wall_s
        return found

    def fold(self, keys: Iterable[str] | None = None) -> None:
        """Move points' files (default: all) into one Parquet part; those that hold no point are set aside."""
        paths = self._files() if keys is None else [self.folder / f"{key}.json" for key in keys]
        documents = []
        for path in paths:
            if path.exists():
                try:
                    documents.append(_read(path))
                except ConfigError as error:
                    self._set_aside(path, error)
        if not documents:
            return
        name = hashlib.sha256("".join(sorted(d.key for d in documents)).encode()).hexdigest()[:16]
        path = self.folder / f"part-{name}.parquet"
        temporary = path.with_name(f".{path.name}.tmp")
        with writing(self.folder):
            _frame(documents).write_parquet(temporary)
            os.replace(temporary, path)
        for document in documents:
            (self.folder / f"{document.key}.json").unlink(missing_ok=True)

    def row(self, key: str) -> dict[str, Any]:
        """Return the row of a stored point."""
        path = self.folder / f"{key}.json"
        if path.exists():
            return dict(_read(path).row)
        import polars as pl

        found: dict[str, Any] = self.frame().row(by_predicate=pl.col("key") == key, named=True)
        return found

    def frame(self) -> Any:
        """Return all stored points as a polars frame, one row a key, those that succeeded first choice."""
        import polars as pl

        parts = [self._parts(None)]
        documents = self._documents()
        if documents:
            parts.append(_frame(documents))
        frame = pl.concat(parts, how="diagonal")
        return frame.sort("key", pl.col("status") == "error", maintain_order=True).unique(
            "key", keep="first", maintain_order=True
        )

    def _documents(self) -> list["_Document"]:
        """Return the points in files of their own; what is no point is left out until ``fold`` sets it aside."""
        found = []
        for path in self._files():
            with contextlib.suppress(ConfigError):
                found.append(_read(path))
        return found

    def _set_aside(self, path: Path, error: ConfigError) -> None:
        aside = path.with_name(f"{path.name}.damaged")
        with writing(self.folder):
            os.replace(path, aside)
        self.notes.append(f"{error}; kept as {aside.name}, and its point is computed again")

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.json") if not path.name.startswith("."))

    def _parts(self, columns: list[str] | None) -> Any:
        import polars as pl

        schema = polars_schema() | {"wall_s": pl.Float64}
        wanted = schema if columns is None else {name: schema[name] for name in columns}
        frames = [pl.DataFrame(schema=wanted)]
        for path in sorted(self.folder.glob("part-*.parquet")):
            try:
                part = pl.read_parquet(path, columns=columns)
                frames.append(part.cast({name: kind for name, kind in wanted.items() if name in part.columns}))
            except (pl.exceptions.PolarsError, OSError) as error:
                raise ConfigError(
                    f"{path} cannot be read ({error}); delete it, and its points are computed again"
                ) from error
        return pl.concat(frames, how="diagonal").select(list(wanted))


@dataclass(slots=True)
class _Document:
    """A finished point's file."""

    key: str
    wall_s: float
    row: dict[str, Any]


def _read(path: Path) -> _Document:
    """Return a finished point.

    Raises: ConfigError for a file that is none: not JSON, another shape, or values that its columns cannot hold.
    """
    document: _Document = parse_json(_Document, path.read_bytes(), str(path))
    row = document.row
    if document.key != path.stem or row.get("key") != document.key:
        raise ConfigError(f"{path}: key is {document.key!r} and the row's {row.get('key')!r}; both are the file's name")
    if row.get("status") not in ("ok", "error"):
        raise ConfigError(f"{path}: row.status is {row.get('status')!r}; it must be ok or error")
    if not 0 <= document.wall_s < math.inf:
        raise ConfigError(f"{path}: wall_s is {document.wall_s!r}; it must be a number of seconds >= 0")
    for name, kind in column_types().items():
        if not _holds(kind, row.get(name)):
            raise ConfigError(f"{path}: row.{name} is {row[name]!r}; its column holds {kind}")
    return document


def _holds(kind: str, value: Any) -> bool:
    """Say whether a column of a kind can hold a value; None is a gap in any."""
    if value is None:
        return True
    if kind == "list[str]":
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if kind == "jobs":
        return isinstance(value, list) and all(
            isinstance(job, dict) and all(_holds(one, job.get(name)) for name, one in JOB_COLUMNS.items())
            for job in value
        )
    if isinstance(value, bool):
        return kind == "bool"
    if kind == "int":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, {"str": str, "float": int | float, "bool": bool}[kind])


def _frame(documents: list[_Document]) -> Any:
    import polars as pl

    schema = polars_schema() | {"wall_s": pl.Float64}
    rows = [{name: d.row.get(name) for name in column_types()} | {"wall_s": d.wall_s} for d in documents]
    return pl.DataFrame(rows, schema=schema)
