"""Verdicts from figures and reasons, ledgers as text, and runs that keep what is finished."""

import json
from html.parser import HTMLParser

import pytest

from rostam_py.cli.main import main
from rostam_py.errors import ConfigError
from rostam_py.reproduction import Experiment, Figure, Verdict, claim_figures, html, markdown, run_experiment
from rostam_py.reproduction.experiment import experiments_in, kept_entry
from rostam_py.reproduction.figures import signed_difference
from rostam_py.reproduction.ledger import cells
from rostam_py.reproduction.reasons import Entry, judged, reasons_of, stale

COMPARE = """
from pathlib import Path
from rostam_py.reproduction import Figure
RUNS = Path(__file__).with_name("runs")
def figures():
    RUNS.write_text(str(int(RUNS.read_text()) + 1) if RUNS.exists() else "1")
    return [Figure(name="a | b", published="2", ours="2", difference="+0%", is_met=True),
            Figure(name="c", published="4", ours="<5>", difference="+25%", is_met=False),
            Figure(name="d", published="", ours="6")]
"""
REASONS = '- {figures: "c", deviates: it rains, tried: "an umbrella: 4.1"}\n'


def experiment(root, name="one", compare=COMPARE, reasons=REASONS):
    folder = root / "experiments" / name
    folder.mkdir(parents=True)
    (folder / "compare.py").write_text(compare)
    (folder / "README.md").write_text(f"# The title of {name}\n\nText.\n")
    if reasons:
        (folder / "reasons.yaml").write_text(reasons)
    return Experiment.at(folder)


def test_verdicts_are_what_figures_and_the_first_reason_that_matches_say():
    figures = [
        Figure(name="met", published="1", ours="1", is_met=True),
        Figure(name="off one", published="1", ours="2", is_met=False),
        Figure(name="off two", published="1", ours="3", is_met=False),
        Figure(name="unsaid", published="1", ours="4", is_met=False),
        Figure(name="not printed", published="", ours="5"),
        Figure(name="found", published="1", ours="6", is_met=False, deviates="measured", tried="it: 1"),
    ]
    reasons = [
        {"figures": "*one", "deviates": "a", "tried": "b"}, {"figures": "off*", "underivable": "c"},
        {"figures": "met", "deviates": "d", "tried": "e"},
    ]  # fmt: skip
    rows = judged(figures, reasons)
    assert [row.words for row in rows] == [
        "reproduced", "deviates because a; tried: b", "cannot be derived because c", "unexplained",
        "cannot be derived because the source prints no figure to compare with",
        "deviates because measured; tried: it: 1",
    ]  # fmt: skip
    assert stale(rows, reasons) == ["met"]


def test_ledgers_print_a_unit_behind_every_number_that_has_one_and_keep_it():
    figures = [
        Figure(name="cost", published="25.3", ours="27.83", difference="+10.0%", unit="M$", is_met=False),
        Figure(name="time", published="", ours="1.13", unit="ms"),
        Figure(name="overhead", published="2", ours="3", difference="+1", unit="%", is_met=False),
        Figure(name="ratio", published="2x", ours="3x", is_met=False),
    ]
    entry = Entry("one", "One", judged(figures, []))
    assert [cells(row)[1:4] for row in Entry.of(json.loads(json.dumps(entry.to_dict()))).rows] == [
        ["25.3 M$", "27.83 M$", "+10.0%"], ["-", "1.13 ms", "-"], ["2 %", "3 %", "+1 %"], ["2x", "3x", "-"],
    ]  # fmt: skip


def test_the_table_of_costs_is_in_millions_of_dollars():
    rows = run_experiment(experiments_in()["hammingmesh_table2_cost"]).rows
    assert {cells(row)[2].rsplit(" ", 1)[-1] for row in rows} == {"M$"}


def test_claims_are_figures_named_by_what_tells_them_apart():
    row = {"claim": "faster", "model": "gpt", "theirs": "2x", "ours": "3x", "is_met": False}
    (figure,) = claim_figures([row], "{model}")
    assert (figure.name, figure.published, figure.ours, figure.is_met) == ("gpt: faster", "2x", "3x", False)


