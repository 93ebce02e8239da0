"""Families: decoder-only language models of any sizes, for launch configurations that give sizes in place of a name.

A member of the sizes of a registered model is written as that one is: of Llama's parts (models/decoder.py), Mixtral's
and DeepSeek's experts (models/experts.py), DeepSeek's attention (models/deepseek.py), or as a GPT (models/gpt.py).
Shapes: B batch, S sequence, D width, E size of a head, F hidden width, V vocabulary.
Source: the options of megatron/training/arguments.py in NVIDIA/Megatron-LM, which tell such models apart; gated units:
Shazeer 2020 (arXiv 2002.05202); squared ReLU: So et al. 2021 (arXiv 2109.08668).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models import deepseek, gpt
from rostam_py.models.decoder import (
    Decoder,
    DecoderBlock,
    GatedFeedForward,
    GroupedAttention,
    Rotation,
    decoder_spec,
    rotated,
)
from rostam_py.models.experts import GroupedSigmoidRouter, MixtureOfExperts, SoftmaxRouter
from rostam_py.models.spec import ModelSpec

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "relu": functional.relu,
    "squared_relu": lambda x: functional.relu(x).square(),
}
_NORMS = ("rms", "layer")
_POSITIONS = ("rotary", "learned", "none")
_ROUTERS = ("softmax", "sigmoid")
_SHARES = ("dropout", "attention_dropout")


@dataclass(kw_only=True, slots=True)
class Config:
    """Sizes of a decoder.

    num_key_heads, head_size, hidden, value_size: 0 for num_heads, width / num_heads, 4 width and head_size.
    expert_hidden, shared_hidden: hidden width of one expert, and of the dense one that all tokens share. dense_layers:
    the first layers, without experts. query_latent, key_latent, rotary_size: of DeepSeek's attention.
    """

    num_layers: int
    width: int
    num_heads: int
    vocabulary: int
    sequence_length: int = 4096
    num_key_heads: int = 0
    head_size: int = 0
    hidden: int = 0
    norm: str = "rms"
    activation: str = "silu"
    is_gated: bool = True
    has_biases: bool = False
    has_query_biases: bool = False
    has_head_norms: bool = False
    positions: str = "rotary"
    theta: float = 10_000.0
    is_tied: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    num_experts: int = 0
    experts_per_token: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    router: str = "softmax"
    router_groups: int = 1
    groups_per_token: int = 1
    router_scale: float = 1.0
    dense_layers: int = 0
    query_latent: int = 0
    key_latent: int = 0
    rotary_size: int = 0
    value_size: int = 0

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check(entry.name, getattr(self, entry.name), entry.type)
        self.num_key_heads = self.num_key_heads or self.num_heads
        self.head_size = self.head_size or self.width // self.num_heads
        self.hidden = self.hidden or 4 * self.width
        self.expert_hidden = self.expert_hidden or self.hidden
        self.value_size = self.value_size or self.head_size
        for key, names in (
            ("norm", _NORMS), ("activation", tuple(_ACTIVATIONS)), ("positions", _POSITIONS), ("router", _ROUTERS),
        ):  # fmt: skip
            if getattr(self, key) not in names:
                raise ValueError(f"{key} is {getattr(self, key)!r}; it must be one of: {', '.join(names)}")
        self._check_heads()
        if self.num_experts:
            self._check_experts()

    def _check_heads(self) -> None:
        if self.num_heads % self.num_key_heads:
            raise ValueError(f"num_key_heads is {self.num_key_heads}; it must divide num_heads = {self.num_heads}")
        if self.has_latents and (self.rotary_size < 2 or self.rotary_size % 2 or not self.query_latent):
            raise ValueError(
                f"key_latent is {self.key_latent}, but query_latent is {self.query_latent} and rotary_size"
                f" {self.rotary_size}; give both, the latter an even number"
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(f"head_size is {self.head_size}; rotary positions need an even number")

    def _check_experts(self) -> None:
        if not 1 <= self.experts_per_token <= self.num_experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}; it must be from 1 to num_experts = {self.num_experts}"
            )
        if self.num_experts % self.router_groups or not 1 <= self.groups_per_token <= self.router_groups:
            raise ValueError(
                f"router_groups is {self.router_groups} and groups_per_token {self.groups_per_token}; they divide"
                f" num_experts = {self.num_experts}"
            )
        if not self.is_gated or self.activation != "silu" or self.has_biases:
            raise ValueError("num_experts is given, but experts are gated by silu and have no biases")
        if self.dense_layers >= self.num_layers:
            raise ValueError(f"dense_layers is {self.dense_layers}; it must be below num_layers = {self.num_layers}")

    @property
    def has_latents(self) -> bool:
        """Queries, and keys with values, come from short vectors (MLA)."""
        return self.key_latent > 0

    @property
    def is_gpt(self) -> bool:
        """A GPT of models/gpt.py."""
        return (
            (self.norm, self.activation, self.positions) == ("layer", "gelu", "learned")
            and self.has_biases and not self.is_gated and not self.num_experts and not self.has_latents
            and self.num_key_heads == self.num_heads and self.head_size * self.num_heads == self.width
            and self.hidden == 4 * self.width and not self.dropout and not self.attention_dropout
            and not self.has_head_norms
        )  # fmt: skip

    @property
    def is_llama(self) -> bool:
        """Whether attention and norms are those of models/decoder.py."""
        others = self.has_biases or self.has_query_biases or self.dropout or self.attention_dropout
        return self.norm == "rms" and self.positions == "rotary" and not others


def _check(key: str, value: object, kind: object) -> None:
    wanted: type | tuple[type, ...] = {int: int, float: (int, float), bool: bool, str: str}[kind]  # type: ignore[index]
    if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{key} is {value!r}; it must be {_words(kind)}")
    least = 1 if key in ("num_layers", "width", "num_heads", "vocabulary", "sequence_length", "router_groups") else 0
    if isinstance(value, int) and not isinstance(value, bool) and not least <= value <= 2**31:
        raise ValueError(f"{key} is {value}; it must be an integer from {least} to 2^31")
    if key in _SHARES and not 0 <= value < 1:  # type: ignore[operator]
        raise ValueError(f"{key} is {value}; it must be a share from 0 to below 1")
    if kind is float and not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{key} is {value}; it must be a number >= 0")


def _words(kind: object) -> str:
    return {int: "an integer", float: "a number", bool: "true or false", str: "a name"}[kind]  # type: ignore[index]


class Attention(nn.Module):
    """Causal self-attention on grouped key heads, with what Llama's has not: biases, dropout, unturned heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.head_size
        self.head_size, self.dropout = size, config.attention_dropout
        has_biases = config.has_biases or config.has_query_biases
        self.query = nn.Linear(config.width, config.num_heads * size, bias=has_biases)
        self.key = nn.Linear(config.width, config.num_key_heads * size, bias=has_biases)
        self.value = nn.Linear(config.width, config.num_key_heads * size, bias=has_biases)
        self.proj = nn.Linear(config.num_heads * size, config.width, bias=config.has_biases)
        self.query_norm = _norm(config, size) if config.has_head_norms else nn.Identity()
        self.key_norm = _norm(config, size) if config.has_head_norms else nn.Identity()

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_size)

    def forward(self, x: Tensor, waves: Rotation | None) -> Tensor:
        query = self.query_norm(self._heads(self.query(x))).transpose(1, 2)
        key = self.key_norm(self._heads(self.key(x))).transpose(1, 2)
        if waves is not None:
            query, key = rotated(query, waves), rotated(key, waves)
        value = self._heads(self.value(x)).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, enable_gqa=True
        )
        return self.proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear layers around an activation, or three where it is gated."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[config.activation]
        self.gate = nn.Linear(config.width, config.hidden, bias=config.has_biases) if config.is_gated else None
        self.up = nn.Linear(config.width, config.hidden, bias=config.has_biases)
        self.down = nn.Linear(config.hidden, config.width, bias=config.has_biases)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        return self.down(self.activation(up) if self.gate is None else self.activation(self.gate(x)) * up)


