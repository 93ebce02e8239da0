"""Time to accuracy of anything that has an iteration time and a global batch."""

from types import SimpleNamespace

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError


def run_of(seconds, batch, model="transformer_350m"):
    """Return the least that time_to_accuracy needs of a result."""
    return SimpleNamespace(iteration_time_s=seconds, plan=SimpleNamespace(global_batch=batch, graph_name=model))


def test_it_is_iteration_time_times_iterations():
    answer = rostam.time_to_accuracy(run_of(0.5, 1_024), convergence="transformer_sip_ml")
    assert answer.time_s == 0.5 * 16_384
    assert answer.iterations == 16_384
    assert answer.global_batch == 1_024
    assert answer.band == (16_384, 16_384)
    assert not answer.is_extrapolated


def test_without_a_name_the_models_own_curve_is_taken():
    assert rostam.time_to_accuracy(run_of(1.0, 8_192, "resnet50")).curve == "resnet50_mlperf"


def test_extrapolation_must_be_asked_for_and_is_said():
    with pytest.raises(ConfigError, match="extrapolate=true"):
        rostam.time_to_accuracy(run_of(1.0, 512))
    answer = rostam.time_to_accuracy(run_of(1.0, 512), extrapolate=True)
    assert answer.is_extrapolated
    assert "extrapolated" in answer.notes[0]
    assert answer.band_s[0] < answer.time_s < answer.band_s[1]


def test_what_is_assumed_in_reading_a_source_travels_with_the_answer():
    answer = rostam.time_to_accuracy(run_of(1.0, 512, "cosmoflow"))
    assert any("assumed" in note for note in answer.notes)
    assert answer.to_dict()["convergence"] == "cosmoflow_mlperf_hpc"


def test_a_curve_of_other_samples_is_refused_and_those_that_fit_are_named():
    match = (
        "'transformer_mlperf' was measured on transformer_350m, in sentence pairs of 64 tokens; .* resnet50 are images"
    )
    with pytest.raises(ConfigError, match=match) as caught:
        rostam.time_to_accuracy(run_of(1.0, 4_096, "resnet50"), convergence="transformer_mlperf")
    assert "resnet50_mlperf" in str(caught.value)
    assert "gpt3_175b_brown" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "curve", "batch", "note"),
    [
        ("resnet101", "resnet50_mlperf", 8_192, "the curve resnet50_mlperf is of resnet50; taken for resnet101"),
        ("Shop", "resnet50_mlperf", 8_192, "the curve resnet50_mlperf is of resnet50, in images; taken for Shop"),
        ("gpt_1_3b", "megatron_18b_sip_ml", 1_024, "2,048 tokens where it was measured in token sequences of 1,024"),
    ],
)
def test_a_curve_of_another_model_is_taken_with_a_note(model, curve, batch, note):
    notes = rostam.time_to_accuracy(run_of(1.0, batch, model), convergence=curve).notes
    assert note in notes[0]
    assert "taken for" not in str(rostam.time_to_accuracy(run_of(1.0, 8_192, "resnet50")).notes)
