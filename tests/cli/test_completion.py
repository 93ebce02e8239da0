"""Completion: what a real bash offers for lines as they are typed, and what may stand behind a word."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rostam_py.cli.choices import LIST_KINDS, presets
from rostam_py.cli.commands import COMMANDS
from rostam_py.cli.completion import SCRIPTS, candidates
from rostam_py.cli.main import main
from rostam_py.models import MODELS

ROSTAM = Path(sys.executable).with_name("rostam")


@pytest.fixture(scope="module")
def bash():
    """Return a function that completes the last word in a real bash: COMP_WORDS in, COMPREPLY out."""
    shell = shutil.which("bash")
    if shell is None or not ROSTAM.is_file():
        pytest.skip("needs bash and the installed command")

    def complete(*words: str) -> list[str]:
        array = " ".join(f"'{word}'" for word in (str(ROSTAM), *words))
        script = (
            f'eval "$({ROSTAM} completion bash)"; COMP_WORDS=({array}); COMP_CWORD={len(words)}; _rostam;'
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
        ran = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True)
        assert ran.stderr == ""
        return ran.stdout.split("\n")[:-1]

    return complete


def test_bash_completes_commands(bash):
    assert bash("ru") == ["run"]
    assert set(COMMANDS) <= set(bash(""))


def test_bash_completes_group_choices_split_at_the_equals_sign(bash):
    # With "=" in COMP_WORDBREAKS, bash hands over three pieces and replaces the last one only.
    assert bash("run", "fabric", "=", "tree_163") == [one for one in presets("fabric") if one.startswith("tree_163")]
    assert "torus_8x8" in bash("run", "fabric", "=")
    assert bash("run", "fabric", "=", "torus_8x8", "model", "=", "gpt_1_") == ["gpt_1_3b"]


def test_bash_completes_whole_words_where_the_equals_sign_breaks_none(bash):
    assert bash("run", "fabric=torus_8") == ["fabric=torus_8x8"]


def test_bash_completes_rules_and_their_values(bash):
    assert "software.rules.attention=" in bash("run", "software.rules.a")
    assert set(bash("run", "software.rules.norms", "=", "a")) == {"aten"}


def test_bash_completes_nested_keys(bash):
    assert bash("run", "strategy.prec") == ["strategy.precision="]
    assert bash("run", "fabric", "=", "torus_8x8", "fabric.di") == ["fabric.dims="]


def test_bash_escapes_blanks(bash):
    assert bash("run", "strategy.placing.quantum", "=") == ["10\\ us"]


def test_an_unknown_line_offers_nothing_and_complains_of_nothing(bash):
    assert bash("fly", "fabric", "=", "to") == [""]


def test_scripts_are_printed_for_each_shell(capsys):
    for shell in SCRIPTS:
        assert main(["completion", shell]) == 0
        assert "completion query" in capsys.readouterr().out
    assert main(["completion", "csh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize(("shell", "flag"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_scripts_parse_in_their_shells(shell, flag, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(SCRIPTS[shell])
    ran = subprocess.run([program, flag, str(tmp_path / "script")], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    (tmp_path / "script").write_text(SCRIPTS[shell] + "\nif\n")
    assert subprocess.run([program, flag, str(tmp_path / "script")], capture_output=True).returncode != 0


def completed_by(shell: str, script: str) -> list[str]:
    """Return what a script for another shell prints, line by line."""
    program = shutil.which(shell)
    if program is None or not ROSTAM.is_file():
        pytest.skip(f"needs {shell} and the installed command")
    ran = subprocess.run(
        [program, *(["-f"] if shell == "zsh" else []), "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PATH": f"{ROSTAM.parent}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    return ran.stdout.split()


def test_fish_completes_names_and_keys():
    line = "rostam completion fish | source; complete -C 'rostam run strategy.prec fabric=tree_163'"
    assert completed_by("fish", line) == [f"fabric={one}" for one in presets("fabric") if one.startswith("tree_163")]


def test_zsh_completes_names_with_and_keys_without_a_blank_after_them():
    # compadd, which only works while a line is typed, stands in: its last argument names the array of matches.
    stubs = 'compdef() { : }; compadd() { print -r -- "$1" "${(@P)@[-1]}" }; eval "$(rostam completion zsh)"'
    assert completed_by("zsh", f"{stubs}; words=(rostam run routing=s); CURRENT=3; _rostam") == ["-a", "routing=spray"]
    typed = f"{stubs}; words=(rostam run strategy.prec); CURRENT=3; _rostam"
    assert completed_by("zsh", typed) == ["-S", "strategy.precision="]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["run", "--"], ["--help", "--json", "--multirun"]),
        (["list", "ac"], ["accelerators"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["profile", "resnet10"], ["resnet101"]),
        (["run", "accelerator=v100"], ["accelerator=v100_32gb"]),
        (["run", "convergence=gpt3_175b_b"], ["convergence=gpt3_175b_brown"]),
        (["run", "routing=s"], ["routing=spray"]),
        (["sweep", "routing=hash,s"], ["routing=hash,spray"]),
        (["sweep", "fabric=torus_8x8,torus_3"], ["fabric=torus_8x8,torus_32x32"]),
        (["run", "strategy=megatron"], ["strategy=megatron_2021_tp8", "strategy=megatron_tp8"]),
        (["run", "experiment=qui"], ["experiment=quick"]),
        (["report", ""], []),
        (["report", "runs/mine", "form"], ["formats="]),
        (["demo", "s"], ["short="]),
        (["sweep", "sweep.backend=in"], ["sweep.backend=inline"]),
        (["sweep", "experiment=qui"], ["experiment=quick", "experiment=quick_sweep"]),
        (["run", "strategy.recompute=s"], ["strategy.recompute=selective"]),
        (["run", "strategy.algorithms.all_red"], ["strategy.algorithms.all_reduce="]),
        (["run", "fold="], ["fold=false", "fold=true"]),
        (["run", "failures.l"], ["failures.links="]),
        (["run", "fabric=hx2mesh_8x8", "fabric.boa"], ["fabric.board=", "fabric.board_latency=", "fabric.boards="]),
        (["run", "strategy"], ["strategy.", "strategy="]),
        (["search", "search.num"], ["search.num_simulated="]),
        (["run", "fabric=no_such", "global"], ["global_batch="]),
        (["run", "hydra"], []),
    ],
)
def test_words_complete_to_what_there_is(words, found):
    assert candidates(words) == found


def test_files_of_ones_own_complete_folder_by_folder(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "mine.py").touch()
    assert candidates(["run", f"model={tmp_path}/ne"]) == [f"model={tmp_path}/nets/"]
    assert candidates(["run", f"model={tmp_path}/nets/"]) == [f"model={tmp_path}/nets/mine.py"]


def test_lists_of_names_are_whole():
    assert candidates(["list", ""]) == sorted(LIST_KINDS)
    assert candidates(["run", "model="]) == [f"model={name}" for name in sorted(MODELS)]


def test_hydras_own_keys_come_with_multirun_only():
    assert candidates(["run", "--multirun", "hydra/laun"]) == ["hydra/launcher="]


def test_names_come_without_hydra():
    code = (
        "import sys; from rostam_py.cli.completion import candidates\n"
        "for words in (['r'], ['run', '--'], ['run', 'fabric='], ['list', '']): candidates(words)\n"
        "print([name for name in ('numpy', 'dataclasses') if name in sys.modules])\n"
        "for words in (['run', 'model='], ['sweep', 'sweep.backend=']): candidates(words)\n"
        "print([name for name in ('hydra', 'omegaconf', 'torch', 'rich') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n[]\n"


def test_a_query_is_not_taken_for_options(capsys):
    assert main(["completion", "query", "run", "--h"]) == 0
    assert capsys.readouterr().out == "--help\n"
    assert main(["completion", "query", "--v"]) == 0
    assert capsys.readouterr().out == "--version\n"
