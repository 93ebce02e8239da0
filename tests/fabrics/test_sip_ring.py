"""sip_ring: wavelengths, remainder, fibres, cuts, refusals."""

from contextlib import nullcontext

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics.traffic import Traffic


def build(count=16, bandwidth="400 Gb/s", **params):
    """Return a ring of count accelerators."""
    return rostam.fabric("sip_ring", num_accelerators=count, accelerator_bandwidth=bandwidth, **params)


def test_it_has_two_fibres_of_directed_segments():
    fabric = build(6)
    assert (fabric.num_switches, fabric.num_links, fabric.diameter()) == (0, 12, 3)
    links = fabric.links
    assert list(zip(links["src"].tolist(), links["dst"].tolist(), strict=True))[:4] == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert set(links["bandwidth_bytes_per_s"]) == {50e9}


def test_whole_wavelengths_leave_a_remainder_that_is_reported():
    fabric = build(16, "410 Gb/s")
    assert fabric.config.num_wavelengths == 16
    assert "10 Gb/s of every accelerator left over by whole wavelengths" in fabric.describe()
    circuits = fabric.with_circuits(Traffic.from_messages(16, [0], [1], [1])).circuits
    assert circuits.count.tolist() == [16]
    assert circuits.bandwidth_bytes_per_s.tolist() == [50e9]
    assert any("10 Gb/s" in note for note in circuits.notes)
    assert "left over" not in build().describe()
    # 0.3 Tb/s over 0.1 Tb/s is 2.9999999999999996 in doubles, and three wavelengths.
    assert build(4, "0.3 Tb/s", wavelength_bandwidth="0.1 Tb/s").config.num_wavelengths == 3
    with pytest.raises(ConfigError, match=r"fabric.wavelength_bandwidth is '25 Gb/s'; it must be <= .* 20 Gb/s"):
        build(16, "20 Gb/s")


def test_more_wavelengths_than_the_core_can_number_are_refused():
    # 2 fibres x 16 accelerators x W micro-rings: 2^26 wavelengths make 2^31, one more than 32 bits number.
    assert build(16, f"{25 * (2**26 - 1)} Gb/s").config.num_wavelengths == 2**26 - 1
    with pytest.raises(ConfigError, match=r"fabric.wavelength_bandwidth is '25 Gb/s', .* 2,147,483,648 micro-rings"):
        build(16, f"{25 * 2**26} Gb/s")
    with pytest.raises(ConfigError, match=r"'25 Gb/s', .* 65,536 wavelengths; .* at most 65,535 where .*periodic sets"):
        build(16, f"{25 * 2**16} Gb/s", control="periodic")


def test_degree_is_bounded_by_reach_and_wavelengths():
    assert build(64, "6400 Gb/s").max_circuit_degree == 16
    assert build(64, "6400 Gb/s", reach=4).max_circuit_degree == 4
    assert build(64, "250 Gb/s").max_circuit_degree == 10
    assert build(8, "6400 Gb/s").max_circuit_degree == 7
    assert build(8, "250 Gb/s", planes=2).max_circuit_degree == 5


@pytest.mark.parametrize("cut", [(), (2 * 3,), (2 * 3 + 1,), (0, 2 * 9 + 1)])
def test_accelerators_can_be_connected_exactly_where_wavelengths_are_given(cut):
    # Every pair alone: the core gives it a wavelength, or refuses.
    fabric = build(12, reach=4).with_failures(links=list(cut))
    src, dst = (axis.ravel() for axis in np.indices((12, 12)))
    found = fabric.can_connect(src, dst).reshape(12, 12)
    for a in range(12):
        for b in set(range(12)) - {a}:
            demand = Traffic.from_messages(12, [a], [b], [1])
            with nullcontext() if found[a, b] else pytest.raises(ConfigError, match=r"fabric\.reach"):
                assert fabric.with_circuits(demand).circuits.count[0] > 0


def test_fibres_and_latency_follow_the_shorter_way():
    traffic = Traffic.from_messages(16, [0, 0], [3, 14], [1, 1])
    fabric = build(latency="2 us", link_latency="10 ns").with_circuits(traffic)
    circuits = fabric.circuits
    assert [set(circuits.fibre[circuits.circuit_pair == pair]) for pair in (0, 1)] == [{0}, {1}]
    router = fabric.router()
    assert (router.route(0, 3)[2], router.route(0, 14)[2]) == (2_030_000, 2_020_000)


def test_a_failed_accelerator_lets_light_pass_and_a_cut_fibre_does_not():
    traffic = Traffic.from_messages(16, [0], [2], [1])
    fabric = build(latency="0 ns", link_latency="10 ns").with_circuits(traffic)
    assert fabric.with_failures(accelerators=[1]).router().route(0, 2)[2] == 20_000
    assert fabric.with_failures(links=[2 * 1]).router().route(0, 2)[2] == 140_000
    assert fabric.with_failures(links=[2 * 1 + 1]).router().route(0, 2)[2] == 20_000
    with pytest.raises(ConfigError, match="fibre cuts leave no way of at most 8 hops"):
        build(reach=8).with_failures(links=[0]).with_circuits(traffic)


def test_out_of_reach_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"accelerators 0 and 20 are 20 hops apart on the ring, fabric[.]reach is 16"):
        build(64).with_circuits(Traffic.from_messages(64, [0], [20], [1]))


def test_an_accelerator_sends_and_receives_at_most_b():
    count = 16
    src, dst = np.divmod(np.arange(count * count), count)
    circuits = (
        build(count, "3200 Gb/s").with_circuits(Traffic.from_messages(count, src, dst, np.ones(count**2))).circuits
    )
    sent, received = circuits.degree(count)
    assert max(sent.max(), received.max()) <= 128
    assert circuits.count.min() >= 1
