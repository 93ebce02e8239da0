"""Folders of results: what loads, and what a missing or damaged file says."""

import gzip
import json

import polars as pl
import pytest

from rostam_py.errors import ConfigError
from rostam_py.report.run.load import load_run
from rostam_py.report.sweep.load import is_sweep_folder, load_sweep
from rostam_py.simulation.detail import VERSION as DETAIL_VERSION


@pytest.fixture
def folder(run_sweep, tmp_path):
    return run_sweep(tmp_path / "sweep", seeds=1)


def _edit(folder, **changes):
    path = folder / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _write_detail(folder, key, detail):
    (folder / "details").mkdir(exist_ok=True)
    (folder / "details" / f"{key}.json.gz").write_bytes(gzip.compress(json.dumps(detail).encode()))


def test_a_sweep_loads_with_its_axes_points_and_details(folder):
    _write_detail(folder, "abc", {"version": DETAIL_VERSION, "title": "one"})
    _edit(folder, details=["abc"])
    data = load_sweep(folder)
    assert list(data.axes) == ["model", "fabric", "strategy.tp", "fabric.accelerator_bandwidth", "seed"]
    assert len(data.table) == 2 * 5 * 2 * 4
    assert (len(data.finished()), len(data.failed())) == (78, 2)
    assert data.details == {"abc": {"version": DETAIL_VERSION, "title": "one"}}


def test_a_run_loads(tmp_path):
    (tmp_path / "detail.json.gz").write_bytes(gzip.compress(b'{"version": %d, "title": "mine"}' % DETAIL_VERSION))
    assert load_run(tmp_path)["title"] == "mine"
    assert not is_sweep_folder(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no sweep\.json .* detail\.json\.gz"):
        is_sweep_folder(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        load_sweep(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sweep.json", None, r"sweep\.json is missing"),
        ("sweep.json", b'{"version": 1', r"sweep\.json is damaged"),
        ("sweep.json", b'{"version": 99}', "version 99; this rostam reads version 1"),
        ("sweep.json", b'{"version": 1, "mode": "x"}', "mode is 'x'; allowed: run, search, mix"),
        ("sweep.json", b'{"version": 1, "mode": "run", "axes": [1]}', "axes must be a list"),
        ("points.parquet", None, r"points\.parquet is missing; .* same rostam sweep command"),
        ("points.parquet", b"PAR1 cut", r"points\.parquet is damaged"),
    ],
)
def test_missing_and_damaged_files_are_named(folder, name, content, message):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_sweep(folder)


def test_a_table_without_its_axes_is_refused(folder):
    table = pl.read_parquet(folder / "points.parquet")
    table.drop("fabric", "status").write_parquet(folder / "points.parquet")
    with pytest.raises(ConfigError, match="lacks the columns status, fabric"):
        load_sweep(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"), (b"not gzip", "is damaged"),
        (gzip.compress(b"{}", mtime=0)[:-4], "is damaged|version None"),
        (gzip.compress(b'{"version": 99}', mtime=0), f"version 99; this rostam reads version {DETAIL_VERSION}"),
    ],
)  # fmt: skip
def test_a_listed_detail_must_be_there_and_whole(folder, content, message):
    _edit(folder, details=["abc"])
    if content is not None:
        (folder / "details").mkdir()
        (folder / "details" / "abc.json.gz").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_sweep(folder)
