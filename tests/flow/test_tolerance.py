"""What a tolerance may change: when rates follow starts and ends, never what is sent or what a link carries."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import LinkBandwidth
from rostam_py.errors import ConfigError
from rostam_py.spec.build import simulation_options
from rostam_py.spec.settings import complete_settings

GB = 10**9


def trunk():
    """a0, a1, a2 - s0 ==6 GB/s== s1 - a3, a4, a5; ports of 100 GB/s."""
    ports = [(f"a{k}", "s0" if k < 3 else "s1", 100 * GB) for k in range(6)]
    return rostam.fabric("custom", links=[*ports, ("s0", "s1", 6 * GB)])


def test_a_start_and_an_end_take_effect_a_share_of_their_durations_later():
    # A 12 GB from 0 s, alone at once. B 6 GB from 1 s: beside A it would take 2 s, so it waits for 0.2 s. From 1.2 s
    # both have 3 GB/s: A, with 4.8 GB left, ends at 2.8 s, which B, with 1.2 GB left, feels after 0.28 s: then
    # 0.36 GB are left, at 6 GB/s.
    result = rostam.run_flows(
        trunk(), src=[0, 1], dst=[3, 4], num_bytes=[12 * GB, 6 * GB], start_s=[0, 1], tolerance=0.1
    )
    assert result.sent_s == pytest.approx([2.8, 3.14], abs=1e-11)
    assert "Not exact" in result.notes[-1]


def test_a_flow_without_others_on_its_links_ends_as_if_exact():
    result = rostam.run_flows(trunk(), src=[0, 1], dst=[1, 2], num_bytes=[GB, 2 * GB], start_s=[0, 0.5], tolerance=0.5)
    assert result.sent_s.tolist() == [0.01, 0.52]


def test_a_flow_that_cannot_send_yet_starts_beside_others_and_ends_as_if_exact():
    # The trunk stands still from 0.5 s to 2 s. a0 -> a3 starts at 1 s, while two flows fill the port of a0; from 2 s on
    # it has the trunk's 6 GB/s, less than a third of the port, and 12 GB take 2 s.
    fabric = trunk()
    (link,) = [k for k, one in enumerate(fabric.links) if (one["src"], one["dst"]) == (6, 7)]
    result = rostam.run_flows(
        fabric, src=[0, 0, 0], dst=[1, 2, 3], num_bytes=[300 * GB, 300 * GB, 12 * GB], start_s=[0, 0, 1],
        tolerance=0.1, events=[LinkBandwidth("0.5 s", link, 0.0), LinkBandwidth("2 s", link, 1.0)],
    )  # fmt: skip
    assert result.sent_s[2] == pytest.approx(4, abs=1e-11)


@pytest.mark.parametrize("seed", range(6))
def test_bytes_are_those_of_the_exact_run_and_errors_stay_below_the_tolerance(seed):
    rng = np.random.default_rng(seed)
    fabric = rostam.fabric("torus", dims=[6, 6], link_bandwidth="100 Gb/s").with_random_failures(
        kind="links", count=3, seed=seed
    )
    pairs = [rng.choice(36, 2, replace=False) for _ in range(200)]
    arguments = {
        "src": [int(a) for a, _ in pairs],
        "dst": [int(b) for _, b in pairs],
        "num_bytes": rng.integers(10**5, 10**7, 200).tolist(),
        "start_s": rng.uniform(0, 2e-3, 200).tolist(),
        "routing": "spray",
    }
    exact, near = rostam.run_flows(fabric, **arguments), rostam.run_flows(fabric, **arguments, tolerance=0.02)
    assert near.link_bytes == pytest.approx(exact.link_bytes, rel=1e-12)
    lasted = exact.sent_s - np.array(arguments["start_s"])
    assert np.abs(near.sent_s - exact.sent_s).max() > 0
    assert (np.abs(near.sent_s - exact.sent_s) / lasted).mean() < 0.02


def test_a_collective_with_tolerance_takes_hardly_longer_and_sends_the_same():
    fabric = rostam.fabric("torus", dims=[4, 4], link_bandwidth="100 Gb/s")
    ranks = np.random.default_rng(1).permutation(16).tolist()
    keys = {"num_bytes": 2**24, "algorithm": "ring", "ranks": ranks}
    exact = rostam.run_collective(fabric, "all_reduce", **keys)
    near = rostam.run_collective(fabric, "all_reduce", **keys, tolerance=0.01)
    assert near.bytes_sent == exact.bytes_sent == near.bytes_received
    assert near.link_bytes == pytest.approx(exact.link_bytes, rel=1e-9)
    assert exact.time_s * 0.99 < near.time_s < exact.time_s * 1.01
    assert "Not exact" in near.notes[-1]
    assert not exact.notes


@pytest.mark.parametrize("bad", [1, -0.1, True, "1%", float("nan")])
def test_a_tolerance_that_is_no_share_is_refused(bad):
    with pytest.raises(ConfigError, match=r"tolerance is .*; it must be a number in \[0, 1\)"):
        rostam.run_flows(trunk(), src=[0], dst=[3], num_bytes=[GB], tolerance=bad)


def test_closed_forms_know_no_tolerance():
    with pytest.raises(ConfigError, match="tolerance"):
        rostam.run_collective(trunk(), "all_reduce", num_bytes=GB, algorithm="ring", fidelity="analytic", tolerance=0.1)


def test_a_run_takes_it_as_a_key_which_leaves_no_trace_at_0():
    assert simulation_options(complete_settings({"tolerance": 0.02})).tolerance == 0.02
    assert "tolerance" not in complete_settings({"tolerance": 0.0})
    with pytest.raises(ConfigError, match="tolerance is 2"):
        complete_settings({"tolerance": 2})
