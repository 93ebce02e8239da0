"""Commands: help, listing, runs and their folders."""

import json
import os
import textwrap

import pytest

from rostam_py.cli import commands
from rostam_py.cli.main import main
from rostam_py.fabrics import FABRICS
from rostam_py.models import MODELS
from rostam_py.simulation.detail import read_detail

pytestmark = pytest.mark.usefixtures("cached_traces")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"], ["list", "--help"], ["profile", "--help"]])
def test_help_exits_with_0_and_says_what_there_is(arguments, capsys):
    assert main(arguments) == 0
    assert "usage: rostam" in capsys.readouterr().out


def test_run_help_lists_every_key_of_the_schema(capsys):
    main(["run", "--help"])
    text = capsys.readouterr().out
    for key in ("model=", "strategy.tp=", "failures.links=", "fidelity=", "out=", "fabric="):
        assert key in text


def test_lists_name_every_registered_model_and_fabric(capsys):
    assert main(["list", "models", "fabrics", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["model"] for row in rows["models"]} == set(MODELS)
    assert {row["fabric"] for row in rows["fabrics"]} == set(FABRICS.names())


@pytest.mark.parametrize("kind", ["presets", "accelerators", "costs", "collectives", "routings", "convergence"])
def test_every_kind_can_be_listed(kind, capsys):
    assert main(["list", kind]) == 0
    assert capsys.readouterr().out.strip()


def test_a_run_leaves_configuration_seed_result_and_timeline(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["run", "model=resnet50", "seed=3", "timeline=true", f"out={out}", "--json"]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "result.json").read_text())
    assert printed["iteration_time_s"] == pytest.approx(sum(printed["breakdown_s"].values()))
    assert "num_accelerators: 64" in (out / "config.yaml").read_text()
    assert json.loads((out / "run.json").read_text())["seed"] == 3
    assert json.loads((out / "timeline.json").read_text())["traceEvents"]


def test_equal_runs_write_equal_bytes(tmp_path, capsys):
    for name in ("a", "b"):
        assert main(["run", "model=resnet50", "routing=hash", f"out={tmp_path / name}"]) == 0
    assert (tmp_path / "a" / "result.json").read_bytes() == (tmp_path / "b" / "result.json").read_bytes()
    assert (tmp_path / "a" / "detail.json.gz").read_bytes() == (tmp_path / "b" / "detail.json.gz").read_bytes()


def test_a_run_of_a_pipeline_records_it_and_writes_a_timeline_only_if_asked(tmp_path, capsys):
    out = tmp_path / "run"
    asked = ["model=gpt_125m", "global_batch=16", "fabric=torus_8x8", "strategy.pp=2", "strategy.micro_batch=1"]
    assert main(["run", *asked, "strategy.dp=4", "strategy.allow_idle=true", f"out={out}"]) == 0
    marks = read_detail(out / "detail.json.gz")["pipeline"]["marks"]
    found = set(zip(marks["stage"], marks["phase"], marks["microbatch"], strict=True))
    assert {(stage, phase, m) for stage in (0, 1) for phase in ("forward", "backward") for m in range(4)} <= found
    assert not (out / "timeline.json").exists()


