"""Relays of a ring: pairs beyond reach, or without a wavelength, over others' circuits; times by hand, bytes counted.

B = 100 Gb/s is W = 4 wavelengths of 25 Gb/s (3.125 GB/s) a fibre; light goes 16 segments, a circuit takes 1 us.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics.ring_relays import busiest_circuit, over_hops
from rostam_py.fabrics.traffic import Traffic

WAVELENGTH = 25e9 / 8
NEVER = {"control": "periodic", "reconfiguration_delay": "9.1e6 s"}


def ring(num=64, bandwidth="100 Gb/s", **keys):
    return rostam.fabric("sip_ring", num_accelerators=num, accelerator_bandwidth=bandwidth, **({"relay": True} | keys))


def demand(num, src, dst, num_bytes):
    return Traffic.from_messages(num, src, dst, num_bytes)


def fewest_hops(num, src, dst, reach):
    """Return how many circuits of at most `reach` segments join two accelerators, the shorter way round."""
    gap = (dst - src) % num
    return -(-min(gap, num - gap) // reach)


def test_a_pair_beyond_reach_is_refused_or_relayed():
    # 0 -> 40 is 24 segments counter-clockwise: 0 -> 48 and 48 -> 40. 0 -> 5 and 0 -> 48 share what 0 sends, two
    # wavelengths each; the chain is as slow as its first circuit and takes two circuits' latency.
    messages = {"src": [0, 0], "dst": [5, 40], "num_bytes": [1_000_000] * 2}
    with pytest.raises(ConfigError, match=r"24 hops apart on the ring, fabric\.reach is 16"):
        rostam.run_flows(ring(relay=False), **messages)
    once = rostam.run_flows(ring(), **messages)
    alone = 1e6 / (2 * WAVELENGTH)
    np.testing.assert_allclose(once.finish_s, [alone + 1e-6, alone + 2e-6], rtol=1e-9)
    circuits = ring().with_circuits(demand(64, *messages.values())).circuits
    assert list(zip(circuits.src, circuits.dst, circuits.count, strict=True)) == [(0, 5, 2), (0, 48, 2), (48, 40, 4)]
    assert circuits.relayed_bytes.tolist() == [1e6]


@pytest.mark.parametrize("link_latency", ["0 ns", "10 ns"])
def test_circuits_that_never_change_relay_as_those_set_once_do(link_latency):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        src = rng.integers(0, 48, 10)
        dst = (src + rng.integers(1, 48, 10)) % 48
        messages = {"src": src, "dst": dst, "num_bytes": rng.integers(1, 9, 10) * 1_000_000, "routing": "spray"}
        once = rostam.run_flows(ring(48, "800 Gb/s", link_latency=link_latency), **messages)
        never = rostam.run_flows(ring(48, "800 Gb/s", link_latency=link_latency, **NEVER), **messages)
        np.testing.assert_allclose(never.finish_s, once.finish_s, rtol=0, atol=2e-12)
        relayed = sum(
            size for a, b, size in zip(src, dst, messages["num_bytes"], strict=True) if fewest_hops(48, a, b, 16) == 2
        )
        assert never.reconfigurations.relayed_bytes >= relayed - 20  # at least; what it found no wavelength for, too


@pytest.mark.parametrize("keys", [{"control": "periodic"}, {"control": "scheduled"}, {"period": "0 s"}])
def test_rings_that_are_rescheduled_relay_all_there_is(keys):
    # Every hop counts: bytes on all links are bytes sent and those passed on.
    control = {"control": "periodic", "estimator": "backlog"} | keys
    for seed in range(4):
        rng = np.random.default_rng(seed)
        src = rng.integers(0, 60, 25)
        dst = (src + rng.integers(1, 60, 25)) % 60
        num_bytes = rng.integers(1, 9, 25) * 1_000_000
        result = rostam.run_flows(
            ring(60, **control), src=src, dst=dst, num_bytes=num_bytes, start_s=rng.random(25) * 1e-3
        )
        assert np.isfinite(result.finish_s).all()
        passed_on = result.link_bytes.sum() - num_bytes.sum()
        assert result.reconfigurations.relayed_bytes == pytest.approx(passed_on, abs=25)
        least = sum((fewest_hops(60, a, b, 16) - 1) * size for a, b, size in zip(src, dst, num_bytes, strict=True))
        assert passed_on >= least - 25


def test_more_pairs_than_wavelengths_keep_circuits_between_neighbours():
    # All to all among 24: 276 pairs cross a segment one way or the other, with 4 wavelengths.
    src, dst = np.nonzero(~np.eye(24, dtype=bool))
    messages = {"src": src, "dst": dst, "num_bytes": np.full(len(src), 10_000)}
    with pytest.raises(ConfigError, match="wavelength"):
        rostam.run_flows(ring(24, relay=False), **messages)
    fabric = ring(24)
    circuits = fabric.with_circuits(demand(24, *messages.values())).circuits
    joined = np.eye(24, dtype=int)
    joined[circuits.src, circuits.dst] = 1
    assert np.all(np.linalg.matrix_power(joined, 24) > 0)
    assert len(circuits.src) + circuits.num_relayed_pairs >= len(src)
    assert np.isfinite(rostam.run_flows(fabric, **messages).finish_s).all()


def test_hops_take_the_way_of_fewer_circuits_and_keep_clear_of_what_has_failed():
    far = demand(64, [0], [30], [7.0])
    none = ring().failures
    assert over_hops(far, 16, none).dst.tolist() == [16, 30]
    # Cable 2 s cuts segment s -> s + 1 clockwise: light ends at 5, and the other way takes three circuits.
    cut = ring().with_failures(links=[10]).failures
    assert over_hops(far, 16, cut).src.tolist() == [0, 32, 48]
    # Accelerator 16 lets light pass, but passes nothing on.
    dead = ring().with_failures(accelerators=[16]).failures
    assert over_hops(far, 16, dead).dst.tolist() == [15, 30]
    both = ring().with_failures(links=[10, 101]).failures
    with pytest.raises(
        ConfigError, match=r"no chain of hops of at most 16 segments .* accelerator 0 to accelerator 30"
    ):
        over_hops(far, 16, both)
    assert over_hops(demand(64, [0], [16], [7.0]), 16, none).dst.tolist() == [16]


def all_to_all(num, num_bytes=100_000):
    src, dst = np.nonzero(~np.eye(num, dtype=bool))
    return {"src": src, "dst": dst, "num_bytes": np.full(len(src), num_bytes)}


@pytest.mark.parametrize("keys", [{}, {"period": "0 s"}])
@pytest.mark.parametrize(("bandwidth", "reach"), [("75 Gb/s", 16), ("125 Gb/s", 15)])
def test_circuits_that_go_dark_carry_nothing_however_rounding_goes(bandwidth, reach, keys):
    # Relayed flows leave links whose circuits have gone dark, and later ones come onto them with a rate from elsewhere.
    messages = all_to_all(16)
    result = rostam.run_flows(ring(16, bandwidth, reach=reach, control="periodic", **keys), **messages)
    passed_on = result.link_bytes.sum() - messages["num_bytes"].sum()
    assert result.reconfigurations.relayed_bytes == pytest.approx(passed_on, abs=1)
    # 240 pairs on 3.125 GB/s a wavelength: no earlier than what every accelerator sends itself.
    assert result.finish_s.max() > 15 * 1e5 / (float(bandwidth.split()[0]) / 25 * WAVELENGTH)


def check_light(circuits, num, reach, cut=()):
    """Check that no wavelength is twice on a segment, at a driver or at a receiver, and that none passes a cut."""
    taken = set()
    for pair, fibre, wavelength in zip(circuits.circuit_pair, circuits.fibre, circuits.wavelength, strict=True):
        a, b = int(circuits.src[pair]), int(circuits.dst[pair])
        segments = [(a + i) % num for i in range((b - a) % num)] if fibre == 0 else []
        segments += [(a - 1 - i) % num for i in range((a - b) % num)] if fibre == 1 else []
        assert len(segments) <= reach
        assert not {2 * s + fibre for s in segments} & set(cut)
        places = {("segment", fibre, s, wavelength) for s in segments} | {("out", a, wavelength), ("in", b, wavelength)}
        assert not places & taken
        taken |= places


@pytest.mark.parametrize("num_wavelengths", [1, 2, 3, 4, 8, 12, 24])
def test_more_reach_is_never_slower_than_neighbours_alone_and_two_wavelengths_always_do(num_wavelengths):
    # One wavelength: each segment of a fibre carries 120 of 240 messages, up to 15 circuits; one each way: 28 of whole
    # gaps 1 to 7, half of the 8 of gap 8, up to 8 circuits.
    messages = all_to_all(16)
    times = {}
    for reach in (1, 2, 3, 4, 8, 16):
        fabric = ring(16, f"{25 * num_wavelengths} Gb/s", reach=reach)
        fabric = fabric.with_circuits(demand(16, *messages.values()))
        check_light(fabric.circuits, 16, reach)
        times[reach] = rostam.run_flows(fabric, **messages, routing="spray").finish_s.max()
    by_hand = {1: 120e5 / WAVELENGTH + 15e-6, 2: 32e5 / WAVELENGTH + 8e-6}
    if num_wavelengths in by_hand:
        np.testing.assert_allclose(list(times.values()), by_hand[num_wavelengths], rtol=1e-9)
    assert all(time <= times[1] + 15e-6 for time in times.values())


def test_the_busiest_circuit_is_that_of_the_run():
    rng = np.random.default_rng(5)
    src = rng.integers(0, 24, 90)
    messages = {"src": src, "dst": (src + rng.integers(1, 24, 90)) % 24, "num_bytes": rng.integers(1, 9, 90) * 1e5}
    fabric = ring(24, reach=3).with_circuits(demand(24, *messages.values()))
    found, messages["num_bytes"] = fabric.circuits, messages["num_bytes"].astype(np.int64)
    check_light(found, 24, 3)
    run = rostam.run_flows(fabric, **messages, routing="spray")
    assert (run.link_bytes / found.count).max() == pytest.approx(
        busiest_circuit(demand(24, *messages.values()), found.src, found.dst, found.count), rel=1e-9
    )


@pytest.mark.parametrize("keys", [{}, {"period": "0 s"}, {"control": "scheduled"}, {"estimator": "backlog"}])
@pytest.mark.parametrize("reach", [1, 4, 16])
def test_rings_of_few_wavelengths_that_are_rescheduled_leave_nobody_waiting(reach, keys):
    for num_wavelengths in (1, 2, 3):
        fabric = ring(16, f"{25 * num_wavelengths} Gb/s", reach=reach, **({"control": "periodic"} | keys))
        result = rostam.run_flows(fabric, **all_to_all(16))
        assert np.isfinite(result.finish_s).all()
        # No later than over one wavelength, one way round.
        assert result.finish_s.max() <= 120e5 / WAVELENGTH + 15e-6


@pytest.mark.parametrize("control", ["one_shot", "periodic", "scheduled"])
def test_one_wavelength_does_not_join_what_no_fibre_does(control):
    # Both fibres are cut between 0 and 1: a line, on which all but its ends send both ways.
    fabric = ring(16, "25 Gb/s", reach=4, control=control).with_failures(links=[0, 1])
    with pytest.raises(ConfigError, match=r"fabric\.accelerator_bandwidth is 25 Gb/s; it must be two wavelengths"):
        rostam.run_flows(fabric, **all_to_all(16))
    fabric = ring(16, "50 Gb/s", reach=4, control=control).with_failures(links=[0, 1])
    assert np.isfinite(rostam.run_flows(fabric, **all_to_all(16)).finish_s).all()
    circuits = fabric.with_circuits(demand(16, *all_to_all(16).values())).circuits
    check_light(circuits, 16, 4, cut=(0, 1))
    half = ring(16, "25 Gb/s", reach=4, control=control).with_failures(links=[0])
    assert np.isfinite(rostam.run_flows(half, **all_to_all(16)).finish_s).all()
