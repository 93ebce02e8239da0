"""Help: every command teaches by examples that compose, every key has a default and a meaning, all of it at once."""

import dataclasses
import re
import shlex
import subprocess
import sys

import pytest

from rostam_py.cli.choices import GROUPS, LIST_KINDS, WITH_SCHEMAS, describe_preset, presets, registered, schema_in
from rostam_py.cli.commands import COMMANDS
from rostam_py.cli.compare import split_overrides
from rostam_py.cli.compose import check_overrides
from rostam_py.cli.main import main
from rostam_py.cli.schema import command_schema
from rostam_py.cli.usage import EXAMPLES, meanings, print_usage
from rostam_py.costs import COST_MODELS
from rostam_py.fabrics import FABRICS
from rostam_py.software.names import STACKS

WITH_SCHEMA = [command for command in COMMANDS if command_schema(command) is not None]
_REPORT = """
import sys
from rostam_py.cli.main import main
main({arguments})
heavy = [name for name in ("torch", "ray", "wandb", "plotly", "polars", "hydra", "scipy") if name in sys.modules]
print(heavy, file=sys.stderr)
"""


def fields_of(schema, prefix=""):
    """Return (key, meaning) of every leaf of a schema; groups stand for themselves."""
    what = meanings(schema)
    rows = []
    for entry in dataclasses.fields(schema):
        default = entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
        key = f"{prefix}{entry.name}"
        if dataclasses.is_dataclass(default):
            rows += fields_of(type(default), f"{key}.")
        elif key not in WITH_SCHEMAS:
            rows.append((key, what.get(entry.name, "")))
    return rows


@pytest.mark.parametrize("command", WITH_SCHEMA)
def test_every_key_of_every_command_has_a_meaning_that_help_prints(command, capsys):
    print_usage(command)
    text = capsys.readouterr().out
    for key, meaning in fields_of(command_schema(command)):
        assert meaning, key
        assert f"  {key}=" in text
        assert " ".join(meaning.split()[:3]) in " ".join(text.split())


@pytest.mark.parametrize("kind", WITH_SCHEMAS)
def test_every_key_of_every_group_has_a_meaning(kind):
    for name in registered(kind):
        schema = schema_in(kind, name)
        assert {key for key, meaning in fields_of(schema) if not meaning} == set(), name


@pytest.mark.parametrize("kind", [FABRICS, COST_MODELS, STACKS], ids=["fabrics", "costs", "software"])
def test_meanings_name_every_choice_of_a_key_of_a_group(kind):
    for name in kind:
        schema = getattr(kind.get(name), "Config", kind.get(name))
        for entry in dataclasses.fields(schema):
            choices = entry.metadata.get("choices", ())
            text = meanings(schema)[entry.name]
            if callable(choices):  # of a registry, which is listed
                assert "rostam list" in text, (name, entry.name)
                continue
            assert [one for one in choices if not re.search(rf"\b{re.escape(one)}\b", text)] == [], (name, entry.name)
        if kind is STACKS:  # flags bear their programs' own names
            continue
        assert not re.search(r"\b[A-Z]{3,}_[A-Z_]+\b|one of [A-Z]{4,}\b", " ".join(meanings(schema).values()))


def test_bounds_say_what_they_refuse():
    text = meanings(command_schema("validate"))["bounds"]
    assert "rows, file and cost_model are refused" in text


