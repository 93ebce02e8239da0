"""The peak of memory against torch's MemTracker, which runs in the captured program itself."""

import pytest

from tests.capturing.captured import SCRIPTS, document


@pytest.mark.parametrize("words", [(), ("--checkpoint",)])
def test_the_peak_of_fsdp2_is_mem_trackers(words, tmp_path):
    """Within 5%: weights, their gradients and states are sharded over 8 ranks, activations are whole."""
    path = tmp_path / "peak"
    program = document(SCRIPTS / "tracked.py", 8, str(path), *words, ranks=(0,))
    kind, peak = path.read_text().split()
    assert kind == "cuda"
    memory = program["roles"]["rank"]["memory"]
    assert memory["peak"] - memory["reserved"] == pytest.approx(int(peak), rel=0.05)
