"""SweepResult: the table of a sweep, and where it is kept."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.html import html_pairs, html_table
from rostam_py.units import format_time


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep.

    folder: holds points.parquet, points.csv, sweep.json, details and the store. table: polars frame, one row per point
    in point order; columns as in ``rostam_py.sweep.columns``. manifest: title, axes, versions.
    """

    folder: Path
    table: Any = field(repr=False)
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def load(cls, folder: str | Path) -> "SweepResult":
        """Read a sweep's folder; while the sweep runs, or after it was stopped, what was finished a minute ago.

        Raises: ConfigError if there is none.
        """
        import polars as pl

        folder = Path(folder)
        if not (folder / "points.parquet").exists():
            raise ConfigError(f"{folder} holds no points.parquet: give the sweep's command again")
        try:
            manifest = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
            table = pl.read_parquet(folder / "points.parquet")
        except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError) as error:
            raise ConfigError(
                f"{folder} is damaged: {str(error).splitlines()[0]}; give the sweep's command again"
            ) from error
        return cls(folder, table, manifest)

    @property
    def num_points(self) -> int:
        """Points, those that failed included."""
        return int(self.table.height)

    @property
    def num_errors(self) -> int:
        """Points that ended in an error."""
        return int((self.table["status"] == "error").sum())

    @property
    def is_complete(self) -> bool:
        """Whether the table holds every point of the sweep."""
        return self.num_points == self.manifest["num_points"]

    @property
    def goal(self) -> str:
        """The column that ``best`` minimises: time to accuracy, the mean slow-down of mixes, or time per sample.

        Iterations of different batches do different work, so their times are not compared (MODEL K31).
        """
        columns = ("time_to_accuracy_s", "slowdown_mean")
        return next((name for name in columns if self.table[name].null_count() < self.num_points), "time_per_sample_s")

    def best(self, count: int = 1) -> Any:
        """Return the rows with the least ``goal``, best first, and time_per_sample_s: iteration time / global batch."""
        import polars as pl

        per_sample = (pl.col("iteration_time_s") / pl.col("global_batch")).alias("time_per_sample_s")
        done = self.table.filter(pl.col("status") == "ok").with_columns(per_sample)
        return done.sort(self.goal, "index", nulls_last=True).head(count)

    def _repr_html_(self) -> str:
        axes = " x ".join(f"{axis['key']} ({len(axis['labels'])})" for axis in self.manifest["axes"])
        pairs = {"points": f"{self.num_points:,}", "errors": f"{self.num_errors:,}", "axes": axes}
        keys = [axis["key"] for axis in self.manifest["axes"]]
        rows = [
            {
                **{key: row[key] for key in keys},
                "strategy": row["strategy"],
                self.goal: _shown(self.goal, row[self.goal]),
            }
            for row in self.best(8).iter_rows(named=True)
        ]
        return html_pairs(self.manifest["title"], pairs) + html_table("best points", rows)


def _shown(name: str, value: float | None) -> str | None:
    if value is None:
        return None
    return format_time(value) if name.endswith("_s") else f"{value:.3f} x"
