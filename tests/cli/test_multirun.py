"""Hydra's own multirun: every job leaves a run folder, nothing starts with a bad configuration, Ray launches too."""

import json
import os
import subprocess
import sys

import pytest

from rostam_py.cli.main import main

TWO = ["run", "--multirun", "model=resnet50", "fabric=tree_64,torus_8x8"]
FOLDER = {"config.yaml", "run.json", "result.json"}


@pytest.mark.usefixtures("cached_traces")
def test_every_combination_leaves_a_run_folder_like_runs_own(tmp_path, capsys):
    out = tmp_path / "jobs"
    assert main([*TWO, "strategy.algorithms.all_reduce=ring", f"out={out}", "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)
    assert [job["overrides"][1] for job in jobs] == ["fabric=tree_64", "fabric=torus_8x8"]
    for number, job in enumerate(jobs):
        assert job["folder"] == str(out / str(number))
        assert {path.name for path in (out / str(number)).iterdir()} >= FOLDER
    alone = tmp_path / "alone"
    single = ["run", "model=resnet50", "fabric=torus_8x8", "strategy.algorithms.all_reduce=ring", f"out={alone}"]
    assert main(single) == 0
    assert (alone / "result.json").read_bytes() == (out / "1" / "result.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fabric=tree_64,tours"], ["unknown fabric 'tours'", "did you mean 'torus'"]),
        (["model=resnet50,resnet5"], ["unknown model 'resnet5'"]),
        (["strategy.tpp=1,2"], ["unknown key 'strategy.tpp'", "'strategy.tp'"]),
        (["strategy.tp=1,two"], ["strategy.tp", "two"]),
        (["hydra/launcher=rei"], ["hydra/launcher", "rei"]),
    ],
)
def test_a_bad_job_stops_all_before_the_first(arguments, parts, tmp_path, capsys):
    out = tmp_path / "jobs"
    assert main(["run", "--multirun", *arguments, f"out={out}"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    for part in parts:
        assert part in error
    assert not list(out.glob("*/result.json"))


def test_a_folder_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "kept.txt").write_text("mine")
    assert main([*TWO, f"out={tmp_path}"]) == 2
    assert "a folder of its own" in capsys.readouterr().err


@pytest.mark.usefixtures("cached_traces")
def test_an_error_of_a_job_is_one_line(tmp_path, capfd):
    arguments = ["run", "--multirun", "model=resnet50", "strategy.dp=3,64", f"out={tmp_path / 'jobs'}"]
    assert main(arguments) == 2
    captured = capfd.readouterr()
    assert "3 x 1 x 1 = 3" in captured.err
    assert "Traceback" not in captured.err
    assert (tmp_path / "jobs" / "1" / "result.json").is_file()


@pytest.mark.slow
def test_the_ray_launcher_runs_two_jobs(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    out = tmp_path / "jobs"
    launcher = ["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"]
    launcher += ["+hydra.launcher.ray.init.include_dashboard=false"]
    code = (
        f"import sys; from rostam_py.cli.main import main; sys.exit(main({[*TWO, *launcher, f'out={out}', '--json']}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for number in range(2):
        assert {path.name for path in (out / str(number)).iterdir()} >= FOLDER
    times = [json.loads((out / str(n) / "result.json").read_text())["iteration_time_s"] for n in range(2)]
    assert times[0] < times[1]  # the torus has no switches to spray over
