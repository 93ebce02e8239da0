"""Disks that are full: an error with the system's words, status 2, and no half-written folder."""

import contextlib
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rostam_py.cli.main import main
from rostam_py.documents import staged
from rostam_py.errors import ConfigError


@contextlib.contextmanager
def files_up_to(num_bytes):
    """Let the system refuse files of more bytes, as a full disk does, at any write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("num_bytes", [0, 500, 3000])
def test_a_run_on_a_full_disk_leaves_no_folder(num_bytes, whole, tmp_path, capsys):
    out = tmp_path / "runs" / "mine"
    with files_up_to(num_bytes):
        assert main(["run", f"plan={whole / 'plan.json'}", f"out={out}", "timeline=true"]) == 2
    error = capsys.readouterr().err
    assert "cannot be written: " in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_keeps_what_it_had(whole, tmp_path, capsys):
    arguments = ["run", f"plan={whole / 'plan.json'}", f"out={tmp_path}"]
    assert main(arguments) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with files_up_to(700):
        assert main([*arguments, "seed=3"]) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "cannot be written: " in capsys.readouterr().err


def _write(folder, count):
    with staged(folder) as stage:
        (stage / "small").write_text("x")
        (stage / "large").write_text("x" * count)


def test_what_is_staged_moves_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "a" / "b"
    with pytest.raises(ConfigError, match="cannot be written: File too large"), files_up_to(10):
        _write(folder, 20)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError):
        _write(folder, None)
    assert list(tmp_path.iterdir()) == []
    with staged(folder) as stage:
        (stage / "small").write_text("x")
    assert [path.name for path in folder.iterdir()] == ["small"]


def test_output_that_cannot_be_written_is_an_error_without_a_traceback():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rostam", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "rostam: error: No space left on device\n")
