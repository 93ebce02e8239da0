"""Mixture-of-experts feed-forward: a router sends each token to a few of many gated experts.

Shapes: T tokens of the batch, D width, F hidden width of an expert, N experts, k of them for each token.
Source: Shazeer et al. 2017 (arXiv 1701.06538); routers: Mixtral (arXiv 2401.04088, section 2.1), DeepSeek-V3 (arXiv
2412.19437, section 2.1.2).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.decoder import GatedFeedForward


class SoftmaxRouter(nn.Module):
    """The k experts of the largest logits, weighted by the softmax of those k."""

    def __init__(self, width: int, num_experts: int, per_token: int, has_bias: bool = False) -> None:
        super().__init__()
        self.per_token = per_token
        self.linear = nn.Linear(width, num_experts, bias=has_bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (T, N), and which of them count (T, N)."""
        logits = self.linear(x)
        chosen = _marked(logits, self.per_token)
        return functional.softmax(logits.masked_fill(~chosen, -torch.inf), -1), chosen


class GroupedSigmoidRouter(nn.Module):
    """The k experts of the largest sigmoids, from the groups of experts whose best two are largest.

    A bias per expert, which no gradient reaches, evens the load; the weights of the k sum to ``scale``.
    """

    def __init__(
        self, width: int, num_experts: int, per_token: int, num_groups: int, groups_per_token: int, scale: float
    ) -> None:
        super().__init__()
        self.per_token, self.num_groups, self.groups_per_token, self.scale = (
            per_token, num_groups, groups_per_token, scale,
        )  # fmt: skip
        self.linear = nn.Linear(width, num_experts, bias=False)
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (T, N), and which of them count (T, N)."""
        scores = torch.sigmoid(self.linear(x))
        biased = (scores.detach() + self.bias).unflatten(-1, (self.num_groups, -1))
        groups = _marked(biased.topk(2, -1).values.sum(-1), self.groups_per_token)
        chosen = _marked(biased.masked_fill(~groups[:, :, None], -torch.inf).flatten(1), self.per_token)
        kept = scores.masked_fill(~chosen, 0)
        return kept / kept.sum(-1, keepdim=True) * self.scale, chosen


def _marked(scores: Tensor, count: int) -> Tensor:
    """Return which entries of each row are its ``count`` largest."""
    best = scores.topk(count, -1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)


class MixtureOfExperts(nn.Module):
    """Gated experts of equal size, their rows sorted by expert; and a dense expert that all tokens share, if wanted.

    A row is weighted before its expert's last product, whose output no gradient needs then.
    Source: Megatron-Core of 2025, ``weighted_bias_swiglu_impl``; weighting what comes behind gives the same sums.
    """

    def __init__(self, width: int, hidden: int, num_experts: int, router: nn.Module, shared_hidden: int = 0) -> None:
        super().__init__()
        self.router = router
        self.gate = nn.Parameter(torch.empty(num_experts, width, hidden))
        self.up = nn.Parameter(torch.empty(num_experts, width, hidden))
        self.down = nn.Parameter(torch.empty(num_experts, hidden, width))
        self.shared = GatedFeedForward(width, shared_hidden) if shared_hidden else None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows)
        expert, token = chosen.t().nonzero().unbind(1)
        ends = chosen.sum(0).cumsum(0).int()
        inputs, of_rows = rows[token], weights[token, expert][:, None]
        gate = torch._grouped_mm(inputs, self.gate, offs=ends)
        up = torch._grouped_mm(inputs, self.up, offs=ends)
        outputs = torch._grouped_mm(functional.silu(gate) * up * of_rows, self.down, offs=ends)
        y = torch.zeros_like(rows).index_add(0, token, outputs).view_as(x)
        return y if self.shared is None else y + self.shared(x)
