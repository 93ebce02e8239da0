"""The second core's parts are listed, completed, run, swept, searched and reported by their names alone (MODEL 29)."""

import json

import pytest

from rostam_py.cli.completion import candidates
from rostam_py.cli.main import main

pytestmark = pytest.mark.usefixtures("cached_traces")
USED = ["model=resnet50", "fabric=islands", "num_accelerators=16", "routing=lowest", "fidelity=unshared"]
STAR = ["strategy.algorithms.all_reduce=star"]


@pytest.mark.parametrize(
    ("kind", "column", "name"),
    [
        ("fabrics", "fabric", "islands"), ("routings", "routing", "lowest"), ("fidelities", "fidelity", "unshared"),
        ("collectives", "algorithm", "star"), ("controllers", "controller", "wanderer"),
    ],
)  # fmt: skip
def test_parts_are_listed(kind, column, name, capsys):
    assert main(["list", kind, "--json"]) == 0
    assert name in [row[column] for row in json.loads(capsys.readouterr().out)[kind]]


@pytest.mark.parametrize("command", ["run", "search", "sweep"])
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["fabric=isl"], ["fabric=islands"]), (["fabric=islands", "fabric.gr"], ["fabric.groups="]),
        (["routing=low"], ["routing=lowest"]), (["fidelity=uns"], ["fidelity=unshared"]),
        (["strategy.algorithms.all_reduce=st"], STAR), (["controllers=[wan"], ["controllers=[wanderer]"]),
    ],
)  # fmt: skip
def test_parts_are_completed(command, typed, found):
    assert candidates([command, *typed]) == found


def test_parts_are_explained(capsys):
    assert main(["run", "fabric=islands", "--help"]) == 0
    text = capsys.readouterr().out
    for words in ("fabric.groups", "accelerators of a switch", "lowest (the minimal path"):
        assert words in text


def test_parts_run_and_are_reported(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", *USED, *STAR, "global_batch=64", "report=true", f"out={out}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration_time_s"] > 0
    assert "fidelity: unshared" in (out / "config.yaml").read_text()
    text = (out / "report.html").read_text()
    for name in ("islands", "lowest", "star"):
        assert name in text


def test_parts_are_swept_and_reported(tmp_path, capsys):
    axes = ["routing=lowest,spray", "fidelity=flow,unshared", "strategy.algorithms.all_reduce=ring,star"]
    axes += ["fabric=islands,electrical_flat", "num_accelerators=16"]
    options = ["model=resnet50", "global_batch=64", "sweep.backend=inline", f"out={tmp_path}", "--json"]
    assert main(["sweep", *axes, *options]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert {row["status"] for row in rows} == {"ok"}
    assert len(rows) == 16
    assert {row["fabric_kind"] for row in rows} == {"islands", "electrical_flat"}
    for key in ("routing", "fidelity", "strategy.algorithms.all_reduce", "fabric"):
        others = [k for k in ("routing", "fidelity", "strategy.algorithms.all_reduce", "fabric") if k != key]
        times: dict[tuple, set] = {}
        for row in rows:
            times.setdefault(tuple(row[k] for k in others), set()).add(row["iteration_time_s"])
        assert max(map(len, times.values())) > 1, f"{key} decides nothing"
    text = (tmp_path / "report.html").read_text()
    for name in ("islands", "lowest", "unshared", "star"):
        assert name in text


def test_the_added_fabric_is_swept_over_sizes_and_refuses_others(tmp_path, capsys):
    options = [
        "model=resnet50",
        "global_batch=192",
        "sweep.backend=inline",
        "report=false",
        f"out={tmp_path}",
        "--json",
    ]
    assert main(["sweep", "fabric=islands", "num_accelerators=8,16,24", *options]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert [int(row["num_accelerators"]) for row in rows] == [8, 16, 24]
    assert {row["status"] for row in rows} == {"ok"}
    assert main(["run", "model=resnet50", "fabric=islands", "num_accelerators=10"]) == 2
    assert "num_accelerators is 10; groups hold 4 each" in capsys.readouterr().err


def test_strategies_are_searched_in_a_sweep_of_the_parts(tmp_path, capsys):
    options = ["sweep.mode=search", "search.num_simulated=1", "search.batches=[64]", "convergence=none"]
    options += ["sweep.backend=inline", "report=false", f"out={tmp_path}", "--json"]
    used = [one for one in USED if not one.startswith("routing")]
    assert main(["sweep", *used, "routing=lowest,hash", *STAR, *options]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert [row["status"] for row in rows] == ["ok", "ok"]


def test_parts_are_searched(tmp_path, capsys):
    options = ["search.num_simulated=2", "search.batches=[64]", "convergence=none", f"out={tmp_path}", "--json"]
    assert main(["search", *USED, *STAR, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"][0]["simulated_s"] > 0


# Moves what accelerator 0 sends to 1 to a link of its own, then to another: iterations change, bytes do not.
WANDERER = "controllers=[{name: wanderer, src: 0, dst: 1, time_ps: [1000000, 2000000], bytes_per_s: [1e9, 2e9]}]"
SMALL = ["model=resnet50", "fabric=islands", "num_accelerators=8", "global_batch=64"]


def test_a_controller_runs_is_swept_searched_and_reported(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", *SMALL, WANDERER, "report=true", f"out={out}", "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in moved["controllers"]] == ["wanderer"]
    assert "wanderer" in (out / "report.html").read_text()
    assert main(["run", *SMALL, f"out={tmp_path / 'still'}", "--json"]) == 0
    still = json.loads(capsys.readouterr().out)
    assert still["controllers"] == []
    assert moved["bytes_sent"] == still["bytes_sent"]
    assert moved["iteration_times_s"] != still["iteration_times_s"]
    swept = ["sweep.backend=inline", f"out={tmp_path / 'sweep'}", "--json"]
    assert main(["sweep", *SMALL, WANDERER, "routing=lowest,spray", *swept]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert moved["iteration_time_s"] in [row["iteration_time_s"] for row in rows]
    assert "wanderer" in (tmp_path / "sweep" / "report.html").read_text()
    used = [one for one in SMALL if not one.startswith("global_batch")]
    options = ["search.num_simulated=1", "search.batches=[64]", "convergence=none", f"out={tmp_path / 'search'}"]
    assert main(["search", *used, WANDERER, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"][0]["simulated_s"] > 0
