"""Machines by name: sizes and rates by hand, every figure with a source, bad sizes refused."""

import dataclasses

import pytest

import rostam_py as rostam
from rostam_py.costs import ACCELERATORS
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.link_classes import END_POWER
from rostam_py.machines import MACHINES
from rostam_py.machines.config import make_machine
from rostam_py.units import parse_bandwidth

# Accelerators of a server, bytes/s of one inside the server and of its NIC, kilowatts of a server: data sheets.
SERVERS = {
    "dgx_a100": ("a100_80gb", 8, 300e9, 25e9, 6.5),
    "dgx_h100": ("h100_80gb", 8, 450e9, 50e9, 10.2),
    "dgx_b200": ("b200_180gb", 8, 900e9, 50e9, 14.3),
    "gb200_nvl72": ("gb200_186gb", 72, 900e9, 50e9, 18 * 6.667),
}


@pytest.mark.parametrize("name", list(MACHINES))
def test_every_machine_builds_and_every_figure_has_a_source(name):
    schema = MACHINES.get(name)
    machine = rostam.machine(name)
    assert machine.device is ACCELERATORS[schema.accelerator]
    assert all(one.source for one in schema.figures.values())
    assert set(schema.assumed()) <= set(schema.figures)
    assert schema.__doc__.split("\n")[0].endswith(".")
    assert {entry.name for entry in dataclasses.fields(schema)}.isdisjoint(schema.figures)
    assert set(schema.sizes) <= {entry.name for entry in dataclasses.fields(machine.fabric.config)}


@pytest.mark.parametrize("name", SERVERS)
def test_servers_have_their_data_sheets_rates(name):
    accelerator, size, inside, nic, kilowatts = SERVERS[name]
    machine = rostam.machine(name, servers=4)
    config = machine.fabric.config
    assert machine.device.name == accelerator
    assert machine.num_accelerators == 4 * size
    assert config.server_size == config.nics_per_server == size
    assert parse_bandwidth(config.server_bandwidth) == inside
    assert machine.fabric.injection_bandwidth_bytes_per_s == nic
    assert machine.watts == pytest.approx(4e3 * kilowatts)


def test_dgx_1_is_a_hybrid_cube_mesh_of_six_links_and_half_a_nic_each():
    machine = rostam.machine("dgx1_v100", servers=4)
    assert (machine.device.name, machine.fabric.name, machine.num_accelerators) == ("v100_32gb", "hybrid_cube_mesh", 32)
    assert machine.fabric.injection_bandwidth_bytes_per_s == 6 * 25e9
    assert machine.fabric.config.nic_bandwidth_bytes_per_s == 12.5e9
    assert machine.watts == 4 * 3500
    # 16 NICs on one leaf of 16 ports down; nine servers need three leaves, of 16 ports up, and two spines of 36.
    assert (machine.fabric.num_switches, machine.fabric.num_links) == (1, 16)
    nine = rostam.machine("dgx1_v100", servers=9).fabric
    assert (nine.num_switches, nine.num_links) == (3 + 2, 36 + 3 * 16)
    assert rostam.machine("dgx1_v100", servers=9, taper=2).fabric.config.leaf_down == 24


def test_16_dgx_h100_have_the_switches_of_half_a_scalable_unit():
    # 128 accelerators: 4 leaves of 32 ports down, their 128 uplinks fill 2 spines of 64 ports.
    fabric = rostam.machine("dgx_h100", servers=16).fabric
    assert (fabric.num_switches, fabric.num_links) == (6, 128 + 128)


@pytest.mark.parametrize("rails", [True, False])
@pytest.mark.parametrize(
    ("servers", "switches", "cables"),
    [(64, 16 + 8, 2 * 512), (128, 32 + 16, 2 * 1024), (256, 64 + 32, 2 * 2048), (512, 128 + 128 + 64, 3 * 4096)],
)
def test_whole_scalable_units_have_the_switches_and_cables_of_the_reference_architecture(
    servers, switches, cables, rails
):
    # DGX SuperPOD reference architecture with DGX B200, larger component counts: 2, 4, 8 and 16 units of 32 servers.
    fabric = rostam.machine("dgx_b200", servers=servers, rails=rails).fabric
    assert (fabric.num_switches, fabric.num_links) == (switches, cables)


def test_servers_of_a_unit_reach_each_other_on_a_rail_in_one_hop_and_across_rails_over_spines():
    machine = rostam.machine("dgx_h100", servers=64)
    pairs = [(3, 8 * 31 + 3), (3, 8 * 31 + 4), (3, 8 * 32 + 3)]
    hops = {(src, dst): int(machine.fabric.core.search_distances(dst)[src]) for src, dst in pairs}
    assert list(hops.values()) == [4, 6, 6]  # accelerator, NIC, leaf, NIC, accelerator; across, two links more
    plain = rostam.machine("dgx_h100", servers=64, rails=False).fabric.core
    assert [int(plain.search_distances(dst)[src]) for src, dst in hops] == [6, 6, 6]


