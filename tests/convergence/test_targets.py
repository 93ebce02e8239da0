"""Targets that are an amount of data: tokens, samples, epochs."""

import json
from types import SimpleNamespace

import pytest

import rostam
from rostam_py.cli.main import main
from rostam_py.convergence import get_curve, goal_of, parse_target
from rostam_py.errors import ConfigError


def run_of(seconds, batch, model, devices=4, watts=None):
    plan = SimpleNamespace(global_batch=batch, graph_name=model, num_devices=devices)
    return SimpleNamespace(iteration_time_s=seconds, plan=plan, energy_j=None if watts is None else watts * seconds)


@pytest.mark.parametrize(
    ("text", "model", "batch", "iterations"),
    [
        ("1 T tokens", "gpt3_175b", 1536, 317_892),  # 1e12 / (1536 x 2048) = 317,891.3
        ("3145728 tokens", "gpt3_175b", 1536, 1),  # one batch exactly
        ("3145729 tokens", "gpt3_175b", 1536, 2),
        ("300 M samples", "resnet50", 1000, 300_000),
        ("3 epochs of 1281167 samples", "resnet50", 1_281_167, 3),
        ("1 epoch of 1.2 M samples", "resnet50", 1000, 1_200),
        ("2.5 epochs of 4 M tokens at 4000 tokens a sample", "mine.py:Model", 10, 250),
        ("10k tokens at 10 tokens per sample", "gpt3_175b", 10, 100),  # the text goes before the model's own 2,048
    ],
)
def test_iterations_are_the_amount_over_the_batch_in_whole_steps(text, model, batch, iterations):
    assert parse_target(text, model).iterations(batch) == iterations


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        ("1 T", "gpt3_175b", "units are samples and tokens"),
        ("1 T words", "gpt3_175b", "in 'words'; units are samples and tokens"),
        ("tokens", "gpt3_175b", "must be an amount of data such as '1 T tokens'"),
        ("-1 tokens", "gpt3_175b", "must be an amount of data"),
        ("0 tokens", "gpt3_175b", "must be more than 0 and at most 1e.24 tokens"),
        ("3 epochs", "gpt3_175b", "in .epochs.; units are samples and tokens, as in .*3 epochs of 1281167 samples"),
        ("1 T tokens", "resnet50", "samples of resnet50 are images, without tokens; count samples"),
        ("1 T tokens", "mine.py:Model", "not known: add it, as in '1 T tokens at 2048 tokens a sample'"),
        ("1 T samples at 5 tokens a sample", "gpt3_175b", "only where the unit is tokens"),
        (5, "gpt3_175b", "target is 5; it must be an amount of data"),
    ],
)
def test_other_targets_are_refused_by_name(text, model, message):
    with pytest.raises(ConfigError, match=message):
        parse_target(text, model)


def test_time_dollars_and_energy_follow_from_the_iterations():
    answer = rostam.time_to_accuracy(
        run_of(0.5, 1000, "resnet50", devices=4, watts=2000.0), target="72 M samples", accelerator_usd_per_hour=2.0
    )
    assert answer.iterations == 72_000
    assert answer.time_s == 36_000  # 10 hours
    assert answer.usd == 4 * 10 * 2.0
    assert answer.energy_j == 2000 * 36_000
    assert (answer.basis, answer.band, answer.is_extrapolated) == ("stated", (72_000, 72_000), False)


def test_without_a_price_or_watts_there_is_neither():
    answer = rostam.time_to_accuracy(run_of(0.5, 1000, "resnet50"), target="72 M samples")
    assert (answer.usd, answer.energy_j) == (None, None)
    assert not {"usd", "energy_j"} & set(answer.to_dict())


def test_a_target_next_to_a_curve_is_refused():
    for curve in ("resnet50_mlperf", get_curve("resnet50_mlperf")):
        with pytest.raises(ConfigError, match=r"a curve has a target of its own: give one of the two"):
            goal_of(curve, "1 M samples", "resnet50")


