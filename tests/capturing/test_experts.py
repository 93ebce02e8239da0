"""Routed experts: counts that a program computes stay numbers, and so do the parts of its all-to-alls."""

import json
import tempfile

import pytest

from rostam_py.capturing.front import DEFAULT_GPU, _request, captured_document
from tests.capturing.captured import SCRIPTS

WORLD, EXPERTS, ENTRIES, WIDTH = 4, 8, 512, 64  # experts of all ranks; chosen ones of a rank's 256 tokens, two each


def exchanges(splits):
    """Return (bytes, parts) of the all-to-alls of one step, by role."""
    with tempfile.TemporaryDirectory() as folder:
        request = _request(
            ["python", str(SCRIPTS / "experts.py")], folder, world=WORLD, step=None, ranks=None, gpu=DEFAULT_GPU,
            stub=(), splits=splits,
        )  # fmt: skip
        program = captured_document(request, ())
    return {
        "".join(map(str, role["ranks"])): [
            (one.get("num_bytes"), one.get("send_bytes"))
            for one in role["steps"]
            if one.get("collective") == "all_to_all"
        ]
        for role in program["roles"].values()
    }


def test_balanced_experts_get_equal_parts():
    """Counts of eight experts in eight bytes each; tokens there and back, and the gradients of what came back."""
    row = 4 * WIDTH
    assert exchanges("balanced") == {"0-3": [(8 * EXPERTS, None), *[(ENTRIES * row, None)] * 3]}


def test_loads_of_a_file_make_parts_unequal(tmp_path):
    """10 of 16 choices are of the first rank's experts, 2 of each other's: what comes back is what was received."""
    path = tmp_path / "loads.json"
    path.write_text(json.dumps([8, 2, 1, 1, 1, 1, 1, 1]))
    row = 4 * WIDTH
    sent = (None, [320 * row, 64 * row, 64 * row, 64 * row])
    counts = (8 * EXPERTS, None)
    assert exchanges(path) == {
        "0": [counts, sent, (4 * 320 * row, None), sent], "1-3": [counts, sent, (4 * 64 * row, None), sent],
    }  # fmt: skip


@pytest.mark.parametrize("splits", ["none.json"])
def test_a_file_that_is_not_there_is_refused(splits):
    with pytest.raises(Exception, match="it must be 'balanced' or a JSON file"):
        exchanges(splits)
