"""rostam cache lists what is kept and what of it is out of date, and clears it."""

import json

import pytest

from rostam_py.cli.main import main
from rostam_py.tracing import trace


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path))
    return tmp_path / "traces"


def test_list_and_clear(folder, capsys, monkeypatch):
    assert main(["cache", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(folder), "entries": []}
    trace("gpt_125m", num_layers=1)
    assert main(["cache", "list", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["model"] == "gpt_125m (rostam_py.models.gpt:build_gpt_125m)"
    assert entry["arguments"]["num_layers"] == 1
    assert entry["arguments"]["route"] == "auto"
    assert entry["state"] == "current"
    assert entry["num_bytes"] == next(folder.iterdir()).stat().st_size
    monkeypatch.setattr("rostam_py.tracing.cache._code", lambda: "other")
    assert main(["cache", "list"]) == 0
    said = capsys.readouterr().out
    assert "rostam's code has changed" in said
    assert "gpt_125m" in said
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "deleted 1 traces\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("arguments", "given"), [([], "missing"), (["empty"], "empty"), (["list", "x"], "list x")])
def test_an_unknown_action_names_those_there_are(folder, capsys, arguments, given):
    assert main(["cache", *arguments]) == 2
    assert f"the action is {given}; rostam cache takes one of: list, clear" in capsys.readouterr().err


def test_runs_searches_and_sweeps_take_a_graphs_file(folder, tmp_path, capsys):
    graph = trace("gpt_125m", num_layers=1)
    path = tmp_path / "tiny.json.gz"
    graph.save(path)
    machine = ["fabric=electrical_flat", "fabric.num_accelerators=4", "software=ideal", "--json"]
    assert main(["run", f"model={path}", "global_batch=32", f"out={tmp_path / 'run'}", *machine]) == 0
    result = json.loads(capsys.readouterr().out)
    swept = ["sweep", f"model={path}", "global_batch=32", "seed=0,1", "sweep.backend=inline", "report=false"]
    assert main([*swept, f"out={tmp_path / 'sweep'}", *machine]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["iteration_time_s"] for point in points] == [result["iteration_time_s"]] * 2
    found = ["search", f"model={path}", "search.batches=[32]", "search.num_simulated=1", f"out={tmp_path / 'found'}"]
    assert main([*found, *machine]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"]
    trace("gpt_125m", num_layers=2).save(path)  # other contents are other points
    assert main([*swept, f"out={tmp_path / 'sweep'}", *machine]) == 0
    again = json.loads(capsys.readouterr().out)["points"]
    assert again[0]["iteration_time_s"] > 1.1 * points[0]["iteration_time_s"]
    assert main(["run", "model=nothing.json", *machine]) == 2
    assert "model is 'nothing.json', but there is no file 'nothing.json'" in capsys.readouterr().err
