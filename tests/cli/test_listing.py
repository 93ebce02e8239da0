"""``rostam list``: quantities in the units that data sheets use."""

import dataclasses
import json

import pytest

from rostam_py.cli.main import main
from rostam_py.errors import UnknownNameError
from rostam_py.plan.strategy import AXES, SCHEDULES, Strategy


def test_memory_bandwidth_is_given_in_bytes(capsys):
    assert main(["list", "accelerators", "--json"]) == 0
    rows = {row["accelerator"]: row for row in json.loads(capsys.readouterr().out)["accelerators"]}
    assert rows["a100_80gb"]["memory bandwidth"] == "2.039 TB/s"


def test_every_axis_and_key_of_a_strategy_is_explained_in_a_line(capsys):
    assert main(["list", "strategies", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)["strategies"]}
    assert list(rows)[: len(AXES) + 2] == [f"strategy.{axis}" for axis in ("dp", "tp", "cp", "pp", "mp", "ep")]
    assert set(rows) == {f"strategy.{entry.name}" for entry in dataclasses.fields(Strategy)}
    assert rows["strategy.cp"]["placer"] == rows["strategy.ep"]["placer"] == "megatron"
    assert rows["strategy.dp"]["placer"] == "megatron, sip_ml"
    assert rows["strategy.cp_algorithm"]["values"] == "ring, all_gather, ulysses, torch"
    assert rows["strategy.schedule"]["values"].split(", ") == list(SCHEDULES)
    assert rows["strategy.tables"]["values"] == "replicated, sharded, columns, balanced, hierarchical"
    assert all(row["what"] for row in rows.values()), [key for key, row in rows.items() if not row["what"]]


BAR = "\N{BOX DRAWINGS LIGHT VERTICAL}"


def test_sources_of_hosts_are_paragraphs_as_wide_as_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "hosts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 80
    assert any(line.startswith("  eager: pytorch/pytorch, issue 41383") for line in lines)
    assert any(line.startswith("  graphed_model: in front of the step 64 us") for line in lines)
    cells = [line.split(BAR)[2].strip() for line in lines if line.startswith(BAR)]
    assert max(map(len, cells)) > 30  # what each is


def test_kinds_are_taken_in_the_singular_too_and_by_other_words():
    from rostam_py.cli.choices import LIST_KINDS, list_kind

    singular = {"fidelities": "fidelity", "strategies": "strategy", "convergence": "convergence"}
    for kind in LIST_KINDS:
        assert list_kind(kind) == list_kind(singular.get(kind, kind.removesuffix("s"))) == kind
    for word, kind in (
        ("gpu", "accelerators"),
        ("gpus", "accelerators"),
        ("topology", "fabrics"),
        ("modles", "models"),
    ):
        with pytest.raises(UnknownNameError, match=f"unknown kind '{word}' .did you mean '{kind}'"):
            list_kind(word)
