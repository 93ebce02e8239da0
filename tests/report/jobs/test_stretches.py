"""Stretches of a series by hand: rows are joined by their lengths, of which the last is shorter."""

import polars as pl
import pytest

from rostam_py.report.jobs import stretches
from rostam_py.report.jobs.load import JobsData
from rostam_py.report.jobs.size_classes import size_classes


def test_a_shorter_last_row_counts_less(monkeypatch):
    starts, held = [0.0, 60.0, 120.0, 180.0, 240.0], [1.0, 3.0, 5.0, 8.0, 80.0]
    series = pl.DataFrame({"start_s": starts, "end_s": [*starts[1:], 252.0], "held": held})
    data = JobsData({"window_s": 252.0}, pl.DataFrame(), series, pl.DataFrame())
    assert stretches.stretches(data)["held"].to_list() == held
    monkeypatch.setattr(stretches, "MOST", 2)
    table = stretches.stretches(data)
    assert table["from_day"].to_list() == [0, 180 / 86_400]
    assert table["to_day"].to_list() == pytest.approx([180 / 86_400, 252 / 86_400])
    assert table["held"].to_list() == pytest.approx([3, (60 * 8 + 12 * 80) / 72])
    assert stretches.each_said(table) == "Means of 3 min each."


def test_few_sizes_are_classes_and_many_are_joined_by_powers_of_two():
    assert size_classes([8, 1, 8, 2_048]) == {"1": (1, 1), "8": (8, 8), "2,048": (2_048, 2_048)}
    sizes = [1, 2, 3, 4, 5, 8, 9, 11, 12, 40, 63, 64, 65, 1_025]
    found = size_classes(sizes)
    assert list(found) == ["1", "2", "3-4", "5-8", "9-16", "33-64", "65-128", "1,025-2,048"]
    for size in sizes:
        assert sum(least <= size <= most for least, most in found.values()) == 1
