"""The README's examples run as printed."""

import re
import shlex
from pathlib import Path

import pytest

from rostam_py.cli.main import main

pytestmark = pytest.mark.usefixtures("cached_traces")

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
PYTHON = [body for language, body in BLOCKS if language == "python"]
COMMANDS = [
    line for language, body in BLOCKS if language == "bash" for line in body.splitlines() if line.startswith("rostam ")
]


def test_the_readme_has_examples_of_both_kinds():
    assert len(PYTHON) >= 2
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python_example_runs(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(PYTHON[number], f"README example {number}", "exec"), {})  # noqa: S102 (our own file)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("command", [one for one in COMMANDS if "profile" not in one and "profiled" not in one])
def test_command_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
def test_profile_commands_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if "profile" in command:
            assert main(shlex.split(command)[1:]) == 0, command
            assert capsys.readouterr().out.strip()