def test_a_ledger_holds_every_figure_as_text_of_a_table(tmp_path):
    entry = run_experiment(experiment(tmp_path))
    text = markdown([entry])
    assert "## The title of one" in text
    assert "| a / b | 2 | 2 | +0% | reproduced |" in text
    assert "| c | 4 | <5> | +25% | deviates because it rains; tried: an umbrella: 4.1 |" in text
    assert "| d | - | 6 | - | cannot be derived because the source prints no figure to compare with |" in text
    assert "| one | 1 | 1 | 1 | 0 |" in text

    found = []
    parser = HTMLParser()
    parser.handle_data = found.append
    parser.feed(html([entry]))
    assert {"a | b", "<5>", "deviates because it rains; tried: an umbrella: 4.1"} <= set(found)
    assert Entry.of(json.loads(json.dumps(entry.to_dict()))) == entry


def test_what_is_finished_is_kept_until_its_files_change(tmp_path):
    one, out = experiment(tmp_path), tmp_path / "out"
    runs = one.folder / "runs"
    entries = [kept_entry(one, out, rerun=False) for _ in range(2)]
    assert [is_kept for _, is_kept in entries] == [False, True]
    assert entries[0][0] == entries[1][0]
    assert runs.read_text() == "1"
    (one.folder / "reasons.yaml").write_text(REASONS.replace("it rains", "it snows"))
    assert "it snows" in markdown([kept_entry(one, out, rerun=False)[0]])
    assert runs.read_text() == "2"


def test_points_are_filled_in_the_ledgers_folder_when_they_are_computed_anew(tmp_path):
    compare = COMPARE.replace("def figures():", "POINTS = RUNS\ndef figures(path):\n    RUNS = path")
    one, out = experiment(tmp_path, compare=compare), tmp_path / "out"
    kept_entry(one, out, rerun=False)
    kept_entry(one, out, rerun=True)
    assert ((one.folder / "runs").read_text(), (out / "one.points.json").read_text()) == ("1", "1")


def test_a_stopped_run_leaves_the_ledger_of_what_was_finished(tmp_path, capsys):
    experiment(tmp_path)
    experiment(tmp_path, "two", "def figures():\n    raise KeyboardInterrupt\n", "")
    arguments = ["reproduce", "--all", f"folder={tmp_path / 'experiments'}", f"out={tmp_path / 'out'}"]
    assert main(arguments) == 130
    assert "it rains" in (tmp_path / "out" / "ledger.md").read_text()
    assert "umbrella" in (tmp_path / "out" / "ledger.html").read_text()
    (tmp_path / "experiments" / "two" / "compare.py").write_text(COMPARE.replace("is_met=False", "is_met=True"))
    capsys.readouterr()
    assert main(arguments) == 0
    assert (tmp_path / "experiments" / "one" / "runs").read_text() == "1"
    out = capsys.readouterr().out
    assert "kept in" in out
    assert "The title of two" in out


def test_one_experiment_anew_leaves_the_others_in_the_ledger(tmp_path, capsys):
    for name in ("one", "two", "three"):
        experiment(tmp_path, name)
    given = [f"folder={tmp_path / 'experiments'}", f"out={tmp_path / 'out'}"]
    main(["reproduce", "--all", *given])
    whole = (tmp_path / "out" / "ledger.md").read_text()
    assert main(["reproduce", "two", *given]) == 0
    assert (tmp_path / "out" / "ledger.md").read_text() == whole
    (tmp_path / "experiments" / "three" / "compare.py").write_text(COMPARE.replace("is_met=False", "is_met=True"))
    capsys.readouterr()
    main(["reproduce", "two", *given])
    assert "left out of the ledger, since their files or rostam's code have changed: three" in capsys.readouterr().out
    left = (tmp_path / "out" / "ledger.md").read_text()
    assert ("`experiments/one`" in left, "`experiments/three`" in left) == (True, False)


