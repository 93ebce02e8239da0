"""The README's picture shows what is simulated today: a part of the data next to it is simulated again."""

import csv
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def picture():
    """docs/picture.py, which is no module of the package."""
    spec = importlib.util.spec_from_file_location("picture", ROOT / "docs" / "picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept():
    """Return the data next to the picture, by fabric, bandwidth and degree."""
    with (ROOT / "docs" / "images" / "report.csv").open(newline="") as file:
        return {tuple(row.values())[:3]: float(row["iteration_time_s"]) for row in csv.DictReader(file)}


def test_the_data_are_a_point_for_each_of_the_grid(picture):
    expected = 1
    for values in picture.GRID.values():
        expected *= len(values)
    assert len(kept()) == expected


@pytest.mark.always
def test_the_data_of_the_picture_are_those_of_today(picture, tmp_path, capsys):
    grid = picture.GRID | {picture.BANDWIDTH: ["200 Gb/s", "1600 Gb/s"], "strategy.tp": [1, 8]}
    found = list(picture.rows(grid, tmp_path))
    assert len(found) == 4 * len(grid["fabric"])
    data = kept()
    for row in found:
        point = tuple(row.values())[:3]
        assert float(row["iteration_time_s"]) == pytest.approx(data[point], rel=1e-9), f"{point}: run make docs"
