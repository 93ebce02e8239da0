"""Of every experiment that ships points one is computed anew: its program runs, and gives what is shipped."""

import json
import sys

import pytest

from rostam_py.reproduction import experiments_in

TIMED = "search_all_axes"  # its points hold CPU seconds
KNOWN = {name: one for name, one in experiments_in().items() if (one.folder / "points.json").exists() and name != TIMED}


def close(anew, kept):
    """Say whether a point is the kept one, numbers to the last digits that JSON and sums keep."""
    if isinstance(kept, dict):
        return anew.keys() == kept.keys() and all(close(anew[key], kept[key]) for key in kept)
    if isinstance(kept, list):
        return len(anew) == len(kept) and all(map(close, anew, kept))
    return anew == pytest.approx(kept, rel=1e-9) if isinstance(kept, float) else anew == kept


class _FoundError(Exception):
    """Ends an experiment that has asked for its point."""


@pytest.mark.slow  # 10 to 100 CPU seconds each
@pytest.mark.parametrize("name", KNOWN)
def test_the_first_point_is_computed_anew(name, monkeypatch, tmp_path):
    experiment = KNOWN[name]
    kept = json.loads((experiment.folder / "points.json").read_text())["points"]
    module = experiment.load()
    asked = []

    def keep(self, key, compute):
        asked.append((key, json.loads(json.dumps(compute()))))
        raise _FoundError

    monkeypatch.setattr(sys.modules["searched_points"].SearchedPoints, "keep", keep)
    with pytest.raises(_FoundError):
        module.figures(tmp_path / "points.json")
    ((key, anew),) = asked
    assert close(anew, kept[key]), key
