"""DeepSeek-V3: attention through a latent vector (MLA), three dense layers, then experts with a shared one.

A part of each key turns with the position, one for all heads.
Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.1 and section 4.2 (61 layers, width 7,168, 128 heads; latents of
1,536 and 512; 8 of 256 experts of 2,048 and one shared; sequences of 4,096); the released config.json for the hidden
width of dense layers (18,432), the vocabulary of 129,280, and 4 of 8 groups of experts for each token.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.decoder import Decoder, DecoderBlock, GatedFeedForward, Rotation, decoder_spec, rotated
from rostam_py.models.experts import GroupedSigmoidRouter, MixtureOfExperts
from rostam_py.models.spec import ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a DeepSeek-V3; ``hidden``: of one expert, the shared one too."""

    dense_layers: int = 3
    num_layers: int = 58
    width: int = 7168
    num_heads: int = 128
    query_latent: int = 1536
    key_latent: int = 512
    head_size: int = 128
    rotary_size: int = 64
    value_size: int = 128
    dense_hidden: int = 18432
    hidden: int = 2048
    num_experts: int = 256
    per_token: int = 8
    num_groups: int = 8
    groups_per_token: int = 4
    scale: float = 2.5
    vocabulary: int = 129280
    sequence_length: int = 4096


class LatentAttention(nn.Module):
    """Causal self-attention whose queries, and keys with values, come from two short vectors of a token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        heads, width = config.num_heads, config.width
        self.num_heads, self.value_size = heads, config.value_size
        self.sizes = [config.head_size, config.rotary_size]
        self.latents = [config.key_latent, config.rotary_size]
        self.query_down = nn.Linear(width, config.query_latent, bias=False)
        self.query_norm = nn.RMSNorm(config.query_latent, eps=1e-6)
        self.query_up = nn.Linear(config.query_latent, heads * sum(self.sizes), bias=False)
        self.key_down = nn.Linear(width, sum(self.latents), bias=False)
        self.key_norm = nn.RMSNorm(config.key_latent, eps=1e-6)
        self.key_up = nn.Linear(config.key_latent, heads * (config.head_size + config.value_size), bias=False)
        self.proj = nn.Linear(heads * config.value_size, width, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, waves: Rotation) -> Tensor:
        query, turning = self._heads(self.query_up(self.query_norm(self.query_down(x)))).split(self.sizes, -1)
        query = torch.cat((query, rotated(turning, waves)), -1)
        latent, turning = self.key_down(x).split(self.latents, -1)
        key, value = self._heads(self.key_up(self.key_norm(latent))).split((self.sizes[0], self.value_size), -1)
        turning = rotated(turning[:, None], waves).expand(-1, self.num_heads, -1, -1)
        key = torch.cat((key, turning), -1)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a DeepSeek-V3 of this shape."""

    def block(is_dense: bool) -> nn.Module:
        if is_dense:
            return DecoderBlock(
                config.width, LatentAttention(config), GatedFeedForward(config.width, config.dense_hidden)
            )
        router = GroupedSigmoidRouter(
            config.width, config.num_experts, config.per_token, config.num_groups, config.groups_per_token, config.scale
        )
        mlp = MixtureOfExperts(config.width, config.hidden, config.num_experts, router, shared_hidden=config.hidden)
        return DecoderBlock(config.width, LatentAttention(config), mlp)

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        blocks = {path: [block(path == "dense_blocks") for _ in range(count)] for path, count in num_layers.items()}
        return Decoder(config.vocabulary, config.width, config.rotary_size, 10_000.0, blocks)

    stacks = {"dense_blocks": config.dense_layers, "blocks": config.num_layers}
    return decoder_spec(name, make, stacks, config.sequence_length, assumed)


def build_deepseek_v3() -> ModelSpec:
    """Return DeepSeek-V3 without its head that predicts a second token."""
    return build("deepseek_v3", Config(), ("deepseek_v3: without the multi-token prediction module (14 G parameters)",))
