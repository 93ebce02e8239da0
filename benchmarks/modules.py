"""Users' modules whose traces are measured, with their inputs; weights are on the meta device."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_WIDTH, _HEADS, _KEY_HEADS, _INNER, _VOCABULARY, _TOKENS = 8192, 64, 8, 28672, 32000, 4096  # Llama-2 70B's
_STATES, _CHANNELS = 16, 512


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = _WIDTH // _HEADS
        self.norms = nn.ModuleList(nn.RMSNorm(_WIDTH) for _ in range(2))
        self.query, self.output = (nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(_WIDTH, _KEY_HEADS * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(_WIDTH, _INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(_INNER, _WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (
            part(y).unflatten(-1, (-1, _WIDTH // _HEADS)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        q, k = (t * cos + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * sin for t in (q, k))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class _Llama(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, _WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(_WIDTH), nn.Linear(_WIDTH, _VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        size = _WIDTH // _HEADS
        turns = torch.arange(0, size, 2, device=ids.device).repeat(2) / -size
        angles = torch.outer(torch.arange(ids.shape[1], device=ids.device), 10000**turns)
        x, cos, sin = self.embed(ids), angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class _Scan(nn.Module):
    """Mamba's selective scan, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.parts = nn.Linear(_CHANNELS, _CHANNELS), nn.Linear(_CHANNELS, 2 * _STATES)
        self.rates = nn.Parameter(torch.zeros(_CHANNELS, _STATES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = functional.softplus(self.steps(x))[..., None]
        into, out = self.parts(x).chunk(2, -1)
        decay, into = torch.exp(steps * -torch.exp(self.rates)), steps * into[:, :, None] * x[..., None]
        state, results = x.new_zeros(x.shape[0], _CHANNELS, _STATES), []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + into[:, step]
            results.append((state * out[:, step, None]).sum(-1))
        return torch.stack(results, 1)


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(_CHANNELS, _CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], _CHANNELS)
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
        return h


def llama(depth: int) -> tuple[nn.Module, Any]:
    """Return blocks of Llama-2 70B's size."""
    ids = torch.zeros(2, _TOKENS, dtype=torch.int64)
    with torch.device("meta"):
        return _Llama(depth), (ids, ids.clone())


def scan(num_steps: int) -> tuple[nn.Module, Any]:
    """Return a selective scan over ``num_steps`` tokens."""
    with torch.device("meta"):
        return _Scan(), torch.zeros(2, num_steps, _CHANNELS)


def cell(num_steps: int) -> tuple[nn.Module, Any]:
    """Return an LSTM cell in a loop over ``num_steps`` tokens."""
    with torch.device("meta"):
        return _Cell(), torch.zeros(2, num_steps, _CHANNELS)
