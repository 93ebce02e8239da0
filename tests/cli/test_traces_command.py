"""rostam export and rostam import of traces."""

import json

import pytest

from rostam_py.cli.main import main
from tests.programs.sample import RING

pytest.importorskip("google.protobuf")
TORUS = ["fabric=torus", "fabric.dims=[8]", "fabric.link_bandwidth=50 GB/s", "fabric.link_latency=500 ns"]


def time_of(program, capsys):
    capsys.readouterr()
    assert main(["run", f"program={program}", *TORUS, f"out={program}.run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["iteration_time_s"]


def test_an_exported_program_imported_again_takes_the_same_time(tmp_path, capsys):
    (tmp_path / "ring.json").write_text(RING, encoding="utf-8")
    to, out = tmp_path / "ring", tmp_path / "again.json"
    assert main(["export", "chakra", f"program={tmp_path}/ring.json", *TORUS, f"to={to}"]) == 0
    assert "9 files" in capsys.readouterr().out
    assert main(["import", f"{to}.5.et", f"out={out}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_ranks"] == 8
    assert time_of(out, capsys) == time_of(tmp_path / "ring.json", capsys)


@pytest.mark.parametrize(("words", "said"), [
    (["export", "chakra", "to=x"], "takes a format, a program"),
    (["export", "chacra", "program=p.json", "to=x"], "chakra"),
    (["import", "missing.0.et", "out=p.json"], "no such file"),
    (["import", "missing.0.et"], "out=PROGRAM.json alone"),
    (["import", "missing.et", "out=p.json"], "no rank in its name"),
])  # fmt: skip
def test_what_is_wrong_is_said(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err
