"""Families: a member of a registered model's sizes is that model; others by hand; what is wrong is named."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.graph.naming import ModelName
from rostam_py.tracing import trace
from rostam_py.tracing.sources import load_source

LLAMA = {
    "num_layers": 2, "width": 4096, "num_heads": 32, "num_key_heads": 8, "hidden": 14336, "vocabulary": 128256,
    "sequence_length": 8192, "theta": 500_000.0,
}  # fmt: skip
MIXTRAL = {
    "num_layers": 2, "width": 4096, "num_heads": 32, "num_key_heads": 8, "expert_hidden": 14336, "vocabulary": 32000,
    "num_experts": 8, "experts_per_token": 2, "theta": 1e6,
}  # fmt: skip
GPT = {
    "num_layers": 2, "width": 2048, "num_heads": 16, "vocabulary": 131072, "norm": "layer", "activation": "gelu",
    "positions": "learned", "has_biases": True, "is_gated": False,
}  # fmt: skip
DEEPSEEK = {
    "num_layers": 5, "width": 7168, "num_heads": 128, "query_latent": 1536, "key_latent": 512, "head_size": 128,
    "rotary_size": 64, "hidden": 18432, "expert_hidden": 2048, "shared_hidden": 2048, "num_experts": 256,
    "experts_per_token": 8, "router": "sigmoid", "router_groups": 8, "groups_per_token": 4, "router_scale": 2.5,
    "dense_layers": 3,
    "vocabulary": 129280,
}  # fmt: skip


def member(**sizes):
    return ModelName.of("decoder", {f"args.{key}": value for key, value in sizes.items()}).text


@pytest.mark.parametrize(
    ("name", "sizes", "depth"),
    [
        ("llama3_8b", LLAMA, 2),
        ("mixtral_8x7b", MIXTRAL, 2),
        ("megatron_core_1_7b", GPT, 2),
        ("deepseek_v3", DEEPSEEK, {"dense_blocks": 3, "blocks": 2}),
    ],
)
def test_a_member_of_a_registered_models_sizes_is_that_model(name, sizes, depth):
    own, theirs = trace(member(**sizes), cache=False), trace(name, num_layers=depth, cache=False)
    assert own.ops == theirs.ops
    assert own.tensors == theirs.tensors
    assert (own.default_precision, own.default_optimizer) == (theirs.default_precision, theirs.default_optimizer)
    assert own.sequence_length == theirs.sequence_length


def test_parameters_of_another_shape_are_counted_by_hand():
    sizes = {"num_layers": 3, "width": 64, "num_heads": 4, "num_key_heads": 2, "hidden": 96, "vocabulary": 128}
    more = {"norm": "layer", "activation": "squared_relu", "is_gated": False, "has_query_biases": True}
    graph = trace(member(**sizes, **more, sequence_length=16, dropout=0.1, is_tied=True), cache=False)
    attention = 2 * 64 * 64 + 2 * 64 * 32 + 64 + 2 * 32
    block = attention + 2 * 64 * 96 + 2 * 2 * 64
    assert graph.num_parameters == 128 * 64 + 3 * block + 2 * 64
    assert sum("dropout" in op.op_type for op in graph.ops if op.phase == "forward") == 2 * 3 + 1
    products = 2 * 16 * (2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 96)
    by_hand = 3 * (products + 4 * 16 * 16 * 64) + 2 * 16 * 64 * 128
    names = ("mm", "scaled_dot_product")
    forward = [op for op in graph.ops if op.phase == "forward" and any(one in op.op_type for one in names)]
    assert sum(op.flops.at(1) for op in forward) == by_hand


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"width": 0}, r"args\.width is 0; it must be an integer from 1"),
        ({"width": None}, r"args\.width is None; it must be an integer"),
        ({"num_key_heads": 3}, r"num_key_heads is 3; it must divide num_heads = 32"),
        ({"norm": "batch"}, "norm is 'batch'; it must be one of: rms, layer"),
        ({"num_experts": 8}, "experts_per_token is 0; it must be from 1 to num_experts = 8"),
        ({"depth": 3}, r"args\.depth is no argument of decoder"),
        ({"key_latent": 8}, "query_latent is 0 and rotary_size 0"),
    ],
)
def test_wrong_sizes_are_named(changed, said):
    with pytest.raises(ConfigError, match=said):
        load_source(member(**LLAMA | changed))


def test_a_missing_size_is_named():
    with pytest.raises(ConfigError, match=r"model\.args\.vocabulary is missing"):
        load_source("decoder@args.num_layers=2@args.width=8@args.num_heads=1")
