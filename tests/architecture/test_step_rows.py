"""Measured steps are for judging alone (MODEL 32): nothing but the validation, and its tests, reads them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READERS = ("rostam_py/validation/", "rostam_py/report/validation/", "rostam_py/cli/")
SEARCHED = ("rostam_py", "csrc", "models", "configs", "calibration", "benchmarks", "setup.py")
# What decides how long something takes.
TIMED = ("csrc/", "calibration/", *(f"rostam_py/{name}/" for name in (
    "costs", "collectives", "fabrics", "machines", "plan", "placement", "simulation")))  # fmt: skip
# Files of measured steps, and imports of what reads them.
MENTIONS = re.compile(
    r"data/steps|megatron_bridge\.csv|torchtitan\.csv|mlperf_v51|validation/data|rostam_py\.validation"
)
# Figures of the published tables that would be recognised anywhere: what a constant fitted to a row would hold.
FIGURES = re.compile(
    r"(?<![\d.])(18\.13|13\.75|49\.05|37\.83|408\.8|489\.1|419\.7|432\.8|459\.9|55\.9e-3|0\.0559|4\.84e-3)(?!\d)"
)


def sources():
    for name in SEARCHED:
        top = ROOT / name
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in files:
            place = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".cpp", ".h", ".yaml", ".json") and not place.startswith(READERS[:2]):
                yield place, path


def lines_with(pattern, text):
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


def test_nothing_outside_the_validation_reads_measured_steps():
    found = {
        place: lines_with(MENTIONS, path.read_text(encoding="utf-8"))
        for place, path in sources() if not place.startswith(READERS) and place != "setup.py"
    }  # fmt: skip
    assert {place: lines for place, lines in found.items() if lines} == {}


def test_no_published_figure_of_a_step_stands_in_what_times_things():
    found = {
        place: lines_with(FIGURES, path.read_text(encoding="utf-8"))
        for place, path in sources()
        if place.startswith(TIMED) and path.suffix in (".py", ".cpp", ".h")
    }
    assert {place: lines for place, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MENTIONS, "rows = read('data/steps/torchtitan.csv')"),
        (MENTIONS, "from rostam_py.validation.tables import select"),
        (FIGURES, "FACTOR = 18.13 / 15.2"),
    ],
)
def test_the_search_would_find_a_reader(pattern, line):
    assert lines_with(pattern, f"x = 1\n{line}\n") == [line]
