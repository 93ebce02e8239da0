"""``mix.allocation`` and its settings on the command line, and ``rostam list allocators``."""

import json

import pytest

from rostam_py.cli.main import main
from rostam_py.fleet import ALLOCATORS

MIX = [
    "sweep", "fabric=hammingmesh", "fabric.board=[2,2]", "fabric.boards=[4,4]", "sweep.mode=mix",
    "jobs=[{model: gpt_125m, strategy: {dp: 8}}, {model: gpt_125m, strategy: {dp: 16}}]", "software=ideal",
    "mix.allocation=submesh", "sweep.backend=inline", "report=false",
]  # fmt: skip


def test_jobs_run_on_sub_meshes_with_the_settings_given(tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*MIX, "mix.allocation_options={aspect_ratio: 8, largest_first: true}", f"out={out}"]) == 0
    assert "points.parquet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{aspect: 8}", "mix.allocation_options has no key 'aspect' for mix.allocation=submesh; it has: largest_first"),
        ("{aspect_ratio: 9}", "mix.allocation_options.aspect_ratio is 9; it must be an integer from 1 to 8"),
        ("9", "mix.allocation_options is 9; it must hold keys with values"),
    ],
)
def test_bad_settings_end_with_status_2_and_the_key(options, message, tmp_path, capsys):
    assert main([*MIX, f"mix.allocation_options={options}", f"out={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err


def test_every_allocator_is_listed_in_a_line(capsys):
    assert main(["list", "allocators", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["allocators"]
    assert [row["allocator"] for row in rows] == ALLOCATORS.names()
    assert all(row["what"].endswith(".") for row in rows)
