"""Cells of the allocation map against a count of every accelerator at every moment."""

import random

import numpy as np
import polars as pl
import pytest

from rostam_py.fleet.queueing.placements import ranges
from rostam_py.report.jobs.held_cells import COLOURS, FAILED, FREE, held_cells, palette


def drawn(seed, total=60):
    """Return placements that do not overlap, by start: each accelerator's time is dealt out in turn."""
    draw = random.Random(seed)
    free_from, rows = [0.0] * total, []
    for job in range(80):
        held = sorted(draw.sample(range(total), draw.choice([1, 2, 5, 13, 24])))
        start = max(free_from[one] for one in held) + draw.choice([0, 0, 7])
        for one in held:
            free_from[one] = start + draw.choice([1, 20, 90])
        end = min(free_from[one] for one in held)
        rows.append((None if job % 9 == 0 else job, start, end, ranges(held)))
    schema = {"job": pl.Int64, "start_s": pl.Float64, "end_s": pl.Float64, "accelerators": pl.String}
    return pl.DataFrame(sorted(rows, key=lambda row: row[1]), schema=schema, orient="row")


def holders(placements, moment):
    """Return accelerator -> (place in the table, job) at a moment."""
    found = {}
    for place, (job, start, end, text) in enumerate(placements.iter_rows()):
        if start <= moment < end:
            for one in text.split():
                first, _, last = one.partition("-")
                for member in range(int(first), int(last or first) + 1):
                    assert member not in found
                    found[member] = (place, job)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("size", "step"), [(8, 1), (4, 3), (1, 1), (60, 1)])
def test_cells_are_those_of_every_accelerator(seed, size, step):
    placements = drawn(seed)
    moments = [0.0, 3.5, *(10.25 * k for k in range(1, 40))]
    units = range(0, -(-60 // size), step)
    cells = held_cells(placements, moments, size=size, units=units)
    for k, moment in enumerate(moments):
        by_member = holders(placements, moment)
        for place, unit in enumerate(units):
            inside = [by_member[one] for one in range(unit * size, unit * size + size) if one in by_member]
            of_jobs = [one for one in inside if one[1] is not None]
            counts = {one: of_jobs.count(one) for one in of_jobs}
            most = min(counts, key=lambda one: (-counts[one], one[0])) if counts else None
            wanted = most[1] if most else FAILED if inside else FREE
            assert cells.owner[place, k] == wanted
            assert cells.held[place, k] == len(of_jobs)
    assert (cells.owner >= 0).any()


def test_a_cell_is_pale_where_jobs_held_less_than_half():
    rows = [(0, 0.0, 10.0, "0-3"), (7, 0.0, 10.0, "8-10"), (None, 0.0, 10.0, "16-23")]
    schema = {"job": pl.Int64, "start_s": pl.Float64, "end_s": pl.Float64, "accelerators": pl.String}
    cells = held_cells(pl.DataFrame(rows, schema=schema, orient="row"), [5.0, 15.0], size=8, units=range(4))
    count = len(COLOURS)
    assert cells.looks.tolist() == [[2, 0], [2 + 7 % count + count, 0], [1, 0], [0, 0]]
    assert np.max(cells.looks) < len(palette())
