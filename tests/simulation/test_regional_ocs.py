"""Regional optical circuits beside an electrical network: times by hand, regions apart, bytes on every link.

Servers of two accelerators, four servers of a region, one optical switch (1 GB/s) and one NIC of 1 GB/s to the network.
The circuits begin as shifts by one server: 0 -> 1 -> 2 -> 3 -> 0. Accelerators have 10 GB/s, latencies are 0.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

MB = 10**6
SMALL = {
    "server_size": 2, "region_servers": 4, "num_ocs": 1, "num_electrical": 1, "nic_bandwidth": 1e9,
    "link_bandwidth": 1e10, "server_latency": 0.0, "network_latency": 0.0, "reconfiguration_delay": "1 ms",
}  # fmt: skip
ON_DEMAND = {"control": "periodic", "period": "0 s", "estimator": "backlog"}


def build(num_accelerators=8, **keys):
    return rostam.fabric("regional_ocs", num_accelerators=num_accelerators, **{**SMALL, **keys})


def carried(fabric, result):
    """Bytes on links between servers (-1 stands for the network), by their ends."""
    links, first = fabric.links, fabric.num_accelerators
    ends = (
        np.where(links["src"] == links["src"].max(), -1, links["src"] - first),
        np.where(links["dst"] == links["dst"].max(), -1, links["dst"] - first),
    )
    between = np.flatnonzero((links["src"] >= first) & (links["dst"] >= first) & (result.link_bytes > 0))
    return {(int(ends[0][k]), int(ends[1][k])): float(result.link_bytes[k]) for k in between}


def test_without_a_control_circuits_stay_even_and_others_take_the_network():
    fabric = build()
    # Server 0 to 1 has the circuit; 0 to 2 and 0 to 3 share the NIC to the network.
    result = rostam.run_flows(fabric, src=[0, 1, 1], dst=[2, 4, 6], num_bytes=[3 * MB, 2 * MB, 1 * MB])
    np.testing.assert_allclose(result.finish_s, [3e-3, 3e-3, 2e-3], rtol=1e-9)
    assert carried(fabric, result) == {(0, 1): 3 * MB, (0, -1): 3 * MB, (-1, 2): 2 * MB, (-1, 3): 1 * MB}
    assert result.reconfigurations is None


def test_a_message_takes_the_network_until_its_circuit_is_lit():
    # The delay is 1 ms, in which 1 MB goes over the network at 1 GB/s shared with a message of 1 MB to another region's
    # server: both have 0.5 GB/s. After it the first has 2.5 MB left on a circuit of its own, 1 GB/s: 3.5 ms. The other
    # has had 0.5 MB and then 1 GB/s: 1.5 ms.
    fabric = build(num_accelerators=10, **ON_DEMAND)
    result = rostam.run_flows(fabric, src=[0, 1], dst=[4, 8], num_bytes=[3 * MB, 1 * MB])
    np.testing.assert_allclose(result.finish_s, [3.5e-3, 1.5e-3], rtol=1e-9)
    assert carried(fabric, result) == {(0, -1): 1.5 * MB, (-1, 2): 0.5 * MB, (-1, 4): 1 * MB, (0, 2): 2.5 * MB}
    said = result.reconfigurations
    assert (said.begin_s.tolist(), said.end_s.tolist(), said.num_changed.tolist()) == ([0.0], [1e-3], [1])


def test_circuits_follow_what_servers_send_all_accelerators_together():
    # Two switches. Server 0 to 1 has one of the circuits and gets both: 4 MB are 1 ms at 1 GB/s, 1.5 ms at 2 GB/s. Its
    # two accelerators share them, what stays inside a server takes neither.
    fabric = build(num_ocs=2, **ON_DEMAND)
    result = rostam.run_flows(fabric, src=[0, 1, 4], dst=[2, 3, 5], num_bytes=[2 * MB, 2 * MB, 30 * MB])
    np.testing.assert_allclose(result.finish_s, [2.5e-3, 2.5e-3, 3e-3], rtol=1e-9)
    assert carried(fabric, result) == {(0, 1): 4 * MB}


def test_regions_are_set_each_on_its_own():
    fabric = build(num_accelerators=16, **ON_DEMAND)
    # The same in both regions, half a millisecond later in the second: 1 MB on the network, then 1 MB on the circuit.
    result = rostam.run_flows(fabric, src=[0, 8], dst=[4, 12], num_bytes=[2 * MB] * 2, start_s=["0 s", "0.5 ms"])
    np.testing.assert_allclose(result.finish_s, [2e-3, 2.5e-3], rtol=1e-9)
    said = result.reconfigurations
    np.testing.assert_allclose(said.begin_s, [0, 0.5e-3])
    np.testing.assert_allclose(said.end_s, [1e-3, 1.5e-3])
    assert said.dark_s == pytest.approx(1.5e-3)  # their union, not 2 ms
    # One circuit of each region, for 1 ms.
    assert said.dark_circuit_s == pytest.approx(2e-3)


def test_scheduled_circuits_are_set_for_messages_that_are_known_ahead():
    # From 5 ms on 0 -> 2 is all there is, and known: the circuit is lit long before, 3 MB take 3 ms.
    fabric = build(control="scheduled")
    result = rostam.run_flows(fabric, src=[0], dst=[4], num_bytes=[3 * MB], start_s=["5 ms"])
    np.testing.assert_allclose(result.finish_s, [8e-3], rtol=1e-9)
    assert carried(fabric, result) == {(0, 2): 3 * MB}


@pytest.mark.parametrize("seed", range(8))
def test_bytes_are_conserved_while_circuits_change(seed):
    draw = np.random.default_rng(seed)
    size, region = int(draw.integers(1, 4)), int(draw.integers(2, 6))
    num = int(draw.integers(2 * size, 24))
    fabric = build(
        num, server_size=size, region_servers=region, num_ocs=int(draw.integers(1, 4)), reconfiguration_delay="200 us",
        control=["periodic", "scheduled"][seed % 2], period="0 s", estimator=["backlog", "active"][seed // 2 % 2],
    )  # fmt: skip
    src = draw.integers(num, size=40)
    dst = (src + draw.integers(1, num, size=40)) % num
    sizes = draw.integers(1, 3 * MB, size=40)
    result = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=sizes, start_s=draw.uniform(0, 5e-3, 40).tolist())
    links = fabric.links
    for side, other in (("src", src), ("dst", dst)):
        own = np.bincount(links[side], result.link_bytes, links["src"].max() + 1)[:num]
        np.testing.assert_allclose(own, np.bincount(other, sizes, num), rtol=1e-9)
    # What enters a server's switch from its accelerators and others leaves it.
    for vertex in range(num, int(links["src"].max()) + 1):
        out, into = (result.link_bytes[links[side] == vertex].sum() for side in ("src", "dst"))
        assert out == pytest.approx(into, rel=1e-9)


def test_what_it_does_not_know_is_refused():
    fabric = build(**ON_DEMAND)
    flows = {"src": [0], "dst": [4], "num_bytes": [MB]}
    with pytest.raises(ConfigError, match=r"events: no part of fabric .regional_ocs. can fail while fabric.control is"):
        rostam.run_flows(fabric, **flows, events=[rostam.Failure("1 us", "links", 3)])
    with pytest.raises(ConfigError, match="analytic tier"):
        rostam.saturation_throughput(fabric, pattern="all_to_all")
    with pytest.raises(ConfigError, match=r"fabric\.network_latency is 0\.0; it must be >= fabric\.server_latency"):
        build(server_latency="1 us")
