"""A sweep's folder: its lock, its manifest, its table in Parquet and CSV; every file written, then renamed."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.sweep.store import write_atomically, writing

_SNAPSHOT_EVERY_S = 60.0
_SNAPSHOT_SHARE = 0.02  # of the time at most


class Snapshots:
    """Calls ``write`` now and then: once a minute, or as seldom as keeps its share of the time small."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._next = time.monotonic() + _SNAPSHOT_EVERY_S

    def now_and_then(self) -> None:
        """Write if it is time."""
        begin = time.monotonic()
        if begin >= self._next:
            self._write()
            end = time.monotonic()
            self._next = end + max(_SNAPSHOT_EVERY_S, (end - begin) / _SNAPSHOT_SHARE)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON file."""
    with writing(path.parent):
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


def write_table(folder: Path, table: Any, frame: Any) -> None:
    """Write the table as Parquet and CSV, and the points' own times next to it."""
    import polars as pl

    times = table.select("key").unique(maintain_order=True).join(frame.select("key", pl.col("wall_s")), on="key")
    files = {
        "points.parquet": table.write_parquet, "points.csv": _flat(table).write_csv,
        "timings.parquet": times.write_parquet,
    }  # fmt: skip
    with writing(folder):
        for name, write in files.items():
            temporary = folder / f".{name}.tmp"
            write(temporary)
            os.replace(temporary, folder / name)


def _flat(table: Any) -> Any:
    """Return the table with nested columns as JSON text, which CSV can hold."""
    import polars as pl

    nested = [name for name, kind in table.schema.items() if kind.is_nested()]
    texts = [
        pl.Series(name, [None if v is None else json.dumps(v) for v in table[name].to_list()], dtype=pl.String)
        for name in nested
    ]
    return table.with_columns(texts)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees it however the holder ends."""
    with open(folder / ".lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{folder} is in use by another sweep; wait for it, or choose another out=DIR") from error
        yield
