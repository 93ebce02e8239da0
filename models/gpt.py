"""GPT: a decoder-only Transformer with learned positions, a head that is tied or not, and no dropout.

Shapes: B batch, S sequence, D width, H heads, V vocabulary.
Source: Brown et al. 2020, Table 2.1 (head counts of 1.3B and 13B's width rounded as is usual); BLOOM: Le Scao et al.,
arXiv 2211.05100, table 3. megatron_core_*: the scaling table in Megatron-LM's README (Megatron-Core 0.8; sequences of
4,096, vocabulary of 131,072), whose sizes are those of an untied head.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.spec import InputSpec, ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a GPT."""

    num_layers: int
    width: int
    num_heads: int
    sequence_length: int = 2048
    vocabulary: int = 50257
    is_tied: bool = True


class Attention(nn.Module):
    """Self-attention; the rows of ``qkv`` are grouped by head, so that heads can be split."""

    def __init__(self, width: int, num_heads: int, is_causal: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.is_causal = is_causal
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        head_dim = width // self.num_heads
        qkv = self.qkv(x).view(batch, sequence, self.num_heads, 3 * head_dim).transpose(1, 2)
        query, key, value = qkv.split(head_dim, dim=-1)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        return self.proj(y.transpose(1, 2).reshape(batch, sequence, width))


class FeedForward(nn.Module):
    """Two linear layers around a GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    """Pre-norm Transformer block."""

    def __init__(self, width: int, num_heads: int, is_causal: bool = True) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, num_heads, is_causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token ids (B, S) to logits (B, S, V).

    block: makes a block of a width and a number of heads.
    """

    def __init__(self, config: Config, block: Callable[[int, int], nn.Module] = Block) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.sequence_length, config.width)
        self.blocks = nn.ModuleList(block(config.width, config.num_heads) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.is_tied:
            self.head.weight = self.tokens.weight

    def embedded(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedded(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over all tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(
    name: str,
    config: Config,
    assumed: tuple[str, ...] = (),
    model: Callable[[Config], nn.Module] = GPT,
    precision: str = "fp16_mixed",
) -> ModelSpec:
    """Return the specification of a GPT of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        return model(replace(config, num_layers=num_layers["blocks"]))

    tokens = (config.sequence_length,)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("ids", tokens, "int64"),),
        targets=(InputSpec("targets", tokens, "int64"),),
        loss=token_loss,
        default_optimizer="adam",
        default_precision=precision,
        sequence_length=config.sequence_length,
        stacks={"blocks": config.num_layers},
        assumed=assumed,
        at_length=lambda length: build(name, replace(config, sequence_length=length), assumed, model, precision),
    )


def _preset(name: str, num_layers: int, width: int, num_heads: int) -> ModelSpec:
    return build(name, Config(num_layers=num_layers, width=width, num_heads=num_heads))


build_gpt_125m = functools.partial(_preset, "gpt_125m", 12, 768, 12)
build_gpt_350m = functools.partial(_preset, "gpt_350m", 24, 1024, 16)
build_gpt_760m = functools.partial(_preset, "gpt_760m", 24, 1536, 16)
build_gpt_1_3b = functools.partial(_preset, "gpt_1_3b", 24, 2048, 16)
build_gpt_2_7b = functools.partial(_preset, "gpt_2_7b", 32, 2560, 32)
build_gpt_6_7b = functools.partial(_preset, "gpt_6_7b", 32, 4096, 32)
build_gpt_13b = functools.partial(_preset, "gpt_13b", 40, 5120, 40)
build_gpt3_175b = functools.partial(_preset, "gpt3_175b", 96, 12288, 96)


def _megatron_core(name: str, num_layers: int, width: int) -> ModelSpec:
    config = Config(
        num_layers=num_layers, width=width, num_heads=width // 128, sequence_length=4096, vocabulary=131072,
        is_tied=False,
    )  # fmt: skip
    return build(name, config, (f"{name}: heads of 128, of which the table tells no number",), precision="bf16_mixed")


build_megatron_core_1_7b = functools.partial(_megatron_core, "megatron_core_1_7b", 24, 2048)
build_megatron_core_16b = functools.partial(_megatron_core, "megatron_core_16b", 32, 6144)
build_megatron_core_70b = functools.partial(_megatron_core, "megatron_core_70b", 84, 8192)
build_megatron_core_177b = functools.partial(_megatron_core, "megatron_core_177b", 96, 12288)
build_megatron_core_462b = functools.partial(_megatron_core, "megatron_core_462b", 112, 18432)


def build_megatron_18b() -> ModelSpec:
    """Return the 18 B parameter GPT that MODEL J26 settles."""
    config = Config(num_layers=40, width=6144, num_heads=48, sequence_length=1024, vocabulary=51200)
    return build("megatron_18b", config, ("megatron_18b: the shape is assumed (MODEL J26)",))


def build_bloom_176b() -> ModelSpec:
    """Return BLOOM's shape: 70 layers, width 14,336, 112 heads, sequence 2,048, vocabulary 250,880, tied embedding.

    Model: a GPT of that shape. BLOOM differs in ALiBi in place of learned positions (whose 29 M parameters, 0.02%, are
        kept here, and whose biases of the attention scores are left out) and in a layer norm after the embedding.
    """
    config = Config(num_layers=70, width=14336, num_heads=112, sequence_length=2048, vocabulary=250880)
    return build("bloom_176b", config, ("bloom_176b: learned positions in place of ALiBi, no embedding norm",))
