"""Flows without a route wait for one where they may; without a controller that sets one nothing gives it to them."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import NoRouteError

MB = 10**6


@pytest.fixture(scope="module")
def fabric():
    """Return a ring of four at 1 GB/s without the cables of 0 - 1 and 2 - 3: two halves."""
    whole = rostam.fabric("torus", dims=[4], link_bandwidth="1 GB/s", link_latency="0 ns")
    return whole.with_failures(links=[0, 2])


def test_a_cut_pair_is_an_error_unless_it_may_wait(fabric):
    with pytest.raises(NoRouteError, match="no path is left from accelerator 0 to accelerator 1"):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[MB])


@pytest.mark.parametrize("how", [{"park": True}, {"options": rostam.SimulationOptions(park=True)}])
def test_a_flow_that_nothing_gives_a_route_is_named(fabric, how):
    said = r"flow 1 from 1 to 0 waits for a route at 0\.002 s, and nothing will give it one: a controller must set it"
    with pytest.raises(NoRouteError, match=said):
        rostam.run_flows(fabric, src=[1, 1], dst=[2, 0], num_bytes=[2 * MB, MB], **how)


def test_a_flow_that_is_cut_off_while_it_waits_has_all_its_bytes_left(fabric):
    result = rostam.run_flows(fabric, src=[1, 1], dst=[2, 0], num_bytes=[2 * MB, MB], stop_s=[None, "1 ms"], park=True)
    assert result.finish_s[0] == pytest.approx(2e-3, abs=1e-12)
    assert np.isnan(result.finish_s[1])
    assert result.bytes_left.tolist() == [0, MB]
    assert result.link_bytes.sum() == pytest.approx(2 * MB)


def test_a_reroute_of_a_waiting_flow_leaves_it_waiting(fabric):
    result = rostam.run_flows(
        fabric, src=[1], dst=[0], num_bytes=[MB], stop_s=["2 ms"], events=[rostam.Reroute("1 ms", 0, 3)], park=True
    )
    assert result.bytes_left.tolist() == [MB]
