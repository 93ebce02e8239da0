"""Flows with a rate cap, and flows that are cut off: two flows share one 1 GB/s port of an ideal switch."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

GB = 10**9


@pytest.fixture(scope="module")
def fabric():
    return rostam.fabric("electrical_flat", num_accelerators=4, accelerator_bandwidth="1 GB/s", latency="0 ns")


def test_a_capped_flow_leaves_the_rest_of_the_port_to_the_other(fabric):
    # 0.25 GB/s and the 0.75 GB/s that are left: 4 s and 1 s, after which the cap still holds.
    result = rostam.run_flows(
        fabric, src=[0, 0], dst=[1, 2], num_bytes=[GB, 3 * GB // 4], rate_cap=["0.25 GB/s", None], routing="spray"
    )
    assert result.finish_s == pytest.approx([4.0, 1.0], abs=1e-12)
    assert result.bytes_left.tolist() == [0, 0]


def test_a_cap_above_the_fair_share_changes_nothing(fabric):
    result = rostam.run_flows(fabric, src=[0, 0], dst=[1, 2], num_bytes=[GB, GB], rate_cap=["0.5 GB/s", None])
    assert result.finish_s == pytest.approx([2.0, 2.0], abs=1e-12)


def test_a_flow_that_is_cut_off_frees_its_share_and_counts_what_it_sent(fabric):
    # Both run at 0.5 GB/s until 1 s; then flow 1 has the port alone: 0.5 GB done, 0.5 GB at 1 GB/s.
    result = rostam.run_flows(fabric, src=[0, 0], dst=[1, 2], num_bytes=[GB, GB], stop_s=["1 s", None])
    assert np.isnan(result.finish_s[0])
    assert np.isnan(result.sent_s[0])
    assert result.finish_s[1] == pytest.approx(1.5, abs=1e-12)
    assert result.bytes_left == pytest.approx([GB / 2, 0])
    out_of_0 = fabric.links["src"] == 0
    assert result.link_bytes[out_of_0].sum() == pytest.approx(1.5 * GB)


def test_a_stop_after_the_end_does_nothing(fabric):
    result = rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[GB], stop_s=[5.0])
    assert result.finish_s == pytest.approx([1.0], abs=1e-12)
    assert result.bytes_left.tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop_s": [1.0, 2.0]}, "stop_s has 2 entries for 1 flows"),
        ({"rate_cap": [0.0]}, "the rate cap > 0"),
        ({"start_s": [2.0], "stop_s": [1.0]}, "stop >= start"),
    ],
)
def test_bad_caps_and_stops_are_refused(fabric, changes, message):
    with pytest.raises(ConfigError, match=message):
        rostam.run_flows(fabric, src=[0], dst=[1], num_bytes=[GB], **changes)
