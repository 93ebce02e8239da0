"""One plan's iteration time moves with the fabric, its bandwidth, its wiring and the mapping."""

import itertools

import pytest

import rostam_py as rostam

RING = {"all_reduce": "ring"}  # whose time every knob below moves
# 32 accelerators in 8 tensor-parallel groups of 4: both axes communicate, dp across boards and servers.
FABRICS = {
    "electrical_flat": {"num_accelerators": 32},
    "electrical_cluster": {"num_accelerators": 32},
    "fat_tree": {"num_accelerators": 32, "levels": 2, "radix": 16},
    "hammingmesh": {"board": (2, 2), "boards": (4, 2)},
    "torus": {"dims": (4, 8)},
    "sip_ocs": {"num_accelerators": 32},
    "sip_ring": {"num_accelerators": 32},
}


@pytest.fixture(scope="module")
def iteration_s(gpt):
    """Return a function: iteration time of the one plan [s], on a fabric and with a mapping."""
    known = {}

    def simulate(name, bandwidth="400 Gb/s", mapping="linear", **parameters):
        fabric = rostam.fabric(name, accelerator_bandwidth=bandwidth, **(FABRICS[name] | parameters))
        machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
        if mapping not in known:
            strategy = rostam.Strategy(dp=8, tp=4, precision="bf16_mixed", mapping=mapping, algorithms=RING)
            known[mapping] = rostam.place(gpt, machine, global_batch=32, strategy=strategy, software="ideal")
        return rostam.simulate(known[mapping].on(machine)).iteration_time_s

    return simulate


def test_every_fabric_gives_another_time(iteration_s):
    times = {name: iteration_s(name) for name in FABRICS}
    for a, b in itertools.combinations(times, 2):
        assert abs(times[a] / times[b] - 1) > 1e-5, (a, b)


@pytest.mark.parametrize("name", FABRICS)
def test_every_bandwidth_gives_another_time(name, iteration_s):
    times = [iteration_s(name, f"{bandwidth} Gb/s") for bandwidth in (400, 800, 1600)]
    for a, b in itertools.combinations(times, 2):
        assert abs(a / b - 1) > 1e-4


def test_each_wiring_of_a_hammingmesh_gives_another_time(iteration_s):
    # Four boards a row: 16 or 8 links fill one switch of 64 ports; leaves of 8 ports make it a tree. Paths through
    # the switches of a row of boards may change accelerator row there, those of an accelerator row may not.
    times = [iteration_s("hammingmesh", wiring=wiring) for wiring in ("board_row", "accelerator_row")]
    times.append(iteration_s("hammingmesh", wiring="tree", radix=8))
    for a, b in itertools.combinations(times, 2):
        assert abs(a / b - 1) > 1e-6


@pytest.mark.parametrize("name", ["electrical_cluster", "torus", "hammingmesh"])
def test_the_mapping_moves_the_time_where_place_matters(name, iteration_s):
    # Linear keeps tp groups in a server, row or board; a random mapping spreads them. Which is faster is not asserted.
    assert abs(iteration_s(name, mapping="random(1)") / iteration_s(name) - 1) > 0.01


def test_the_mapping_moves_nothing_on_an_ideal_switch(iteration_s):
    assert iteration_s("electrical_flat", mapping="random(1)") == iteration_s("electrical_flat")
