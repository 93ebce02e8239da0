"""What ``rostam run`` says of how sure its time is."""

import json

import pytest

from rostam_py.cli.main import main

RUN = ["run", "model=gpt_125m", "fabric=torus", "fabric.dims=[4,4]", "cost=calibrated"]
NOWHERE = ["strategy.precision=bf16_mixed"]


def test_a_run_prints_and_keeps_its_error_bar_and_sensitivities(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*RUN, *NOWHERE, "sensitivity=true", "report=true", f"out={folder}"]) == 0
    said = capsys.readouterr().out
    result = json.loads((folder / "result.json").read_text())
    bar, rows = result["error_bar"], result["sensitivity"]["rows"]
    assert bar["low_s"] < result["iteration_time_s"] < bar["high_s"]
    assert "10% better" in said
    assert "peak of the accelerator" in said
    assert "held fixed: strategy, splits" in " ".join(said.split())
    assert {row["kind"] for row in rows} >= {"limits", "efficiencies", "network", "fixed times"}
    sizes = [max(abs(row["better_s"]), abs(row["worse_s"])) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    page = (folder / "report.html").read_text()
    assert "Sensitivity to 10% of each input" in page


HELD = [  # at 500 W an accelerator
    "run", "model=gpt_125m", "fabric=electrical_cluster", "fabric.num_accelerators=2", "accelerator=h100_96gb",
    "strategy.pp=2", "strategy.micro_batch=8", "global_batch=64", "software=ideal",
]  # fmt: skip


def test_sensitivities_of_a_step_at_its_limit_of_power_are_of_the_step_as_placed(tmp_path):
    # Kernels slowed already would stay so where they draw less: 10% worse would cost twice what 10% better gains.
    folder = tmp_path / "run"
    assert main([*HELD, "sensitivity=true", f"out={folder}"]) == 0
    result = json.loads((folder / "result.json").read_text())
    assert any(note.startswith("power:") for note in result["notes"])
    for row in result["sensitivity"]["rows"]:
        if row["kind"] == "limits":
            assert -1.2 < row["worse_s"] / row["better_s"] < -1.0, row


def test_a_saved_plan_is_held_to_its_limit_of_power_once(tmp_path):
    folder, again = tmp_path / "run", tmp_path / "again"
    assert main([*HELD, "save_plan=true", f"out={folder}"]) == 0
    assert main(["run", f"plan={folder / 'plan.json.gz'}", f"out={again}"]) == 0
    first, second = (json.loads((one / "result.json").read_text()) for one in (folder, again))
    assert second["iteration_time_s"] == first["iteration_time_s"]
    assert [note.startswith("power:") for note in second["notes"]].count(True) == 1


def test_without_it_there_are_no_further_simulations_but_an_error_bar(tmp_path, capsys):
    assert main([*RUN, *NOWHERE, f"out={tmp_path / 'run'}", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "sensitivity" not in result
    assert result["error_bar"]["parts"]
    bases = result["compute_by_basis_s"]
    assert sum(bases.values()) == pytest.approx(result["breakdown_s"]["compute"], rel=1e-9)
    assert "interpolated" in bases


def test_published_times_have_no_error_bar_and_say_why(tmp_path, capsys):
    run = ["run", "model=gpt_125m", "fabric=torus", "fabric.dims=[4,4]", "cost=constant", "cost.forward_s=10 ms"]
    assert main([*run, f"out={tmp_path / 'run'}"]) == 0
    assert "no error bar: the kernels' times are given (cost=constant)" in " ".join(capsys.readouterr().out.split())
    assert "absent" in json.loads((tmp_path / "run" / "result.json").read_text())["error_bar"]


def test_compare_has_the_ends_of_the_range(capsys):
    assert main(["compare", "", "accelerator=h100_80gb", *RUN[1:], *NOWHERE, "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["time_s"]}
    assert rows["iteration at least"]["a"] < rows["iteration"]["a"] < rows["iteration at most"]["a"]


VARIED = ["variability.devices=5%", "variability.kernels=0.02", "variability.samples=6"]


def test_a_run_of_fleets_that_vary_has_p50_p95_and_a_histogram(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*RUN, *NOWHERE, *VARIED, "report=true", f"out={folder}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "step that varies" in said
    found = json.loads((folder / "result.json").read_text())["variability"]
    assert found["nominal_s"] < found["p50_s"] <= found["p95_s"]
    assert len(found["steps_s"]) == 6
    assert "Step of fleets that vary" in (folder / "report.html").read_text()


def test_equal_runs_give_equal_bytes(tmp_path, capsys):
    results = []
    for name in "ab":
        assert main([*RUN, *NOWHERE, *VARIED, f"out={tmp_path / name}", "--json"]) == 0
        results.append((tmp_path / name / "result.json").read_bytes())
        capsys.readouterr()
    assert results[0] == results[1]


def test_a_bad_deviation_is_an_error_of_the_user(capsys):
    assert main([*RUN, "variability.devices=-1"]) == 2
    assert "variability.devices is -1" in capsys.readouterr().err
    assert main([*RUN, "variability.devices=0.1", "variability.distribution=cauchy"]) == 2
    assert "it must be one of: lognormal, uniform" in capsys.readouterr().err


def test_sweeps_over_seeds_have_columns_of_it_and_points_without_keep_their_identity():
    from rostam_py.spec.settings import complete_settings
    from rostam_py.sweep.identity import point_key

    plain = complete_settings({"model": "gpt_125m", "fabric": {"name": "torus", "dims": [4, 4]}})
    assert "variability" not in plain
    off = complete_settings({**plain, "variability": {"samples": 5}, "num_accelerators": None})
    assert point_key(off) == point_key(plain)


def test_a_sweep_over_seeds_draws_other_fleets(tmp_path):
    import rostam_py as rostam

    base = {
        "model": "gpt_125m", "fabric": {"name": "torus", "dims": [2, 2]},
        "variability": {"devices": 0.05, "samples": 2}, "cost": {"name": "roofline"},
    }  # fmt: skip
    found = rostam.run_sweep(base=base, grid={"seed": [0, 1]}, out=tmp_path / "sweep").table
    assert (found["step_p50_s"] > found["iteration_time_s"]).all()
    assert found["step_p50_s"].n_unique() == 2
    assert found["iteration_time_s"].n_unique() == 1


def test_time_lost_to_failures_is_printed_by_cause_and_part(tmp_path, capsys):
    folder = tmp_path / "run"
    words = [
        "software=ideal", "cost=roofline", "strategy.dp=4", "strategy.tp=4", "outages.iterations=4",
        "outages.detection=2 ms",
        "outages.restart=20 ms", "outages.events=[{time: 40 ms, kind: accelerators, number: 3, repair: 50 ms},"
        " {time: 105 ms, kind: links, number: 3}]", "report=true",
    ]  # fmt: skip
    assert main([*RUN[:-1], *NOWHERE, *words, f"out={folder}"]) == 0
    said = " ".join(capsys.readouterr().out.replace("\u2502", " ").split())
    assert "time lost down 30 ms, redone" in said
    assert "of it down detection 2 ms, waiting for a repair 8 ms, restart 20 ms" in said
    assert "of it slower stalled 2 ms" in said
    assert "lost to accelerators" in said
    assert "lost to links" in said
    found = json.loads((folder / "result.json").read_text())["outages"]
    parts = found["lost_by_part_s"]
    assert {"links", "accelerators"} == set(parts)
    for cause, seconds in found["lost_s"].items():
        assert sum(causes.get(cause, 0.0) for causes in parts.values()) == pytest.approx(seconds, abs=1e-15)
    assert sum(found["lost_s"].values()) == pytest.approx(found["total_s"] - found["without_s"], abs=1e-12)
    page = (folder / "report.html").read_text()
    assert "Of it down: detection 2 ms, waiting for a repair 8 ms, restart 20 ms." in page
    assert "Time lost to failures" in page


def test_a_run_that_failures_do_not_reach_has_lost_nothing(tmp_path, capsys):
    words = ["software=ideal", "outages.iterations=2", "outages.events=[{time: 1 s, kind: links, number: 3}]"]
    assert main([*RUN, *NOWHERE, *words, f"out={tmp_path / 'run'}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "time lost \u2502 down 0 s, redone 0 s, slower 0 s: 0 failures, 0 restarts; 1 given for after the" in said
    assert "of it down" not in said
    assert "of it slower" not in said


def test_keys_of_outages_that_nothing_reads_are_named(tmp_path, capsys):
    assert main([*RUN, *NOWHERE, "outages.restart=1 s", "outages.seed=3", f"out={tmp_path / 'run'}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "outages.restart is '1 s', which has no effect: it needs something that fails, outages.events or a" in said
    assert "outages.seed is 3, which has no effect" in said
    notes = json.loads((tmp_path / "run" / "result.json").read_text())["notes"]
    assert sum("which has no effect" in note for note in notes) == 2
    event = "outages.events=[{time: 1 s, kind: links, number: 3}]"
    assert main([*RUN, *NOWHERE, "outages.repair=1 s", event, f"out={tmp_path / 'run'}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "outages.repair is '1 s', which has no effect: it needs failures that are drawn, by a mean time" in said
