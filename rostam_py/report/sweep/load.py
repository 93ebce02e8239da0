"""Read what a sweep left in its folder.

data = load_sweep("runs/my-sweep"); data.table is a polars DataFrame, one row per point.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostam_py.errors import ConfigError
from rostam_py.report.run.load import existing_folder, load_detail, read_file
from rostam_py.spec.keys import MODES

if TYPE_CHECKING:
    import polars

MANIFEST_VERSION = 1
_NEEDED = ("key", "index", "status")


@dataclass(frozen=True)
class SweepData:
    """A sweep's folder in memory.

    manifest: sweep.json. table: one row per point, in point order. details: detail documents by point key.
    """

    manifest: dict[str, Any]
    table: polars.DataFrame
    details: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def axes(self) -> dict[str, list[str]]:
        """Return each axis' labels, in the manifest's order."""
        return {axis["key"]: [str(label) for label in axis["labels"]] for axis in self.manifest["axes"]}

    @property
    def mode(self) -> str:
        """Return "run", "search" or "mix"."""
        return self.manifest["mode"]

    @property
    def title(self) -> str:
        """Return the sweep's title."""
        return self.manifest.get("title") or "sweep"

    def labels_of(self, table: polars.DataFrame, key: str) -> polars.Series:
        """Return the text of an axis, or of another column, at each row of ``table``.

        An axis over lists of jobs has the name of the column that holds their results: its labels follow the points'
        order.
        """
        import polars as pl

        if not table[key].dtype.is_nested():
            return table[key].cast(pl.String)
        return pl.Series(key, [self.label_at(index, key) for index in table["index"]], pl.String)

    def label_at(self, index: int, key: str) -> str:
        """Return an axis' label at the point of an index: points are the product of the axes, the last one fastest."""
        axes, keys = self.axes, list(self.axes)
        stride = math.prod(len(axes[one]) for one in keys[keys.index(key) + 1 :])
        return axes[key][index // stride % len(axes[key])]

    def finished(self) -> polars.DataFrame:
        """Return the rows of points that ended well."""
        import polars as pl

        return self.table.filter(pl.col("status") == "ok")

    def failed(self) -> polars.DataFrame:
        """Return the rows of points that ended with an error."""
        import polars as pl

        return self.table.filter(pl.col("status") != "ok")


def load_sweep(folder: str | Path) -> SweepData:
    """Return a sweep's manifest, points and details.

    Raises: ConfigError if a file is missing, damaged, or of a version that this rostam does not read.
    """
    folder = existing_folder(folder)
    manifest = read_file(folder / "sweep.json", _json, "a sweep's folder has one")
    _check_manifest(manifest, folder / "sweep.json")
    import polars as pl

    path = folder / "points.parquet"
    table = read_file(path, pl.read_parquet, "the sweep writes it at its end: give the same rostam sweep command again")
    missing = [name for name in (*_NEEDED, *(axis["key"] for axis in manifest["axes"])) if name not in table.columns]
    if missing:
        raise ConfigError(f"{path} lacks the columns {', '.join(missing)}; it was not written by rostam sweep")
    paths = {str(key): folder / "details" / f"{key}.json.gz" for key in manifest.get("details", ())}
    details = {key: load_detail(path, "sweep.json lists it") for key, path in paths.items()}
    return SweepData(manifest, table, details)


def is_sweep_folder(folder: str | Path) -> bool:
    """Say whether a folder is a sweep's (else a run's).

    Raises: ConfigError if it is neither.
    """
    folder = existing_folder(folder)
    if (folder / "sweep.json").exists():
        return True
    if (folder / "detail.json.gz").exists():
        return False
    raise ConfigError(
        f"{folder} is no folder of results: it has no sweep.json (rostam sweep), detail.json.gz (rostam run),"
        " validation.json (rostam validate) or result.json of weeks (rostam fleet)"
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _check_manifest(manifest: Any, path: Path) -> None:
    if not isinstance(manifest, dict) or manifest.get("version") != MANIFEST_VERSION:
        found = manifest.get("version") if isinstance(manifest, dict) else None
        raise ConfigError(f"{path} has version {found!r}; this rostam reads version {MANIFEST_VERSION}")
    if manifest.get("mode") not in MODES:
        raise ConfigError(f"{path}: mode is {manifest.get('mode')!r}; allowed: {', '.join(MODES)}")
    axes = manifest.get("axes")
    if not isinstance(axes, list) or not all(
        isinstance(axis, dict) and {"key", "labels"} <= set(axis) for axis in axes
    ):
        raise ConfigError(f"{path}: axes must be a list of mappings with the keys key and labels")
