"""Simulated time: whole picoseconds, rounded up, within +-106 days; equal instants act together."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.simulation.picoseconds import seconds_to_ps


def pair(rate):
    return rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth=rate, latency=0.0)


def send_ps(num_bytes, rate):
    return rostam.run_collective(pair(rate), "send_recv", num_bytes=num_bytes).time_ps


def test_durations_are_rounded_up_to_a_picosecond_and_are_never_0_for_data():
    assert send_ps(1, 3e9) == 334  # 333.3 ps
    assert send_ps(3, 3e9) == 1000  # exact: no picosecond too many for rounding noise of the division
    assert send_ps(1, 1e15) == 1
    assert send_ps(0, 1e9) == 0


@pytest.mark.parametrize("rate", [1e9, 3e9, 7e9, 12.5e9, 25e9, 50e9, 100e9])
def test_multiples_of_a_whole_duration_have_no_rounding_noise(rate):
    # rate bytes take exactly a second, and k / 1000 of them k ms.
    for k in (1, 7, 333, 999, 1000, 12345):
        assert send_ps(int(rate) * k // 1000, rate) == pytest.approx(k * 10**9, abs=1 if int(rate) * k % 1000 else 0)


def test_times_beyond_106_days_are_refused():
    with pytest.raises(ConfigError, match="106 days"):
        send_ps(10**15, 1e6)


@pytest.mark.parametrize(("seconds", "ps"), [
    (1e-12, 1), (1.2e-12, 2), (0.3, 300_000_000_000), (1e-6, 1_000_000), (0.1 + 0.2, 300_000_000_000), (0.0, 0),
])  # fmt: skip
def test_seconds_become_picoseconds_rounded_up_but_for_noise(seconds, ps):
    assert seconds_to_ps(seconds) == ps


def test_alike_flows_end_at_the_same_instant_and_are_solved_together():
    # 64 equal flows in a permutation: two instants, start and end, so a handful of solves and not one a flow.
    fabric = rostam.fabric("electrical_flat", num_accelerators=64, link_bandwidth=3e9, latency=0.0)
    src, dst = np.arange(64), (np.arange(64) + 5) % 64
    raw = _core.run_flows(
        fabric.router("spray"),
        64,
        src,
        dst,
        np.full(64, 10**6 + 1),
        np.zeros(64, np.int64),
        np.full(64, np.inf),
        np.full(64, -1),
    )
    assert len(set(raw["sent_ps"].tolist())) == 1
    assert raw["num_solves"] <= 4
