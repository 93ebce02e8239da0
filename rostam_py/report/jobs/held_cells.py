"""Which job held most of a server, or of a board, at each of some moments.

Example:
    cells = held_cells(placements, [0.5, 1.5], size=8, units=[0, 4, 8])
    cells.owner[1, 0]       # of the server 4 at 0.5 s: a row of jobs.csv, FREE or FAILED
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rostam_py.fleet.queueing.placements import read_ranges

if TYPE_CHECKING:
    import polars

FREE, FAILED = -1, -2
# Neighbours in the order of submission look different; no colour of a job's is grey, which failed servers have.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_PALE = ("#8CBFDD", "#F4D28C", "#8CD2BD", "#E7C0D5", "#B3DDF5", "#ECB28C")
_FAILED = "#6E6E6E"


@dataclass(frozen=True)
class Cells:
    """owner: int array (units, moments). held: accelerators of the unit that jobs held then. size: of a unit."""

    owner: np.ndarray
    held: np.ndarray
    size: int

    @property
    def looks(self) -> np.ndarray:
        """A number for each cell's colour in ``colour_steps``: pale ones where jobs held less than half of the unit."""
        pale = len(COLOURS) * (2 * self.held < self.size)
        of_jobs = 2 + self.owner % len(COLOURS) + pale
        found: np.ndarray = np.where(self.owner == FREE, 0, np.where(self.owner == FAILED, 1, of_jobs))
        return found


def palette() -> tuple[str, ...]:
    """Return the colours of ``Cells.looks``; that of free cells is clear."""
    return ("rgba(0,0,0,0)", _FAILED, *COLOURS, *_PALE)


def heat_map_colours() -> dict[str, object]:
    """Return the same as a colour scale of steps, with its ends."""
    colours = palette()
    steps = [[(k + end) / len(colours), colour] for k, colour in enumerate(colours) for end in (0, 1)]
    return {"colorscale": steps, "zmin": -0.5, "zmax": len(colours) - 0.5, "showscale": False}


def held_cells(placements: polars.DataFrame, moments: Sequence[float], *, size: int, units: Sequence[int]) -> Cells:
    """Return who held what.

    Model: a cell is the job's that held most accelerators of the unit, the first by start of equals. One of which jobs
        held none is FAILED where any of its accelerators was, else FREE.
    Args: moments: ascending [s]. size: accelerators of a unit, consecutive. units: numbers, ascending, evenly spaced.
    Cost: a look at each placement that some moment lies in.
    """
    shape = (len(units), len(moments))
    best, held, failed = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    owner = np.full(shape, FREE, dtype=np.int64)
    first = np.searchsorted(moments, placements["start_s"].to_numpy(), side="left")
    end = np.searchsorted(moments, placements["end_s"].to_numpy(), side="left")
    seen = np.flatnonzero(first < end)
    for k in seen.tolist():
        job, _, _, text = placements.row(k)
        during = slice(first[k], end[k])
        for place, count in _counts(text, size, units):
            if job is None:
                failed[place, during] += count
                continue
            held[place, during] += count
            is_more = count > best[place, during]
            best[place, during][is_more] = count
            owner[place, during][is_more] = job
    owner[(held == 0) & (failed > 0)] = FAILED
    return Cells(owner, held, size)


def _counts(text: str, size: int, units: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of units that accelerators lie in, and how many of them each has."""
    step = units[1] - units[0] if len(units) > 1 else 1
    counts: dict[int, int] = {}
    for first, last in read_ranges(text):
        low = max(-(-(first // size - units[0]) // step), 0)
        high = min((last // size - units[0]) // step, len(units) - 1)
        for place in range(low, high + 1):
            begin = units[place] * size
            counts[place] = counts.get(place, 0) + min(last + 1, begin + size) - max(first, begin)
    yield from counts.items()
