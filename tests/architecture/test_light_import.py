"""``import rostam_py`` and naming what there is are cheap; heavy modules come with the first real use."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = {
    "torch", "numpy", "scipy", "hydra", "omegaconf", "yaml", "pandas", "polars", "ray", "loky", "wandb", "plotly",
    "matplotlib", "itables", "networkx", "rich",
}  # fmt: skip

_REPORT = """
import json, sys
{statement}
print()
print(json.dumps(sorted(name for name in sys.modules if {which})))
"""


def loaded_by(statement: str, which: str = "'.' not in name") -> set[str]:
    """Return the modules, top-level ones by default, that a fresh interpreter holds after ``statement``."""
    output = subprocess.run(
        [sys.executable, "-c", _REPORT.format(statement=statement, which=which)],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    ).stdout  # fmt: skip
    return set(json.loads(output.splitlines()[-1]))


@pytest.mark.parametrize("name", ["rostam", "rostam_py"])
def test_import_loads_nothing_heavy(name):
    assert loaded_by(f"import {name}; dir({name})") & HEAVY == set()


@pytest.mark.parametrize(
    "statement",
    [
        "from rostam_py.fabrics import FABRICS; FABRICS.names()",
        "from rostam_py.costs import COST_MODELS, ACCELERATORS; COST_MODELS.names()",
        "from rostam_py.plan import PLACERS; PLACERS.names()",
        "from rostam_py.models import MODELS; list(MODELS)",
        "from rostam_py.spec.settings import complete_settings; complete_settings({})",
    ],
)
def test_listing_loads_neither_torch_nor_hydra(statement):
    assert loaded_by(statement) & {"torch", "scipy", "hydra", "omegaconf", "ray", "wandb", "plotly"} == set()


@pytest.mark.parametrize(
    "statement",
    [
        "from rostam_py.cli.main import main; main(['run', '--help'])",
        "from rostam_py.cli.completion import candidates; candidates(['run', 'model=res'])",
    ],
)
def test_help_and_names_load_nothing_that_a_run_works_with(statement):
    loaded = loaded_by(statement, "len(name.split('.')) == 2")
    assert "rostam_py.spec" in loaded
    above = {f"rostam_py.{name}" for name in ("placement", "simulation", "searching", "fleet", "sweep", "tracing")}
    assert loaded & above == set()
    assert loaded_by(statement) & {"pydantic", "hydra", "omegaconf", "rich"} == set()


def test_settings_of_a_run_load_nothing_that_searches_or_mixes():
    statement = "from rostam_py.spec.settings import complete_settings; complete_settings({})"
    loaded = loaded_by(statement, "len(name.split('.')) == 2")
    assert loaded & {"rostam_py.searching", "rostam_py.fleet", "rostam_py.sweep"} == set()


def test_simulating_a_collective_loads_no_torch():
    statement = (
        "import rostam_py as rostam\n"
        "fabric = rostam.fabric('electrical_flat', num_accelerators=4, accelerator_bandwidth='100 Gb/s')\n"
        "rostam.run_collective(fabric, 'all_reduce', num_bytes=1024, algorithm='ring')"
    )
    assert "torch" not in loaded_by(statement)


def test_loader_sees_heavy_modules():
    assert "numpy" in loaded_by("import numpy")
