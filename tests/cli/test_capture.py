"""rostam capture: its options, and the words behind -- that are the program's."""

import json
from types import SimpleNamespace

import pytest

from rostam_py.cli import capture as command
from rostam_py.cli.main import main
from rostam_py.programs import Compute, Program, Role


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What rostam.capture is asked; it returns a program of one kernel."""
    monkeypatch.chdir(tmp_path)
    found = SimpleNamespace(program=None, settings=None)

    def capture(program, **settings):
        found.program, found.settings = program, settings
        steps = (Compute(time="1 us"),)
        return Program(name="train", num_ranks=8, roles={"rank": Role(phases={"iteration": steps})})

    monkeypatch.setattr(command, "capture", capture)
    return found


def test_options_and_the_programs_words_are_told_apart(asked, capsys):
    words = [
        "capture",
        "--world=8",
        "--ranks",
        "0,7",
        "--stub",
        "apex,triton",
        "--",
        "python",
        "train.py",
        "--help",
        "--json",
    ]
    assert main(words) == 0
    assert asked.program == ["python", "train.py", "--help", "--json"]
    assert asked.settings == {
        "world": 8, "step": None, "ranks": [0, 7], "gpu": "h100_80gb", "stub": ["apex", "triton"],
        "splits": "balanced", "assume_bandwidth": [],
    }  # fmt: skip
    told = capsys.readouterr()
    assert "train: 8 ranks" in told.out
    assert "train.json.gz" in told.out
    assert "runs python train.py --help --json on this computer" in told.err
    assert Program.load("train.json.gz").num_ranks == 8


def test_json_is_one_document(asked, capsys):
    assert main(["capture", "--world", "8", "--json", "--out", "here.json", "--", "python", "train.py"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["num_ranks"], found["messages"]) == ("here.json", 8, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--world", "8"], "no program is given; it stands behind --"),
        (["--world", "8", "train.py", "--", "python", "x"], "'train.py' is no option; options: --world, --ranks"),
        (["--world", "--", "python", "x"], "--world has no value; it takes N"),
        (["--world", "many", "--", "python", "x"], "--world is 'many'; it must be an integer"),
        (["--ranks", "0-7", "--", "python", "x"], "--ranks is '0-7'; it must be auto, or ranks such as 0,8"),
        (["--step", "3", "--step", "4", "--", "python", "x"], "--step is given twice"),
        (["--wrld", "8", "--", "python", "x"], "unknown option '--wrld'"),
    ],
)
def test_wrong_words_are_one_line(words, said, asked, capsys):
    assert main(["capture", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert asked.program is None
