"""A controller of the second core moves paths and adds and removes links; no byte is lost, in any engine."""

import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.simulation import controllers

# 3 MB from 0 to 1 at 1 GB/s: 1 MB by 1 ms, then 2 GB/s: 1 MB by 1.5 ms, then 4 GB/s: the last one by 1.75 ms.
MOVES = {"src": 0, "dst": 1, "time_ps": [10**9, 1_500_000_000], "bytes_per_s": [2e9, 4e9]}
KEPT = "links of every accelerator carry what it sends, receives and forwards"


def flat(count=2):
    return rostam.fabric("electrical_flat", num_accelerators=count, link_bandwidth=1e9, latency=0.0)


def test_it_is_listed():
    assert "wanderer" in controllers()


def test_a_flow_that_is_moved_twice_ends_when_its_bytes_say():
    result = rostam.run_flows(flat(), src=[0], dst=[1], num_bytes=[3_000_000], controllers=[("wanderer", MOVES)])
    assert result.finish_s[0] == pytest.approx(1.75e-3, abs=2e-12)
    assert KEPT in result.checks
    # What the fabric's own links carried: the first megabyte.
    assert result.link_bytes.max() == pytest.approx(1e6)


def test_a_message_of_a_session_that_is_moved_twice_does_so_too():
    result = rostam.run_collective(flat(), "send_recv", num_bytes=3_000_000, controllers=[("wanderer", MOVES)])
    assert result.time_s == pytest.approx(1.75e-3, abs=2e-12)
    assert KEPT in result.checks
    assert result.bytes_sent == result.bytes_received == 3_000_000


@pytest.mark.parametrize("fidelity", _core.engine_names())
@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "star"])
def test_collectives_go_on_over_links_that_come_and_go(fidelity, algorithm):
    run = {"algorithm": algorithm, "num_bytes": 4_000_000, "fidelity": fidelity}
    moved = rostam.run_collective(flat(4), "all_reduce", controllers=[("wanderer", MOVES)], **run)
    still = rostam.run_collective(flat(4), "all_reduce", fold=False, **run)
    assert moved.num_simulated_ranks == 4  # any link may change: nothing is folded
    assert moved.bytes_sent == moved.bytes_received == still.bytes_sent
    assert KEPT in moved.checks
    assert moved.time_ps <= still.time_ps  # its links are the faster ones


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("nobody", {})], "controllers names 'nobody'; registered: .*wanderer"),
        ("wanderer", "must be a list"),
        ([("wanderer",)], r"each must be a name, \(name, parameters\) or"),
        ([("wanderer", {"src": 0})], "controller wanderer needs"),
        ([("wanderer", {**MOVES, "colour": 3})], "controller wanderer has no colour; it takes src, dst"),
        ([("wanderer", {**MOVES, "src": None})], "wanderer.src"),
        ([("link_bandwidth", {"time_ps": [0], "link": [99], "bytes_per_s": [1.0]})], "link 99"),
        ([("link_bandwidth", {"time_ps": [0], "link": [0, 1], "bytes_per_s": [1.0]})], "1 times, 2 links"),
    ],
)
def test_controllers_that_cannot_be_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        rostam.run_flows(flat(), src=[0], dst=[1], num_bytes=[1], controllers=given)
