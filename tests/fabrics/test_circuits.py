"""Fabrics with circuits: routes, bandwidths, refusals, failures, copies, relays."""

import pickle

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.traffic import Traffic

OPTICAL = ("sip_ocs", "sip_ring")
TRAFFIC = Traffic.from_messages(8, [0, 0, 1, 2, 7], [1, 2, 2, 0, 0], [10e6, 5e6, 8e6, 3e6, 1e6])


def build(name, **params):
    """Return an optical fabric of 8 accelerators at 16 x 25 Gb/s."""
    return rostam.fabric(name, **({"num_accelerators": 8, "accelerator_bandwidth": "400 Gb/s"} | params))


@pytest.mark.parametrize("name", OPTICAL)
def test_without_circuits_nothing_is_routed(name):
    fabric = build(name)
    assert fabric.is_circuit_switched
    assert fabric.circuits is None
    with pytest.raises(ConfigError, match=r"has no circuits, so nothing can be routed; .* fabric.with_circuits"):
        fabric.router()


def test_only_optical_fabrics_take_circuits():
    flat = rostam.fabric("electrical_flat", num_accelerators=8)
    assert (flat.is_circuit_switched, flat.max_circuit_degree, flat.circuits) == (False, None, None)
    with pytest.raises(ConfigError, match="switches packets and has no circuits to set"):
        flat.with_circuits(TRAFFIC)


@pytest.mark.parametrize("name", OPTICAL)
def test_a_route_is_one_link_of_the_pairs_circuits(name):
    fabric = build(name).with_circuits(TRAFFIC)
    circuits, router = fabric.circuits, fabric.router()
    assert (circuits.src.tolist(), circuits.dst.tolist()) == (TRAFFIC.src.tolist(), TRAFFIC.dst.tolist())
    for pair, (src, dst) in enumerate(zip(circuits.src, circuits.dst, strict=True)):
        links, shares, latency_ps = router.route(int(src), int(dst))
        assert (shares.tolist(), latency_ps) == ([1], 1_000_000)
        assert router.capacities[links[0]] == circuits.count[pair] * 400e9 / 8 / 16
    sent, received = circuits.degree(8)
    assert max(sent.max(), received.max()) <= 16
    assert circuits.min_ratio_per_s == pytest.approx((circuits.bandwidth_bytes_per_s / TRAFFIC.num_bytes).min())


@pytest.mark.parametrize("name", OPTICAL)
def test_a_pair_without_a_circuit_is_named(name):
    router = build(name).with_circuits(TRAFFIC).router()
    with pytest.raises(NoRouteError, match=r"no path from accelerator 2 to accelerator 1 .* this pair has no circuit"):
        router.route(2, 1)


@pytest.mark.parametrize("name", OPTICAL)
def test_circuits_of_planes_carry_all_planes_bandwidth(name):
    # Two planes: each holds half of B, and a message puts half of its bytes on each.
    one, two = (build(name, planes=planes, wavelength_bandwidth="12.5 Gb/s") if name == "sip_ring" else
                build(name, planes=planes) for planes in (1, 2))  # fmt: skip
    whole, halves = (fabric.with_circuits(TRAFFIC) for fabric in (one, two))
    times = [rostam.run_flows(f, src=[0], dst=[1], num_bytes=[10**6]).finish_s[0] for f in (whole, halves)]
    assert halves.circuits.bandwidth_bytes_per_s.max() <= 50e9
    assert times[1] == pytest.approx(1e-6 + 1e6 / halves.circuits.bandwidth_bytes_per_s[0])
    assert times[0] == pytest.approx(1e-6 + 1e6 / whole.circuits.bandwidth_bytes_per_s[0])


@pytest.mark.parametrize("name", OPTICAL)
def test_copies_and_failures_keep_the_demand(name):
    fabric = build(name).with_circuits(TRAFFIC, seed=3)
    copy = pickle.loads(pickle.dumps(fabric))
    assert copy.links.tolist() == fabric.links.tolist()
    assert copy.circuits.circuit_pair.tolist() == fabric.circuits.circuit_pair.tolist()
    broken = fabric.with_failures(accelerators=[1])
    assert broken.circuits.src.tolist() == [0, 2, 7]
    assert broken.num_links == fabric.num_links == build(name).num_links
    assert broken.healthy_accelerators.tolist() == [0, 2, 3, 4, 5, 6, 7]
    with pytest.raises(NoRouteError):
        broken.router().route(0, 1)
    again = pickle.loads(pickle.dumps(broken))
    assert again.failures == broken.failures
    assert again.circuits.src.tolist() == [0, 2, 7]


