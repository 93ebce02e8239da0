"""``rostam report DIR``: what it writes and prints, and what it refuses."""

import gzip
import json

import polars as pl
import pytest

from rostam_py.cli.main import main
from rostam_py.simulation.detail import VERSION

pytestmark = pytest.mark.usefixtures("cached_traces")


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "a=b c"
    folder.mkdir()
    (folder / "detail.json.gz").write_bytes(gzip.compress(b'{"version": 7}'))
    return folder


def test_help_says_folder_formats_and_out(capsys):
    assert main(["report", "--help"]) == 0
    text = capsys.readouterr().out
    for said in ("usage: rostam report DIR", "formats=", "out="):
        assert said in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report"], "folders given: none; give one: rostam report DIR"),
        (["report", "a", "b"], "folders given: a, b"),
        (["report", "no/such"], "no/such is not a folder"),
        (["report", ".", "formats=[png]"], "formats has 'png'; allowed: pdf, svg"),
        (["report", ".", "fromats=[pdf]"], "did you mean 'formats'?"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (".", "is ., a folder; give a file"), ("/proc/page.html", "/proc/page.html cannot be written"),
        ("taken/page.html", "cannot be written: "), ("/dev/full", "/dev/full cannot be written: No space left"),
    ],
)  # fmt: skip
def test_a_page_that_cannot_be_written_is_one_line(out, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    manifest = {"version": 1, "mode": "run", "title": "empty", "axes": [], "num_points": 0}
    (tmp_path / "sweep.json").write_text(json.dumps(manifest))
    schema = {"key": pl.String, "index": pl.Int64, "status": pl.String}
    pl.DataFrame(schema=schema).write_parquet(tmp_path / "points.parquet")
    assert main(["report", ".", f"out={out}"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_folder_may_have_any_name(run_folder, capsys):
    assert main(["report", str(run_folder)]) == 2
    assert f"version 7; this rostam reads version {VERSION}" in capsys.readouterr().err


def test_a_real_sweep_is_reported_from_its_folder(tmp_path, capsys):
    out = tmp_path / "sweep"
    axes = ["model=resnet50", "fabric=flat_64,torus_8x8", "global_batch=512"]
    assert (
        main(["sweep", *axes, "sweep.backend=inline", "report=false", "sweep.details=3", f"out={out}", "--json"]) == 0
    )
    capsys.readouterr()
    assert main(["report", str(out), "formats=[svg]", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(out / "report.html")
    assert said["num_bytes"] == (out / "report.html").stat().st_size < 10e6
    names = {path.name for path in (out / "figures").iterdir()}
    assert {"time-per-sample-resnet50.svg", "breakdown-resnet50.svg", "memory-resnet50.svg"} <= names
    assert {str(out / "figures" / name) for name in names} == set(said["figures"])
    text = (out / "report.html").read_text()
    assert "In detail: flat_64" in text
    assert main(["report", str(out), f"out={tmp_path / 'other.html'}"]) == 0
    assert f"{tmp_path / 'other.html'}: " in capsys.readouterr().out
