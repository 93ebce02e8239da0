"""rostam_py/_core.pyi has the signatures of the built core, all of them in Python's types."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import rostam_py
from rostam_py import _core

ROOT = Path(__file__).resolve().parents[2]
STUBS = Path(rostam_py.__file__).with_name("_core.pyi")


def test_stubs_are_those_of_the_built_core(tmp_path):
    written = tmp_path / "_core.pyi"
    done = subprocess.run(
        [sys.executable, ROOT / "csrc" / "bindings" / "stubs.py", written], capture_output=True, text=True, cwd=ROOT,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert written.read_text() == STUBS.read_text(), "the core's signatures changed: make stubs"


def test_every_public_name_of_the_core_has_a_stub():
    tree = ast.parse(STUBS.read_text())
    stubs = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert set(stubs) == public
    for name, one in stubs.items():
        if isinstance(one, ast.ClassDef):
            members = {member.name for member in one.body if isinstance(member, ast.FunctionDef)}
            known = {key for key, _ in inspect.getmembers(getattr(_core, name)) if not key.startswith("_")}
            assert members - {"__init__"} == known


def test_packages_say_that_they_are_typed():
    for package in ("rostam", "rostam_py"):
        assert (ROOT / package / "py.typed").exists()
