"""Llama 2 70B fine-tuned by LoRA: frozen weights, and a trained product of low rank next to attention's two.

Queries, keys and values are one product, as in the benchmark's reference and in NeMo.
Shapes: B batch, S sequence, K key heads, G queries of each, E size of a head.
Source: Hu et al. 2021, arXiv 2106.09685; MLPerf Training's llama2_70b_lora reference (mlcommons/training,
llama2_70b_lora/run_llama_70B_scrolls_r16.sh: rank 16, alpha 32, dropout 0.1, targets qkv_proj and o_proj; sequences of
8,192 tokens).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.decoder import Decoder, DecoderBlock, GatedFeedForward, Rotation, decoder_spec, rotated
from rostam_py.models.spec import ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a Llama and of its adapters."""

    num_layers: int = 80
    width: int = 8192
    num_heads: int = 64
    num_key_heads: int = 8
    hidden: int = 28672
    vocabulary: int = 32000
    sequence_length: int = 8192
    theta: float = 10_000.0
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.1


class AdaptedLinear(nn.Module):
    """x W + alpha / rank x A B, no bias; W is frozen."""

    def __init__(self, num_inputs: int, num_outputs: int, config: Config) -> None:
        super().__init__()
        self.linear = nn.Linear(num_inputs, num_outputs, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.down = nn.Linear(num_inputs, config.rank, bias=False)
        self.up = nn.Linear(config.rank, num_outputs, bias=False)
        self.scale = config.alpha / config.rank

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.scale * self.up(self.down(self.dropout(x)))


class AdaptedAttention(nn.Module):
    """Causal grouped-query attention; the rows of ``qkv`` are grouped by key head: its queries, its key, its value."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.size = config.width // config.num_heads
        self.num_key_heads = config.num_key_heads
        self.queries = config.num_heads // config.num_key_heads
        self.qkv = AdaptedLinear(config.width, (config.num_heads + 2 * config.num_key_heads) * self.size, config)
        self.proj = AdaptedLinear(config.width, config.width, config)

    def forward(self, x: Tensor, waves: Rotation) -> Tensor:
        qkv = self.qkv(x).view(*x.shape[:2], self.num_key_heads, self.queries + 2, self.size)
        query, key, value = qkv.split((self.queries, 1, 1), 3)
        query, key, value = (t.flatten(2, 3).transpose(1, 2) for t in (query, key, value))
        y = functional.scaled_dot_product_attention(
            rotated(query, waves), rotated(key, waves), value, is_causal=True, enable_gqa=True
        )
        return self.proj(y.transpose(1, 2).flatten(2))


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a Llama of this shape whose adapters alone are trained."""

    def block() -> nn.Module:
        return DecoderBlock(config.width, AdaptedAttention(config), GatedFeedForward(config.width, config.hidden))

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        blocks = {path: [block() for _ in range(count)] for path, count in num_layers.items()}
        size = config.width // config.num_heads
        model = Decoder(config.vocabulary, config.width, size, config.theta, blocks)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, AdaptedLinear):
                module.down.requires_grad_(True)
                module.up.requires_grad_(True)
        return model

    return decoder_spec(name, make, {"blocks": config.num_layers}, config.sequence_length, assumed)


def build_llama2_70b_lora() -> ModelSpec:
    """Return Llama 2 70B with MLPerf's adapters."""
    return build("llama2_70b_lora", Config())
