"""Keys below the model on the command line: a part of the model's name, or an axis of a sweep."""

import pytest

from rostam_py.cli.compose import compose_config, plain_overrides, resolved_yaml
from rostam_py.cli.sweep_axes import read_command
from rostam_py.errors import ConfigError
from rostam_py.tracing import trace


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


MLP = """
from torch import nn, randn
class Mlp(nn.Sequential):
    def __init__(self, width=8, depth=1):
        super().__init__(*(nn.Linear(width, width) for _ in range(depth)))
def example_inputs(batch, width=8):
    return randn(batch, width)
"""


def test_arguments_of_a_files_class_are_keys(tmp_path):
    path = tmp_path / "mlp.py"
    path.write_text(MLP, encoding="utf-8")
    config = compose_config("run", [f"model={path}:Mlp", "model.args.depth=3", "model.args.width=16"])
    assert config.model == f"{path}:Mlp@args.depth=3@args.width=16"
    assert trace(config.model, cache=False).num_parameters == 3 * (16 * 16 + 16)
    with pytest.raises(ConfigError, match=r"Mlp\(depth=1, height=2\) in .* fails: TypeError"):
        trace(f"{path}:Mlp@args.depth=1@args.height=2", cache=False)


def test_a_registered_models_depth_is_a_key():
    config = compose_config("run", ["model=llama2_7b", "model.num_layers=2", "model.sequence_length=128"])
    assert config.model == "llama2_7b@num_layers=2@128"
    graph = trace(config.model)
    assert (len(graph.block_names), graph.sequence_length) == (2, 128)
    assert graph.num_parameters == 2 * 32000 * 4096 + 4096 + 2 * (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["model=llama2_7b", "model.num_layers=0"], r"model\.num_layers is 0; it must be an integer from 1"),
        (["model=llama2_7b", "model.args.width=2"], "arguments are those of a class in a file"),
        (["model=x.py:A", "model.num_layers=2"], "registered models alone and Hugging Face configurations"),
        (["model=llama2_7b", "model.depth=2"], "unknown key 'model.depth'"),
        (["model=llama2_7b@num_layers=2", "model.num_layers=2"], "give one of them"),
    ],
)
def test_keys_that_a_model_has_not_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        compose_config("run", given)


def test_an_axis_of_depths_is_one_of_a_sweep():
    command = read_command(["model=llama2_7b", "model.num_layers=2,4", "model.sequence_length=128"])
    assert [axis.key for axis in command.axes] == ["model.num_layers"]
    assert command.settings["model"] == {"name": "llama2_7b", "sequence_length": 128}
