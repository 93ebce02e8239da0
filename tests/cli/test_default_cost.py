"""The default cost model is one constant: every door takes it, and presets of published studies name their own."""

import inspect
import re
from pathlib import Path

import pytest

import rostam_py
import rostam_py as rostam
from rostam_py.cli.choices import experiment_command, preset_values, presets
from rostam_py.cli.compose import compose_config
from rostam_py.cli.main import main
from rostam_py.cli.schema import name_of
from rostam_py.costs import COST_MODELS, DEFAULT_COST
from rostam_py.searching import Searcher
from rostam_py.spec.settings import complete_settings

STUDIES = ("sip_ml_fig5", "transformer_sip_ml", "ml_routing_mix", "topologies_1024")


@pytest.mark.parametrize("command", ["run", "search", "sweep"])
def test_commands_take_the_default(command):
    assert name_of("cost", compose_config(command, []).cost) == DEFAULT_COST


@pytest.mark.parametrize("entry", [rostam.place, rostam.place_mix, rostam.search, Searcher.__init__])
def test_functions_take_the_default(entry):
    assert inspect.signature(entry).parameters["cost"].default == DEFAULT_COST


@pytest.mark.parametrize("mode", ["run", "search", "mix"])
def test_points_of_sweeps_take_the_default(mode):
    given = {"mode": mode, "fabric": {"name": "torus", "dims": [2, 2]}, "jobs": [{"model": "gpt_125m"}]}
    assert complete_settings(given | {"model": "resnet50"})["cost"] == {"name": DEFAULT_COST}


def test_help_shows_the_default_and_its_keys(capsys):
    assert main(["run", "--help"]) == 0
    assert f"keys of cost={DEFAULT_COST}" in capsys.readouterr().out


def test_no_other_file_states_a_default():
    names = "|".join(COST_MODELS)
    stated = re.compile(rf'cost: str = "({names})"|"cost": "({names})"|cost: ({names})$', re.MULTILINE)
    package = Path(rostam_py.__file__).parent
    assert [str(path) for path in package.rglob("*.py") if stated.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", STUDIES)
def test_presets_of_studies_keep_the_roofline(name):
    assert name in presets("experiment")
    assert "cost" not in preset_values("experiment", name)
    command = experiment_command(name)
    assert name_of("cost", compose_config(command, [f"experiment={name}"]).cost) == "roofline"
