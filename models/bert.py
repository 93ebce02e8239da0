"""BERT: a bidirectional encoder, trained on masked words and on whether two sentences follow each other.

Shapes: B batch, S sequence, M masked positions, D width, V vocabulary.
Source: Devlin et al. 2019, arXiv 1810.04805, section 3 (BERT-large: 24 layers, width 1,024, 16 heads), its released
vocabulary of 30,522; MLPerf training's BERT for sequences of 512 with at most 76 masked words. Without dropout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import FeedForward, token_loss
from rostam_py.models.spec import InputSpec, ModelSpec
from rostam_py.models.transformer import Attention


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a BERT."""

    num_layers: int = 24
    width: int = 1024
    num_heads: int = 16
    vocabulary: int = 30522
    sequence_length: int = 512
    num_masked: int = 76

    def at(self, length: int) -> "Config":
        """Return the shape for sequences of another length, of which the same share is masked."""
        masked = max(1, round(self.num_masked * length / self.sequence_length))
        return replace(self, sequence_length=length, num_masked=masked)


class Layer(nn.Module):
    """Post-norm Transformer layer."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, num_heads, is_causal=False)
        self.norm1 = nn.LayerNorm(width)
        self.mlp = FeedForward(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.mlp(x))


class MaskedWords(nn.Module):
    """Words at chosen positions: a linear layer, a norm, and the embedding once more with a bias."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        vocabulary, width = embedding.weight.shape
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.norm(functional.gelu(self.dense(x))))


class Bert(nn.Module):
    """Ids (B, S), sentence numbers (B, S) and masked positions (B, M) to words (B, M, V) and order (B, 2)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.tokens = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Embedding(config.sequence_length, width)
        self.sentences = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, config.num_heads) for _ in range(config.num_layers))
        self.words = MaskedWords(self.tokens)
        self.pooler = nn.Linear(width, width)
        self.order = nn.Linear(width, 2)

    def forward(self, ids: Tensor, sentences: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)) + self.sentences(sentences)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        chosen = x.gather(1, masked[:, :, None].expand(-1, -1, x.shape[2]))
        return self.words(chosen), self.order(torch.tanh(self.pooler(x[:, 0])))


def pretraining_loss(output: tuple[Tensor, Tensor], words: Tensor, order: Tensor) -> Tensor:
    """Cross-entropy of the masked words plus that of the sentences' order."""
    return token_loss(output[0], words) + functional.cross_entropy(output[1], order)


def build(name: str, config: Config) -> ModelSpec:
    """Return the specification of a BERT of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        return Bert(replace(config, num_layers=num_layers["layers"]))

    tokens, masked = (config.sequence_length,), (config.num_masked,)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(
            InputSpec("ids", tokens, "int64"),
            InputSpec("sentences", tokens, "int64"),
            InputSpec("masked", masked, "int64"),
        ),
        targets=(InputSpec("words", masked, "int64"), InputSpec("order", (), "int64")),
        loss=pretraining_loss,
        default_optimizer="adam",
        default_precision="fp16_mixed",
        sequence_length=config.sequence_length,
        stacks={"layers": config.num_layers},
        at_length=lambda length: build(name, config.at(length)),
    )


def build_bert_large() -> ModelSpec:
    """Return BERT-large with both heads of its pre-training."""
    return build("bert_large", Config())
