"""GPT-OSS: experts with biases behind attention with sinks, whose window is 128 positions in every other layer.

Shapes: B batch, S sequence, T tokens of the batch, D width, H heads, F hidden width of an expert, N experts.
Source: OpenAI 2025, arXiv 2508.10925, section 2, and the released config.json of gpt-oss-120b (36 layers, width 2,880,
64 heads of 64 on 8, 4 of 128 experts of 2,880, vocabulary 201,088, theta 150,000, limit 7) and gpt-oss-20b (24 layers,
32 experts). YaRN changes the rotation's frequencies, not its cost; theta alone is used.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from rostam_py.models.decoder import Decoder, DecoderBlock, Rotation, decoder_spec, rotated
from rostam_py.models.experts import SoftmaxRouter
from rostam_py.models.spec import ModelSpec

_TILE = 128  # FlexAttention's default


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a GPT-OSS; ``hidden``: of one expert. window: positions that every other layer sees, the first too."""

    num_layers: int
    num_experts: int
    width: int = 2880
    num_heads: int = 64
    num_key_heads: int = 8
    head_size: int = 64
    hidden: int = 2880
    per_token: int = 4
    window: int = 128
    limit: float = 7.0
    theta: float = 150_000.0
    vocabulary: int = 201088
    sequence_length: int = 4096


def causal_mask(sequence: int, window: int, device: torch.device) -> BlockMask:
    """Return the mask of the last ``window`` positions, by the tiles that hold any."""

    def keeps(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (key > query - window)

    num_tiles = -(-sequence // _TILE)
    rows = torch.arange(num_tiles, device=device)
    first = ((rows * _TILE - window + 1).clamp(min=0) // _TILE).int()
    counts = rows.int() - first + 1
    indices = (first[:, None] + rows.int()).clamp(max=num_tiles - 1)
    return BlockMask.from_kv_blocks(
        counts[None, None], indices[None, None].contiguous(), BLOCK_SIZE=_TILE, mask_mod=keeps,
        seq_lengths=(sequence, sequence), compute_q_blocks=False,
    )  # fmt: skip


class SinkAttention(nn.Module):
    """Causal grouped-query attention over a window; a learned sink of each head takes a part of its probabilities.

    The softmax over scores and sink is that over the scores times sigmoid(log-sum-exp - sink).
    """

    def __init__(self, config: Config, window: int) -> None:
        super().__init__()
        self.head_size, self.window = config.head_size, window
        width, size = config.width, config.head_size
        self.query = nn.Linear(width, config.num_heads * size)
        self.key = nn.Linear(width, config.num_key_heads * size)
        self.value = nn.Linear(width, config.num_key_heads * size)
        self.proj = nn.Linear(config.num_heads * size, width)
        self.sinks = nn.Parameter(torch.empty(config.num_heads))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_size).transpose(1, 2)

    def forward(self, x: Tensor, waves: Rotation) -> Tensor:
        query = rotated(self._heads(self.query(x)), waves)
        key = rotated(self._heads(self.key(x)), waves)
        mask = causal_mask(x.shape[1], min(self.window, x.shape[1]), x.device)
        y, sums = flex_attention(
            query, key, self._heads(self.value(x)), block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True)
        )
        y = y * torch.sigmoid(sums.lse - self.sinks[:, None])[..., None].to(y.dtype)
        return self.proj(y.transpose(1, 2).flatten(2))


class BiasedExperts(nn.Module):
    """Gated experts with biases, their rows sorted by expert.

    A row is weighted before its expert's last product, as in MixtureOfExperts, and that product's bias by itself.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        experts, width, hidden = config.num_experts, config.width, config.hidden
        self.limit = config.limit
        self.router = SoftmaxRouter(width, experts, config.per_token, has_bias=True)
        self.gate_up = nn.Parameter(torch.empty(experts, width, 2 * hidden))
        self.gate_up_bias = nn.Parameter(torch.empty(experts, 2 * hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, width))
        self.down_bias = nn.Parameter(torch.empty(experts, width))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows)
        expert, token = chosen.t().nonzero().unbind(1)
        ends = chosen.sum(0).cumsum(0).int()
        inputs, of_rows = rows[token], weights[token, expert][:, None]
        both = torch._grouped_mm(inputs, self.gate_up, offs=ends) + self.gate_up_bias[expert]
        gate, up = both.chunk(2, -1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        inner = (up + 1) * gate * torch.sigmoid(1.702 * gate)
        outputs = torch._grouped_mm(inner * of_rows, self.down, offs=ends) + self.down_bias[expert] * of_rows
        return torch.zeros_like(rows).index_add(0, token, outputs).view_as(x)


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a GPT-OSS of this shape."""

    def block(place: int) -> nn.Module:
        window = config.sequence_length if place % 2 else config.window
        return DecoderBlock(config.width, SinkAttention(config, window), BiasedExperts(config))

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        blocks = {path: [block(place) for place in range(count)] for path, count in num_layers.items()}
        return Decoder(config.vocabulary, config.width, config.head_size, config.theta, blocks)

    spec = decoder_spec(name, make, {"blocks": config.num_layers}, config.sequence_length, assumed)
    return replace(
        spec,
        periods={"blocks": 2},
        at_length=lambda length: build(name, replace(config, sequence_length=length), assumed),
    )


def _preset(name: str, num_layers: int, num_experts: int, sequence_length: int = 4096) -> ModelSpec:
    config = Config(num_layers=num_layers, num_experts=num_experts, sequence_length=sequence_length)
    return build(name, config, (f"{name}: sequences of {sequence_length:,} in training, of the 131,072 it can take",))


build_gpt_oss_20b: Callable[[], ModelSpec] = functools.partial(_preset, "gpt_oss_20b", 24, 32)
build_gpt_oss_120b: Callable[[], ModelSpec] = functools.partial(_preset, "gpt_oss_120b", 36, 128)
build_gpt_oss_120b_8k: Callable[[], ModelSpec] = functools.partial(_preset, "gpt_oss_120b_8k", 36, 128, 8192)
