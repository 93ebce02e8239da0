"""Figures for papers: the page's numbers drawn by matplotlib, as PDF or SVG whose bytes only the numbers decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostam_py.errors import ConfigError

if TYPE_CHECKING:
    from rostam_py.report.drawing.figure import Figure

# What each format must be told to leave out to be the same at every writing.
_UNDATED = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}}
FORMATS = tuple(_UNDATED)
# TrueType fonts inside the PDF, outlines inside the SVG: neither needs a font of the reader's machine.
_SETTINGS: Any = {
    "pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "rostam", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6, "figure.figsize": (5.2, 3.4), "savefig.bbox": "tight",
}  # fmt: skip
_UNGRIDDED = ("strategy", "traffic", "drawing")


def check_formats(formats: Sequence[str]) -> None:
    """Raise ConfigError if a format is not one of FORMATS."""
    for one in formats:
        if one not in FORMATS:
            raise ConfigError(f"formats has {one!r}; allowed: {', '.join(FORMATS)}")


def write_static(figures: Sequence[Figure], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each figure that has a static form as ``folder``/NAME.FORMAT and return the paths.

    Raises: ConfigError for an unknown format.
    """
    check_formats(formats)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        if figure.paper is None:
            continue
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS}):
            sheet = Sheet()
            FigureCanvasAgg(sheet)
            axes = sheet.add_subplot()
            if figure.name.startswith(_UNGRIDDED):
                axes.grid(False)
            figure.paper(axes)
            for one in formats:
                path = folder / f"{figure.name}.{one}"
                sheet.savefig(path, format=one, metadata={**_UNDATED[one], "Title": figure.title})
                written.append(path)
    return written
