"""What recomputation replays."""

import torch
from torch import nn

from rostam_py.placement.megatron.recompute import attention_core, dropped_by_core
from rostam_py.plan import Strategy
from rostam_py.tracing import trace


class PlainAttention(nn.Module):
    """Scores, softmax and values as separate products; (B, S, 32) -> (B, S, 32)."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x):
        """Attend with one head."""
        scores = self.q(x) @ self.k(x).transpose(1, 2) * 0.25
        return self.out(torch.softmax(scores, dim=-1) @ self.v(x))


def test_core_of_plain_attention_reaches_from_the_scores_to_the_values():
    graph = trace(PlainAttention(), torch.randn(2, 8, 32), loss_fn=lambda y: (y * y).mean(), name="plain")
    (core,) = attention_core(graph)
    types = [graph.ops[i].op_type for i in sorted(core) if not graph.ops[i].is_metadata]
    assert types == ["aten.bmm.default", "aten.mul.Tensor", "aten._softmax.default", "aten.bmm.default"]
    dropped = {graph.ops[graph.tensors[t].producer].op_type for t in dropped_by_core(graph, [core])}
    assert "aten._softmax.default" in dropped


def test_selective_recomputation_replays_fused_attention_once_a_layer(gpt, placed):
    tasks = placed(gpt, Strategy(recompute="selective"), 1).stages[0].templates["backward"]
    names = [k.op_type for t in tasks for k in t.kernels if "scaled_dot_product" in k.op_type]
    forward, backward = names[0], names[1]
    assert "backward" in backward
    assert names == [forward, backward] * 4
