"""Mixtral and Qwen3's mixtures of experts: decoders whose every feed-forward is one.

Source: Mixtral 8x7B: Jiang et al. 2024, arXiv 2401.04088, table 1; 8x22B: its released config.json (56 layers, width
6,144, 48 heads on 8, hidden width 16,384, vocabulary 32,000). Qwen3-30B-A3B: its released config.json (48 layers, width
2,048, 32 heads of 128 on 4, 8 of 128 experts of 768, vocabulary 151,936) and arXiv 2505.09388, table 2 and section 3.2
(sequences of 4,096). Qwen3-235B-A22B: its released config.json (94 layers, width 4,096, 64 heads of 128 on 4, 8 of 128
experts of 1,536).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from rostam_py.models.decoder import Decoder, DecoderBlock, GroupedAttention, decoder_spec
from rostam_py.models.experts import MixtureOfExperts, SoftmaxRouter
from rostam_py.models.spec import ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a decoder of experts; ``hidden``: of one expert."""

    num_layers: int
    width: int
    num_heads: int
    num_key_heads: int
    head_size: int = 128
    hidden: int
    num_experts: int
    per_token: int
    vocabulary: int
    sequence_length: int = 4096
    theta: float = 1e6
    has_head_norms: bool = False


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a decoder of experts of this shape."""

    def block() -> nn.Module:
        attention = GroupedAttention(
            config.width, config.num_heads, config.num_key_heads, config.head_size, config.has_head_norms
        )
        router = SoftmaxRouter(config.width, config.num_experts, config.per_token)
        mlp = MixtureOfExperts(config.width, config.hidden, config.num_experts, router)
        return DecoderBlock(config.width, attention, mlp)

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        blocks = {path: [block() for _ in range(count)] for path, count in num_layers.items()}
        return Decoder(config.vocabulary, config.width, config.head_size, config.theta, blocks)

    return decoder_spec(name, make, {"blocks": config.num_layers}, config.sequence_length, assumed)


def _mixtral(name: str, num_layers: int, width: int, num_heads: int, hidden: int) -> ModelSpec:
    config = Config(
        num_layers=num_layers, width=width, num_heads=num_heads, num_key_heads=8, hidden=hidden, num_experts=8,
        per_token=2, vocabulary=32000,
    )  # fmt: skip
    return build(name, config, (f"{name}: sequences of 4,096 in training, of the 32,768 and more that it can take",))


def build_mixtral_8x7b() -> ModelSpec:
    """Return Mixtral 8x7B."""
    return _mixtral("mixtral_8x7b", 32, 4096, 32, 14336)


def build_mixtral_8x22b() -> ModelSpec:
    """Return Mixtral 8x22B."""
    return _mixtral("mixtral_8x22b", 56, 6144, 48, 16384)


def _qwen3(name: str, num_layers: int, width: int, num_heads: int, hidden: int) -> ModelSpec:
    config = Config(
        num_layers=num_layers, width=width, num_heads=num_heads, num_key_heads=4, hidden=hidden, num_experts=128,
        per_token=8, vocabulary=151936, has_head_norms=True,
    )  # fmt: skip
    return build(name, config)


def build_qwen3_30b_a3b() -> ModelSpec:
    """Return Qwen3-30B-A3B."""
    return _qwen3("qwen3_30b_a3b", 48, 2048, 32, 768)


def build_qwen3_235b_a22b() -> ModelSpec:
    """Return Qwen3-235B-A22B."""
    return _qwen3("qwen3_235b_a22b", 94, 4096, 64, 1536)
