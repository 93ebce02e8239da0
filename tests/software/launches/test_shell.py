"""Shell scripts are read as text: variables, arrays, defaults, arithmetic and conditions; nothing is run."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.software.launches.document import arguments
from rostam_py.software.launches.shell import read_script


def words(text, **variables):
    return read_script(text, variables).words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=3; python t.py --a $A", "--a 3"),
        ("A=$((2 * (3 + 1)))\npython t.py --a ${A}", "--a 8"),
        ("A=${B:-5}\npython t.py --a $A", "--a 5"),
        ('A=${B:-"5 6"}\npython t.py --a $A', "--a 5 6"),
        ("B=1\nA=${B:-5}\npython t.py --a $A", "--a 1"),
        ("A=(--a 1 # one\n --b 2)\npython t.py ${A[@]}", "--a 1 --b 2"),
        ('A=("--a 1"); A+=(--b "x y")\npython t.py ${A[@]}', "--a 1 --b x y"),
        ('A="--a 1 \\\n  --b 2"\npython t.py $A', "--a 1 --b 2"),
        ("export A=1 && python t.py \\\n  --a $A \\\n# --b 2 \\\n  --c 3", "--a 1 --c 3"),
        ("python t.py '--a=$A'", "--a=$A"),
        ("python t.py --a $1 --b $(date +%s)", "--a $1 --b $(date +%s)"),
        ("D=fp8\nif [[ $D == fp8 ]]; then X=--on; elif [ $D = x ]; then X=--x; else X=--off; fi\npython t.py $X",
         "--on"),
        ('if [ -z "$D" ]; then X=--none; else X=--some; fi; python t.py $X', "--none"),
        ("N=4; if [ $N -gt 2 ]; then\n if [ $N -gt 8 ]; then X=--a; else X=--b; fi\nfi\npython t.py $X", "--b"),
        ("A=1; if [ $A = 2 ] ||\n [[ $A == 1 ]]; then X=--on; else X=--off; fi; python t.py $X", "--on"),
        ("A=1; if [ $A = 1 ] && [ $A -gt 3 ]; then X=--on; else X=--off; fi; python t.py $X", "--off"),
        ("A=1; if [[ ! $A == 2 ]]; then X=--on; fi; python t.py $X", "--on"),
        ("A=1; if [ -f x ] || [ $A = 1 ]; then X=--on; else X=--off; fi; python t.py $X", "--on"),
        ("A=1; [ $A = 1 ] && X=--a || X=--b; [ $A -gt 5 ] && X=--c\ncd x || exit 1; python t.py $X", "--a"),
        ("A=1; test $A = 2 || { X=--a; }\nX=--b; python t.py $X", "--b"),
        ("R=run-$(date +%Y -u); python t.py run=$R --a", "run=run-$(date +%Y -u) --a"),
        ("f() {\n python t.py --inside\n}\nfor i in 1 2; do python t.py --loop; done\npython t.py --a", "--a"),
        ("NAME=x torchrun t.py --a 2>&1 | tee log.txt", "--a"),
        ("cat <<EOF > x\npython t.py --inside --there\nEOF\npython t.py --a > log.txt", "--a"),
    ],
)  # fmt: skip
def test_scripts_come_to_the_words_of_their_command(text, found):
    made = words(text)
    assert " ".join(made[made.index("t.py") + 1 :]) == found


def test_files_that_a_script_writes_are_kept_with_its_variables():
    made = read_script("N=4; F=x.json\ncat <<EOT > $F\n{\"n\": $N, \"m\": ${M:-2}}\nEOT\ncat > y.json <<'EOT'\n"
                       "$N\nEOT\nsort < z > w; python t.py --a $N", {})  # fmt: skip
    assert made.files == {"x.json": '{"n": 4, "m": 2}\n', "y.json": "$N\n"}
    assert made.words[-2:] == ["--a", "4"]


def test_words_of_no_option_are_kept_apart():
    assert arguments(words("python3 -m pkg.train base.yml a=1 b: False --c 2 3 d=4")) == (
        "pkg.train",
        {"base.yml": "true", "a": "1", "b:": "true", "False": "true", "c": ["2", "3"], "d": "4"},
    )


def test_a_variable_of_the_callers_takes_the_place_of_a_default():
    assert words("A=${A:-1}\npython t.py --a $A", A="7")[-1] == "7"
    assert words("python t.py --a $A", A="7")[-1] == "7"


def test_a_list_of_arguments_is_one_without_a_command():
    assert arguments(words("--num-layers 4 --bf16 --betas 0.9 0.95 --lr -1e-3"))[1] == {
        "num_layers": "4", "bf16": "true", "betas": ["0.9", "0.95"], "lr": "-1e-3",
    }  # fmt: skip


def test_nothing_is_run(tmp_path):
    mark = tmp_path / "mark"
    read_script(f"X=$(touch {mark})\ntouch {mark}\n`touch {mark}`\npython t.py --a $X $(touch {mark})", {})
    assert not mark.exists()


@pytest.mark.parametrize("text", ["A=(1 2", 'A="1', "A='1", "A=${B", "A=$((1", "echo", ""])
def test_what_does_not_end_is_refused(text):
    with pytest.raises(ConfigError):
        read_script(text, {})


def test_growing_without_end_is_refused():
    doubled = "A=" + "x" * 1000 + "\n" + "A=$A$A\n" * 40 + "python t.py --a $A"
    with pytest.raises(ConfigError, match="more than 1,048,576 letters"):
        read_script(doubled, {})