class Block(nn.Module):
    """Pre-norm block, with dropout behind its two regions."""

    def __init__(self, config: Config, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(config, config.width), _norm(config, config.width)
        self.attention, self.mlp = attention, mlp
        self.dropout1 = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.dropout2 = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

    def forward(self, x: Tensor, waves: Rotation | None) -> Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x), waves))
        return x + self.dropout2(self.mlp(self.norm2(x)))


class AnyDecoder(Decoder):
    """Token ids (B, S) to logits (B, S, V), with learned, turned or no positions, and a head that is tied or not."""

    def __init__(self, config: Config, blocks: Mapping[str, list[nn.Module]]) -> None:
        size = config.rotary_size if config.has_latents else config.head_size
        super().__init__(config.vocabulary, config.width, size, config.theta, blocks)
        self.is_turned = config.positions == "rotary"
        self.norm = _norm(config, config.width)
        if config.is_tied:
            self.head.weight = self.tokens.weight
        is_learned = config.positions == "learned"
        self.places = nn.Embedding(config.sequence_length, config.width) if is_learned else None
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

    def forward(self, ids: Tensor) -> Tensor:
        waves = self.positions(ids.shape[1], ids.device) if self.is_turned else None
        x = self.tokens(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1], device=ids.device))
        x = self.dropout(x)
        for name in self.stacks:
            for block in self.get_submodule(name):
                x = block(x, waves)
        return self.head(self.norm(x))


