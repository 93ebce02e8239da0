"""All-reduces over servers: what NCCL takes, judged by its own log, and NVLSTree's time by hand."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives import between_servers
from rostam_py.collectives.between_servers import Servers, tuned_between
from rostam_py.collectives.predicted_time import choose_algorithm, predict_collective_time
from rostam_py.collectives.transport import nccl_choices
from rostam_py.errors import ConfigError
from rostam_py.fabrics.link_classes import LINK_CLASSES

LOG = Path(__file__).with_name("nccl_tuning_between_servers.csv")
SIZES = [2**exponent for exponent in range(10, 33)]
MI = 2**20


def logged():
    """Return {servers: {(algorithm, protocol): (latency [us], bandwidth [GB/s])}}."""
    found = {}
    with LOG.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            servers = Servers(int(row["servers"]), int(row["gpus_per_server"]))
            figures = float(row["latency_us"]), float(row["bandwidth_gbytes_per_s"])
            found.setdefault(servers, {})[row["algorithm"], row["protocol"]] = figures
    return found


def best_logged(figures, size):
    return min(figures, key=lambda one: figures[one][0] * 1e-6 + size / figures[one][1] * 1e-9)


def fabric(count, **keys):
    return rostam.fabric(
        "fat_tree", num_accelerators=8 * count, server_size=8, server_bandwidth="450 GB/s",
        accelerator_bandwidth="400 Gb/s", server_links="nvlink4", network_links="infiniband", **keys,
    )  # fmt: skip


def members(servers):
    """Return as many accelerators of each server."""
    return np.array([8 * server + place for server in range(servers.count) for place in range(servers.ranks)])


def test_latencies_and_rates_of_rings_and_trees_are_the_logs():
    for servers, figures in logged().items():
        for (algorithm, protocol), (latency_us, rate) in figures.items():
            assert between_servers._latency_us(servers, algorithm, protocol) == pytest.approx(latency_us, abs=0.051)
            if algorithm == "nvls_tree":
                continue
            rate_of = between_servers._ring_rate if algorithm == "ring" else between_servers._tree_rate
            assert rate_of(servers, 48.0, protocol) == pytest.approx(rate, abs=0.051)


def test_the_default_takes_what_nccls_log_has_as_fastest_in_nearly_all_cases():
    """Criterion: 80% of servers x sizes, with the algorithm; the protocol as well is a wish."""
    fabrics = {count: fabric(count) for count in (2, 4, 8, 16, 32)}
    same, same_protocol, count = 0, 0, 0
    for servers, figures in logged().items():
        for size in SIZES:
            chosen = nccl_choices(fabrics[servers.count], "all_reduce", size, members(servers))[0]
            best = best_logged(figures, size)
            count += 1
            same += chosen[0] == best[0]
            same_protocol += chosen == best
    assert count == 460
    assert same >= 0.99 * count
    assert same_protocol >= 0.99 * count


@pytest.mark.parametrize(
    ("count", "size", "algorithm", "protocol"),
    [
        (32, MI, "tree", "LL128"), (32, 16 * MI, "nvls_tree", "Simple"), (32, 2**30, "nvls_tree", "Simple"),
        (4, 128 * MI, "nvls_tree", "Simple"), (4, 256 * MI, "ring", "Simple"), (4, 2**30, "ring", "Simple"),
        (2, 2**30, "nvls_tree", "Simple"), (2, 2**10, "tree", "LL"),
    ],
)  # fmt: skip
def test_auto_follows_nccl_between_servers(count, size, algorithm, protocol):
    where = fabric(count)
    assert best_logged(logged()[Servers(count, 8)], size) == (algorithm, protocol)
    assert choose_algorithm(where, "all_reduce", size) == algorithm
    if count <= 4:
        result = rostam.run_collective(where, "all_reduce", num_bytes=size)
        assert (result.algorithm, result.protocol) == (algorithm, protocol)


def test_the_model_chooses_only_where_it_is_known():
    ranks = np.arange(32)
    assert nccl_choices(fabric(4), "all_reduce", MI, ranks)
    assert nccl_choices(fabric(4), "all_gather", MI, ranks) == []
    assert nccl_choices(fabric(4), "all_reduce", MI, ranks[:-1]) == []  # servers differ
    assert nccl_choices(fabric(4, in_network_reduction=True), "all_reduce", MI, ranks) == []
    ideal = rostam.fabric("fat_tree", num_accelerators=32, server_size=8)
    assert nccl_choices(ideal, "all_reduce", MI, ranks) == []
    other = rostam.fabric(
        "fat_tree", num_accelerators=32, server_size=8, server_links="nvlink3", network_links="infiniband"
    )
    assert nccl_choices(other, "all_reduce", MI, ranks) == []


def test_switches_that_do_not_reduce_leave_rings_and_trees():
    where = fabric(8, in_server_reduction=False)
    assert tuned_between(Servers(8, 8), 50e9, 2**28)[0][0] == "nvls_tree"
    assert choose_algorithm(where, "all_reduce", 2**28) == "ring"
    with pytest.raises(ConfigError, match=r"nvls_tree cannot run .* do not reduce"):
        rostam.run_collective(where, "all_reduce", num_bytes=MI, algorithm="nvls_tree")


@pytest.mark.parametrize(("count", "halves"), [(2, 2), (3, 3), (4, 4), (8, 4)])
def test_nvls_tree_takes_its_fullest_link_and_the_depth_of_its_trees(count, halves):
    """Inside 9 u with the overhead of in-switch reduction, between `halves` halves of u = S/8, both at once."""
    where = fabric(count, link_latency=0.0, switch_latency=0.0)
    links, network = LINK_CLASSES.get("nvlink4"), LINK_CLASSES.get("infiniband")
    for size in (64 * MI, 2**30):
        result = rostam.run_collective(where, "all_reduce", num_bytes=size, algorithm="nvls_tree")
        inside = math.ceil(18 * (size // 16) * links.nvls_overhead) / (450e9 * links.share)
        between = math.ceil(halves * (size // 16) * links.nvls_overhead) / (50e9 * network.share)
        depth = links.hop_factor * 25e-6 + 2 * math.ceil(math.log2(count)) * 14e-6
        start = links.nvls_launch_us * 1e-6 + depth
        assert result.time_s == pytest.approx(start + max(inside, between), abs=3e-12)
        assert result.bytes_sent == result.bytes_received
        predicted = predict_collective_time(where, "all_reduce", "nvls_tree", size)
        assert predicted == pytest.approx(result.time_s, abs=30e-12)  # a byte on the wire


def test_nvls_tree_runs_on_ideal_links_whose_switches_reduce():
    """max of (g+1)/g S / B inside and S/g for two servers between, and two route latencies less one."""
    where = rostam.fabric(
        "fat_tree", num_accelerators=16, server_size=8, server_bandwidth="450 GB/s", link_bandwidth="400 Gb/s",
        in_server_reduction=True, link_latency=0.0, switch_latency=0.0,
    )  # fmt: skip
    result = rostam.run_collective(where, "all_reduce", num_bytes=2**30, algorithm="nvls_tree")
    assert result.time_s == pytest.approx(max(9 / 8 * 2**30 / 450e9, 2**30 / 8 / 50e9), rel=1e-9)
    assert rostam.run_collective(where, "all_reduce", num_bytes=2**30).algorithm == "nvls_tree"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (range(8), "its ranks are on one server; it takes those of several"),
        (range(15), "every server must have as many of its ranks"),
        ([0, 1, 8, 9], "it takes 4 ranks or more of every server"),
    ],
)
def test_nvls_tree_is_refused_where_it_cannot_run(ranks, said):
    with pytest.raises(ConfigError, match=said):
        rostam.run_collective(fabric(2), "all_reduce", num_bytes=MI, algorithm="nvls_tree", ranks=list(ranks))
