"""How a sweep's points are read: which column makes the lines, which the x axis, and which point stands for a place.

At one place (a line at one x) stands one point: of the seeds of one setting the middle one, of the settings the one
with the least middle. So a lucky seed never makes a setting look good.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.scales import Look, Scale, bandwidth_scale, looks, named_label, number
from rostam_py.report.sweep.load import SweepData

if TYPE_CHECKING:
    import polars

BANDWIDTH = "accelerator_bandwidth_bytes_per_s"
SIZE = "num_accelerators"
# More lines than this cannot be told apart; then the fastest are drawn.
MOST_NAMES = 4  # that a caption lists
MOST_LINES = 21
GOALS = {"time_to_accuracy_s": "time to accuracy", "time_per_sample_s": "time per sample"}


_BETWEEN_JOBS = " | "


def has_values(table: polars.DataFrame, column: str) -> bool:
    """Say whether a table has a column that is not all null."""
    return column in table.columns and table[column].null_count() < len(table)


@dataclass(frozen=True)
class ModelPoints:
    """The finished points of one model.

    goal: the column that is to be small, a key of GOALS. rows: points with a goal. best: one row per place, with
    goal_min, goal_max, num_seeds and num_settings next to the standing point's own columns. settings: middle points of
    all settings, not only of the best ones. num_lines: those that there are; best and settings hold the fastest
    MOST_LINES of them.
    """

    model: str
    goal: str
    rows: polars.DataFrame
    best: polars.DataFrame
    settings: polars.DataFrame
    num_lines: int

    @property
    def goal_words(self) -> str:
        """Return what ``goal`` is called."""
        return GOALS[self.goal]


@dataclass(frozen=True)
class Reading:
    """A sweep, read: line and x are columns of its table; x is None where nothing suits."""

    data: SweepData

    @cached_property
    def seeds(self) -> list[str]:
        """Return the axes that only draw random numbers anew."""
        return [key for key in self.data.axes if key == "seed" or key.endswith(".seed")]

    @cached_property
    def line(self) -> str:
        """Return the column of which each label is a line: case, else fabric, else the first other axis that varies."""
        axes = self.data.axes
        if "case" in axes:
            return "case"
        table = self.data.finished()
        taken = {"model", "fabric", SIZE, "num_jobs", "mix.num_jobs", *self.seeds}
        others = [key for key in axes if key not in taken and not key.endswith("bandwidth")]
        varies = "fabric" in table.columns and table["fabric"].n_unique() > 1
        if varies:
            return "fabric"
        return next((key for key in others if self.data.labels_of(table, key).n_unique() > 1), "fabric")

    @cached_property
    def lines(self) -> list[str]:
        """Return the names of lines that have finished points, in the manifest's order."""
        present = self.table["line"].unique(maintain_order=True).to_list()
        labels = self.data.axes.get(self.line, [])
        order = {named_label(self.line, label): index for index, label in enumerate(labels)}
        return sorted(present, key=lambda one: order.get(one, len(order)))

    @cached_property
    def _labels(self) -> polars.Series:
        """Return the line's label at every finished point, as the axis has it; "-" where there is none."""
        import polars as pl

        table = self.data.finished()
        if self.line not in table.columns:
            return pl.Series(["-"] * len(table), dtype=pl.String)
        return self.data.labels_of(table, self.line).fill_null("-")

    @cached_property
    def _names(self) -> dict[str, str]:
        """Return what the lines are called, by label: "5" failed links are "links 5"."""
        return {label: named_label(self.line, label) for label in self._labels.unique(maintain_order=True)}

    @cached_property
    def looks(self) -> dict[str, Look]:
        """Return how each line is drawn, the same in all figures."""
        return looks(self.lines)

    @cached_property
    def table(self) -> polars.DataFrame:
        """Return the finished points with a "line" column (names, never null) and time_per_sample_s."""
        import polars as pl

        table = self.data.finished()
        table = table.with_columns(self._labels.replace(self._names).alias("line"))
        if has_values(table, "samples_per_s"):
            return table.with_columns((1 / pl.col("samples_per_s")).alias("time_per_sample_s"))
        return table.with_columns(pl.lit(None, pl.Float64).alias("time_per_sample_s"))

    @cached_property
    def x(self) -> str | None:
        """Return the x column: bandwidth, else number of accelerators, if some line has more than one value of it."""
        import polars as pl

        for column in (BANDWIDTH, SIZE):
            if has_values(self.table, column):
                counts = self.table.group_by("line").agg(pl.col(column).drop_nulls().n_unique())[column]
                if counts.max() > 1:  # type: ignore[operator]
                    return column
        return None

    @cached_property
    def models(self) -> list[ModelPoints]:
        """Return the models that have times, in the manifest's order."""
        if "model" not in self.table.columns or self.data.mode == "mix":
            return []
        present = self.table["model"].drop_nulls().unique(maintain_order=True).to_list()
        order = {label: index for index, label in enumerate(self.data.axes.get("model", []))}
        found = [self._of_model(one) for one in sorted(present, key=lambda one: order.get(one, len(order)))]
        return [one for one in found if len(one.rows)]

    @property
    def by(self) -> list[str]:
        """Return the columns that make a place."""
        return ["line", self.x] if self.x else ["line"]

    def figure_table(self, rows: polars.DataFrame, *columns: str | polars.Expr) -> polars.DataFrame:
        """Return what a figure's CSV holds: the line's labels, as the axis has them, then x, then ``columns``.

        Columns that ``rows`` lacks are left out, and so is one of the line's name, which holds the same.
        """
        import polars as pl

        labels = {name: label for label, name in self._names.items()}
        taken = {self.line, self.x}
        kept = [one for one in columns if not isinstance(one, str) or (one in rows.columns and one not in taken)]
        where = [self.x] if self.x and self.x in rows.columns else []
        return rows.select(pl.col("line").replace(labels).alias(self.line), *where, *kept)

    def x_scale(self) -> Scale:
        """Return the unit of the x axis."""
        if self.x == BANDWIDTH:
            return bandwidth_scale(self.table[BANDWIDTH].drop_nulls().unique().to_list())
        return Scale("", 1.0)

    def x_words(self) -> str:
        """Return the title of the x axis."""
        return self.x_scale().title("bandwidth per accelerator") if self.x == BANDWIDTH else "accelerators"

    def x_label(self, value: float) -> str:
        """Return an x value in words: "400 Gb/s" or "256 accelerators"."""
        scale = self.x_scale()
        return f"{number(value * scale.factor)} {scale.unit or 'accelerators'}"

    def _of_model(self, model: str) -> ModelPoints:
        import polars as pl

        rows = self.table.filter(pl.col("model") == model)
        goal = "time_to_accuracy_s" if has_values(rows, "time_to_accuracy_s") else "time_per_sample_s"
        rows = rows.filter(pl.col(goal).is_finite(), *([pl.col(self.x).is_not_null()] if self.x else []))
        settings = middle_points(rows, goal, self._settings(), self.by)
        ranked = settings.group_by("line").agg(pl.col(goal).min()).sort(goal, "line")["line"]
        if len(ranked) > MOST_LINES:
            settings = settings.filter(pl.col("line").is_in(ranked.head(MOST_LINES).to_list()))
        places = settings.sort(goal, "index").group_by(self.by, maintain_order=True)
        best = places.agg(pl.all().first(), pl.len().alias("num_settings"))
        return ModelPoints(model, goal, rows, self._ordered(best), settings, len(ranked))

    def _settings(self) -> list[str]:
        """Return the axes that make neither the line nor seeds."""
        axes = [*self.data.axes, *(one for one in (BANDWIDTH, SIZE) if one in self.table.columns)]
        taken = {self.line, *self.by, *self.seeds}
        return [key for key in dict.fromkeys(axes) if key not in taken]

    def _ordered(self, best: polars.DataFrame) -> polars.DataFrame:
        import polars as pl

        best = best.with_columns(pl.col("line").cast(pl.Enum(self.lines)))
        return best.sort(self.by).with_columns(pl.col("line").cast(pl.String))

    def varied(self, points: ModelPoints) -> list[str]:
        """Return the settings of which the best is shown: those that vary at some place."""
        if not len(points.settings):
            return []
        counts = points.settings.group_by(self.by).n_unique()
        return [key for key in self._settings() if counts[key].max() > 1]  # type: ignore[operator]

    def conditions(self, rows: polars.DataFrame) -> str:
        """Return how the rows' networks were used: routing and algorithms, except what the lines are."""
        words = {
            "routing": ("Routing", "Routings"), "algorithms": ("Algorithms", "Algorithms"),
            "controllers": ("Controllers", "Controllers"),
        }  # fmt: skip
        said = []
        for column, (one, several) in words.items():
            if self.line == column or not has_values(rows, column):
                continue
            names = rows[column].fill_null("none").unique().sort().to_list()
            if has_values(rows, "jobs"):  # of a mix those of different jobs stand side by side
                names = sorted({part for name in names for part in name.split(_BETWEEN_JOBS)})
            if len(names) == 1:
                said.append(f"{one}: {names[0]}.")
            elif len(names) <= MOST_NAMES:
                joined = (", " if column == "routing" else _BETWEEN_JOBS).join(names)
                where = "jobs" if has_values(rows, "jobs") and column == "algorithms" else "points"
                said.append(f"{several} differ between {where}: {joined}.")
            else:
                said.append(f"{several} differ between points: see the table.")
        return " ".join(said)

    def standing(self, points: ModelPoints) -> str:
        """Return a sentence or two that say which points are drawn, under which routing and with which algorithms."""
        words = [self.conditions(points.best)]
        if points.num_lines > MOST_LINES:
            words.append(f"Only the {MOST_LINES} fastest of {points.num_lines:,} ({self.line}) are drawn.")
        varied = self.varied(points)
        if varied:
            most: Any = points.best["num_settings"].max()
            words.append(f"Each point is the best of up to {most:,} settings of {', '.join(varied)}.")
        seeds: Any = points.best["num_seeds"].max()
        if seeds > 1:
            words.append(f"Of up to {seeds:,} seeds the middle one is drawn.")
        return " ".join(word for word in words if word)


def middle_points(rows: polars.DataFrame, goal: str, settings: list[str], by: list[str]) -> polars.DataFrame:
    """Return one point per setting and place: that with the (lower) median of ``goal`` over the seeds.

    Adds goal_min, goal_max and num_seeds.
    """
    import polars as pl

    groups = rows.sort(goal, "index").group_by([*by, *settings], maintain_order=True)
    middles = groups.agg(
        pl.col("index").get((pl.len() - 1) // 2), pl.col(goal).min().alias("goal_min"),
        pl.col(goal).max().alias("goal_max"), pl.len().alias("num_seeds"),
    )  # fmt: skip
    extra = middles.select("index", "goal_min", "goal_max", "num_seeds")
    return rows.join(extra, on="index", how="inner", maintain_order="left")