def test_the_result_moves_with_fabric_and_bandwidth(tmp_path, capsys):
    times = []
    for extra in (["fabric=flat_64"], ["fabric=cluster_64", "fabric.server_bandwidth=100 Gb/s"], ["fabric=torus_8x8"],
                  ["fabric=flat_64", "fabric.accelerator_bandwidth=100 Gb/s"]):  # fmt: skip
        assert main(["run", "model=resnet50", *extra, f"out={tmp_path}", "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["iteration_time_s"])
    assert len(set(times)) == len(times)


def test_failed_accelerators_are_replaced_by_a_smaller_job(tmp_path, capsys):
    assert main(["run", "model=resnet50", "failures.accelerators=3", f"out={tmp_path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_accelerators"] == 61


def test_a_failed_board_takes_all_of_its_accelerators(tmp_path, capsys):
    mesh = ["fabric=hammingmesh", "fabric.board=[2,2]", "fabric.boards=[4,4]", "fabric.wiring=accelerator_row"]
    assert main(["run", "model=resnet50", *mesh, "failures.boards=3", f"out={tmp_path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_accelerators"] == 64 - 3 * 4


@pytest.mark.parametrize(("preset", "count"), [("hx2mesh_8x8", 256), ("hx2mesh_16x16", 1024), ("hx4mesh_8x8", 1024)])
def test_hammingmesh_presets_run(preset, count, tmp_path, capsys):
    assert main(["run", "model=resnet50", f"fabric={preset}", f"out={tmp_path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_accelerators"] == count


def test_an_algorithm_can_be_chosen_by_its_plain_key(tmp_path, capsys):
    times = {}
    for algorithm in ("ring", "hierarchical", "binomial_tree"):
        arguments = ["run", "fabric=cluster_64", f"strategy.algorithms.all_reduce={algorithm}", f"out={tmp_path}"]
        assert main([*arguments, "--json"]) == 0
        times[algorithm] = json.loads(capsys.readouterr().out)["iteration_time_s"]
    assert len(set(times.values())) == 3
    assert "all_reduce: binomial_tree" in (tmp_path / "config.yaml").read_text()


def test_the_machines_kernel_floor_reaches_the_kernels(tmp_path, capsys):
    times = []
    for extra in ([], ["machine.min_kernel_time=100 us"], ["cost.min_kernel_time=100 us"]):
        assert main(["run", "model=resnet50", *extra, f"out={tmp_path}", "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["breakdown_s"]["compute"])
    assert times[0] < times[1] == times[2]


def test_a_run_prints_time_to_accuracy_beside_its_iteration(tmp_path, capsys):
    arguments = ["run", "model=resnet50", "global_batch=4096", "convergence=resnet50_mlperf", f"out={tmp_path}"]
    assert main(arguments) == 0
    assert "time to accuracy" in capsys.readouterr().out
    written = json.loads((tmp_path / "result.json").read_text())
    answer = written["time_to_accuracy"]
    assert answer["time_s"] == pytest.approx(answer["iterations"] * written["iteration_time_s"])
    assert not answer["is_extrapolated"]


def test_a_batch_outside_the_curve_is_refused_before_simulating(tmp_path, capsys):
    arguments = ["run", "model=resnet50", "global_batch=512", "convergence=resnet50_mlperf", f"out={tmp_path}"]
    assert main(arguments) == 2
    assert "3,200 to 57,344" in capsys.readouterr().err
    assert main([*arguments, "extrapolate=true", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time_to_accuracy"]["is_extrapolated"]


def test_a_search_prints_its_ranking_and_leaves_it_in_its_folder(tmp_path, capsys):
    arguments = ["search", "model=resnet50", "strategy.precision=bf16_mixed", "search.batches=[4096]"]
    arguments += ["search.num_simulated=2", "search.placers=[megatron]", f"out={tmp_path}"]
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "search.json").read_text())
    assert printed["convergence"] == "resnet50_mlperf"
    assert printed["num_simulated"] == 2
    first, second = printed["candidates"][:2]
    assert first["time_to_accuracy_s"] <= second["time_to_accuracy_s"]
    assert first["time_to_accuracy_s"] == pytest.approx(first["simulated_s"] * first["iterations"])
    assert "num_accelerators: 64" in (tmp_path / "config.yaml").read_text()
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "time to accuracy" in text
    assert "worst error of an estimate" in text


def test_a_search_without_a_curve_needs_batches(capsys):
    assert main(["search", "model=gpt_125m"]) == 2
    assert "search.batches" in capsys.readouterr().err
    assert main(["search", "model=resnet50", "convergence=none"]) == 2
    assert main(["search", "model=resnet50", "search.batches=[512]"]) == 2
    assert "3,200" in capsys.readouterr().err


def test_search_help_lists_every_key_of_the_schema(capsys):
    main(["search", "--help"])
    text = capsys.readouterr().out
    for key in ("search.num_simulated=8", "convergence=null", "fabric=", "strategy.precision=", "search.batches="):
        assert key in text


def test_a_share_of_links_fails_without_killing_the_job_and_reports_say_so(tmp_path, capsys):
    tree = ["fabric=fat_tree", "fabric.num_accelerators=32", "fabric.radix=8", "fabric.planes=2"]
    given = ["failures.links=5%", "failures.scope=all", "failures.planes=one", "failures.seed=3"]
    assert main(["run", "model=resnet50", *tree, *given, f"out={tmp_path}", "--json"]) == 0
    assert "links failed" in json.loads(capsys.readouterr().out)["fabric"]


@pytest.mark.parametrize(("given", "times_this_machine", "expected"), [
    (None, False, "1"), (None, True, None), ("4", False, "4"),
])  # fmt: skip
def test_linear_algebra_takes_one_thread_unless_told_or_timed(monkeypatch, given, times_this_machine, expected):
    monkeypatch.setattr(os, "environ", {} if given is None else {"OPENBLAS_NUM_THREADS": given})
    monkeypatch.setattr(textwrap, "found", lambda arguments, as_json: 0, raising=False)
    command = commands.Command("textwrap:found", times_this_machine=times_this_machine)
    assert command.run([], False) == 0
    assert os.environ.get("OPENBLAS_NUM_THREADS") == expected
