"""Extras: without their packages everything else works, and what needs them says so before any work."""

import importlib.abc
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rostam_py
from rostam_py.cli.main import main
from rostam_py.errors import InternalError, MissingPackageError
from rostam_py.extras import EXTRAS, Need, require

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {package for packages in EXTRAS.values() for package in packages}


class Absent(importlib.abc.MetaPathFinder):
    """Makes packages look as if they were not installed."""

    def __init__(self, packages):
        self._packages = packages

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


@pytest.fixture
def without(monkeypatch):
    """Return a function that hides packages for the rest of the test."""

    def hide(*packages):
        for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Absent(packages), *sys.meta_path])

    return hide


@pytest.fixture
def bare(without, cached_traces, tmp_path, monkeypatch):
    """An installation of the base alone, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    without(*PACKAGES)
    return tmp_path


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements):
    return [re.match(r"[\w-]+", one)[0] for one in requirements]


def test_extras_are_those_of_the_project_file():
    optional = project()["optional-dependencies"]
    assert {extra: tuple(names(optional[extra])) for extra in EXTRAS} == dict(EXTRAS)
    assert optional["all"] == [f"rostam[{','.join(EXTRAS)}]"]


def test_the_base_needs_none_of_them():
    assert PACKAGES & set(names(project()["dependencies"])) == set()


def test_make_install_takes_all_of_them():
    assert re.search(r"-e '\.\[all,", (ROOT / "Makefile").read_text())


def test_every_module_imports_without_them():
    script = f"""
import importlib, pkgutil, sys
class Absent:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in {sorted(PACKAGES)!r}:
            raise ModuleNotFoundError(fullname)
sys.meta_path.insert(0, Absent())
import rostam, rostam_py
for module in pkgutil.walk_packages(rostam_py.__path__, "rostam_py."):
    importlib.import_module(module.name)
for name in rostam.__all__:
    getattr(rostam, name)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


RUN = ["run", "model=resnet50", "fabric=electrical_flat", "fabric.num_accelerators=2"]


@pytest.mark.parametrize(
    "arguments",
    [
        [*RUN, "timeline=true"],
        ["search", *RUN[1:], "search.placers=[megatron]", "search.num_simulated=1"],
        ["sweep", "model=resnet50", "fabric=electrical_flat", "fabric.num_accelerators=2,4", "sweep.backend=inline",
         "report=false"],
        ["sweep", "model=resnet50", "fabric=electrical_flat", "fabric.num_accelerators=2,4", "--dry-run"],
        ["compare", "strategy.dp=2", "strategy.dp=1 strategy.tp=2", *RUN[1:], "global_batch=32"],
        ["collective", "fabric=electrical_flat", "fabric.num_accelerators=2", "sizes.list=[1 MiB]"],
        ["list", "models", "fabrics", "presets", "convergence"],
        ["cache", "list"],
        ["completion", "bash"],
        ["--version"],
        ["report", "--help"],
        ["sweep", "--help"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)  # fmt: skip
def test_commands_of_the_base_work_without_them(bare, arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*RUN, "report=true"],
         "report=true needs plotly and itables, which are not installed: pip install"
         ' "rostam[report]", or take report=false'),
        ([*RUN, "wandb.enable=true"],
         'wandb.enable=true needs wandb and plotly, which are not installed: pip install "rostam[wandb]"'),
        ([*RUN, "report=true", "wandb.enable=true"], 'pip install "rostam[report,wandb]"'),
        (["sweep", "model=resnet50", "seed=1,2"],
         "sweep.backend=ray needs ray; report=true needs plotly and itables, which are not installed: pip install"
         ' "rostam[sweep,report]", or take sweep.backend=inline and report=false'),
        (["sweep", "model=resnet50", "seed=1,2", "sweep.backend=process", "report=false"],
         'sweep.backend=process needs loky, which is not installed: pip install "rostam[sweep]"'),
        (["report", "somewhere"], 'rostam report needs plotly and itables, which are not installed: pip install'),
        (["report", "somewhere", "formats=[pdf]"],
         'formats=[pdf] needs matplotlib, which are not installed: pip install "rostam[report]"'),
        (["demo"], "rostam demo needs loky; rostam demo needs plotly and itables, which are not installed"),
    ],
)  # fmt: skip
def test_what_needs_an_extra_says_so_before_any_work(bare, arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
    assert list(bare.iterdir()) == []


def test_functions_name_them_too(bare):
    with pytest.raises(MissingPackageError, match=r'a report needs plotly and itables.*"rostam\[report\]"'):
        rostam_py.write_report("somewhere")
    with pytest.raises(MissingPackageError, match=r"rostam\.figures needs plotly"):
        rostam_py.figures("somewhere")
    with pytest.raises(MissingPackageError, match=r"sweep\.backend=process needs loky.*inline"):
        rostam_py.run_sweep({"model": "resnet50"})


def test_one_package_that_is_missing_is_one(without):
    without("matplotlib")
    with pytest.raises(MissingPackageError, match=r"^X needs matplotlib, which is not installed: "):
        require(Need("X", "report"))
    require(Need("Y", "report", ("plotly",)))


def test_packages_of_another_extra_are_a_fault_of_ours():
    with pytest.raises(InternalError, match="'sweep' holds"):
        Need("X", "sweep", ("plotly",))
