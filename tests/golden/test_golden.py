"""Results are what they were, to the picosecond and the byte; regenerate.py renews them and the commit says why."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from golden_cases import CASES  # noqa: E402  (found by the line above)
from golden_runs import as_recorded, run_case  # noqa: E402

pytestmark = pytest.mark.always

RECORDED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_result_is_the_recorded_one(case):
    recorded = RECORDED[case.kind][case.name]
    found = json.loads(json.dumps(as_recorded(run_case(case))))
    different = {key: (recorded.get(key), value) for key, value in found.items() if recorded.get(key) != value}
    assert not different, f"(recorded, found) of {case.kind}: {case.name}"
    assert list(found) == list(recorded)


def test_every_case_is_recorded_and_every_record_has_a_case():
    assert {kind: list(results) for kind, results in RECORDED.items()} == {
        kind: [case.name for case in CASES if case.kind == kind] for kind in RECORDED
    }
    assert {case.kind for case in CASES} == set(RECORDED)
    assert len({(case.kind, case.name) for case in CASES}) == len(CASES)
