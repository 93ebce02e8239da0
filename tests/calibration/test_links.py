"""Link classes: their constants come out of the tables again, and what they reach on rows that were not fitted."""

import json

import pytest

import rostam_py as rostam
from calibration import links
from calibration.published import read
from rostam_py.fabrics.link_classes import LINK_CLASSES, LINKS, LinkClass

# Figures of DGX servers, as far as a collective inside one asks for them.
BENCHES = {bench.name: bench for bench in links.BENCHES}


# The smallest tables are fitted in every run; the descent is the same for all.
@pytest.mark.parametrize(
    "name", [name if name == "nvlink2" else pytest.param(name, marks=pytest.mark.slow) for name in BENCHES]
)
def test_constants_are_what_the_tables_give_bit_for_bit(name, tmp_path):
    fitted = links.fit(BENCHES[name])
    assert links.write(fitted, tmp_path).read_bytes() == (LINKS / f"{name}.json").read_bytes()


def test_the_networks_constants_are_what_its_row_gives_bit_for_bit(tmp_path):
    network = links.fit_network(LINK_CLASSES.get("nvlink4"))
    assert links.write(network, tmp_path).read_bytes() == (LINKS / f"{network.name}.json").read_bytes()


def test_every_class_names_its_tables():
    for name in LINK_CLASSES.names():
        found = LINK_CLASSES.get(name)
        assert found.is_ideal or all(found.sources.values())
        assert (LINKS / f"{name}.json").exists() != found.is_ideal


def test_odd_sizes_are_fitted_and_one_number_of_ranks_never():
    for bench in links.BENCHES:
        fitted, judged, held_out = links.split(bench, links.rows_of(bench.tables))
        assert {row.num_ranks for row in held_out} == {bench.held_out}
        assert bench.held_out not in {row.num_ranks for row in (*fitted, *judged)}
        assert not set(fitted) & set(judged)
        assert 0 <= len(fitted) - len(judged) <= 0.1 * len(fitted) + 12


def test_a_law_is_found_again():
    # Rows made by known constants, of rings alone: the fit must come within 2% of all of them.
    true = LinkClass(name="made_up", share=0.8, launch_us=20.0, hop_factor=2.0, all_reduce_end=0.6)
    bench = links.Bench(name="made_up", accelerator="X", rate=300e9, tables=(), held_out=5)
    rows = [
        links.Row("", "all_reduce", p, 2**k, links.predict(bench, true, links.Row("", "all_reduce", p, 2**k, 1.0))[0])
        for p in (2, 4, 8)
        for k in range(20, 31)
    ]
    assert max(map(abs, links.errors(bench, true, rows))) == 0
    start = LinkClass(name="made_up", share=0.7, launch_us=15.0, hop_factor=1.5, all_reduce_end=0.3)
    found = links.descend(bench, start, ["share", "launch_us", "hop_factor", "all_reduce_end"], rows)
    assert max(map(abs, links.errors(bench, found, rows))) < 0.02


# Mean and largest error on rows that were not fitted, 1 MiB to 1 GiB, each with a little room; calibration.md's rule is
# 10% and 25% for all_reduce, 15% for others. docs/collectives.md says why those that miss it do.
XLA_H100, XLA_B200 = "collectives_h100.csv", "collectives_b200.csv"
NCCL = "collectives_nccl_tests.csv, {}".format


