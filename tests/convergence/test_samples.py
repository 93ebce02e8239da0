"""Which curves fit which models."""

import dataclasses

import pytest

from rostam_py.convergence import CURVES, Curve, Point, get_curve, notes_for
from rostam_py.convergence.curve import SAMPLE_KINDS
from rostam_py.convergence.samples import samples_of
from rostam_py.errors import ConfigError
from rostam_py.models import MODELS, get_spec


def test_the_samples_of_every_registered_model_are_known_with_their_tokens():
    assert {model.samples for model in MODELS.values()} == set(SAMPLE_KINDS)
    for name, model in MODELS.items():
        assert model.tokens == get_spec(name).sequence_length, name


@pytest.mark.parametrize("name", CURVES.names())
def test_every_curve_fits_its_own_models_and_says_nothing_of_it(name):
    curve = get_curve(name)
    assert curve.models
    for model in curve.models:
        assert notes_for(curve, model) == ()
        assert curve.sample_kind == samples_of(model).kind
        assert curve.batch_unit == "samples" or curve.tokens_per_sample == samples_of(model).tokens


def test_tokens_are_not_counted_for_a_model_of_other_sequences():
    curve = get_curve("gpt3_175b_brown")
    with pytest.raises(ConfigError, match=r"megatron_18b are token sequences of 1,024 tokens; .*megatron_18b_sip_ml"):
        notes_for(curve, "megatron_18b")
    assert len(notes_for(dataclasses.replace(curve, tokens_per_sample=1_024), "megatron_18b")) == 1


def test_a_curve_without_models_is_its_authors():
    assert (
        notes_for(
            Curve(name="mine", models=(), target="t", source="s", points=(Point(4, 1, 1),), form="single"), "resnet50"
        )
        == ()
    )
