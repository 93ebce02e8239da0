"""Published set-ups are said in few words: model, machine, program with its flags, degrees and batch, and five more."""

import pytest

from rostam_py.cli.compose import compose_config
from rostam_py.cli.point import point_settings
from rostam_py.validation.rows import overrides_of, run_settings
from rostam_py.validation.tables import select

# What names a set-up: all else is a word beyond.
NAMED = ("model", "machine", "accelerator", "software", "global_batch", "fabric")
DEGREES = ("dp", "tp", "pp", "cp", "ep", "virtual_stages", "micro_batch")
MOST_WORDS = 5
SET_UPS = [
    ("torchtitan_h100", "3.1 8B H100 8"),
    ("torchtitan_h100", "3.1 8B H100 8 compiled"),
    ("torchtitan_h100", "3.1 8B H100 8 compiled float8 yes"),
    ("torchtitan_h100", "3.1 8B H100 128 compiled"),
    ("torchtitan_h100", "3.1 70B H100 256 tp8 compiled"),
    ("llm_foundry_h100", "1b H100 8"),
    ("llm_foundry_h100", "7b H100 8"),
    ("llm_foundry_h100", "70b H100 64"),
    ("bridge_dense", "LLAMA3_70B H100 64 FP8 26.02"),
    ("bridge_dense", "LLAMA3_8B H100 8 FP8-CS 25.11"),
    ("V1", "18.4B"),
    ("V5", "ResNet-50, 8 H100"),
]
ROWS = [
    (table.name, row)
    for table in select()
    for row in table.rows
    if not row.why_not and row.held_out is None and row.subject == "run"
]


def beyond(words):
    """Return the words that name neither the set-up nor its degrees."""
    found = [word.partition("=")[0] for word in words]
    return [
        key
        for key in found
        if key.partition(".")[0] not in NAMED and not (key.startswith("strategy.") and key[9:] in DEGREES)
    ]


@pytest.mark.parametrize(("table", "name"), SET_UPS)
def test_a_published_set_up_needs_few_words(table, name):
    row = next(row for found, row in ROWS if (found, row.name) == (table, name))
    words = overrides_of(row.keys)
    assert len(beyond(words)) <= MOST_WORDS, beyond(words)
    assert any(word.startswith("software=") for word in words)


@pytest.mark.parametrize(("table", "name"), SET_UPS)
def test_its_words_on_the_command_line_are_the_row(table, name):
    """So that a run by hand is the row's validated prediction: the same settings give the same bytes."""
    row = next(row for found, row in ROWS if (found, row.name) == (table, name))
    assert point_settings("run", compose_config("run", overrides_of(row.keys))) == run_settings(row.keys)


def test_rows_name_their_program_and_hold_few_rules_by_hand():
    by_hand = {(table, str(rules)) for table, row in ROWS if (rules := (row.keys.get("software") or {}).get("rules"))}
    assert all("software" in row.keys for _, row in ROWS)
    assert len(by_hand) <= 12, by_hand
