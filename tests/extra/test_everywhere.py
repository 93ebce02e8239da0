"""The second core's parts are listed, completed, run, swept, searched and reported by their names alone (MODEL 29)."""

import json

import pytest

from rostam_py.cli.completion import candidates
from rostam_py.cli.main import main

pytestmark = pytest.mark.usefixtures("cached_traces")
USED = [
    "model=resnet50", "fabric=islands", "fabric.groups=4", "fabric.switches=2", "fabric.down=2", "routing=lowest",
    "fidelity=unshared",
]  # fmt: skip
STAR = ["strategy.algorithms.all_reduce=star"]


@pytest.mark.parametrize(
    ("kind", "column", "name"),
    [
        ("fabrics", "fabric", "islands"), ("routings", "routing", "lowest"), ("fidelities", "fidelity", "unshared"),
        ("collectives", "algorithm", "star"),
    ],
)  # fmt: skip
def test_parts_are_listed(kind, column, name, capsys):
    assert main(["list", kind, "--json"]) == 0
    assert name in [row[column] for row in json.loads(capsys.readouterr().out)[kind]]


def test_parts_are_completed():
    for command in ("run", "search", "sweep"):
        assert candidates([command, "fabric=isl"]) == ["fabric=islands"]
        assert candidates([command, "routing=low"]) == ["routing=lowest"]
        assert candidates([command, "fidelity=uns"]) == ["fidelity=unshared"]
        assert candidates([command, "strategy.algorithms.all_reduce=st"]) == STAR


def test_parts_run_and_are_reported(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", *USED, *STAR, "global_batch=64", "report=true", f"out={out}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration_time_s"] > 0
    assert "fidelity: unshared" in (out / "config.yaml").read_text()
    text = (out / "report.html").read_text()
    for name in ("islands", "lowest", "star"):
        assert name in text


def test_parts_are_swept(tmp_path, capsys):
    axes = ["routing=lowest,spray", "fidelity=flow,unshared", "strategy.algorithms.all_reduce=ring,star"]
    used = [one for one in USED if not one.startswith(("routing", "fidelity"))]
    options = ["global_batch=64", "sweep.backend=inline", f"out={tmp_path}", "--json"]
    assert main(["sweep", *used, *axes, *options]) == 0
    rows = json.loads(capsys.readouterr().out)["points"]
    assert {row["status"] for row in rows} == {"ok"}
    assert len(rows) == 8
    assert len({row["iteration_time_s"] for row in rows}) > 1  # the parts decide something


def test_parts_are_searched(tmp_path, capsys):
    options = ["search.num_simulated=2", "search.batches=[64]", "convergence=none", f"out={tmp_path}", "--json"]
    assert main(["search", *USED, *STAR, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"][0]["simulated_s"] > 0
