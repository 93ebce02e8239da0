"""A user's own measurements: read from a CSV file; errors name line, column, value and what is allowed."""

import pytest

from rostam_py.cli.main import main
from rostam_py.errors import ConfigError
from rostam_py.validation.tables import user_table

HEAD = "name,model,machine,machine.servers,global_batch,strategy.tp,time_s,memory_gib\n"


def written(tmp_path, text):
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_hold_settings_and_measurements(tmp_path):
    text = "# my cluster\n" + HEAD + "a,gpt_125m,dgx_a100,2,64,2,0.5,10\n\n,gpt_125m,dgx_a100,1,8,,0.25,\n"
    table = user_table(written(tmp_path, text))
    first, second = table.rows
    assert first.keys == {
        "model": "gpt_125m", "machine": {"name": "dgx_a100", "servers": 2}, "global_batch": 64, "strategy": {"tp": 2},
    }  # fmt: skip
    assert first.measured == {"time_s": 0.5, "memory_gib": 10.0}
    assert (second.name, second.line, second.measured) == ("line 5", 5, {"time_s": 0.25})
    assert "strategy" not in second.keys


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"mine\.csv has no rows; its first line names the columns"),
        ("name,time_s\na,1\n", r"line 1: column 'model' is missing"),
        ("model,global_batch\ngpt_125m,8\n", r"line 1: no column is measured; add one of: time_s"),
        ("model,seconds,time_s\ngpt_125m,1,1\n", r"line 1: column 'seconds' is neither a key of rostam run nor"),
        ("model,model,time_s\ngpt_125m,x,1\n", r"line 1: column 'model' is there twice"),
        ("model,time_s\ngpt_125m\n", r"line 2 has 1 cells; there are 2 columns: model, time_s"),
        ("model,time_s\ngpt_125m,fast\n", r"line 2, column time_s is 'fast'; it must be a number > 0"),
        ("model,time_s\ngpt_125m,-1\n", r"line 2, column time_s is '-1'; it must be a number > 0"),
        ("model,time_s\ngpt_125m,\n", r"line 2 measures nothing; fill one of: time_s"),
        ("model,machine,time_s\ngpt_125m,dgx,1\n", r"line 2, column machine: .*'dgx'.*dgx_a100"),
        (
            "model,machine,machine.servers,time_s\ngpt_125m,dgx_a100,0,1\n",
            r"line 2, column machine\.servers: machine\.servers is 0",
        ),
        ("model,strategy.tp,time_s\ngpt_125m,two,1\n", r"line 2, column strategy\.tp: strategy\.tp is 'two'"),
        ("model,strategy.tpp,time_s\ngpt_125m,2,1\n", r"line 2, column strategy\.tpp: unknown key 'strategy\.tpp'"),
        ("model,time_s\nno_such,1\n", r"line 2, column model: unknown model 'no_such'"),
        ('model,strategy.recompute_modules,time_s\ngpt_125m,"[a",1\n', r"recompute_modules is '\[a', which cannot be"),
    ],
)
def test_bad_files_are_refused_with_line_and_column(text, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        user_table(written(tmp_path, text))


def test_a_row_that_fails_is_named_and_has_status_1(tmp_path, capsys):
    rows = "fits,gpt_125m,dgx_a100,1,8,1,0.5,\nlarge,gpt3_175b,dgx_a100,1,8,8,0.5,\n"
    assert main(["validate", f"file={written(tmp_path, HEAD + rows)}", f"out={tmp_path / 'out'}"]) == 1
    assert capsys.readouterr().err.strip().endswith("mine.csv that failed: large")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"file is 'absent\.csv', which cannot be read"):
        user_table("absent.csv")
