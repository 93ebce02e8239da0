"""``model.sequence_length`` on the command line: a part of the model's name, or an axis of a sweep."""

import pytest

from rostam_py.cli.compose import compose_config, plain_overrides, resolved_yaml
from rostam_py.cli.sweep_axes import read_command
from rostam_py.errors import ConfigError


@pytest.mark.parametrize("command", ["run", "search", "profile"])
def test_the_length_becomes_part_of_the_models_name(command):
    given = ["model=gpt_125m", "model.sequence_length=4096"]
    assert compose_config(command, given).model == "gpt_125m@4096"
    assert compose_config(command, list(reversed(given))).model == "gpt_125m@4096"
    assert "model: gpt_125m@4096\n" in resolved_yaml(command, given)


def test_an_experiments_model_and_the_default_are_the_one_meant():
    given = ["experiment=llama3_8b_fsdp_128", "model.sequence_length=4096"]
    assert plain_overrides("run", given)[-1] == "model=llama3_8b@4096"
    with pytest.raises(ConfigError, match="samples of model resnet50 are images"):
        plain_overrides("run", ["model.sequence_length=4096"])


def test_the_last_of_two_lengths_counts_as_of_other_keys():
    given = ["model=gpt_125m", "model.sequence_length=64", "model.sequence_length=128"]
    assert plain_overrides("run", given) == ["model=gpt_125m@128"]


def test_several_are_for_sweeps_and_multiruns():
    given = ["model=gpt_125m,gpt_350m", "model.sequence_length=64,128"]
    with pytest.raises(ConfigError, match=r"name 4 pairs, and rostam run takes one: rostam sweep runs each"):
        compose_config("run", given)
    pairs = "gpt_125m@64,gpt_125m@128,gpt_350m@64,gpt_350m@128"
    assert plain_overrides("run", given, allow_lists=True) == [f"model={pairs}"]


def test_a_sweep_has_an_axis_of_lengths():
    command = read_command(["model=gpt_125m,gpt_350m", "model.sequence_length=64,128"])
    assert [axis.key for axis in command.axes] == ["model", "model.sequence_length"]
    assert [value.data for value in command.axes[1].values] == [64, 128]
    command = read_command(["model=gpt_125m,gpt_350m", "model.sequence_length=64"])
    assert [axis.key for axis in command.axes] == ["model"]
    assert command.settings["model"]["sequence_length"] == 64
    assert read_command(["model=gpt_125m", "model.sequence_length=64"]).settings["model"] == "gpt_125m@64"


def test_other_commands_do_not_know_the_key():
    with pytest.raises(ConfigError, match=r"unknown key 'model"):
        compose_config("collective", ["model.sequence_length=64"])
