"""One file and one line each: parts of the second core are found by name and keep the core's promises."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError

# A torus has neither servers nor switches that reduce, which models of bandwidth need.
ALL_REDUCES = [
    algorithm
    for collective, algorithm in _core.schedule_names()
    if collective == "all_reduce" and not _core.models_bandwidth(collective, algorithm)
]


def islands(**changes):
    """Return 12 accelerators on 3 groups of 2 switches at 100 Gb/s a link."""
    return rostam.fabric("islands", **{"groups": 3, "link_bandwidth": "100 Gb/s", "link_latency": "1 us"} | changes)


def test_parts_are_in_the_lists():
    assert "islands" in _core.fabric_names()
    assert "lowest" in _core.routing_names()
    assert "unshared" in _core.engine_names()
    assert ("all_reduce", "star") in _core.schedule_names()


def test_paths_go_local_global_local_where_a_shorter_way_is_not_allowed():
    """From place 0 of group 0 to place 1 of group 1: the local hop may come before or behind the global one."""
    fabric = islands()
    result = rostam.run_flows(fabric, src=[0], dst=[6], num_bytes=[12_500_000], routing="spray")
    # Up, local and global in either order, down: 4 links of 1 us; 12.5 MB at 100 Gb/s last 1 ms.
    assert result.finish_s[0] == pytest.approx(1e-3 + 4e-6, abs=1e-12)
    used = np.flatnonzero(result.link_bytes)
    assert len(used) == 6  # two up and down, two ways of two links between
    lowest = rostam.run_flows(fabric, src=[0], dst=[6], num_bytes=[12_500_000], routing="lowest")
    assert lowest.finish_s[0] == result.finish_s[0]
    assert len(np.flatnonzero(lowest.link_bytes)) == 4


@pytest.mark.parametrize("routing", _core.routing_names())
@pytest.mark.parametrize("fidelity", _core.engine_names())
def test_star_takes_its_closed_form_on_every_engine_and_routing(fidelity, routing):
    fabric = rostam.fabric("electrical_flat", num_accelerators=5, link_bandwidth="8 Gb/s", latency="1 us")
    keys = {"num_bytes": 10**6, "algorithm": "star", "fidelity": fidelity, "routing": routing}
    if fabric.router(routing).is_adaptive and not _core.engine_traits(fidelity).can_adapt:
        with pytest.raises(ConfigError, match=f"which fidelity '{fidelity}' cannot do"):
            rostam.run_collective(fabric, "all_reduce", **keys)
        return
    result = rostam.run_collective(fabric, "all_reduce", **keys)
    sharing = 1 if fidelity == "unshared" else 4  # four senders share the root's port; unshared they do not
    hop_s = 256e-9 if fidelity == "packet" else 0.0  # the head flit of 256 bytes, on the second of two links
    assert result.time_s == pytest.approx(2 * (1e-6 + sharing * 1e-3 + hop_s), abs=1e-11)
    assert result.bytes_sent == result.bytes_received == 8 * 10**6


@pytest.mark.parametrize("algorithm", ALL_REDUCES)
def test_engine_without_sharing_runs_every_algorithm_no_slower_than_the_one_with(algorithm):
    fabric = rostam.fabric("torus", dims=(4, 4), accelerator_bandwidth="400 Gb/s")
    times = {
        fidelity: rostam.run_collective(
            fabric, "all_reduce", num_bytes=2**20, algorithm=algorithm, fidelity=fidelity, fold=False
        )
        for fidelity in ("flow", "unshared")
    }
    assert times["unshared"].bytes_sent == times["flow"].bytes_sent
    assert 0 < times["unshared"].time_ps <= times["flow"].time_ps


@pytest.mark.parametrize(("collective", "algorithm"), _core.schedule_names())
def test_every_algorithm_runs_on_the_added_fabric(collective, algorithm):
    if collective == "send_recv" or _core.needs_grid(collective, algorithm):
        pytest.skip("islands form no grid; sends are tasks of plans")
    if _core.models_bandwidth(collective, algorithm):
        pytest.skip("islands have no servers")
    for routing in _core.routing_names():
        result = rostam.run_collective(
            islands(groups=4), collective, num_bytes=10**6, algorithm=algorithm, routing=routing, ranks=range(16)
        )
        assert result.time_s > 0
        assert result.bytes_sent == result.bytes_received
