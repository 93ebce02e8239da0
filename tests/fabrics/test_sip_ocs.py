"""sip_ocs: ports and switches, failed switches, relays, refusals."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.traffic import Traffic


def build(count=8, **params):
    """Return count accelerators at 400 Gb/s."""
    return rostam.fabric("sip_ocs", num_accelerators=count, accelerator_bandwidth="400 Gb/s", **params)


def everyone(count):
    """Return equal traffic between all pairs."""
    src, dst = np.divmod(np.arange(count * count), count)
    return Traffic.from_messages(count, src, dst, np.full(count * count, 1e6))


def test_every_accelerator_has_a_link_of_its_share_to_every_switch():
    fabric = build(num_ocs=4, planes=2)
    assert (fabric.num_switches, fabric.num_links, fabric.diameter()) == (8, 64, 2)
    assert fabric.max_circuit_degree == 4
    assert set(fabric.links["bandwidth_bytes_per_s"]) == {400e9 / 8 / 2 / 4}
    given = rostam.fabric("sip_ocs", num_accelerators=8, num_ocs=4, link_bandwidth="100 Gb/s")
    assert given.injection_bandwidth_bytes_per_s == 50e9


def test_a_failed_switch_takes_a_circuit_from_everybody():
    traffic = Traffic.from_messages(8, [0], [1], [1])
    fabric = build().with_circuits(traffic)
    assert fabric.circuits.count.tolist() == [16]
    broken = fabric.with_failures(switches=[3, 5])
    assert broken.max_circuit_degree == 14
    assert broken.circuits.count.tolist() == [14]
    assert sorted(broken.circuits.ocs) == [k for k in range(16) if k not in (3, 5)]
    assert "2 of 16 optical switches are out of use" in broken.circuits.notes
    # Cable 16 a + k joins accelerator a to switch k; cut, it takes switch k out of use.
    assert sorted(build().with_failures(links=[16 * 2 + 7]).with_circuits(traffic).circuits.ocs) == [
        k for k in range(16) if k != 7
    ]
    with pytest.raises(ConfigError, match="all 16 optical switches have failed"):
        fabric.with_failures(switches=range(16))


def test_more_peers_than_circuits_is_refused_and_the_number_named():
    with pytest.raises(
        ConfigError, match=r"accelerator 0 sends to 31 peers, .* at most 16 circuits.*fabric.relay=true"
    ):
        build(32).with_circuits(everyone(32))
    with pytest.raises(ConfigError, match="at most 6 circuits"):
        build(8, num_ocs=7).with_failures(switches=[0]).with_circuits(everyone(8))
    assert build(8, num_ocs=7).with_circuits(everyone(8)).circuits.count.tolist() == [1] * 56


def test_relays_reach_everybody_and_are_counted():
    fabric = build(32, relay=True).with_circuits(everyone(32))
    circuits = fabric.circuits
    assert circuits.num_relayed_pairs == 32 * 31 - len(circuits.src) == 32 * 15
    assert circuits.relayed_bytes.sum() == 32 * 15 * 1e6
    assert any("480 of 992 pairs have no circuit" in note for note in circuits.notes)
    direct = {(int(s), int(d)) for s, d in zip(circuits.src, circuits.dst, strict=True)}
    router = fabric.router()
    for src, dst in [(0, d) for d in range(1, 32)]:
        links, _, latency_ps = router.route(src, dst)
        hops = latency_ps // 1_000_000
        assert hops == (1 if (src, dst) in direct else fabric.core.search_distances(dst)[src])
        assert len(links) >= hops


def test_a_relayed_collective_conserves_bytes():
    result = rostam.run_collective(build(32, relay=True), "all_to_all", num_bytes=32 * 1000, algorithm="direct")
    assert result.bytes_sent == result.bytes_received == 32 * 31 * 1000
    assert result.link_bytes.sum() > 32 * 31 * 1000


def test_what_no_chain_of_circuits_joins_is_named():
    fabric = build(8, relay=True).with_circuits(Traffic.from_messages(8, [0, 1], [1, 2], [1, 1]))
    assert fabric.router().route(0, 2)[2] == 2_000_000
    with pytest.raises(NoRouteError, match="no chain of circuits joins them"):
        fabric.router().route(2, 0)


def test_latency_is_end_to_end_plus_two_links():
    traffic = Traffic.from_messages(8, [0], [1], [1])
    fabric = build(latency="3 us", link_latency="100 ns").with_circuits(traffic)
    assert fabric.router().route(0, 1)[2] == 3_200_000


def test_duplex_reports_its_gap():
    # Three accelerators exchange everything with Q = 4: see tests/control/test_ocs_circuits.py.
    traffic = Traffic.from_messages(3, [0, 1, 2], [1, 2, 0], np.ones(3))
    circuits = build(3, num_ocs=4, duplex=True).with_circuits(traffic).circuits
    assert circuits.colouring_gap == 4
    assert any("4 circuits given up" in note for note in circuits.notes)
    assert build(3, num_ocs=4, symmetric=True).with_circuits(traffic).circuits.count.tolist() == [2] * 6
