"""The public names of DESIGN resolve, lazily, and explain themselves."""

import dataclasses
import inspect
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rostam
import rostam_py

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = {
    "trace", "OperatorGraph", "fabric", "saturation_throughput", "run_collective", "run_flows", "Machine", "place",
    "Strategy", "simulate", "search", "time_to_accuracy",
}  # fmt: skip


def test_contract_names_are_public():
    assert set(rostam_py.__all__) >= CONTRACT


def test_public_names_resolve_and_have_docstrings(told):
    for name in rostam_py.__all__:
        with told(name):
            value = getattr(rostam_py, name)
            documentation = inspect.getdoc(value) or ""
            assert documentation.splitlines()[0].strip().endswith(".") or ":" in documentation.splitlines()[0]
            if dataclasses.is_dataclass(value):
                assert not documentation.startswith(f"{value.__name__}("), "only the docstring that dataclass generates"


def test_public_methods_have_docstrings(told):
    for value in filter(inspect.isclass, (getattr(rostam_py, name) for name in rostam_py.__all__)):
        public = {key: item for key, item in vars(value).items() if not key.startswith("_")}
        methods = {k: v for k, v in public.items() if inspect.isroutine(v) or isinstance(v, property | classmethod)}
        with told(value):
            assert [key for key, item in methods.items() if not inspect.getdoc(item)] == []


def test_no_public_name_is_also_a_package():
    packages = {path.stem for path in Path(rostam_py.__file__).parent.iterdir()}
    assert set(rostam_py.__all__) & packages == set()


def test_rostam_has_every_public_name_the_same_object():
    assert [name for name in rostam_py.__all__ if getattr(rostam, name) is not getattr(rostam_py, name)] == []


def test_rostam_has_no_name_of_its_own():
    assert rostam.__all__ == dir(rostam) == rostam_py.__all__
    assert rostam.__version__ == rostam_py.__version__
    with pytest.raises(AttributeError, match="module 'rostam' has no attribute 'simulat'"):
        _ = rostam.simulat


def test_python_m_rostam_is_the_command_line():
    """Also where a script of the same name lies next to the interpreter, and in its folder."""
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])}
    done = subprocess.run(
        [sys.executable, "-m", "rostam", "--version"], capture_output=True, text=True, env=environment,
        cwd=Path(sys.executable).parent,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"rostam {rostam_py.__version__}\n", "")


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="simulat"):
        _ = rostam_py.simulat


def test_version_is_that_of_the_project_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rostam_py.__version__ == project["version"]