@pytest.mark.parametrize("name", OPTICAL)
def test_a_demand_must_fit_the_fabric(name):
    with pytest.raises(ConfigError, match="the traffic is of 4 accelerators; the fabric has 8"):
        build(name).with_circuits(Traffic.from_messages(4, [0], [1], [1]))
    with pytest.raises(ConfigError, match="the traffic names accelerator 2, which has failed"):
        build(name).with_failures(accelerators=[2]).with_circuits(TRAFFIC)
    with pytest.raises(ConfigError, match="no bill of materials"):
        build(name).bill_of_materials()


@pytest.mark.parametrize("name", OPTICAL)
def test_an_empty_demand_makes_no_links(name):
    fabric = build(name).with_circuits(Traffic.from_messages(8, [], [], []))
    assert (len(fabric.links), fabric.circuits.num_circuits, fabric.circuits.min_ratio_per_s) == (0, 0, 0)


@pytest.mark.parametrize("name", OPTICAL)
def test_a_ring_all_reduce_is_as_fast_as_on_the_ideal_switch(name):
    # One peer each: all of B goes to it, at the same 1 us.
    sizes = {"num_bytes": 2**23, "algorithm": "ring"}
    flat = rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth="400 Gb/s")
    ideal = rostam.run_collective(flat, "all_reduce", **sizes)
    assert rostam.run_collective(build(name), "all_reduce", **sizes).time_ps == ideal.time_ps
    assert rostam.run_collective(build(name), "all_reduce", fidelity="analytic", **sizes).time_ps == ideal.time_ps


def test_circuits_set_for_a_collective_share_b_among_its_peers():
    # 7 peers on 16 circuits: 2 each, of 25 Gb/s; S/8 bytes over them, all at once.
    time = rostam.run_collective(build("sip_ocs"), "all_to_all", num_bytes=8 * 10**6, algorithm="direct").time_s
    assert time == pytest.approx(1e-6 + 1e6 / (2 * 25e9 / 8))


def test_flows_and_patterns_set_their_own_circuits():
    fabric = build("sip_ocs")
    flows = rostam.run_flows(fabric, src=[0, 1, 1], dst=[1, 2, 3], num_bytes=[10**6] * 3)
    assert flows.finish_s == pytest.approx([1e-6 + 1e6 / 50e9, 1e-6 + 1e6 / 25e9, 1e-6 + 1e6 / 25e9])
    assert rostam.saturation_throughput(fabric, "shift", shift=3) == pytest.approx(1)
    assert rostam.saturation_throughput(fabric, "all_to_all") == pytest.approx(14 / 16)
    # 16 wavelengths one way round the ring, and 16 across each segment.
    assert rostam.saturation_throughput(build("sip_ring"), "neighbour") == pytest.approx(1)


def test_circuits_set_for_another_demand_are_kept_and_may_not_serve():
    fabric = build("sip_ocs").with_circuits(TRAFFIC)
    with pytest.raises(NoRouteError, match="this pair has no circuit"):
        rostam.run_collective(fabric, "all_reduce", num_bytes=800, algorithm="ring")


def test_circuits_are_deterministic():
    rng = np.random.default_rng(0)
    src, dst = np.nonzero(rng.random((64, 64)) < 0.1)
    traffic = Traffic.from_messages(64, src, dst, rng.random(len(src)) + 0.1)
    one, other = (build("sip_ocs", num_accelerators=64).with_circuits(traffic).circuits for _ in range(2))
    assert one.ocs.tolist() == other.ocs.tolist()


@pytest.mark.parametrize("name", OPTICAL)
@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all", "broadcast"])
def test_folding_changes_nothing_over_circuits(name, collective):
    one, other = (rostam.run_collective(build(name), collective, num_bytes=8000, fold=fold) for fold in (True, False))
    assert abs(one.time_ps - other.time_ps) <= 8
    assert one.bytes_sent == other.bytes_sent