def _norm(config: Config, width: int) -> nn.Module:
    return nn.RMSNorm(width, eps=1e-5) if config.norm == "rms" else nn.LayerNorm(width)


def _attention(config: Config) -> nn.Module:
    if config.has_latents:
        return deepseek.LatentAttention(
            deepseek.Config(
                width=config.width, num_heads=config.num_heads, query_latent=config.query_latent,
                key_latent=config.key_latent, head_size=config.head_size, rotary_size=config.rotary_size,
                value_size=config.value_size,
            )
        )  # fmt: skip
    if config.is_llama:
        heads = (config.num_heads, config.num_key_heads, config.head_size)
        return GroupedAttention(config.width, *heads, config.has_head_norms)
    return Attention(config)


def _experts(config: Config) -> nn.Module:
    router: nn.Module = SoftmaxRouter(config.width, config.num_experts, config.experts_per_token)
    if config.router == "sigmoid":
        groups = (config.router_groups, config.groups_per_token)
        router = GroupedSigmoidRouter(
            config.width, config.num_experts, config.experts_per_token, *groups, config.router_scale
        )
    return MixtureOfExperts(config.width, config.expert_hidden, config.num_experts, router, config.shared_hidden)


def _block(config: Config, is_dense: bool) -> nn.Module:
    is_plain = config.is_gated and config.activation == "silu" and not config.has_biases
    dense = GatedFeedForward(config.width, config.hidden) if is_plain else FeedForward(config)
    mlp = dense if is_dense else _experts(config)
    if config.norm == "rms" and not config.dropout:
        return DecoderBlock(config.width, _attention(config), mlp)
    return Block(config, _attention(config), mlp)


def _spec(config: Config) -> ModelSpec:
    if config.is_gpt:
        shape = gpt.Config(
            num_layers=config.num_layers, width=config.width, num_heads=config.num_heads,
            sequence_length=config.sequence_length, vocabulary=config.vocabulary, is_tied=config.is_tied,
        )  # fmt: skip
        return gpt.build("decoder", shape, precision="bf16_mixed")

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        blocks = {
            path: [_block(config, path == "dense_blocks" or not config.num_experts) for _ in range(count)]
            for path, count in num_layers.items()
        }
        if config.is_llama and not config.is_tied:
            size = config.rotary_size if config.has_latents else config.head_size
            return Decoder(config.vocabulary, config.width, size, config.theta, blocks)
        return AnyDecoder(config, blocks)

    dense = {"dense_blocks": config.dense_layers} if config.dense_layers and config.num_experts else {}
    stacks = {**dense, "blocks": config.num_layers - sum(dense.values())}
    spec = decoder_spec("decoder", make, stacks, config.sequence_length)
    return replace(spec, at_length=lambda length: _spec(replace(config, sequence_length=length)))


def build_decoder(**sizes: object) -> ModelSpec:
    """Return a decoder-only language model of the sizes of ``Config``.

    Raises: TypeError or ValueError naming an argument that is missing, wrong or unknown.
    """
    return _spec(Config(**sizes))  # type: ignore[arg-type]