@pytest.mark.usefixtures("cached_traces")
class TestCommands:
    RUN = ("model=gpt_125m", "fabric=electrical_flat", "fabric.num_accelerators=2", "strategy.precision=bf16_mixed")

    def test_a_price_without_a_target_is_refused_before_any_work(self, capsys):
        assert main(["run", *self.RUN, "accelerator_usd_per_hour=2"]) == 2
        assert "accelerator_usd_per_hour is 2.0, the price of training up to a target" in capsys.readouterr().err

    @pytest.mark.parametrize("command", ["search", "sweep"])
    def test_searches_and_sweeps_refuse_it_too(self, command, tmp_path, capsys):
        batches = ["search.batches=[8]"] if command == "search" else []
        assert main([command, *self.RUN, *batches, "accelerator_usd_per_hour=2", f"out={tmp_path}"]) == 2
        assert "accelerator_usd_per_hour is 2.0, the price of training up to a target" in capsys.readouterr().err

    def test_a_search_prices_the_machine_and_training_on_it(self, tmp_path, capsys):
        machine = ["fabric=fat_tree", "fabric.num_accelerators=16", "machine.usd=480000"]
        arguments = [
            "model=gpt_125m", "strategy.precision=bf16_mixed", *machine, "target=1 T tokens", "search.batches=[64]",
            "search.num_simulated=1", "search.placers=[megatron]", "accelerator_usd_per_hour=2", f"out={tmp_path}",
        ]  # fmt: skip
        assert main(["search", *arguments]) == 0
        printed = capsys.readouterr().out
        found = json.loads((tmp_path / "search.json").read_text())
        assert f"network price: {found['network_usd']:,.0f} USD of switches and cables" in printed
        assert "machine price: 480,000 USD without the network" in printed
        assert found["machine_usd"] == 480000
        best = found["candidates"][0]
        assert best["training_usd"] == pytest.approx(16 * 2 * best["time_to_accuracy_s"] / 3600, rel=1e-12)
        assert f"{best['training_usd']:,.0f} USD" in printed
        # Without a price of accelerators there is none of training.
        assert main(["search", *arguments[:-2], f"out={tmp_path}", "--json"]) == 0
        assert "training_usd" not in capsys.readouterr().out

    def test_a_run_prints_and_writes_time_price_and_energy(self, tmp_path, capsys):
        arguments = [*self.RUN, "target=1 T tokens", "accelerator_usd_per_hour=2", "machine.watts=1000"]
        assert main(["run", *arguments, "software=ideal", f"out={tmp_path / 'run'}"]) == 0
        printed = capsys.readouterr().out
        assert "time to target" in printed
        assert "iterations to 1 T tokens" in printed
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        answer = result["time_to_accuracy"]
        assert answer["iterations"] == -(-(10**12) // (result["global_batch"] * 2048))
        assert answer["time_s"] == pytest.approx(result["iteration_time_s"] * answer["iterations"])
        assert answer["usd"] == pytest.approx(2 * 2 * answer["time_s"] / 3600)
        assert answer["energy_j"] == pytest.approx(1000 * answer["time_s"])
        assert main(["report", str(tmp_path / "run")]) == 0
        page = (tmp_path / "run" / "report.html").read_text()
        for word in ("time to target", "price of training", "energy to the target"):
            assert word in page

    def test_compare_shows_the_price_of_training(self, capsys):
        arguments = ["target=1 G tokens", "accelerator_usd_per_hour=2"]
        assert main(["compare", "global_batch=16", "global_batch=32", *self.RUN, *arguments, "--json"]) == 0
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["usd"]}
        assert rows["training"]["a"] > rows["training"]["b"] > 0

    def test_a_sweep_has_a_row_per_target(self, tmp_path, capsys):
        arguments = [*self.RUN, "target=1 G tokens,2 G tokens", "sweep.backend=inline", "report=false", "--json"]
        assert main(["sweep", *arguments, "machine.watts=500", f"out={tmp_path}"]) == 0
        one, two = json.loads(capsys.readouterr().out)["points"]
        assert one["convergence"] == "1 G tokens"
        assert two["iterations"] == pytest.approx(2 * one["iterations"], abs=1)
        assert one["energy_to_target_j"] == pytest.approx(500 * one["time_to_accuracy_s"], rel=1e-12)

    @pytest.mark.parametrize("limit", [None, 300, 500, 900])
    def test_energy_to_the_target_is_iterations_times_that_of_an_iteration_everywhere(self, tmp_path, capsys, limit):
        """10.2 kW of a server with eight accelerators of 700 W: each watt of a limit counts eight times."""
        limits = [] if limit is None else [f"machine.accelerator_watts={limit}"]
        draws = 10_200 + 8 * ((limit or 700) - 700)
        arguments = ["model=gpt_125m", "machine=dgx_h100", "machine.servers=1", "global_batch=8", "target=1 G tokens"]
        assert main(["run", *arguments, *limits, f"out={tmp_path / 'run'}"]) == 0
        printed = capsys.readouterr().out
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        answer = result["time_to_accuracy"]
        of_one = result["energy_per_iteration_j"]
        assert result["machine_watts"] == pytest.approx(draws)
        assert of_one == pytest.approx(draws * result["iteration_time_s"], rel=1e-12)
        assert answer["energy_j"] == pytest.approx(answer["iterations"] * of_one, rel=1e-12)
        words = f"{answer['iterations'] * of_one / 3.6e9:.4g} MWh"
        assert f"{words} to the target" in printed
        assert main(["report", str(tmp_path / "run")]) == 0
        assert f"{words} at most" in (tmp_path / "run" / "report.html").read_text()
        capsys.readouterr()
        swept = ["sweep", *arguments, *limits, "seed=0,1", "sweep.backend=inline", "report=false", "--json"]
        assert main([*swept, f"out={tmp_path / 'sweep'}"]) == 0
        for row in json.loads(capsys.readouterr().out)["points"]:
            assert row["energy_to_target_j"] == pytest.approx(answer["energy_j"], rel=1e-12)
        loaded = rostam.time_to_accuracy(
            SimpleNamespace(
                iteration_time_s=result["iteration_time_s"], energy_j=of_one,
                plan=SimpleNamespace(global_batch=8, graph_name="gpt_125m", num_devices=8),
            ),
            target="1 G tokens",
        )  # fmt: skip
        assert loaded.energy_j == pytest.approx(answer["energy_j"], rel=1e-12)

    def test_a_search_takes_a_target_and_batches(self, tmp_path, capsys):
        arguments = [*self.RUN, "target=1 G tokens", "search.placers=[megatron]", "search.num_simulated=1"]
        assert main(["search", *arguments, f"out={tmp_path}"]) == 2
        assert "search.batches is missing" in capsys.readouterr().err
        assert main(["search", *arguments, "search.batches=[16,32]", f"out={tmp_path}", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["convergence"] == "1 G tokens"
        assert found["candidates"][0]["iterations"] == -(-(10**9) // (found["candidates"][0]["global_batch"] * 2048))

    def test_both_a_target_and_a_curve_are_refused_before_tracing(self, tmp_path, capsys):
        assert main(["run", "model=resnet50", "target=1 M samples", "convergence=resnet50_mlperf"]) == 2
        assert "give one of the two" in capsys.readouterr().err
