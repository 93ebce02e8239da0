"""``rostam collective``: a sweep over sizes as nccl-tests print it, times and bandwidths by hand."""

import csv
import json

import pytest

from rostam_py.cli.main import main

# Four accelerators of 50 GB/s on one ideal switch, 1 us end to end.
FLAT = ["fabric=electrical_flat", "fabric.num_accelerators=4", "fabric.accelerator_bandwidth=50 GB/s"]
MB = 2**20


def rows_of(capsys, *overrides):
    assert main(["collective", *FLAT, *overrides, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# Ring steps of (1 us + S/4 / 50 GB/s), 6 of an all_reduce, 3 of half of one; direct all_to_all 1 us + 3/4 S / 50 GB/s;
# broadcast over a binomial tree 2 (1 us + S / 50 GB/s); a message 1 us + S / 50 GB/s.
CASES = {
    "all_reduce": ("ring", [0, 1, 2, 3], lambda s: 6 * (1e-6 + s / 4 / 50e9), 6 / 4),
    "reduce_scatter": ("ring", [0, 1, 2, 3], lambda s: 3 * (1e-6 + s / 4 / 50e9), 3 / 4),
    "all_gather": ("ring", [0, 1, 2, 3], lambda s: 3 * (1e-6 + s / 4 / 50e9), 3 / 4),
    "all_to_all": ("direct", [0, 1, 2, 3], lambda s: 1e-6 + 3 / 4 * s / 50e9, 3 / 4),
    "broadcast": ("binomial_tree", [0, 1, 2, 3], lambda s: 2 * (1e-6 + s / 50e9), 1),
    "send_recv": ("direct", [1, 3], lambda s: 1e-6 + s / 50e9, 1),
}


def test_the_analytic_tier_is_a_fidelity_of_this_command_alone(capsys):
    times = [
        rows_of(capsys, "algorithm=ring", "sizes.list=[4 MiB]", f"fidelity={name}")["rows"][0]["time_s"]
        for name in ("analytic", "flow")
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert main(["run", "fidelity=analytic"]) != 0
    assert "unknown fidelity 'analytic'; choices: flow" in capsys.readouterr().err


@pytest.mark.parametrize("collective", CASES)
def test_times_and_bus_bandwidths_are_those_of_closed_forms(collective, capsys):
    algorithm, ranks, time_s, factor = CASES[collective]
    found = rows_of(
        capsys, f"collective={collective}", f"algorithm={algorithm}", f"ranks={ranks}".replace(" ", ""),
        "sizes.begin=4 MiB", "sizes.end=64 MiB", "sizes.factor=4",
    )  # fmt: skip
    assert found["num_ranks"] == len(ranks)
    assert [row["num_bytes"] for row in found["rows"]] == [4 * MB, 16 * MB, 64 * MB]
    parts = 1 if collective in ("all_reduce", "broadcast", "send_recv") else 4
    for row in found["rows"]:
        size, seconds = row["num_bytes"], time_s(row["num_bytes"])
        assert row["count"] == size // 4 // parts
        assert row["algorithm"] == algorithm
        assert row["time_s"] == pytest.approx(seconds, rel=1e-6)
        assert row["algorithm_bandwidth_bytes_per_s"] == pytest.approx(size / seconds, rel=1e-6)
        assert row["bus_bandwidth_bytes_per_s"] == pytest.approx(factor * size / seconds, rel=1e-6)
    mean = sum(row["bus_bandwidth_bytes_per_s"] for row in found["rows"]) / 3
    assert found["mean_bus_bandwidth_bytes_per_s"] == pytest.approx(mean)


def test_the_table_has_the_columns_of_nccl_tests(capsys):
    assert main(["collective", *FLAT, "algorithm=ring", "sizes.list=[4 MiB]"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "all_reduce over 4 of 4 accelerators on electrical_flat" in lines[0]
    assert lines[2].split() == ["#", "size", "count", "type", "algorithm", "time", "algbw", "busbw"]
    assert lines[3].split() == ["#", "(B)", "(elements)", "(us)", "(GB/s)", "(GB/s)"]
    # 6 (1 us + 1 MiB / 50 GB/s) = 131.83 us; 4 MiB in that is 31.82 GB/s; 3/2 of it 47.72.
    assert lines[4].split() == ["4194304", "1048576", "float", "ring", "131.83", "31.82", "47.72"]
    assert lines[5] == "# mean bus bandwidth: 47.72 GB/s"


def test_auto_takes_another_algorithm_at_another_size(capsys):
    given = ["collective", "fabric.server_size=8", "sizes.list=[64 B,1 GiB]", "--json"]
    assert main(given) == 0
    small, large = (row["algorithm"] for row in json.loads(capsys.readouterr().out)["rows"])
    assert small != large


def test_so_many_ranks_are_the_first_ones_that_work(capsys):
    counted = rows_of(capsys, "ranks=2", "sizes.list=[1 MiB]")
    named = rows_of(capsys, "ranks=[0,1]", "sizes.list=[1 MiB]")
    assert counted == named
    assert counted["num_ranks"] == 2


def test_sizes_without_an_element_of_each_rank_are_left_out(capsys):
    # Parts of all_gather are multiples of 16 B: of 4 ranks, 8 to 32 B hold none.
    overrides = ["collective=all_gather", "sizes.begin=8 B", "sizes.end=128 B"]
    assert [row["num_bytes"] for row in rows_of(capsys, *overrides)["rows"]] == [64, 128]
    assert main(["collective", *FLAT, *overrides]) == 0
    assert "3 sizes left out, with less than one element for each rank" in capsys.readouterr().out


def test_a_file_holds_the_rows(tmp_path, capsys):
    table, document = tmp_path / "rows.csv", tmp_path / "rows.json"
    for path in (table, document):
        assert main(["collective", *FLAT, "sizes.list=[1 MiB,2 MiB]", f"out={path}"]) == 0
        capsys.readouterr()
    rows = json.loads(document.read_text())["rows"]
    with table.open() as file:
        read = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == read


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["sizes.begin=8"], ["sizes.begin is 8, a number without a unit"]),
        (["sizes.list=[1 MiB,64]"], ["sizes.list[1] is 64, a number without a unit"]),
        (["sizes.list=[]"], ["sizes.list is []", "[1 MiB,64 MiB]"]),
        (["sizes.list=1 MiB"], ["sizes.list is '1 MiB'", "[1 MiB,64 MiB]"]),
        (["sizes.end=1 B"], ["sizes.end is 1 B", "sizes.begin, which is 8 B"]),
        (["sizes.factor=1"], ["sizes.factor is 1", ">= 2"]),
        (["sizes.start=8 B"], ["unknown key 'sizes.start'", "begin"]),
        (["collective=all_redu"], ["unknown collective 'all_redu'", "did you mean 'all_reduce'", "broadcast"]),
        (["algorithm=rig"], ["unknown algorithm 'rig' (did you mean 'ring'?)", "torus_2d"]),
        (["type=fp32"], ["unknown type 'fp32'", "float"]),
        (["ranks=5"], ["ranks is 5", "4 working"]),
        (["ranks=[0,7]"], ["ranks name accelerator 7"]),
        (["ranks=all"], ["ranks is 'all'"]),
        (["collective=all_gather", "sizes.end=32 B"], ["the largest size is 32 B", "4 ranks"]),
        (["out=rows.txt"], ["out is 'rows.txt'", ".csv"]),
        (["strategy.tp=2"], ["unknown key 'strategy.tp'"]),
        (["experiment=quick"], ["experiment"]),
    ],
)  # fmt: skip
def test_errors_name_key_value_and_what_is_allowed(overrides, words, capsys):
    assert main(["collective", *FLAT, *overrides]) == 2
    text = capsys.readouterr().err
    assert text.startswith("rostam: error: ")
    assert text.count("\n") == 1
    for word in words:
        assert word in text


def test_a_single_rank_is_refused_and_a_note_on_the_routing_printed(capsys):
    assert main(["collective", "fabric=hyperx", "fabric.dims=[1]"]) == 2
    assert "a collective needs at least 2 ranks, here it has 1" in capsys.readouterr().err
    assert main(["collective", *FLAT, "ranks=1"]) == 2
    capsys.readouterr()
    assert main(["collective", *FLAT, "routing=valiant", "sizes.list=[1 MiB]"]) == 0
    assert "# note: fabric electrical_flat has a single switch" in capsys.readouterr().out
    assert rows_of(capsys, "routing=spray", "sizes.list=[1 MiB]")["notes"] == []


def test_help_says_what_the_columns_are(capsys):
    assert main(["collective", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "with p ranks: 2 (p-1)/p for all_reduce" in text
    assert "keys of fabric=tree_64" in text
    assert "strategy=" not in text