def test_taper_divides_the_ports_of_a_leaf():
    def ports(taper):
        parameters = make_machine("dgx_h100", MACHINES.get("dgx_h100"), {"servers": 64, "taper": taper}).site()
        return parameters.parameters["leaf_down"], parameters.parameters["leaf_up"]

    assert ports(1.0) == (32, 32)
    assert ports(3) == (48, 16)
    assert ports(63) == (63, 1)
    assert rostam.machine("dgx_h100", servers=64, taper=3).fabric.num_switches < 24


def test_rings_of_one_server_run_at_the_rate_inside_it_and_of_two_at_that_of_all_nics():
    # 2 (p-1)/p S/B: 8 in a server of 450 GB/s; 16 in two, whose NICs carry 8 x 50 GB/s; of each what links achieve,
    # less what a rank does for itself with its last chunk of S/p; start-ups aside.
    size = 2**34
    inside, between = rostam.machine("dgx_h100").fabric.config.link_classes
    one = rostam.run_collective(rostam.machine("dgx_h100").fabric, "all_reduce", num_bytes=size, algorithm="ring")
    own = inside.all_reduce_end * (2**20 / (450e9 * inside.share)) * (size / 8 / 2**20) ** END_POWER
    expected = 1.75 * size / (1.75 * size / (450e9 * inside.share) + own)
    assert one.bus_bandwidth_bytes_per_s == pytest.approx(expected, rel=0.01)
    pair = rostam.machine("dgx_h100", servers=2).fabric
    two = rostam.run_collective(pair, "all_reduce", num_bytes=size, algorithm="ring")
    own *= 0.5**END_POWER  # half the chunk
    expected = 1.875 * size / (1.875 * size / (400e9 * between.share) + own)
    assert two.bus_bandwidth_bytes_per_s == pytest.approx(expected, rel=0.01)


def test_a_slice_of_a_pod_is_a_torus_of_its_chips():
    machine = rostam.machine("tpu_v4_pod", dims=[4, 4, 8])
    assert machine.num_accelerators == 128
    assert machine.fabric.num_links == 3 * 128  # two ends of each link
    assert machine.fabric.injection_bandwidth_bytes_per_s == 6 * 50e9
    assert machine.watts == 192 * 128
    assert machine.usd is None


def test_all_reduces_of_a_pod_reach_what_its_table_states():
    # cloud.google.com/tpu/docs/v4: 1.1 PB/s of all-reduce bandwidth over 4,096 chips, whose links together have 1.23.
    fabric = rostam.machine("tpu_v4_pod", dims=[16, 16, 16]).fabric
    found = rostam.run_collective(fabric, "all_reduce", num_bytes=2**30)
    assert found.algorithm == "torus_nd"
    assert 4096 * found.bus_bandwidth_bytes_per_s == pytest.approx(4096 * 6 * 50e9, rel=0.001)
    assert 4096 * found.bus_bandwidth_bytes_per_s == pytest.approx(1.1e15, rel=0.13)
    ring = rostam.run_collective(fabric, "all_reduce", num_bytes=2**30, algorithm="bidirectional_ring")
    assert ring.time_s > 2.9 * found.time_s


def test_prices_are_of_all_servers_where_one_is_known():
    assert rostam.machine("dgx_a100", servers=20).usd == 20 * 199_000
    assert rostam.machine("dgx_h100", servers=20).usd is None


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("dgx_h100", {"servers": 0}, "machine.servers is 0"),
        ("dgx_h100", {"taper": 0.5}, "machine.taper is 0.5"),
        ("dgx_h100", {"taper": True}, "machine.taper is True"),
        ("dgx_h100", {"rails": 1}, "machine.rails is 1; it must be true or false"),
        ("dgx1_v100", {"rails": True}, "unknown key 'machine.rails'"),
        ("dgx1_v100", {"taper": 0.1}, "machine.taper is 0.1"),
        ("dgx_h100", {"dims": [4, 4, 4]}, "unknown key 'machine.dims'"),
        ("tpu_v4_pod", {"dims": [4, 4]}, "three dimensions"),
        ("tpu_v4_pod", {"dims": [64, 64, 2]}, "2 to 4096 chips"),
    ],
)
def test_bad_sizes_are_refused(name, given, words):
    with pytest.raises(ConfigError, match=words):
        rostam.machine(name, **given)


def test_an_unknown_machine_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="dgx_h100"):
        rostam.machine("dgx_h10")


def test_a_plan_on_a_machine_keeps_its_power_and_price(tmp_path):
    machine = rostam.machine("dgx_a100")
    plan = rostam.place(
        rostam.trace("transformer_350m"),
        machine,
        global_batch=8,
        strategy=rostam.Strategy(dp=8, micro_batch=1),
        software="ideal",
    )
    result = rostam.simulate(plan)
    assert result.energy_j == pytest.approx(6500 * result.iteration_time_s)
    found = result.to_dict()
    assert (found["machine_watts"], found["machine_usd"]) == (6500.0, 199_000.0)
    plan.save(tmp_path / "plan.json.gz")
    loaded = rostam.Plan.load(str(tmp_path / "plan.json.gz")).machine
    assert (loaded.watts, loaded.usd) == (6500.0, 199_000.0)
    bare = rostam.Machine(fabric=build_fabric("electrical_flat", num_accelerators=8))
    assert "machine_watts" not in rostam.simulate(plan.on(bare)).to_dict()
