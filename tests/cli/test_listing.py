"""``rostam list``: quantities in the units that data sheets use."""

import dataclasses
import json

import pytest

from rostam_py.cli.main import main
from rostam_py.errors import UnknownNameError
from rostam_py.plan.placing import PLACING_NAMES
from rostam_py.plan.program_rules import RULE_NAMES
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import AXES, SCHEDULES
from rostam_py.software.stack import RULES


def test_memory_bandwidth_is_given_in_bytes(capsys):
    assert main(["list", "accelerators", "--json"]) == 0
    rows = {row["accelerator"]: row for row in json.loads(capsys.readouterr().out)["accelerators"]}
    assert rows["a100_80gb"]["memory bandwidth"] == "2.039 TB/s"


def test_every_axis_and_key_of_a_strategy_is_explained_in_a_line(capsys):
    assert main(["list", "strategies", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)["strategies"]}
    assert list(rows)[: len(AXES) + 2] == [f"strategy.{axis}" for axis in ("dp", "tp", "cp", "pp", "mp", "ep")]
    own = {entry.name for entry in dataclasses.fields(Strategy)} - {"rules", "placing"}
    assert set(rows) == {f"strategy.{name}" for name in (*own, *(f"placing.{one}" for one in PLACING_NAMES))}
    assert rows["strategy.cp"]["placer"] == rows["strategy.ep"]["placer"] == "megatron"
    assert rows["strategy.dp"]["placer"] == "megatron, sip_ml"
    assert rows["strategy.schedule"]["values"].split(", ") == list(SCHEDULES)
    assert rows["strategy.tables"]["values"] == "replicated, sharded, columns, balanced, hierarchical"
    assert all(row["what"] for row in rows.values()), [key for key, row in rows.items() if not row["what"]]


def test_every_rule_of_programs_is_explained_with_what_an_ideal_one_does(capsys):
    assert main(["list", "rules", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)["rules"]}
    assert list(rows) == [f"software.rules.{name}" for name in RULES]
    assert {*RULE_NAMES, "host", "attention", "rank_order"} < set(RULES)
    assert "eager" in rows["software.rules.host"]["values"]
    assert rows["software.rules.cp_algorithm"]["values"] == "ring, all_gather, ulysses, torch"
    assert rows["software.rules.overlap_p2p"]["ideal"] == "true"
    assert all(row["what"] for row in rows.values())


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

    singular = {"fidelities": "fidelity", "strategies": "strategy", "convergence": "convergence", "policies": "policy"}
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


def test_rules_of_kernels_list_their_values(capsys):
    assert main(["list", "rules", "--json"]) == 0
    values = {row["key"]: row["values"] for row in json.loads(capsys.readouterr().out)["rules"]}
    assert values["software.rules.attention"] == "best, flash3, cudnn, flash2"
    assert values["software.rules.norms"] == "fused, aten"
    assert values["software.rules.batch_norms"] == "pytorch, cudnn, native"
