"""Llama 2 and Llama 3.

Source: Llama 2: Touvron et al. 2023, arXiv 2307.09288, table 1 (layers, context) and the released params.json (width,
heads, multiple_of: the feed-forward's width; 70B: 8 key heads). Llama 3: Dubey et al. 2024, arXiv 2407.21783, table 3;
sequences of 8,192 in the main part of pre-training (section 3.4.1), at last of 131,072 (3.4.2); the released
config.json has the vocabulary of 128,256.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from rostam_py.models.decoder import Decoder, DecoderBlock, GatedFeedForward, GroupedAttention, decoder_spec
from rostam_py.models.spec import ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a Llama: ``num_key_heads`` fewer than ``num_heads`` groups queries."""

    num_layers: int
    width: int
    num_heads: int
    num_key_heads: int
    hidden: int
    vocabulary: int
    sequence_length: int
    theta: float = 10_000.0


def build(
    name: str, config: Config, assumed: tuple[str, ...] = (), attention: type[nn.Module] = GroupedAttention,
    decoder: type[Decoder] = Decoder,
) -> ModelSpec:  # fmt: skip
    """Return the specification of a Llama of this shape. Args: attention, decoder: how code writes these."""
    head_size = config.width // config.num_heads

    def block() -> nn.Module:
        own = attention(config.width, config.num_heads, config.num_key_heads, head_size)
        return DecoderBlock(config.width, own, GatedFeedForward(config.width, config.hidden))

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        blocks = {path: [block() for _ in range(count)] for path, count in num_layers.items()}
        return decoder(config.vocabulary, config.width, head_size, config.theta, blocks)

    return decoder_spec(name, make, {"blocks": config.num_layers}, config.sequence_length, assumed)


def _llama2(num_layers: int, width: int, num_heads: int, num_key_heads: int, hidden: int) -> Config:
    shape = {"num_layers": num_layers, "width": width, "num_heads": num_heads, "num_key_heads": num_key_heads}
    return Config(**shape, hidden=hidden, vocabulary=32000, sequence_length=4096)


def _llama3(num_layers: int, width: int, num_heads: int, hidden: int, sequence_length: int = 8192) -> Config:
    shape = {"num_layers": num_layers, "width": width, "num_heads": num_heads, "num_key_heads": 8, "hidden": hidden}
    return Config(**shape, vocabulary=128256, sequence_length=sequence_length, theta=500_000.0)


SHAPES = {
    "llama2_7b": _llama2(32, 4096, 32, 32, 11008),
    "llama2_13b": _llama2(40, 5120, 40, 40, 13824),
    "llama2_70b": _llama2(80, 8192, 64, 8, 28672),
    "llama3_8b": _llama3(32, 4096, 32, 14336),
    "llama3_70b": _llama3(80, 8192, 64, 28672),
    "llama3_405b": _llama3(126, 16384, 128, 53248),
    "llama3_405b_128k": _llama3(126, 16384, 128, 53248, 131072),
    # torchtitan's long sequences (benchmarks/llama3_h100_202412_torchtitan.md, tables 2 and 6)
    "llama3_8b_32k": _llama3(32, 4096, 32, 14336, 32768),
    "llama3_8b_64k": _llama3(32, 4096, 32, 14336, 65536),
    "llama3_8b_256k": _llama3(32, 4096, 32, 14336, 262144),
    "llama3_405b_32k": _llama3(126, 16384, 128, 53248, 32768),
    "llama3_405b_256k": _llama3(126, 16384, 128, 53248, 262144),
}


def _preset(name: str) -> ModelSpec:
    return build(name, SHAPES[name])


build_llama2_7b = functools.partial(_preset, "llama2_7b")
build_llama2_13b = functools.partial(_preset, "llama2_13b")
build_llama2_70b = functools.partial(_preset, "llama2_70b")
build_llama3_8b = functools.partial(_preset, "llama3_8b")
build_llama3_70b = functools.partial(_preset, "llama3_70b")
build_llama3_405b = functools.partial(_preset, "llama3_405b")
build_llama3_405b_128k = functools.partial(_preset, "llama3_405b_128k")
build_llama3_8b_32k = functools.partial(_preset, "llama3_8b_32k")
build_llama3_8b_64k = functools.partial(_preset, "llama3_8b_64k")
build_llama3_8b_256k = functools.partial(_preset, "llama3_8b_256k")
build_llama3_405b_32k = functools.partial(_preset, "llama3_405b_32k")
build_llama3_405b_256k = functools.partial(_preset, "llama3_405b_256k")