@pytest.mark.parametrize(
    ("name", "table", "collective", "mean", "largest"),
    [
        ("nvlink2", "allreduce_v100_dgx1.csv", "all_reduce", 0.07, 0.25),
        ("nvlink3", "allreduce_a100_nvswitch.csv", "all_reduce", 0.04, 0.25),
        ("nvlink3", NCCL("a100_sxm"), "all_reduce", 0.06, 0.25),
        ("nvlink3", NCCL("a100_sxm"), "all_gather", 0.07, 0.25),
        ("nvlink3", NCCL("a100_sxm"), "reduce_scatter", 0.05, 0.25),
        ("nvlink3", NCCL("a100_sxm"), "all_to_all", 0.10, 0.25),
        ("nvlink4", NCCL("h100_sxm"), "all_reduce", 0.05, 0.20),
        ("nvlink4", NCCL("h100_sxm"), "all_gather", 0.05, 0.25),
        ("nvlink4", NCCL("h100_sxm"), "reduce_scatter", 0.08, 0.25),
        ("nvlink4", NCCL("h100_sxm"), "all_to_all", 0.10, 0.25),
        ("nvlink4", NCCL("h200_sxm"), "all_reduce", 0.06, 0.20),  # no row of it was fitted
        ("nvlink4", NCCL("h200_sxm"), "all_to_all", 0.13, 0.30),
        ("nvlink4", "nccl_tests_8gpu_simumax.csv", "all_reduce", 0.02, 0.05),
        ("nvlink4", "nccl_tests_8gpu_simumax.csv", "all_gather", 0.04, 0.10),
        ("nvlink4", "nccl_tests_8gpu_simumax.csv", "reduce_scatter", 0.02, 0.05),
        ("nvlink4", "nccl_tests_8gpu_simumax.csv", "all_to_all", 0.14, 0.25),
        ("nvlink5", NCCL("b200_sxm"), "all_reduce", 0.07, 0.25),
        ("nvlink5", NCCL("b200_sxm"), "all_gather", 0.08, 0.25),
        ("nvlink5", NCCL("b200_sxm"), "reduce_scatter", 0.08, 0.25),
        ("nvlink5", NCCL("b200_sxm"), "all_to_all", 0.08, 0.25),
        ("nvlink5", NCCL("gb200"), "all_reduce", 0.07, 0.25),  # no row of it was fitted
        ("nvlink4_xla", XLA_H100, "all_reduce", 0.10, 0.40),  # its worst missed
        ("nvlink4_xla", XLA_H100, "all_gather", 0.09, 0.25),
        ("nvlink4_xla", XLA_H100, "reduce_scatter", 0.10, 0.35),
        ("nvlink4_xla", XLA_H100, "all_to_all", 0.14, 0.90),
        ("nvlink4_xla", XLA_H100, "permute", 0.15, 0.60),
        ("nvlink5_xla", XLA_B200, "all_reduce", 0.10, 0.25),
        ("nvlink5_xla", XLA_B200, "all_gather", 0.12, 0.45),
        ("nvlink5_xla", XLA_B200, "reduce_scatter", 0.14, 0.35),
        ("nvlink5_xla", XLA_B200, "all_to_all", 0.08, 0.25),
        ("nvlink5_xla", XLA_B200, "permute", 0.14, 0.65),
    ],
)
def test_rows_that_were_not_fitted_are_met(name, table, collective, mean, largest):
    (found,) = (
        one
        for one in links.judge(BENCHES[name], links.shipped(name))
        if (one.table, one.collective) == (table, collective)
    )
    assert found.absolute <= mean
    assert abs(found.worst) <= largest


@pytest.mark.parametrize(
    ("name", "collective", "ranks", "last_ll"),
    [
        # LL: 6.6 + 0.6 n us and 282 GB/s, Simple: 8.4 + 3.4 n us and 720 GB/s of bus bandwidth, n = 2 (p-1) or p - 1.
        ("nvlink5", "all_reduce", 2, (1.8 + 2.8 * 2) * 1e-6 / (1 / 282e9 - 1 / 720e9)),
        ("nvlink5", "all_reduce", 4, (1.8 + 2.8 * 6) * 1e-6 / (1.5 / 282e9 - 1.5 / 720e9)),
        ("nvlink5", "all_gather", 8, (1.8 + 2.8 * 7) * 1e-6 / (0.875 / 282e9 - 0.875 / 720e9)),
        # LL128 comes next on A100: 14 + 1.9 n us and 220.8 GB/s, LL 87.7.
        ("nvlink3", "all_reduce", 4, (7.4 + 1.3 * 6) * 1e-6 / (1.5 / 87.7e9 - 1.5 / 220.8e9)),
    ],
)
def test_protocols_change_where_nccls_tuning_model_changes_them(name, collective, ranks, last_ll):
    fabric, following = server(BENCHES[name]), "Simple" if name == "nvlink5" else "LL128"
    for size, protocol in ((0.99 * last_ll, "LL"), (1.01 * last_ll, following)):
        size = int(size) // 4096 * 4096
        assert LINK_CLASSES.get(name).choices(collective, size, ranks)[0] == ("ring", protocol)
        auto = rostam.run_collective(fabric, collective, num_bytes=size, ranks=range(ranks), algorithm="auto")
        fixed = rostam.run_collective(
            fabric, collective, num_bytes=size, ranks=range(ranks), algorithm="ring", protocol=protocol
        )
        assert auto.time_s == fixed.time_s


