"""Memory of a full recomputation: what the loss kept is gone when the first block is made again (MODEL D15).

Case: MaxText's GPT of 22 billion parameters on 64 TPU v4 of 34.36 GB, which runs in public (AI-Hypercomputer/maxtext,
"22B" of its runs on v4-128): 48 layers, H 6,144, 24 heads, two matrices of F 24,576, V 32,000 words, S 2,048 tokens, 13
samples a chip, weights and Adam's state shared over all chips.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.graph import OperatorGraph
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

H, HEADS, F, S, LAYERS, SAMPLES = 6144, 24, 24576, 2048, 48, 13
TOKENS = SAMPLES * S
ROWS = 2 * TOKENS * H  # bytes of a layer's input


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(H), nn.RMSNorm(H)
        self.qkv, self.proj = nn.Linear(H, 3 * H, bias=False), nn.Linear(H, H, bias=False)
        self.up, self.down = nn.Linear(H, F, bias=False), nn.Linear(F, H, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, S, HEADS, H // HEADS).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, S, H))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(words, H), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(H), nn.Linear(H, words, bias=False)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def _graph(words: int) -> OperatorGraph:
    with torch.device("meta"):
        module = Model(words)
        ids = torch.zeros(2, S, dtype=torch.int64)
    return trace(module, (ids, ids))


@pytest.mark.parametrize("words", [32000, pytest.param(8000, marks=pytest.mark.slow)])
def test_a_block_is_made_again_when_the_loss_is_gone(words, placed):
    strategy = Strategy(dp=64, shard=3, micro_batch=SAMPLES, recompute="full", precision="bf16_mixed", optimizer="adam")
    stage = placed(_graph(words), strategy, 64 * SAMPLES, accelerator="tpu_v4_32gb").stages[0]
    changes = stage.activation_changes
    logits = TOKENS * words
    # Kept: every block's input; the last norm's input and output; log-probabilities in 4 bytes; a scale for each row
    # of the norm, ids and targets.
    kept = (LAYERS + 2) * ROWS + 4 * logits
    small = 64 * TOKENS
    assert 0 <= changes["forward"][0] - kept <= small
    # The loss's backward begins with the gradient of the logits, in 2 bytes. When the last block is made again, the
    # log-probabilities and the norm's input and output have been read for the last time, the gradient of the block's
    # output is there; its own: two norms' outputs, the sum between, q, k, v and attention's output (7), both sides
    # of the GELU (2 x 4), a log-sum-exp for each head.
    in_loss = 2 * logits
    in_block = 15 * ROWS + 4 * TOKENS * HEADS - (4 * logits + 2 * ROWS - ROWS)
    assert changes["backward_last"][0] == pytest.approx(max(in_loss, in_block), abs=small)
    assert (in_loss > in_block) == (words == 32000)
    assert stage.memory.total < 34.36e9  # Adam's 18 bytes for each parameter over 64 chips, and weights in use, as well
