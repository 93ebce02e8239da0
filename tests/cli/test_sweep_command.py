"""``rostam sweep``: Hydra's grammar and YAML make the same axes; the dry run, the table, the JSON, the messages."""

import dataclasses
import io
import json
import time

import pytest
from rich.console import Console

from rostam_py.cli.main import main
from rostam_py.cli.sweep_axes import read_command
from rostam_py.cli.sweep_progress import SweepProgress
from rostam_py.errors import ConfigError
from rostam_py.sweep import Tally

pytestmark = pytest.mark.usefixtures("cached_traces")

HERE = ["sweep.backend=inline", "report=false"]


def axes_of(*overrides):
    """Return {axis: labels} of a command line."""
    return {axis.key: [value.label for value in axis.values] for axis in read_command(list(overrides)).axes}


def test_hydras_sweep_grammar_makes_axes():
    found = axes_of("model=resnet50,gpt_125m", "seed=range(0,3)", "fabric.accelerator_bandwidth='1 Tb/s','2 Tb/s'")
    assert found == {
        "model": ["resnet50", "gpt_125m"], "seed": ["0", "1", "2"],
        "fabric.accelerator_bandwidth": ["1 Tb/s", "2 Tb/s"],
    }  # fmt: skip


def test_a_bandwidth_needs_no_inner_quotes():
    assert axes_of("fabric.accelerator_bandwidth=100 Gb/s,400 Gb/s") == {
        "fabric.accelerator_bandwidth": ["100 Gb/s", "400 Gb/s"]
    }


def test_globs_take_all_presets_that_match():
    assert axes_of("fabric=glob(hx2mesh_*)") == {"fabric": ["hx2mesh_16x16", "hx2mesh_64x64", "hx2mesh_8x8"]}


def test_presets_of_an_axis_are_resolved_with_keys_given_for_all():
    command = read_command(["fabric=torus_8x8,tree_64", "fabric.accelerator_bandwidth=100 Gb/s", "strategy.tp=2"])
    torus, tree = (value.data for value in command.axes[0].values)
    assert (torus["name"], torus["dims"]) == ("torus", [8, 8])
    assert (tree["name"], tree["num_accelerators"]) == ("fat_tree", 64)
    assert torus["accelerator_bandwidth"] == tree["accelerator_bandwidth"] == "100 Gb/s"
    assert command.settings["strategy"]["tp"] == 2


def test_the_mode_can_be_an_axis_and_an_experiments_fabric_keeps_its_name():
    command = read_command(["sweep.mode=run,search", "model=resnet50"])
    assert [(axis.key, [value.data for value in axis.values]) for axis in command.axes] == [("mode", ["run", "search"])]
    assert command.settings["fabric_label"] == "tree_64"
    assert read_command(["experiment=ml_routing_mix"]).settings["fabric_label"] == "clos_2048"


def test_experiments_bring_grids_and_cases():
    command = read_command(["experiment=quick_sweep"])
    assert [axis.key for axis in command.axes] == ["fabric", "fabric.accelerator_bandwidth", "strategy.tp"]
    assert command.section.title


def test_the_command_line_goes_before_an_experiments_grid():
    command = read_command(["experiment=quick_sweep", "strategy.tp=2", "fabric=tree_64,hx2mesh_8x8"])
    axes = {axis.key: [value.label for value in axis.values] for axis in command.axes}
    assert list(axes) == ["fabric", "fabric.accelerator_bandwidth"]
    assert axes["fabric"] == ["tree_64", "hx2mesh_8x8"]
    assert command.settings["strategy"]["tp"] == 2


TREE_OR_TORUS = """# @package _global_
strategy: {tp: 8}
sweep:
  grid:
    fabric.accelerator_bandwidth: [200 Gb/s, 400 Gb/s]
  rows:
    - {label: tree, fabric: tree_64, fabric.server_size: 8}
    - {label: torus, fabric: torus_8x8}
"""


