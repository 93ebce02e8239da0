"""The hybrid cube mesh of DGX-1: links and distances by hand and by search, rings at the rates of their links."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.rank_groups import arrange
from rostam_py.errors import ConfigError
from rostam_py.plan.traffic import plan_volumes, schedules_of

NVLINK, NIC = 25e9, 12.5e9
SIZE = 2**30


def mesh(servers=1, **others):
    return rostam.fabric("hybrid_cube_mesh", num_accelerators=8 * servers, **others)


def test_a_server_has_24_links_of_which_every_accelerator_has_six_and_four_nics():
    fabric = mesh(2)
    links = fabric.links
    inside = links[(links["src"] < 8) & (links["dst"] < 8)]
    assert len(inside) == 2 * 24
    assert np.bincount(inside["src"]).tolist() == [6] * 8
    assert fabric.num_links == 2 * 4  # cables of NICs; those inside servers are packaging
    assert fabric.num_switches == 1
    assert fabric.vertex_name(16 + 1 + 3) == "NIC 3"
    assert fabric.config.peak_bandwidth_bytes_per_s == 6 * NVLINK + NIC
    assert mesh(1).bill_of_materials().total_usd == 0
    assert fabric.bill_of_materials().num_cables == {"DAC": 8, "AoC": 0}


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(("count", "rings"), [(2, 1), (3, 2), (4, 4), (5, 2), (6, 2), (7, 4), (8, 6)])
def test_all_reduces_of_the_first_gpus_run_at_25_gb_per_s_for_every_ring(count, rings, fold):
    result = rostam.run_collective(
        mesh(), "all_reduce", num_bytes=SIZE, algorithm="ring", ranks=list(range(count)), fold=fold
    )
    assert result.bus_bandwidth_bytes_per_s == pytest.approx(rings * NVLINK, rel=1e-3)
    chunk = -(-SIZE // (rings * count))
    assert result.bytes_sent == result.bytes_received == 2 * (count - 1) * rings * count * chunk
    chosen = rostam.run_collective(mesh(), "all_reduce", num_bytes=SIZE, ranks=list(range(count)))
    assert chosen.time_ps <= result.time_ps


def test_eight_gpus_load_every_direct_link_equally_by_hand():
    # Six rings of S / 6 on 48 directed links: each carries one ring, 2 (p-1) chunks of S / 48.
    result = rostam.run_collective(mesh(), "all_reduce", num_bytes=48 * 10**6, algorithm="ring")
    loads = result.link_bytes[result.link_bytes > 0]
    assert loads.tolist() == pytest.approx([14 * 10**6] * 48)
    # 14 steps of alpha + chunk / B: 20 ns and 1 MB / 25 GB/s = 40 us.
    assert result.time_ps == 14 * (20_000 + 40_000_000)


@pytest.mark.parametrize("servers", [2, 3])
def test_rings_of_several_servers_use_all_their_nics(servers):
    fabric = mesh(servers)
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, algorithm="ring")
    assert result.bus_bandwidth_bytes_per_s == pytest.approx(4 * NIC, rel=2e-3)
    pair = [0, 1, 8, 9]  # one NIC of either server
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, algorithm="ring", ranks=pair)
    assert result.bus_bandwidth_bytes_per_s == pytest.approx(NIC, rel=2e-3)


def test_planes_share_links_and_nics():
    # 14 chunks of S / 48 over half of 25 GB/s in either plane, and 30 of S / 64 over half of 12.5 GB/s.
    for servers in (1, 2):
        one, two = (
            rostam.run_collective(mesh(servers, planes=planes), "all_reduce", num_bytes=384 * 10**6, algorithm="ring")
            for planes in (1, 2)
        )
        assert one.time_ps == two.time_ps


def test_ranks_at_unlike_places_keep_the_channels_of_their_servers():
    members, key = arrange(mesh(2), "all_reduce", "ring", [0, 1, 2, 12, 13, 14])
    assert (key.rings, key.group_size) == ((), 3)
    assert members.tolist() == [0, 1, 2, 12, 13, 14]
    assert len(arrange(mesh(2), "all_reduce", "ring", [4, 5, 6, 12, 13, 14])[1].rings) == 2


def test_neighbours_without_a_link_send_through_those_between_them():
    # 0 and 5 have 1 and 4 in common: shares by links out of 0 (one to 1, two to 4).
    fabric = mesh()
    router = fabric.router("spray", enable_bundling=False)
    links, shares, latency_ps = router.route(0, 5)[:3]
    ends = {}
    for link, share in zip(links, shares, strict=True):
        row = fabric.links[link]
        ends[int(row["src"]), int(row["dst"])] = ends.get((int(row["src"]), int(row["dst"])), 0) + float(share)
    assert ends == pytest.approx({(0, 1): 1 / 3, (0, 4): 2 / 3, (1, 5): 1 / 3, (4, 5): 2 / 3})
    assert latency_ps == 40_000


def test_a_cut_nic_leaves_its_accelerators_a_way_through_others():
    fabric = mesh(2).with_failures(links=[0])
    assert int(fabric.core.search_distances(8)[0]) == 5  # over a direct link to another NIC
    assert rostam.run_collective(fabric, "all_reduce", num_bytes=2**20, algorithm="ring").time_ps > 0
    assert len(mesh(2).with_failures(accelerators=[3]).healthy_accelerators) == 15


def test_a_task_graph_keeps_the_rings_of_its_groups(tmp_path):
    plan = rostam.place(
        rostam.trace("transformer_350m", num_layers=1), rostam.machine("dgx1_v100"), global_batch=8,
        strategy=rostam.Strategy(dp=2, tp=4, micro_batch=1), cost="roofline", software="ideal",
    )  # fmt: skip
    found = {(key.num_ranks, len(key.rings)) for key in schedules_of(plan, plan_volumes(plan)).values() if key.rings}
    # Of 0 to 3, and of 4 to 7, four rings; of 0 and 4 two, but of 2 and 6, which run the same schedule, one.
    assert found == {(4, 4), (2, 1)}
    rostam.TaskGraph.of(plan).save(tmp_path / "tasks.json")
    loaded = rostam.TaskGraph.load(tmp_path / "tasks.json")
    assert rostam.simulate(loaded).iteration_time_s == rostam.simulate(plan).iteration_time_s
    text = (tmp_path / "tasks.json").read_text()
    (tmp_path / "bad.json").write_text(text.replace("[0, 1, 2, 3]", "[0, 1, 2, 2]").replace("[0,1,2,3]", "[0,1,2,2]"))
    with pytest.raises(ConfigError, match="each rank of a server once"):
        rostam.TaskGraph.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"num_accelerators": 12}, "fabric.num_accelerators is 12; servers have 8"),
        ({"num_accelerators": 8, "leaf_down": 6}, "fabric.leaf_down is 6; all 4 NICs"),
        ({"num_accelerators": 8, "radix": 4}, "fabric.radix is 4"),
    ],
)
def test_bad_shapes_are_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        rostam.fabric("hybrid_cube_mesh", **params)
