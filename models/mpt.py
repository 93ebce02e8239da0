"""MPT: the GPTs of MosaicML's LLM Foundry, with learned positions, biases and a head tied to the embedding.

One product makes queries, keys and values, one behind the other, not head by head as in models/gpt.py: their gradients
are joined by one copy.
Shapes: B batch, S sequence, D width.
Source: scripts/train/yamls/pretrain/mpt-*.yaml of mosaicml/llm-foundry (d_model, n_heads, n_layers, vocab_size 50,368,
expansion of 4) and llmfoundry/models/mpt there, by whose defaults positions are learned, as many as a sequence has
tokens, and nothing is dropped. Parameters are as many as its scripts/train/benchmarking/README.md prints.
"""

import functools

from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import GPT, Block, Config, build
from rostam_py.models.spec import ModelSpec

VOCABULARY = 50368
SHAPES = {  # layers, width, heads
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}


class ChunkedAttention(nn.Module):
    """Causal self-attention; the rows of ``qkv`` are all queries, then all keys, then all values."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        query, key, value = (
            one.view(batch, sequence, self.num_heads, width // self.num_heads).transpose(1, 2)
            for one in self.qkv(x).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, sequence, width))


class ChunkedBlock(Block):
    """Pre-norm Transformer block with such attention."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__(width, num_heads)
        self.attention = ChunkedAttention(width, num_heads)


def _preset(name: str, shape: str, sequence: int = 2048) -> ModelSpec:
    layers, width, heads = SHAPES[shape]
    config = Config(num_layers=layers, width=width, num_heads=heads, sequence_length=sequence, vocabulary=VOCABULARY)
    return build(name, config, model=lambda one: GPT(one, ChunkedBlock), precision="bf16_mixed")


build_mpt_125m = functools.partial(_preset, "mpt_125m", "125m")
build_mpt_350m = functools.partial(_preset, "mpt_350m", "350m")
build_mpt_760m = functools.partial(_preset, "mpt_760m", "760m")
build_mpt_1b = functools.partial(_preset, "mpt_1b", "1b")
build_mpt_3b = functools.partial(_preset, "mpt_3b", "3b")
build_mpt_7b = functools.partial(_preset, "mpt_7b", "7b")
build_mpt_7b_512 = functools.partial(_preset, "mpt_7b_512", "7b", 512)
build_mpt_7b_1k = functools.partial(_preset, "mpt_7b_1k", "7b", 1024)
build_mpt_7b_4k = functools.partial(_preset, "mpt_7b_4k", "7b", 4096)
build_mpt_7b_8k = functools.partial(_preset, "mpt_7b_8k", "7b", 8192)
build_mpt_7b_16k = functools.partial(_preset, "mpt_7b_16k", "7b", 16384)
build_mpt_7b_32k = functools.partial(_preset, "mpt_7b_32k", "7b", 32768)
build_mpt_7b_64k = functools.partial(_preset, "mpt_7b_64k", "7b", 65536)
build_mpt_13b = functools.partial(_preset, "mpt_13b", "13b")
build_mpt_30b = functools.partial(_preset, "mpt_30b", "30b")
build_mpt_70b = functools.partial(_preset, "mpt_70b", "70b")