@pytest.fixture
def tree_or_torus(tmp_path, monkeypatch):
    """An experiment with a grid and rows that set fabrics."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "tree_or_torus.yaml").write_text(TREE_OR_TORUS)
    monkeypatch.setenv("ROSTAM_CONFIGS", str(tmp_path))
    return "experiment=tree_or_torus"


@pytest.mark.parametrize("fabric", ["fabric=flat_64,torus_8x8", "fabric=flat_64"])
def test_the_command_line_cannot_set_what_an_experiments_rows_set(tree_or_torus, fabric):
    with pytest.raises(ConfigError) as raised:
        read_command([tree_or_torus, fabric])
    for part in ("fabric is set by", "the row 'tree' of the experiment's sweep.rows", "command line", "sweep.rows=[]"):
        assert part in str(raised.value)
    command = read_command([tree_or_torus, fabric, "sweep.rows=[]"])
    assert "case" not in [axis.key for axis in command.axes]


def test_the_command_line_replaces_an_experiments_grid_beside_its_rows(tree_or_torus):
    command = read_command([tree_or_torus, "fabric.accelerator_bandwidth=1 Tb/s"])
    assert [axis.key for axis in command.axes] == ["case"]
    fabrics = [value.data["fabric"].data for value in command.axes[0].values]
    assert [fabric["accelerator_bandwidth"] for fabric in fabrics] == ["1 Tb/s"] * 2


def test_keys_of_a_strategy_hold_for_every_preset_of_an_axis():
    command = read_command(["strategy=megatron_tp8,default", "strategy.precision=bf16_mixed"])
    assert [value.data["precision"] for value in command.axes[0].values] == ["bf16_mixed"] * 2


ROWS = "sweep.rows=[{label: a, fabric: tree_64, fabric.accelerator_bandwidth: 1.6 Tb/s}, {label: b, strategy: {tp: 2}}]"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["fabric.accelerator_bandwidth=1 Tb/s,2 Tb/s", ROWS], "the axis fabric.accelerator_bandwidth of the command"),
        (["fabric.accelerator_bandwidth=1 Tb/s", ROWS], "by fabric.accelerator_bandwidth=1 Tb/s of the command line"),
        (["strategy.precision=fp32", ROWS], "strategy.precision is set by the row 'b' of sweep.rows and by"),
        (["strategy.tp=1,2", "strategy.tp=4"], "strategy.tp is set by the axis strategy.tp of the command line and by"),
        (["seed=1", "sweep.grid={seed: [2, 3]}"], "seed is set by the axis seed of sweep.grid and by seed=1 of the"),
        (["fabric=tree_64,flat_64", ROWS], "fabric is set by the axis fabric of the command line and by the row 'a'"),
        (["sweep.mode=search", "strategy.tp=1,2"], "has an axis of strategy.tp, which sweep.mode=search does not read"),
    ],
)
def test_a_key_has_one_place_and_is_read(overrides, said, capsys):
    assert main(["sweep", *overrides]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["jobs=[{model: gpt_125m, foo: 5}]"], "unknown key 'jobs[0].foo'; jobs[0] has: name, model, global_batch,"),
        (["jobs=[{}, {strategy: {dp: 8, tpp: 2}}]"], "unknown key 'jobs[1].strategy.tpp'; jobs[1].strategy has: dp,"),
        (["jobs=[{global_batch: many}]"], "jobs[0].global_batch: Value 'many'"),
        (["jobs=[{start: 5}]"], "jobs[0].start is 5, a number without a unit"),
        (
            ["jobs=[{strategy: {rules: {bucket_size: 25}}}]"],
            "jobs[0].strategy.rules.bucket_size is 25, a number without a unit",
        ),
        (
            ["jobs=[{strategy: {bucket_size: 25 MB}}]"],
            "jobs[0].strategy.bucket_size is jobs[0].strategy.rules.bucket_size now",
        ),
        (["jobs=[{}]", "mix.arrival_window=3"], "mix.arrival_window is 3, a number without a unit"),
        (["jobs=[{}]", "jobs.0.start=3,4"], "jobs.0.start is 3, a number without a unit"),
    ],
)
def test_bad_jobs_are_refused_by_place_key_and_value(overrides, said, capsys):
    assert main(["sweep", "sweep.mode=mix", *overrides]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["fabric=torus_8x8,tours"], "unknown fabric 'tours'"),
        (["seed=range(0,3"], r"'seed=range\(0,3' cannot be read; check its brackets"),
        (["model=resnet50,resnet51"], "unknown model 'resnet51'"),
        (["fabric.accelerator_bandwidth=100,200"], "fabric.accelerator_bandwidth is 100, a number without a unit"),
        (["sweep.workers=1,2"], "sweep.workers cannot be an axis"),
        (["sweep.rows=[3]"], r"sweep.rows\[0\] is 3; it must be a mapping"),
        (["sweep.gird=1"], "unknown key 'sweep.gird'"),
        (["fabric=torus,tree_64", "fabric.board=[2,2]"], "fabric.board|'fabric.board'"),
    ],
)
def test_bad_axes_are_refused_before_any_work(overrides, said):
    with pytest.raises(ConfigError, match=said):
        read_command(overrides)


def test_a_sweep_prints_its_best_points_and_leaves_a_folder(tmp_path, capsys):
    overrides = ["model=resnet50", "fabric=tree_64,torus_8x8", "strategy.tp=1,128", f"out={tmp_path}", *HERE]
    assert main(["sweep", *overrides]) == 0
    out = capsys.readouterr().out
    assert "best of 4 points" in out
    assert "2 of 4 points failed" in out
    assert "DegreeError" in out
    assert {path.name for path in tmp_path.iterdir()} >= {
        "sweep.json", "points.parquet", "points.csv", "timings.parquet", "config.yaml", "command.json", "store",
    }  # fmt: skip


def test_json_is_whole_and_alone_on_standard_output(tmp_path, capsys):
    assert main(["sweep", "seed=0,1", f"out={tmp_path}", "--json", *HERE]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in document["points"]] == [0, 1]
    assert document["axes"] == [{"key": "seed", "labels": ["0", "1"]}]


def test_a_sweep_in_which_every_point_fails_exits_with_2(tmp_path, capsys):
    assert main(["sweep", "strategy.tp=128,256", f"out={tmp_path}", *HERE]) == 2
    assert "2 of 2 points failed" in capsys.readouterr().out


def test_dry_run_counts_and_writes_nothing(tmp_path, capsys):
    assert main(["sweep", "seed=0,1,2", f"out={tmp_path / 'none'}", "--dry-run", "--json", *HERE]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["num_points"], document["left"], document["axes"]) == (3, 3, {"seed": ["0", "1", "2"]})
    assert document["estimated_s"] > 0
    assert not (tmp_path / "none").exists()


def test_a_mix_of_jobs_is_a_point(tmp_path, capsys):
    jobs = "jobs=[{name: a, model: resnet50, strategy: {dp: 8}}, {name: b, model: resnet50, strategy: {dp: 8}}]"
    overrides = ["sweep.mode=mix", jobs, "mix.num_iterations=1", "seed=0,1", "routing=hash", f"out={tmp_path}"]
    assert main(["sweep", *overrides, "--json", *HERE]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [[job["name"] for job in point["jobs"]] for point in points] == [["a", "b"]] * 2
    assert all(point["slowdown_max"] >= point["slowdown_mean"] > 0 for point in points)


@pytest.mark.parametrize("key", ["out", "sweep.store"])
@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
def test_a_file_in_the_place_of_a_folder_is_one_line(tmp_path, capsys, key, extra):
    (tmp_path / "file").write_text("")
    assert main(["sweep", "seed=0,1", *HERE, f"out={tmp_path / 'good'}", f"{key}={tmp_path / 'file'}", *extra]) == 2
    captured = capsys.readouterr()
    assert f"rostam: error: {key} is '{tmp_path}/file'; it must be a folder that can be written to" in captured.err
    assert not (tmp_path / "good").exists()


def test_without_a_report_nothing_is_drawn_unless_asked_for(tmp_path, capsys):
    assert main(["sweep", "seed=0", f"out={tmp_path}", *HERE]) == 0
    assert "drawing" not in capsys.readouterr().err
    assert not (tmp_path / "details").exists()
    assert main(["sweep", "seed=0", f"out={tmp_path}", *HERE, "sweep.details=1"]) == 0
    assert len(list((tmp_path / "details").iterdir())) == 1


def test_dry_run_prints_the_count_before_it_evaluates(tmp_path, capsys, monkeypatch):
    seen = []

    def estimate(self, folder, options):
        seen.append(capsys.readouterr().out)
        return dataclasses.replace(self.count(folder, options), seconds=5.0, basis="a guess")

    monkeypatch.setattr("rostam_py.sweep.Sweep.estimate", estimate)
    assert main(["sweep", "seed=0,1,2", f"out={tmp_path}", "--dry-run", *HERE]) == 0
    assert "3 points, 0 of them stored, 3 to evaluate" in seen[0]
    said = "about 5.0 s for the points alone (a guess); start, tracing and report come on top"
    assert said in capsys.readouterr().out


def test_a_log_line_leaves_out_what_is_not_known_yet(monkeypatch):
    monkeypatch.setattr("rostam_py.cli.progress_lines.EVERY_S", 0.02)
    console = Console(file=io.StringIO())
    with SweepProgress(console, "sweep") as progress:
        progress.update(Tally(total=12))
        time.sleep(0.2)
    lines = console.file.getvalue().splitlines()
    assert lines
    assert set(lines) <= {"0 s: 0 of 12 points", "0 s: starting"}
