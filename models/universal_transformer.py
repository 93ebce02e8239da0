"""Universal Transformer: one encoder layer and one decoder layer, applied several times.

Shapes: B batch, S source and T target sequence, D width, V vocabulary.
Source: Dehghani et al. 2019, arXiv 1807.03819, section 2 (position and step signals, six steps as its translation
models); SiP-ML (Khani et al. 2021) section 4.1 trains one of 350 M parameters and gives no more of its shape.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from rostam_py.models.gpt import token_loss
from rostam_py.models.spec import InputSpec, ModelSpec
from rostam_py.models.transformer import Config, DecoderLayer, EncoderLayer


def signal(places: Tensor, width: int) -> Tensor:
    """Return sines and cosines (N, D) of positions or steps (N,)."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, device=places.device) / width)
    angles = torch.outer(places, rates)
    return torch.cat((angles.sin(), angles.cos()), -1)


class UniversalTransformer(nn.Module):
    """Source ids (B, S) and target ids (B, T) to logits (B, T, V); as many steps as ``config`` has layers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder_steps, self.decoder_steps = config.encoder_layers, config.decoder_layers
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.encoder = EncoderLayer(config)
        self.encoder_norm = nn.LayerNorm(config.width)
        self.decoder = DecoderLayer(config)
        self.decoder_norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def _signals(self, sequence: int, num_steps: int, device: torch.device) -> Tensor:
        """Return what each step adds to its input (steps, S, D)."""
        width = self.tokens.embedding_dim
        places, steps = torch.arange(sequence, device=device), torch.arange(num_steps, device=device)
        return signal(places, width) + signal(steps, width)[:, None]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, x = self.tokens(source), self.tokens(target)
        for added in self._signals(source.shape[1], self.encoder_steps, source.device).unbind():
            memory = self.encoder(memory + added)
        memory = self.encoder_norm(memory)
        for added in self._signals(target.shape[1], self.decoder_steps, target.device).unbind():
            x = self.decoder(x + added, memory)
        return self.head(self.decoder_norm(x))


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a Universal Transformer of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        del num_layers  # the steps share one layer
        return UniversalTransformer(config)

    tokens = (config.sequence_length,)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("source", tokens, "int64"), InputSpec("target", tokens, "int64")),
        targets=(InputSpec("labels", tokens, "int64"),),
        loss=token_loss,
        default_optimizer="adam",
        default_precision="fp32",
        sequence_length=config.sequence_length,
        assumed=assumed,
        at_length=lambda length: build(name, replace(config, sequence_length=length), assumed),
    )


def build_universal_transformer() -> ModelSpec:
    """Return a Universal Transformer of SiP-ML's size: 350 M parameters make a width of 3,072 where steps share."""
    config = Config(encoder_layers=6, decoder_layers=6, width=3072, feed_forward=11264, num_heads=24)
    what = (
        "universal_transformer: width 3,072, feed-forward 11,264, 24 heads, 6 steps, vocabulary 32,768, 64 + 64 tokens"
    )
    return build("universal_transformer", config, (f"{what}; no adaptive halting",))
