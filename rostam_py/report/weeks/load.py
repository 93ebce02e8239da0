"""Read what ``rostam fleet`` left in its folder.

weeks = load_weeks("runs/fleet-mine"); weeks.document["policies"]["spares"]["goodput"]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.report.fleet_folder import is_folder_of, read_document
from rostam_py.report.run.load import existing_folder, read_file

if TYPE_CHECKING:
    import polars

FORMAT, VERSION = "rostam-weeks", 1
_DOWN = "down.csv"


@dataclass(frozen=True)
class WeeksData:
    """What weeks came to. document: of result.json. down: day, servers_down, most_servers_down; a row for each change.

    folder: its name.
    """

    document: dict[str, Any]
    down: polars.DataFrame
    folder: str = ""

    @property
    def policies(self) -> dict[str, dict[str, Any]]:
        """Results by policy, in the order in which they were asked for."""
        return dict(self.document["policies"])

    @property
    def days(self) -> float:
        """Length of the window [days]."""
        return float(self.document["faults"]["window_s"]) / DAY_S

    @property
    def unit(self) -> str:
        """What is trained: tokens, or samples of a model without a sequence."""
        return "tokens" if self.document["tokens_per_sample"] else "samples"

    @property
    def per_iteration(self) -> float:
        """Tokens, or samples, of an iteration of the whole global batch."""
        return float(self.document["global_batch"]) * float(self.document["tokens_per_sample"] or 1)


def is_weeks_folder(folder: str | Path) -> bool:
    """Say whether a folder is of ``rostam fleet``."""
    return is_folder_of(folder, FORMAT, _DOWN)


def load_weeks(folder: str | Path) -> WeeksData:
    """Return what a folder of ``rostam fleet`` holds.

    Raises: ConfigError if a file is missing, damaged, or of a version that this rostam does not read.
    """
    import polars as pl

    where = existing_folder(folder)
    document = read_document(where, VERSION, "rostam fleet writes one")
    down = read_file(where / _DOWN, pl.read_csv, "rostam fleet writes one")
    return WeeksData(document, down.cast({"day": pl.Float64, "servers_down": pl.Float64}), where.name)
