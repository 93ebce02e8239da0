"""Switches that add up: a field of the fabric says so, and "auto" weighs what it opens."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

SIZE = 2**30


def server(size=16, **more):
    return rostam.fabric(
        "fat_tree", num_accelerators=size, server_size=size, server_bandwidth="150 GB/s", link_latency=0,
        switch_latency=0, **more,
    )  # fmt: skip


def cluster(**more):
    return rostam.fabric(
        "electrical_cluster", num_accelerators=8, accelerator_bandwidth="150 GB/s", server_latency=0, network_latency=0,
        **more,
    )  # fmt: skip


def test_auto_weighs_in_switch_reduction_on_ideal_links_that_have_it():
    result = rostam.run_collective(server(in_server_reduction=True), "all_reduce", num_bytes=SIZE)
    # 17/16 of S each way at 150 GB/s.
    assert (result.algorithm, result.time_s) == ("nvls", pytest.approx(17 / 16 * SIZE / 150e9, rel=1e-9))
    plain = rostam.run_collective(server(), "all_reduce", num_bytes=SIZE)
    assert plain.algorithm != "nvls"
    assert plain.time_s == pytest.approx(30 / 16 * SIZE / 150e9, rel=1e-6)
    assert rostam.run_collective(cluster(in_server_reduction=True), "all_reduce", num_bytes=SIZE).algorithm == "nvls"


def test_few_ranks_take_what_is_faster():
    # (p+1)/p of S against 2 (p-1)/p: two ranks gain nothing.
    fabric = server(in_server_reduction=True)
    chosen = [
        rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, ranks=range(p)).algorithm for p in (1, 2, 4, 16)
    ]
    assert "nvls" not in chosen[:2]
    assert chosen[2:] == ["nvls", "nvls"]


def test_by_name_it_needs_switches_that_add_up():
    for fabric in (server(), cluster(), server(in_server_reduction=False, server_links="nvlink4")):
        with pytest.raises(ConfigError, match=r"do not reduce \(fabric.in_server_reduction\)"):
            rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, algorithm="nvls")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (
            {"server_links": "nvlink3"},
            "server_links is 'nvlink3', whose switches do not reduce; those of nvlink4",
        ),
        ({"size": 1}, "fabric.in_server_reduction is true, but fabric.server_size is 1"),
        ({"in_server_reduction": 2}, "fabric.in_server_reduction is 2; it must be true or false"),
    ],
)
def test_fabrics_that_cannot_are_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        server(**{"in_server_reduction": True, **params})


@pytest.mark.parametrize(
    ("machine", "reduces"),
    [("dgx_h100", True), ("dgx_b200", True), ("gb200_nvl72", True), ("dgx_a100", False), ("dgx1_v100", False)],
)
def test_named_machines_have_what_their_links_have(machine, reduces):
    assert rostam.machine(machine).fabric.config.reduces_in_servers is reduces


def test_networks_that_reduce_are_weighed_on_ideal_links_too():
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=32, server_size=8, server_bandwidth="450 GB/s", accelerator_bandwidth="400 Gb/s",
        in_network_reduction=True,
    )  # fmt: skip
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE)
    assert result.algorithm == "collnet"
    others = [
        rostam.run_collective(fabric, "all_reduce", num_bytes=SIZE, algorithm=name).time_s
        for name in ("ring", "hierarchical")
    ]
    assert result.time_s < min(others)
