"""Store: finished points on disk, one file a point, written and then renamed; folded into Parquet parts.

A worker writes a point's JSON file (0.1 ms; a Parquet file of one row takes 1.3 ms and 12 kB) as soon as the point is
done, so a kill at any time loses only what was being computed. The driver folds finished files into parts. A point in
a file and in a part at once (killed between the two) counts once.

    store/<key>.json        {"key", "wall_s", "row"}
    store/part-<hash>.parquet
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rostam_py import errors
from rostam_py.errors import ConfigError
from rostam_py.sweep.columns import polars_schema

WORKER_LOST = "WorkerLost"
# Errors that a point always ends in. Others (a lost worker, a full disk) are the machine's: the next sweep tries again.
_FINAL = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.RostamError)
}


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file beside its place, then rename it: readers see all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def write_point(folder: str | Path, row: Mapping[str, Any], wall_s: float) -> None:
    """Store one finished point. Called by workers, and by the driver for workers that do not see the folder.

    Raises: ConfigError where the folder cannot be written.
    """
    document = {"key": row["key"], "wall_s": wall_s, "row": row}
    try:
        write_atomically(Path(folder) / f"{row['key']}.json", json.dumps(document).encode())
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}); make room or choose another out=DIR, and give the command"
            " again: what is finished is kept"
        ) from error


def has_point(folder: str | Path, key: str) -> bool:
    """Say whether a point's own file exists (before it is folded)."""
    return (Path(folder) / f"{key}.json").exists()


class Store:
    """Finished points below one folder.

    Args: folder: made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def finished(self) -> dict[str, float]:
        """Return {key: wall seconds} of all points that need not run again."""
        frame = self._parts(["key", "error_type", "wall_s"])
        found: dict[str, float] = {}
        for key, error_type, wall_s in frame.iter_rows():
            if error_type is None or error_type in _FINAL:
                found[key] = wall_s
        for document in map(self._read, self._files()):
            if document["row"].get("error_type") in (None, *_FINAL):
                found[document["key"]] = document["wall_s"]
        return found

    def fold(self, keys: Iterable[str] | None = None) -> None:
        """Move points' files (default: all) into one Parquet part."""
        paths = list(self._files() if keys is None else (self.folder / f"{key}.json" for key in keys))
        documents = [self._read(path) for path in paths if path.exists()]
        if not documents:
            return
        name = hashlib.sha256("".join(sorted(d["key"] for d in documents)).encode()).hexdigest()[:16]
        path = self.folder / f"part-{name}.parquet"
        temporary = path.with_name(f".{path.name}.tmp")
        _frame(documents).write_parquet(temporary)
        os.replace(temporary, path)
        for document in documents:
            (self.folder / f"{document['key']}.json").unlink(missing_ok=True)

    def frame(self) -> Any:
        """Return all stored points as a polars frame, one row a key, those that succeeded first choice."""
        import polars as pl

        parts = [self._parts(None)]
        documents = [self._read(path) for path in self._files()]
        if documents:
            parts.append(_frame(documents))
        frame = pl.concat(parts, how="diagonal")
        return frame.sort("key", pl.col("status") == "error", maintain_order=True).unique(
            "key", keep="first", maintain_order=True
        )

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.json") if not path.name.startswith("."))

    def _parts(self, columns: list[str] | None) -> Any:
        import polars as pl

        schema = polars_schema() | {"wall_s": pl.Float64}
        wanted = schema if columns is None else {name: schema[name] for name in columns}
        frames = [pl.DataFrame(schema=wanted)]
        for path in sorted(self.folder.glob("part-*.parquet")):
            try:
                frames.append(pl.read_parquet(path, columns=columns))
            except (pl.exceptions.PolarsError, OSError) as error:
                raise ConfigError(
                    f"{path} cannot be read ({error}); delete it, and its points are computed again"
                ) from error
        return pl.concat(frames, how="diagonal").select(list(wanted))

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        try:
            return dict(json.loads(path.read_bytes()))
        except ValueError as error:
            raise ConfigError(f"{path} is damaged ({error}); delete it, and its point is computed again") from error


def _frame(documents: list[dict[str, Any]]) -> Any:
    import polars as pl

    schema = polars_schema() | {"wall_s": pl.Float64}
    rows = [{name: d["row"].get(name) for name in polars_schema()} | {"wall_s": d["wall_s"]} for d in documents]
    return pl.DataFrame(rows, schema=schema)
