"""Small results are what they were, to the byte; regenerate.py renews them and the commit says why."""

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def load_script():
    spec = importlib.util.spec_from_file_location("golden_regenerate", FOLDER / "regenerate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", ["circuits", "collectives", "flows", "grids", "plans"])
def test_results_are_the_recorded_ones(case):
    script = load_script()
    recorded = (FOLDER / f"{case}.json").read_text(encoding="utf-8")
    text = script.as_text(case)
    assert json.loads(text) == json.loads(recorded)
    assert text == recorded


def test_every_case_is_recorded():
    assert set(load_script().CASES) == {path.stem for path in FOLDER.glob("*.json")}