@pytest.mark.parametrize(("system", "ranks", "collective"), [("b200_sxm", 4, "all_reduce"), ("gb200", 4, "all_gather")])
def test_measured_times_jump_where_the_protocol_changes(system, ranks, collective):
    # From one power of two to the next times grow by less than 1.6 but where LL ends: 2.0 to 2.4.
    rows = {
        row.num_bytes: row.seconds for row in links.rows_of([links.Table(links.COLLECTIVES, system)])
        if (row.collective, row.num_ranks) == (collective, ranks) and row.num_bytes <= 2**25
    }  # fmt: skip
    grown = {size: rows[2 * size] / rows[size] for size in rows if 2 * size in rows}
    jump = max(grown, key=lambda size: grown[size])
    assert grown[jump] > 2 > 1.6 > max(value for size, value in grown.items() if size != jump)
    first, following = (LINK_CLASSES.get("nvlink5").choices(collective, size, ranks)[0] for size in (jump, 2 * jump))
    assert (first, following) == (("ring", "LL"), ("ring", "Simple"))


def test_in_switch_reduction_is_taken_where_nccls_tuning_model_takes_it():
    # 8 B200: 25 us and 8 x 0.74 x 90 GB/s, where LL takes 6.6 + 14 x 0.6 us and 282 GB/s.
    size = int(10e-6 / (1.75 / 282e9 - 1 / (8 * 0.74 * 90e9)))
    fabric = server(BENCHES["nvlink5"])
    for num_bytes, algorithm in ((0.99 * size, "ring"), (1.01 * size, "nvls")):
        assert (
            rostam.run_collective(fabric, "all_reduce", num_bytes=int(num_bytes) // 4096 * 4096).algorithm == algorithm
        )


def test_a_harness_counts_for_its_own_table_alone():
    bench, fitted = BENCHES["nvlink3"], links.shipped("nvlink3")
    small = {row.table: row for row in links.rows_of(bench.tables) if (row.num_ranks, row.num_bytes) == (8, 2**20)}
    for table, row in small.items():
        link_s = links.predict(bench, fitted, row)[0]
        least = (fitted.base_us + 8 * fitted.rank_us) * 1e-6 if table == bench.launched else 0.0
        assert links.errors(bench, fitted, [row]) == [max(link_s, least) / row.seconds - 1]
    assert not {"base_us", "rank_us"} & {*vars(LINK_CLASSES.get("nvlink3")), *fitted.constants}


def test_nccl_tests_and_xla_agree_on_large_gathers_and_not_on_reductions_of_few_ranks():
    # Why XLA's tables have classes of their own: the same links and NCCL, 2 H100 at 512 MiB.
    def rates(table):
        return {
            row.collective: row.num_bytes / row.seconds
            for row in links.rows_of([table])
            if (row.num_ranks, row.num_bytes) == (2, 2**29) and row.collective in ("all_gather", "all_reduce")
        }

    ours, theirs = rates(links.Table(links.COLLECTIVES, "h100_sxm")), rates(links.Table(XLA_H100))
    assert theirs["all_gather"] == pytest.approx(ours["all_gather"], rel=0.02)
    assert ours["all_reduce"] > 1.3 * theirs["all_reduce"]


def server(bench):
    """A server of the class, 8 accelerators without latencies, which the tables' start-ups contain."""
    if bench.name == "nvlink2":
        return rostam.fabric(
            "hybrid_cube_mesh", num_accelerators=8, server_links="nvlink2", link_latency=0.0, switch_latency=0.0
        )
    return rostam.fabric(
        "fat_tree", num_accelerators=8, server_size=8, server_bandwidth=bench.rate, server_links=bench.name,
        network_links="infiniband", link_latency=0.0, switch_latency=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", list(BENCHES))
def test_simulations_are_what_the_fit_predicts(name):
    bench = BENCHES[name]
    fabric, constants = server(bench), LINK_CLASSES.get(name)
    rows = [row for row in links.rows_of(bench.tables) if not row.pattern or row.pattern == "ring"]
    for row in rows[:: max(1, len(rows) // 60)]:
        collective = "shift" if row.collective == "permute" else row.collective
        result = rostam.run_collective(
            fabric, collective, num_bytes=row.num_bytes, ranks=range(row.num_ranks),
            algorithm="ring" if collective == "all_reduce" else None,
        )  # fmt: skip
        expected, by = links.predict(bench, constants, row)
        if by.startswith("nvls"):
            result = rostam.run_collective(
                fabric, collective, num_bytes=row.num_bytes, ranks=range(row.num_ranks), algorithm="nvls"
            )
        # Rings of five V100 load links unevenly: ranks run ahead of each other and hide hops.
        slack = 0.06 if (name, row.num_ranks) == ("nvlink2", 5) else 1e-4
        assert result.time_s == pytest.approx(expected, rel=slack)


@pytest.mark.parametrize("name", ["nvlink3", "nvlink4", "nvlink5"])
def test_what_two_ranks_take_beyond_their_bytes_grows_with_the_size(name):
    # Were it a start-up or a pipeline's first chunk it would stay as it is: ends in bytes rest on this.
    bench, constants = BENCHES[name], LINK_CLASSES.get(name)
    rows = [row for row in links.rows_of(bench.tables[:1]) if (row.collective, row.num_ranks) == ("all_reduce", 2)]
    last = max(rows, key=lambda row: row.num_bytes)
    half = min(rows, key=lambda row: abs(row.num_bytes - last.num_bytes / 2))
    beyond = [row.seconds - row.num_bytes / (bench.rate_of(2) * constants.share) for row in (half, last)]
    assert beyond[1] / beyond[0] > 1.3


def test_thirty_two_h100_reach_what_is_published():
    (row,) = (one for one in read("collectives_published.csv") if one["num_servers"] != "1")
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=32, server_size=8, server_bandwidth="450 GB/s", server_links="nvlink4",
        accelerator_bandwidth="400 Gb/s", network_links="infiniband",
    )  # fmt: skip
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=int(row["bytes"]), algorithm="ring")
    assert result.bus_bandwidth_bytes_per_s == pytest.approx(float(row["busbw_gb_per_s"]) * 1e9, rel=0.01)


def test_in_switch_reduction_follows_the_published_bandwidths():
    # 5 to 8 ranks: 2 (p-1)/(p+1) of one rate explains all four; tables of XLA and nccl-tests lie to both sides of it.
    fabric = server(BENCHES["nvlink4"])
    for row in read("collectives_published.csv"):
        if row["algorithm"] != "nvls":
            continue
        result = rostam.run_collective(
            fabric, "all_reduce", num_bytes=int(row["bytes"]), ranks=range(int(row["num_gpus"])), algorithm="nvls"
        )
        assert result.bus_bandwidth_bytes_per_s == pytest.approx(float(row["busbw_gb_per_s"]) * 1e9, rel=0.1)


def test_files_hold_every_constant():
    for name in BENCHES:
        held = json.loads((LINKS / f"{name}.json").read_text())
        assert set(held) - {"held_out", "harness"} == set(LINK_CLASSES.get(name).constants)
