"""Registered models at another length of their sequences: "NAME@LENGTH", model.sequence_length and trace's keyword."""

import dataclasses

import pytest

from rostam_py.convergence.samples import samples_of
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.models import MAX_LENGTH, MODELS, get_spec, misnamed, registered
from rostam_py.models.bert import build_bert_large
from rostam_py.spec.settings import complete_settings, with_key
from rostam_py.tracing import trace

FABRIC = {"name": "electrical_flat", "num_accelerators": 8}


def test_every_model_with_tokens_can_be_made_at_another_length(told):
    for name, model in MODELS.items():
        with told(name):
            if not model.tokens:
                assert "have no sequence length" in misnamed(f"{name}@128")
                continue
            spec, own = get_spec(f"{name}@128"), get_spec(name)
            assert (spec.name, spec.sequence_length, registered(spec.name).tokens) == (f"{name}@128", 128, 128)
            assert own.sequence_length == model.tokens != 128
            for one, before in zip(
                spec.example_inputs(2) + spec.example_targets(2), own.example_inputs(2) + own.example_targets(2),
                strict=True,
            ):  # fmt: skip
                assert (model.tokens in before[0]) == (128 in one[0])
            assert spec.at_length(model.tokens).inputs == own.inputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "longer"), [("llama3_8b", "llama3_8b_32k"), ("mpt_7b", "mpt_7b_4k"), ("gpt_oss_120b", "gpt_oss_120b_8k")]
)
def test_a_length_gives_the_graph_of_the_model_that_is_registered_with_it(name, longer):
    tokens = MODELS[longer].tokens
    made = trace(name, num_layers=2, sequence_length=tokens, cache=False)
    known = trace(longer, num_layers=2, cache=False)
    differ = [one.name for one in dataclasses.fields(made) if getattr(made, one.name) != getattr(known, one.name)]
    assert differ == ["name", "notes"]
    assert made.name == f"{name}@{tokens}"
    assert any(f"sequences of {tokens:,} tokens instead of {MODELS[name].tokens:,}" in note for note in made.notes)


def test_attention_grows_with_the_square_and_learned_positions_with_the_length():
    graphs = {s: trace("gpt_125m", num_layers=1, sequence_length=s, cache=False) for s in (512, 4096)}
    width, layers, vocabulary = 768, 1, 50257
    products = 2 * (layers * 12 * width**2 + vocabulary * width)  # FLOPs of a token
    for s, graph in graphs.items():
        attention = layers * 4 * s**2 * width
        assert graph.forward_flops(batch=1) == pytest.approx(s * products + attention, rel=0.02)
    rows = {s: graph.num_parameters - s * width for s, graph in graphs.items()}
    assert len(set(rows.values())) == 1  # the rest has as many parameters at every length


def test_bert_masks_the_same_share():
    assert build_bert_large().at_length(1024).inputs[2].shape == (152,)
    assert build_bert_large().at_length(1).inputs[2].shape == (1,)


@pytest.mark.parametrize("length", [0, -1, 1.5, True, "x", "1e400", "9" * 5000, MAX_LENGTH + 1, float("nan"), None, []])
def test_a_length_that_is_none_is_refused(length):
    for call in (
        lambda: complete_settings({"model": {"name": "gpt_125m", "sequence_length": length}, "fabric": FABRIC}),
        lambda: trace("gpt_125m", sequence_length=length),
    ):
        if length is None:  # none is given
            continue
        with pytest.raises(ConfigError, match=r"must be an integer from 1 to 16,777,216") as caught:
            call()
        assert len(str(caught.value)) < 300


def test_models_without_a_length_of_their_own_are_refused():
    for model, said in (
        ("resnet50", "images: they have no sequence"),
        ("x.py:Class", "registered models alone"),
        ("gpt_125m@64", "which has a length; give one of them"),
    ):
        with pytest.raises(ConfigError, match=said):
            complete_settings(with_key({"model": model, "fabric": FABRIC}, "model.sequence_length", 64))
    with pytest.raises(ConfigError, match="have no sequence length"):
        trace("resnet50@64")
    with pytest.raises(UnknownNameError, match="gpt_124m@64"):
        complete_settings({"model": "gpt_124m@64", "fabric": FABRIC})
    with pytest.raises(ConfigError, match=r"unknown key 'model.seq_len' \(did you mean model.sequence_length=64\?\)"):
        complete_settings({"model": {"name": "gpt_125m", "seq_len": 64}, "fabric": FABRIC})
    with pytest.raises(ConfigError, match="of registered models alone"):
        trace(None, sequence_length=64)


def test_a_setting_is_the_same_in_any_order_and_a_mix_has_it_too():
    first = with_key(with_key({"fabric": FABRIC}, "model", "gpt_125m"), "model.sequence_length", 64)
    second = with_key(with_key({"fabric": FABRIC}, "model.sequence_length", 64), "model", "gpt_125m")
    assert complete_settings(first) == complete_settings(second)
    assert complete_settings(first)["model"] == "gpt_125m@64"
    job = {"model": {"name": "gpt_125m", "sequence_length": 64}}
    assert complete_settings({"mode": "mix", "fabric": FABRIC, "jobs": [job]})["jobs"][0]["model"] == "gpt_125m@64"


def test_tokens_of_a_sample_are_those_of_the_length():
    assert str(samples_of("gpt_125m@64")) == "token sequences of 64 tokens"
    assert samples_of("mine@64") is None
    assert samples_of("resnet50@v2") is None
