"""Traffic: sums, degrees, refusals; what schedules send."""

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.traffic import Traffic, schedule_traffic


def test_messages_are_summed_by_pair_and_self_and_empty_ones_dropped():
    traffic = Traffic.from_messages(4, [2, 0, 0, 1, 3], [1, 1, 1, 1, 0], [7, 10, 5, 9, 0])
    assert (traffic.src.tolist(), traffic.dst.tolist(), traffic.num_bytes.tolist()) == ([0, 2], [1, 1], [15, 7])
    assert traffic.src.dtype == traffic.dst.dtype == np.int64
    assert traffic.matrix().tolist() == [[0, 15, 0, 0], [0, 0, 0, 0], [0, 7, 0, 0], [0, 0, 0, 0]]
    assert traffic.total_bytes == 22


def test_degrees_count_peers_out_and_in_apart():
    traffic = Traffic.from_messages(4, [0, 0, 0, 1], [1, 2, 3, 2], np.ones(4))
    assert traffic.out_degree().tolist() == [3, 1, 0, 0]
    assert traffic.in_degree().tolist() == [0, 1, 2, 1]
    assert traffic.circuit_degree == 3
    assert Traffic.from_messages(4, [], [], []).circuit_degree == 0


def test_totals_and_parts():
    one = Traffic.from_messages(3, [0, 1], [1, 2], [1, 2])
    both = Traffic.total([one, Traffic.from_messages(3, [0, 2], [1, 0], [4, 8])])
    assert (both.src.tolist(), both.num_bytes.tolist()) == ([0, 1, 2], [5, 2, 8])
    assert both.only(np.array([0, 1])).num_bytes.tolist() == [5]
    with pytest.raises(ConfigError, match=r"traffics of \[2, 3\] accelerators cannot be summed"):
        Traffic.total([one, Traffic.from_messages(2, [0], [1], [1])])


@pytest.mark.parametrize(
    ("src", "dst", "num_bytes", "said"),
    [
        ([0], [4], [1], "traffic names accelerator 4; there are 0 to 3"),
        ([-1], [2], [1], "traffic names accelerator -1"),
        ([0], [1], [-1], "must be finite and >= 0"),
        ([0], [1], [float("nan")], "must be finite and >= 0"),
        ([0, 1], [1], [1], "have lengths 2, 1, 1"),
    ],
)
def test_bad_messages_are_refused(src, dst, num_bytes, said):
    with pytest.raises(ConfigError, match=said):
        Traffic.from_messages(4, src, dst, num_bytes)


@pytest.mark.parametrize(
    ("src", "dst", "num_bytes", "said"),
    [
        ([1, 0], [2, 1], [1, 1], "sorted by"),
        ([0, 0], [1, 1], [1, 1], "unique pairs"),
        ([1], [1], [1], "src != dst"),
        ([0], [1], [0], "> 0 for every pair"),
    ],
)
def test_the_constructor_takes_only_what_is_in_order(src, dst, num_bytes, said):
    with pytest.raises(ConfigError, match=said):
        Traffic(4, src, dst, num_bytes)


@pytest.mark.parametrize(("collective", "algorithm"), _core.schedule_names())
def test_schedule_traffic_equals_the_sum_of_all_transfers(collective, algorithm):
    ranks = 2 if collective == "send_recv" else 8
    grid = (4, 2) if _core.needs_grid(collective, algorithm) else None
    src, dst, num_bytes = schedule_traffic((collective, algorithm, ranks, 4, grid or ()), 1001)
    schedule = _core.Schedule(collective, algorithm, ranks, 4, grid or (0, 0))
    chunk = -(-1001 // schedule.num_chunks)
    expected = np.zeros((ranks, ranks))
    for rank in range(ranks):
        for step in range(schedule.num_steps):
            for transfer in schedule.sends(rank, step):
                expected[rank, transfer.peer] += transfer.num_chunks * chunk
    found = np.zeros((ranks, ranks))
    found[src, dst] = num_bytes
    assert np.array_equal(found, expected)
    assert num_bytes.sum() == schedule.total_chunks_sent * chunk


def test_a_ring_all_reduce_sends_to_one_peer_only():
    # 2 (p - 1) chunks of ceil(S / p) to the next rank.
    src, dst, num_bytes = schedule_traffic(("all_reduce", "ring", 256), 2**20)
    assert np.array_equal(dst, (src + 1) % 256)
    assert set(num_bytes.tolist()) == {2 * 255 * 2**12}