def test_meanings_are_read_from_sentences_and_lines():
    @dataclasses.dataclass
    class Config:
        """A thing.

        Args:
            size, width: of it, e.g. [4, 4]: two. depth: of
                both; see size.
            colour: red; shade: dark
        """

        size: int = 0
        width: int = 0
        depth: int = 0
        colour: str = ""
        shade: str = ""

    found = meanings(Config)
    assert found["size"] == found["width"] == "of it, e.g. [4, 4]: two."
    assert found["depth"] == "of both; see size."
    assert (found["colour"], found["shade"]) == ("red", "dark")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_has_examples_that_would_run(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: rostam {command}")
    assert EXAMPLES[command]
    for example in EXAMPLES[command]:
        assert example in text
        found = re.search(rf"rostam {command}(.*)", example.split("   ")[0])
        assert found is not None
        words = [one for word in shlex.split(found.group(1).rstrip('")')) for one in split_overrides(word)]
        overrides = [word for word in words if "=" in word]
        check_overrides("run" if command == "compare" else command, overrides, allow_lists=True)


def test_help_of_a_choice_shows_its_own_keys_and_values(capsys):
    assert main(["run", "fabric=hx2mesh_16x16", "strategy=sip_ml_mp4", "--help"]) == 0
    text = capsys.readouterr().out
    for part in ("fabric=hammingmesh", "fabric.boards=[16, 16]", "fabric.taper=1.0", "strategy.mp=4"):
        assert part in text
    assert "fabric.radix=16" not in text
    assert main(["run", "fabric=hx2mesh", "--help"]) == 2


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help_loads_nothing_heavy(arguments):
    ran = subprocess.run(
        [sys.executable, "-c", _REPORT.format(arguments=arguments)], capture_output=True, text=True, check=True
    )
    assert ran.stderr.strip() == "[]"


def test_lists_name_presets_of_every_group_and_experiments_with_their_command(capsys):
    assert main(["list", "presets", "experiments"]) == 0
    text = capsys.readouterr().out
    for key in ("fabric=tree_16384", "strategy=megatron_tp8", "rostam run experiment=quick"):
        assert key in text
    assert "rostam sweep experiment=sip_ml_fig5" in text
    first = describe_preset("experiment", "quick").split()[0]
    assert first in text


def test_kinds_of_list_are_those_that_help_names(capsys):
    for kind in LIST_KINDS:
        assert main(["list", kind, "--json"]) == 0
    capsys.readouterr()
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(f"rostam list {kind}" in text for kind in LIST_KINDS)


def test_help_names_every_kind_of_list(capsys):
    assert main(["--help"]) == 0
    words = set(re.findall(r"\w+", capsys.readouterr().out.partition("  list ")[2].partition("  profile ")[0]))
    assert set(LIST_KINDS) <= words


def test_groups_are_keys_of_run():
    keys = {entry.name for entry in dataclasses.fields(command_schema("run"))}
    assert set(GROUPS) - {"experiment"} < keys
    assert presets("experiment")


def told(capsys, *arguments):
    assert main([*arguments]) == 0
    return capsys.readouterr().out


def keys_in(text):
    return [line.split("=")[0].strip() for line in text.splitlines() if re.match(r"  [a-z_]+(\.[a-z_]+)*=", line)]


def test_help_of_a_key_tells_of_it_and_of_keys_that_begin_like_it(capsys):
    text = told(capsys, "run", "--help", "strategy.shard")
    assert keys_in(text) == ["strategy.shard", "strategy.shard_group"]


@pytest.mark.parametrize(
    ("word", "said", "key"),
    [
        ("fsdp", "fsdp is called strategy.shard=3 here", "strategy.shard"),
        ("activation-checkpointing", "is called strategy.recompute=full here", "strategy.recompute"),
        ("tensor_model_parallel_size", "is called strategy.tp here", "strategy.tp"),
    ],
)
def test_help_knows_words_of_other_programs(capsys, word, said, key):
    text = told(capsys, "search", "--help", word)
    assert said in text
    assert key in keys_in(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("strategy.fusion", "software.rules.fusion"), ("machine.host_sync", "software.rules.host_sync"),
        ("strategy.quantum", "strategy.placing.quantum"), ("host_graphs", "software.rules.host_graphs"),
        ("strategy.launch_latency", "machine.launch_latency"),
    ],
)  # fmt: skip
def test_help_of_a_key_that_has_moved_tells_of_the_new_one(capsys, old, new):
    assert new in keys_in(told(capsys, "run", "--help", old))


def test_the_words_of_the_last_key_of_a_strategy_end_with_it(capsys):
    text = " ".join(told(capsys, "run", "--help", "strategy.check_memory").split())
    assert text.endswith("refuse a plan that does not fit in memory (MODEL D15).")


def test_help_of_a_word_finds_keys_that_mention_it_where_none_is_named_so(capsys):
    assert "software.rules.dispatcher" in keys_in(told(capsys, "run", "--help", "DeepEP"))
    assert keys_in(told(capsys, "run", "--help", "lr")) == []  # a word that has no effect on time


def test_help_of_words_knows_the_keys_of_the_chosen_fabric(capsys):
    assert "fabric.dims" in keys_in(told(capsys, "run", "fabric=torus", "--help", "dims"))
    assert main(["run", "fabric=tree_64", "--help", "dims"]) == 2


def test_a_word_that_no_key_is_about_is_refused_with_near_ones(capsys):
    assert main(["run", "--help", "buckt"]) == 2
    assert "no key is about 'buckt' (did you mean bucket_size?)" in capsys.readouterr().err


def test_help_of_a_run_begins_with_the_keys_that_most_runs_need(capsys):
    text = told(capsys, "run", "--help")
    first = text.split("keys that most runs need")[1].split("keys, defaults and meaning")[0]
    assert len(keys_in(first)) <= 14
    assert {"model", "fabric", "accelerator", "global_batch", "strategy.tp", "strategy.shard"} <= set(keys_in(first))
    assert set(keys_in(first)) <= set(keys_in(text.split("keys, defaults and meaning")[1]))


@pytest.mark.parametrize(
    ("word", "first", "absent"),
    [
        ("mode", ["wandb.mode"], "model"),  # no part of a key, but its begin
        ("pp", ["strategy.pp"], "strategy.mapping"),
        ("pipeline parallel", ["strategy.pp"], "report"),
        ("checkpointing", ["strategy.recompute"], "report"),
    ],
)
def test_help_of_a_word_matches_whole_parts_and_words(capsys, word, first, absent):
    found = keys_in(told(capsys, "run", "--help", word))
    assert found[: len(first)] == first
    assert absent not in found


def test_words_are_parted_by_commas_and_none_is_no_word(capsys):
    text = told(capsys, "run", "--help", "tp,pp")
    assert "about tp" in text
    assert "about pp" in text
    assert told(capsys, "run", "--help", "") == told(capsys, "run", "--help") == told(capsys, "help", "run")


def test_a_key_of_another_fabric_says_whose_it_is(capsys):
    assert main(["run", "fabric=tree_64", "--help", "dims"]) == 2
    assert "add fabric=NAME, one of hyperx, torus" in capsys.readouterr().err
