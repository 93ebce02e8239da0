"""Controllers by name in configurations: they act in runs, sweeps, searches and mixes, and results say which did."""

import json

import pytest

from rostam_py.cli.completion import candidates
from rostam_py.cli.main import main

# Link 0 leaves accelerator 0: at 1 GB/s of its 50 from the start it holds every all-reduce up.
SLOW = "{name: link_bandwidth, time_ps: [0], link: [0], bytes_per_s: [1e9]}"
MACHINE = ["fabric=electrical_flat", "fabric.num_accelerators=4", "fabric.accelerator_bandwidth=400 Gb/s"]
ACTED = [{"name": "link_bandwidth", "time_ps": [0], "link": [0], "bytes_per_s": [1e9]}]


def run_json(arguments, capsys):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("cached_traces")
def test_a_run_has_controllers_and_says_so(tmp_path, capsys):
    plain = run_json(["run", *MACHINE, f"out={tmp_path / 'plain'}"], capsys)
    held = run_json(["run", *MACHINE, f"controllers=[{SLOW}]", "report=true", f"out={tmp_path / 'held'}"], capsys)
    # The 25.6 M gradients of ResNet-50, 2 bytes each, 2 x 3/4 of them on every link: 1.5 ms at 50 GB/s, 77 ms at 1.
    assert held["iteration_time_s"] > 0.0767 > 10 * plain["iteration_time_s"]
    assert (plain["controllers"], held["controllers"]) == ([], ACTED)
    assert "link_bandwidth" in (tmp_path / "held" / "config.yaml").read_text()
    assert "link_bandwidth" in (tmp_path / "held" / "report.html").read_text()
    assert main(["run", *MACHINE, f"controllers=[{SLOW}]", f"out={tmp_path / 'held'}"]) == 0
    assert "link_bandwidth" in capsys.readouterr().out


@pytest.mark.usefixtures("cached_traces")
def test_controllers_are_an_axis_of_sweeps(tmp_path, capsys):
    sweep = ["sweep", *MACHINE, "sweep.backend=inline", "report=false", f"controllers=[],[{SLOW}]"]
    found = run_json([*sweep, f"out={tmp_path / 'run'}"], capsys)
    assert found["axes"] == [
        {"key": "controllers", "labels": ["none", "link_bandwidth, time_ps 0, link 0, bytes_per_s 1000000000.0"]}
    ]
    plain, held = (row["iteration_time_s"] for row in found["points"])
    assert held > 3 * plain
    rows = f"sweep.rows=[{{label: calm, seed: 0}}, {{label: slow, controllers: [{SLOW}]}}]"
    again = run_json([*sweep[:-1], rows, f"out={tmp_path / 'rows'}"], capsys)
    assert [row["iteration_time_s"] for row in again["points"]] == [plain, held]
    assert [row["controllers"] for row in again["points"]] == [None, "link_bandwidth"]


@pytest.mark.usefixtures("cached_traces")
def test_controllers_act_on_simulated_candidates_and_on_mixes(tmp_path, capsys):
    search = ["search", *MACHINE, "search.placers=[megatron]", "search.num_simulated=1", "search.batches=[4096]"]
    found = run_json([*search, f"controllers=[{SLOW}]", f"out={tmp_path / 'search'}"], capsys)
    simulated = found["candidates"][0]
    assert simulated["simulated_s"] > simulated["estimate_s"]
    assert "all_reduce" in simulated["algorithms"]
    assert main([*search, f"out={tmp_path / 'search'}"]) == 0
    assert "dp all_reduce" in " ".join(capsys.readouterr().out.split())
    mix = ["sweep", *MACHINE, "sweep.mode=mix", "mix.host_size=2", "sweep.backend=inline", "report=false"]
    jobs = "jobs=[{model: resnet50, strategy: {dp: 2}}, {model: resnet50, strategy: {dp: 2}}]"
    points = run_json([*mix, jobs, f"controllers=[{SLOW}]", f"out={tmp_path / 'mix'}"], capsys)["points"]
    (row,) = points
    assert row["controllers"] == "link_bandwidth"
    assert row["jobs"][0]["slowdown"] > 3 > 1.001 > row["jobs"][1]["slowdown"]
    assert row["algorithms"] == row["jobs"][0]["algorithms"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("link_bandwidth", "controllers is 'link_bandwidth'; it must be a list"),
        ("[wind]", "controllers names 'wind'; registered: link_bandwidth"),
        ("[{time_ps: [0]}]", "each must be a name, (name, parameters) or {name: NAME, PARAMETER: VALUE}"),
        ("[{name: link_bandwidth, time_ps: [soon]}]", "link_bandwidth.time_ps holds 'soon'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "search", "sweep"])
def test_bad_controllers_are_refused_before_any_work(command, given, said, capsys):
    assert main([command, f"controllers={given}"]) == 2
    assert said in capsys.readouterr().err


def test_controllers_are_completed():
    for command in ("run", "search", "sweep"):
        assert candidates([command, "controllers=[l"]) == ["controllers=[link_bandwidth]", "controllers=[link_load]"]
