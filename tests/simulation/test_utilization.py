"""MFU, causal MFU and HFU: by hand from a GPT's shape, under every split, cost model and precision."""

import gzip
import json

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.models.gpt import GPT
from rostam_py.models.gpt import Config as GptConfig
from rostam_py.simulation.utilization import utilization_words

PEAK = 312e12  # of an A100's bf16
LAYERS, WIDTH, WORDS, LONG = 2, 256, 1000, 16384


@pytest.fixture(scope="module")
def long_gpt():
    """A GPT whose attention is most of its work."""
    config = GptConfig(num_layers=LAYERS, width=WIDTH, num_heads=2, sequence_length=LONG, vocabulary=WORDS)
    with torch.device("meta"):
        module = GPT(config)
    return rostam.trace(module, torch.empty(2, LONG, dtype=torch.int64, device="meta"), loss_fn=loss, name="long")


def loss(logits):
    return nn.functional.cross_entropy(logits.flatten(0, 1), torch.zeros(logits.shape[:2].numel(), dtype=torch.int64))


def run(graph, cost="calibrated", num_accelerators=8, machine=None, **strategy):
    """Return the result of 8 samples, each product on an accelerator's own."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=num_accelerators, accelerator_bandwidth="2400 Gb/s")
    placed = rostam.place(
        graph, machine or rostam.Machine(fabric=fabric), global_batch=8, cost=cost,
        strategy=rostam.Strategy.of(**{"precision": "bf16_mixed"} | strategy), software="ideal",
    )  # fmt: skip
    return rostam.simulate(placed)


# FLOPs of the iteration's 8 samples: of products two for each weight and token, of which backward has twice as many;
# of scores s^2 h for each of two products, forward, and for four of the model's and a fifth, repeated one, backward.
PRODUCTS = 3 * 8 * LONG * 2 * (LAYERS * 12 * WIDTH**2 + WORDS * WIDTH)
SCORES = 8 * LAYERS * 2 * LONG**2 * WIDTH


def shares(result, num_accelerators=8):
    """Return mfu, mfu_causal and hfu as FLOPs."""
    available = PEAK * num_accelerators * result.iteration_time_s
    return [one * available for one in (result.mfu, result.mfu_causal, result.hfu)]


@pytest.mark.parametrize(
    "strategy",
    [{"dp": 8}, {"dp": 4, "tp": 2}, {"dp": 4, "pp": 2}, {"dp": 4, "cp": 2}, {"dp": 4, "mp": 2, "placer": "sip_ml"}],
    ids=lambda one: "_".join(one),
)
def test_half_of_causal_attention_counts_for_causal_mfu_and_for_hfu(long_gpt, strategy):
    mfu, causal, hfu = shares(run(long_gpt, **strategy))
    # element-wise ops and norms, which the shape does not tell, are 1% of it all
    assert mfu == pytest.approx(PRODUCTS + 6 * SCORES, rel=0.015)
    assert causal == pytest.approx(PRODUCTS + 3 * SCORES, rel=0.02)
    assert hfu == pytest.approx(PRODUCTS + 3.5 * SCORES, rel=0.02)
    assert mfu - causal == pytest.approx(3 * SCORES, rel=1e-6)
    if "tp" not in strategy and "placer" not in strategy:  # whose members repeat norms
        assert hfu - causal == pytest.approx(0.5 * SCORES, rel=1e-6)


def test_replays_of_causal_attention_are_halves_too(long_gpt):
    none, full = (shares(run(long_gpt, dp=8, recompute=how)) for how in ("none", "full"))
    assert full[:2] == pytest.approx(none[:2], rel=1e-9)
    assert full[2] - none[2] == pytest.approx(8 * LONG * 2 * LAYERS * 12 * WIDTH**2 + SCORES, rel=0.02)


def test_long_sequences_stay_below_the_peak(long_gpt):
    """FlashAttention works through half of the scores at up to 70% of the peak: all of them would be above it."""
    result = run(long_gpt, dp=8)
    assert result.mfu_causal < result.hfu < 1
    assert 0.5 * SCORES * 7 / (PEAK * 8 * result.iteration_time_s) > 0.3


def test_a_cost_model_that_times_whole_scores_runs_them(long_gpt):
    """The roofline's kernels work through the whole score matrix unless cost.causal_share says otherwise."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth="2400 Gb/s")
    machine = rostam.Machine(fabric=fabric)
    for share in (1.0, 0.25):
        plan = rostam.place(
            long_gpt, machine, global_batch=8, cost="roofline", cost_config={"causal_share": share},
            strategy=rostam.Strategy(dp=8, precision="bf16_mixed"), software="ideal",
        )  # fmt: skip
        mfu, causal, hfu = shares(rostam.simulate(plan))
        assert hfu - mfu == pytest.approx((7 * share - 6) * SCORES, rel=1e-6)
        assert mfu - causal == pytest.approx(3 * SCORES, rel=1e-6)


def test_without_a_causal_mask_both_mfus_are_one():
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True)
    graph = rostam.trace(layer, torch.empty(2, 512, 64, device="meta"), loss_fn=lambda y: y.sum(), name="encoder")
    result = run(graph, dp=8)
    assert result.mfu_causal == result.mfu < result.hfu


def test_published_times_that_the_accelerator_cannot_reach_have_no_hfu(long_gpt):
    fabric = rostam.fabric("electrical_flat", num_accelerators=8)
    config = {"forward_s": "10 us", "backward_s": "20 us"}
    plan = rostam.place(
        long_gpt, rostam.Machine(fabric=fabric), global_batch=8, cost="constant", cost_config=config,
        strategy=rostam.Strategy(dp=8, precision="bf16_mixed", optimizer="sgd"), software="ideal",
    )  # fmt: skip
    result = rostam.simulate(plan)
    assert result.hfu is None
    assert any("HFU is not known" in note for note in result.notes)
    assert json.loads(result.to_json())["hfu"] is None
    assert utilization_words(result).endswith("% / -")


def test_plans_of_older_files_do_not_know_causal_mfu(long_gpt, tmp_path):
    plan = run(long_gpt, dp=8).plan
    plan.save(tmp_path / "plan.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "plan.json.gz").read_bytes()))
    assert rostam.simulate(rostam.Plan.load(tmp_path / "plan.json.gz")).mfu_causal == rostam.simulate(plan).mfu_causal
    for stage in document["stages"]:
        del stage["causal_flops"]
    (tmp_path / "old.json").write_text(json.dumps(document))
    result = rostam.simulate(rostam.Plan.load(tmp_path / "old.json"))
    assert result.mfu_causal is None
    assert result.mfu == pytest.approx(rostam.simulate(plan).mfu)
