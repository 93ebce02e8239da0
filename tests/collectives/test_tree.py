"""NCCL's pipelined tree: a closed form by hand, its trees built one by one, bytes on links, and where it is chosen."""

import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.group_costs import group_costs
from rostam_py.collectives.predicted_time import choose_algorithm, predict_collective_time, schedule_of_ranks
from rostam_py.collectives.rank_groups import arrange
from rostam_py.collectives.transport import transport
from rostam_py.fabrics.link_classes import LINK_CLASSES, PROTOCOLS, tree_overhead

NVLINK, NETWORK = LINK_CLASSES.get("nvlink4"), LINK_CLASSES.get("infiniband")


def servers(count, **more):
    return rostam.fabric(
        "fat_tree", num_accelerators=8 * count, server_size=8, server_bandwidth="450 GB/s",
        accelerator_bandwidth="400 Gb/s", server_links="nvlink4", network_links="infiniband", **more,
    )  # fmt: skip


def parent_in_binary_tree(rank, num_ranks):
    """Rank 0 has one child; the rank whose lowest bit is b hangs from the one next to it whose lowest bit is 2 b."""
    low = rank & -rank
    above = (rank ^ low) | (low << 1)
    return above if above < num_ranks else rank ^ low


def trees(num_ranks):
    """Two trees: the second is the first one mirrored where ranks are even in number, else shifted by one."""
    first = [-1] + [parent_in_binary_tree(rank, num_ranks) for rank in range(1, num_ranks)]
    name = [num_ranks - 1 - r if num_ranks % 2 == 0 else (r + 1) % num_ranks for r in range(num_ranks)]
    second = [0] * num_ranks
    for rank, parent in enumerate(first):
        second[name[rank]] = -1 if parent < 0 else name[parent]
    return first, second


@pytest.mark.parametrize("num_servers", [2, 3, 4, 5, 8, 13, 16, 31, 64, 100, 316])
def test_the_busiest_server_and_the_depth_are_those_of_the_two_trees(num_servers):
    sent = np.zeros(num_servers, int)
    for tree in trees(num_servers):
        depth = 0
        for rank in range(num_servers):
            above, levels = rank, 0
            while tree[above] >= 0:
                above, levels = tree[above], levels + 1
            depth = max(depth, levels)
            if tree[rank] >= 0:
                sent[rank] += 1  # half of the buffer up
                sent[tree[rank]] += 1  # and down
        assert depth == math.ceil(math.log2(num_servers))
    schedule = _core.Schedule("all_reduce", "tree", num_servers)
    (message,) = schedule.sends(0, 0)
    assert (message.num_chunks, schedule.num_chunks) == (sent.max(), 2)


@pytest.mark.parametrize(
    ("count", "protocol", "base", "inside", "between", "log2_size", "filled"),
    [(2, "LL", 6.8, 0.6, 5.0, 12, 0.7), (3, "LL128", 14, 1.25, 8.5, 20, 0.6), (4, "Simple", 8.4, 4.0, 14.0, 28, 0.9),
     (13, "Simple", 8.4, 4.0, 14.0, 30, 0.9), (16, "LL128", 14, 1.25, 8.5, 22, 0.8)],
)  # fmt: skip
def test_a_tree_pays_its_depth_once_and_then_the_bytes_of_its_busiest_links(
    count, protocol, base, inside, between, log2_size, filled
):
    # Up and down 7 hops of a server's chain and ceil(log2 m) of the network. A rank sends 7 of 8 channels on each way.
    size = 2**log2_size
    wire = {"LL": 3.8, "LL128": 128 / 120, "Simple": 1}[protocol] / (0.92 * filled)
    depth = 7 * NVLINK.hop_factor * inside + math.ceil(math.log2(count)) * NETWORK.hop_factor * between
    nvlink_bytes = 2 * 7 / 8 * size * wire
    nic_bytes = {2: 1, 3: 1.5}.get(count, 2) * size / 8 * wire
    seconds = max(nvlink_bytes / (450e9 * NVLINK.share), nic_bytes / (50e9 * NETWORK.share))
    fabric = servers(count, link_latency=0.0, switch_latency=0.0)
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="tree", protocol=protocol)
    assert result.time_s == pytest.approx((NVLINK.launch_us + base + 2 * depth) * 1e-6 + seconds, rel=1e-5, abs=1e-9)
    assert result.bytes_sent == result.bytes_received
    for expected in (nvlink_bytes, nic_bytes):
        assert np.isclose(result.link_bytes, expected, rtol=1e-2).any()
    assert predict_collective_time(fabric, "all_reduce", "tree", size, protocol=protocol) == pytest.approx(
        result.time_s, rel=1e-6
    )


