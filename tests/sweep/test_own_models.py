"""Sweeps of models in files of the user's: points follow all that such a file imports and reads."""

import json
import subprocess
import sys

import pytest

from rostam_py.errors import ConfigError
from rostam_py.sweep import Sweep, run_sweep

MODEL = """
import json
from pathlib import Path
import torch
from torch import nn
from {name}_shapes import WIDTH

DEPTH = json.loads(Path(__file__).with_name("depth.json").read_text())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)))
    def forward(self, x):
        return self.layers(x)

def example_inputs(batch):
    return torch.randn(batch, WIDTH)
"""
ANEW = "import json, sys; from rostam_py.sweep import Sweep; print(Sweep(json.loads(sys.argv[1])).points[0].key)"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes the model's files, each in its own folder with a trace cache of its own."""
    monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    name = tmp_path.name.replace("-", "_")

    def write_files(width, depth, comment=""):
        (tmp_path / f"{name}_widths.py").write_text(f"WIDTH = {width}\n{comment}")
        (tmp_path / f"{name}_shapes.py").write_text(f"from {name}_widths import WIDTH as width\nWIDTH = int(width)\n")
        (tmp_path / "mine.py").write_text(MODEL.replace("{name}", name))
        (tmp_path / "depth.json").write_text(json.dumps(depth))
        return f"{tmp_path / 'mine.py'}:Net"

    return write_files


def time_of(base, model, out):
    """Return the time that a sweep of one point shows."""
    result = run_sweep(base | {"model": model}, out=out, backend="inline", details=0)
    return result.table["iteration_time_s"][0]


def test_a_changed_import_or_file_that_is_read_is_another_point_in_the_same_store(base, write, tmp_path):
    model = write(512, 4)
    first = time_of(base, model, tmp_path / "out")
    assert time_of(base, write(1024, 4), tmp_path / "out") > first  # imported by what is imported
    assert time_of(base, write(512, 16), tmp_path / "out") > first  # read while it was built
    assert time_of(base, write(512, 4), tmp_path / "out") == first


def test_a_comment_in_an_import_is_the_same_point(base, write):
    keys = {Sweep(base | {"model": write(256, 2, comment)}).points[0].key for comment in ("", "# said\n")}
    assert len(keys) == 1


def test_another_process_gives_a_point_the_same_key(base, write, tmp_path, monkeypatch):
    settings = base | {"model": write(256, 3)}
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = {Sweep(settings).points[0].key}
    for seed, cache in (("1", "one"), ("2", "two")):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        monkeypatch.setenv("ROSTAM_CACHE_DIR", str(tmp_path / cache))
        run = subprocess.run(
            [sys.executable, "-c", ANEW, json.dumps(settings)], capture_output=True, text=True, check=True
        )
        found.add(run.stdout.strip())
    assert len(found) == 1


def test_a_file_that_cannot_be_traced_is_refused_before_any_work(base, tmp_path):
    (tmp_path / "mine.py").write_text("class Net: pass\n")
    with pytest.raises(ConfigError, match="returns a Net, not a module"):
        run_sweep(base | {"model": f"{tmp_path / 'mine.py'}:Net"}, out=tmp_path / "out", backend="inline")
    assert not (tmp_path / "out").exists()


def test_jobs_of_a_mix_follow_their_files_too(base, write):
    fabric = {"name": "fat_tree", "num_accelerators": 16, "radix": 8}
    found = []
    for width in (256, 512):
        jobs = [{"model": write(width, 2), "global_batch": 8, "strategy": {"dp": 2}}]
        found.append(Sweep({"mode": "mix", "fabric": fabric, "jobs": jobs}).points[0].key)
    assert found[0] != found[1]