@pytest.mark.parametrize(
    ("compare", "words"),
    [
        ("from rostam_py.errors import ConfigError\ndef figures():\n    raise ConfigError('no room')\n", "no room"),
        ("x = 1\n", "has no figures()"),
        ("def f(a):\n    pass\ndef figures():\n    f()\n", "TypeError: f() missing 1 required positional argument"),
        ("def figures():\n    return {}['x']\n", "KeyError: 'x' (compare.py, line 2)"),
        ("def figures():\n    assert 0\n", "AssertionError: no message (compare.py, line 2)"),
        ("def figures(:\n", "SyntaxError"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("import sys\ndef figures():\n    sys.exit(0)\n", "SystemExit: 0"),
        ("def figures():\n    return [5]\n", "AttributeError"),
        ("def figures():\n    return figures()\n", "RecursionError"),
    ],
)
def test_one_that_fails_is_said_and_the_others_run(tmp_path, capsys, compare, words):
    experiment(tmp_path, "a", compare, "")
    experiment(tmp_path, "b")
    arguments = ["reproduce", "a", "b", "--json", f"folder={tmp_path / 'experiments'}", f"out={tmp_path / 'out'}"]
    assert main(arguments) == 1
    first, second = json.loads(capsys.readouterr().out)["experiments"]
    assert words in first["failed"]
    assert f"Failed: {first['failed']}" in (tmp_path / "out" / "ledger.md").read_text()
    assert [one["verdict"] for one in second["figures"]] == [
        Verdict.REPRODUCED, Verdict.DEVIATES, Verdict.UNDERIVABLE
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"digest": 5}', "\x00"])
def test_a_kept_entry_that_is_damaged_runs_again(tmp_path, text):
    one, out = experiment(tmp_path), tmp_path / "out"
    kept_entry(one, out, rerun=False)
    (out / "one.json").write_text(text)
    entry, is_kept = kept_entry(one, out, rerun=False)
    assert (len(entry.rows), is_kept, (one.folder / "runs").read_text()) == (3, False, "2")


def test_an_unexplained_deviation_is_an_exit_status(tmp_path, capsys):
    experiment(tmp_path, reasons="")
    assert main(["reproduce", "one", f"folder={tmp_path / 'experiments'}", f"out={tmp_path / 'out'}"]) == 1
    assert "unexplained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["no experiment is named", "--all", "one"]),
        (["three"], ["unknown experiment 'three'", "known: one"]),
        (["one", "--all"], ["--all and one", "give one of them"]),
        (["one", "rerun=2"], ["rerun is '2'", "true or false"]),
        (["one", "folder=nowhere"], ["folder is 'nowhere'", "no experiments"]),
    ],
)
def test_bad_input_names_what_there_is(tmp_path, capsys, arguments, parts):
    experiment(tmp_path)
    own = [] if any(one.startswith("folder") for one in arguments) else [f"folder={tmp_path / 'experiments'}"]
    assert main(["reproduce", *arguments, *own, f"out={tmp_path / 'out'}"]) == 2
    text = capsys.readouterr().err
    assert all(part in text for part in parts)


@pytest.mark.parametrize("text", ["figures: c", "- {figures: c}", "- {figures: c, deviates: 5, tried: x}", "- ]"])
def test_reasons_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "reasons.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"reasons\.yaml"):
        reasons_of(tmp_path)


@pytest.mark.parametrize(
    ("published", "ours", "difference"),
    [
        ("about 300 us", "3000 us (100 us to none)", "+900.0%"),
        ("<= 1x", "1.086x (1.005x to 1.108x)", "+8.6%"),
        ("9.1x", "4.98x (2.09x to 6.20x)", "-45.3%"),
        ("> 1x", "1,024x", "+102300.0%"),
        ("about 300 us", "3 ms", ""),  # other units
        ("<= 1x", "1.00x to 1.00x", ""),  # several numbers
        ("1.3x to 9.1x", "4.98x", ""),
        ("stated", "88.8% + 11.2%", ""),
        ("0x", "1x", ""),
    ],
)
def test_differences_are_those_of_single_numbers_of_one_unit(published, ours, difference):
    assert signed_difference(published, ours) == difference
    rows = [{"claim": "c", "theirs": published, "ours": ours, "is_met": False}]
    assert claim_figures(rows, "")[0].difference == difference
