"""Windows: which devices of a group may exchange data, and the way between those that may not."""

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.placement.sip_ml.window import make_window


def peers(window, device):
    """Return the devices that one may send to."""
    return {j for j in range(window.num_devices) if window.holds(device, j)} - {device}


@pytest.mark.parametrize(
    ("degree", "num_devices", "has_ring", "kind", "steps"),
    [
        (None, 64, True, "symmetric", None),
        (8, 8, True, "symmetric", None),  # all 7 others and the ring are 8 circuits
        (8, 9, True, "symmetric", {1, 2, 3, -1, -2, -3}),  # and the ring's are 7; 4 to either side would be 9
        (7, 9, True, "symmetric", {1, 2, 3, -1, -2, -3}),
        (8, 9, True, "paper", {1, 2, 3, 4, 5, 6, 7}),  # and the ring
        (8, 9, False, "symmetric", None),  # without a ring all 8 others
        (7, 8, False, "symmetric", None),
        (7, 9, False, "paper", {1, 2, 3, 4, 5, 6, 7}),
        (7, 9, False, "symmetric", {1, 2, 3, -1, -2, -3}),
        (8, 10, False, "symmetric", {1, 2, 3, 4, -1, -2, -3, -4}),
        (1, 2, True, "paper", set()),
    ],
)
def test_a_circuit_is_kept_for_the_data_parallel_ring_if_there_is_one(degree, num_devices, has_ring, kind, steps):
    window = make_window(num_devices, degree, kind=kind, has_ring=has_ring)
    if steps is None:
        assert window is None
        return
    for device in range(num_devices):
        assert peers(window, device) == {(device + step) % num_devices for step in steps}


def test_devices_in_range_of_one_another():
    assert make_window(16, 8).clique == 4  # 3 to either side
    assert make_window(16, 15).clique == 8  # all but the opposite one
    assert make_window(16, 15, kind="paper").clique == 1  # all but the one before, which is the next one's neighbour


@pytest.mark.parametrize(("degree", "kind"), [(3, "symmetric"), (8, "symmetric"), (15, "symmetric"), (8, "paper")])
def test_ways_take_the_fewest_hops_and_stay_in_the_window(degree, kind):
    k = 16
    window = make_window(k, degree, kind=kind)
    ahead = (degree - 1) // 2 if kind == "symmetric" else degree - 1
    for i in range(k):
        for j in set(range(k)) - {i}:
            way = window.path(i, j)
            assert way[-1] == j
            assert all(window.holds(a, b) for a, b in zip([i, *way], way, strict=False))
            step = (j - i) % k
            assert len(way) == -(-(min(step, k - step) if kind == "symmetric" else step) // ahead)


def test_what_a_fabric_cannot_connect_is_out_of_the_window():
    # Eight devices in a row of reach 2: the ends are out of each other's range, also without a limit of circuits.
    line = np.abs(np.subtract.outer(np.arange(8), np.arange(8))) <= 2
    window = make_window(8, None, connected=line)
    assert peers(window, 0) == {1, 2}
    assert peers(window, 4) == {2, 3, 5, 6}
    assert len(window.path(0, 7)) == 4
    assert peers(make_window(8, 3, connected=line), 0) == {1}


def test_unknown_window_is_refused():
    with pytest.raises(ConfigError, match=r"strategy\.placing\.window is 'ring'.*symmetric, paper"):
        make_window(8, 4, kind="ring")