def test_one_group_of_a_search_costs_what_is_simulated():
    fabric = servers(4)
    for size in (2**12, 2**22, 2**29):
        members, key = schedule_of_ranks(fabric, "all_reduce", "tree", size)
        costs = group_costs(fabric, "all_reduce", "tree", members[None, :], group_size=key.group_size)
        result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="tree")
        assert costs.time_s(size, transport(fabric, key, size)) == pytest.approx(result.time_s, rel=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_greater_buffer_never_takes_less(protocol):
    sizes = [round(2 ** (k / 16)) for k in range(16 * 34)]
    times = [size * tree_overhead(protocol, size) for size in sizes]
    assert all(one <= other for one, other in zip(times, times[1:], strict=False))


@pytest.mark.parametrize("sizes", [(8, 8, 5), (8, 3, 1), (4, 4), (2, 1)])
def test_servers_of_unlike_numbers_of_ranks_conserve_bytes_folded_or_not(sizes):
    fabric = servers(len(sizes))
    ranks = [8 * server + place for server, size in enumerate(sizes) for place in range(size)]
    how = {"num_bytes": 40 * 2**20, "algorithm": "tree", "ranks": ranks, "protocol": "Simple"}
    folded = rostam.run_collective(fabric, "all_reduce", **how)
    plain = rostam.run_collective(fabric, "all_reduce", **how, fold=False, shortcuts=False)
    assert folded.time_ps == plain.time_ps
    assert np.array_equal(folded.link_bytes, plain.link_bytes)
    halves = 4 * (len(ranks) - len(sizes)) + len(sizes) * min(len(sizes), 4)  # of every channel
    assert folded.bytes_sent == folded.bytes_received == halves * how["num_bytes"] // 2


def test_chains_of_servers_with_direct_links_stay_on_them():
    # Each rank's messages inside its server go over one link: as many bytes on links as were sent, and the NICs' ways.
    fabric = rostam.machine("dgx1_v100", servers=2).fabric
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=2**26, algorithm="tree", protocol="Simple")
    schedule = schedule_of_ranks(fabric, "all_reduce", "tree", 2**26)[1]
    hops = 0
    router = fabric.router("spray")
    for _, src, dst, chunks in schedule.schedule().distinct_steps():
        inside = src // 8 == dst // 8
        latency_ps, _ = _core.route_costs(router, src[inside], dst[inside], np.ones(inside.sum()))
        assert len(set(latency_ps)) == 1
        hops += int(chunks[inside].sum())
    channels = len(schedule.rings)
    assert hops == channels * 2 * 7 * 4
    assert result.num_channels == channels


def test_the_choice_takes_it_over_many_servers():
    # 51 MB over 2,528 H100: a ring's 5,054 steps would take 9 ms; 1 MiB over 128 servers 3.4 ms.
    # Of 51 MB NCCL's model takes the trees over switches that reduce, and without those the others.
    fabric = rostam.machine("dgx_h100", servers=316).fabric
    result = rostam.run_collective(fabric, "all_reduce", num_bytes="51 MB")
    assert result.algorithm == "nvls_tree"
    assert 0.3e-3 < result.time_s < 2e-3
    assert choose_algorithm(servers(316, in_server_reduction=False), "all_reduce", "51 MB") == "tree"
    small = rostam.run_collective(rostam.machine("dgx_h100", servers=128).fabric, "all_reduce", num_bytes="1 MiB")
    assert (small.algorithm, small.time_s < 300e-6) == ("tree", True)
    big = rostam.run_collective(rostam.machine("dgx_h100", servers=4).fabric, "all_reduce", num_bytes="4 GiB")
    assert big.algorithm == "ring"  # the same bytes on NICs, at a share of 0.92


@pytest.mark.parametrize(("servers", "shares"), [(2, 1.0), (3, 1.5), (4, 2.0), (6, 2.0)])
def test_servers_with_one_nic_send_through_it_what_trees_over_servers_need(servers, shares):
    size, rate = 2**30, 12.5e9
    fabric = rostam.fabric(
        "electrical_cluster", num_accelerators=8 * servers, server_bandwidth=rate, accelerator_bandwidth="10 TB/s",
        server_latency=0, network_latency=0,
    )  # fmt: skip
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="tree")
    # Up and down one tree with half of S and up the other, S in each direction of two servers.
    assert result.time_s == pytest.approx(shares * size / rate, rel=1e-3)
    assert result.bytes_sent == result.bytes_received
    uplinks = fabric.links["bandwidth_bytes_per_s"] == rate
    assert result.link_bytes[uplinks].tolist() == pytest.approx([shares * size] * 2 * servers, rel=1e-6)


def test_servers_with_one_nic_and_unequal_or_scattered_ranks_run_a_tree():
    fabric = rostam.fabric("electrical_cluster", num_accelerators=24, server_latency=0, network_latency=0)
    ragged = [0, 1, 2, 8, 9, 16, 17, 18, 19]
    assert arrange(fabric, "all_reduce", "tree", ragged)[1].group_size == (3, 2, 4)
    assert arrange(fabric, "all_reduce", "tree", [0, 8, 1, 9])[1].group_size == 1
    assert arrange(fabric, "all_reduce", "ring", ragged)[1].group_size == 1
    for ranks in (ragged, [0, 8, 1, 9]):
        result = rostam.run_collective(fabric, "all_reduce", num_bytes=10**6, algorithm="tree", ranks=ranks)
        assert result.bytes_sent == result.bytes_received
