"""Strategy: defaults, batches and one clear message for every wrong setting."""

import dataclasses

import pytest

from rostam_py.errors import ConfigError, DegreeError, UnitError, UnknownNameError
from rostam_py.placement import place
from rostam_py.plan import Strategy
from rostam_py.spec.keys import StrategyKeys


def test_micro_batch_is_the_whole_local_batch_without_a_pipeline_and_one_with():
    assert Strategy(dp=4).batches(64) == (16, 1)
    assert Strategy(dp=4, pp=2).batches(64) == (1, 16)
    assert Strategy(dp=4, pp=2, micro_batch=4).batches(64) == (4, 4)


@pytest.mark.parametrize(
    ("settings", "batch", "words"),
    [
        ({"dp": 3}, 64, ["global_batch is 64", "strategy.dp = 3"]),
        ({"dp": 4, "micro_batch": 3}, 64, ["16 samples", "strategy.micro_batch = 3"]),
        ({}, 0, ["global_batch is 0", ">= 1"]),
    ],
)
def test_batch_that_does_not_divide_names_the_numbers(settings, batch, words):
    with pytest.raises(DegreeError) as error:
        Strategy.of(**settings).batches(batch)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"tp": 0}, DegreeError, ["strategy.tp is 0", ">= 1"]),
        ({"dp": 2.5}, DegreeError, ["strategy.dp is 2.5"]),
        ({"pp": True}, DegreeError, ["strategy.pp is True"]),
        ({"micro_batch": -1}, DegreeError, ["strategy.micro_batch is -1"]),
        (
            {"schedule": "zigzag"},
            ConfigError,
            ["'zigzag'", "1f1b, dual_pipe_v, gpipe, zb_h1, zb_v"],
        ),
        ({"virtual_stages": 0, "pp": 2}, DegreeError, ["strategy.virtual_stages is 0", ">= 1"]),
        ({"virtual_stages": 2}, DegreeError, ["strategy.virtual_stages is 2", "strategy.pp is 1"]),
        (
            {"virtual_stages": 2, "pp": 2, "schedule": "gpipe"},
            DegreeError,
            ["strategy.schedule=gpipe", "must be 1, or strategy.schedule 1f1b"],
        ),
        ({"virtual_stages": 2, "pp": 2, "schedule": "zb_h1"}, DegreeError, ["strategy.schedule=zb_h1"]),
        ({"virtual_stages": 2, "placer": "sip_ml", "mp": 2}, DegreeError, ["placer=sip_ml has no pipeline"]),
        (
            {"sequence_parallel": True, "tp": 2, "schedule": "zb_h1"},
            ConfigError,
            ["strategy.sequence_parallel is true", "strategy.schedule=1f1b or gpipe"],
        ),
        ({"recompute": "some"}, ConfigError, ["strategy.recompute is 'some'", "none, selective, full"]),
        ({"shard": 4}, ConfigError, ["strategy.shard is 4", "0, 1, 2, 3"]),
        ({"placer": "megatrn"}, UnknownNameError, ["megatrn", "did you mean 'megatron'"]),
        ({"rank_order": "tp,dp"}, ConfigError, ["strategy.rank_order is 'tp,dp'", "fastest first"]),
        ({"rank_order": "tp,pp,dp", "cp": 2}, ConfigError, ["'tp,cp,pp,dp'", "only where it is 1 (cp is 2)"]),
        ({"rank_order": "tp,tp,cp,pp,dp"}, ConfigError, ["once each"]),
        ({"cp": 0}, DegreeError, ["strategy.cp is 0"]),
        ({"cp": 2, "mp": 2, "placer": "sip_ml"}, DegreeError, ["strategy.cp is 2", "strategy.placer=megatron"]),
        (
            {"cp_algorithm": "rings"},
            ConfigError,
            ["software.rules.cp_algorithm is 'rings'", "all_gather, ulysses, torch"],
        ),
        ({"precision": "fp8"}, UnknownNameError, ["fp8", "bf16_mixed"]),
        (
            {"gradient_precision": "int8"},
            ConfigError,
            ["software.rules.gradient_precision", "int8", "auto, fp32, bf16, fp16"],
        ),
        ({"precision": "fp16_mixed", "gradient_precision": "bf16"}, ConfigError, ["fp16_mixed", "auto, fp16, fp32"]),
        ({"optimizer": "lion"}, UnknownNameError, ["lion", "adam"]),
        (
            {"mapping": "spiral"},
            ConfigError,
            ["strategy.mapping is 'spiral'", "linear", "strategy.placing.mapping_seed"],
        ),
        ({"mapping": [0, 1.5]}, ConfigError, ["strategy.mapping[1] is 1.5", "integer"]),
        ({"mapping": "random", "mapping_seed": -1}, ConfigError, ["strategy.placing.mapping_seed is -1", "from 0 to"]),
        ({"mapping_seed": 1.5}, ConfigError, ["strategy.placing.mapping_seed is 1.5"]),
        ({"accelerators": [True, False]}, ConfigError, ["strategy.accelerators[0] is True"]),
        ({"accelerators": "01"}, ConfigError, ["strategy.accelerators is '01'", "list"]),
        ({"mapping": [0, 1, 0]}, ConfigError, ["strategy.mapping", "accelerator 0 more than once"]),
        ({"mapping": [0], "accelerators": [0]}, ConfigError, ["exclude each other"]),
        ({"bucket_size": "25"}, UnitError, ["software.rules.bucket_size is '25'", "without a unit"]),
        ({"bucket_size": "0 MB"}, UnitError, ["software.rules.bucket_size", "> 0"]),
        ({"launch_latency": "1 us"}, ConfigError, ["strategy.launch_latency is machine.launch_latency now"]),
        ({"comm_compute_fraction": 0.5}, ConfigError, ["is machine.comm_compute_fraction now: Machine(...,"]),
        ({"algorithms": {"all_reduc": "ring"}}, ConfigError, ["all_reduc", "all_reduce"]),
    ],
)
def test_wrong_setting_names_key_value_and_what_is_allowed(settings, error, words):
    with pytest.raises(error) as raised:
        Strategy.of(**settings)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_strategy_composes_as_a_structured_config():
    config = pytest.importorskip("omegaconf").OmegaConf
    merged = config.merge(
        config.structured(StrategyKeys),
        {"dp": 4, "placing": {"quantum": "5 us"}, "mapping": [3, 2, 1, 0], "precision": "fp32"},
    )
    keys = config.to_object(merged)
    strategy = Strategy(**dataclasses.asdict(keys))
    assert strategy.mapping == [3, 2, 1, 0]
    assert strategy.placing.quantum == "5 us"
    assert strategy.rules.is_ideal
    with pytest.raises(Exception, match="dpp"):
        config.merge(config.structured(StrategyKeys), {"dpp": 4})


@pytest.mark.parametrize(
    ("graph", "strategy", "said"),
    [("mlp", Strategy(), r"rostam\.trace\('mlp'\) gives one"), (None, {"dp": 2}, r"takes a rostam\.Strategy, not")],
)
def test_place_says_what_it_takes(graph, strategy, said):
    with pytest.raises(ConfigError, match=said):
        place(graph, None, global_batch=8, strategy=strategy, software="ideal")


def test_rank_order_is_text_or_a_list():
    assert Strategy(dp=1, rank_order=["tp", "cp", "dp", "pp"]) == Strategy(dp=1, rank_order="tp,cp,dp,pp")
    with pytest.raises(ConfigError, match="rank_order is 'tp,dp'; it must list"):
        Strategy(dp=1, rank_order=["tp", "dp"])
