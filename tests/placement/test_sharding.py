"""Sharding propagation: soundness on every model, and the rules on modules made for them."""

import pytest
import torch
from torch import nn

from rostam_py.graph import PARTIAL, WHOLE, passes_partial
from rostam_py.placement.accumulation import regroup_gradient_sums
from rostam_py.placement.sharding import is_divisible, local_extent, propagate
from rostam_py.placement.sharding.layouts import Shard
from rostam_py.tracing import trace

SMALL = {"transformer_350m": 2, "gpt_125m": 2, "resnet50": None, "dlrm": None, "cosmoflow": None}


@pytest.fixture(scope="module", params=SMALL)
def graph(request):
    """Every kind of model, few layers of each."""
    layers = SMALL[request.param]
    return trace(request.param, num_layers=layers) if layers else trace(request.param)


def assert_sound(graph, sharding):
    """Check that every op finds its inputs as its split wants them, and leaves its outputs so."""
    for level in sharding.levels:
        for op in graph.ops:
            chosen = level.axes[op.id]
            held = []
            for t, is_whole in zip(op.inputs, level.uses_whole[op.id], strict=True):
                comm = level.comms.get(t)
                assert not is_whole or comm is not None or level.states[t] is WHOLE
                held.append(WHOLE if is_whole or (comm == "all_reduce" and chosen) else level.states[t])
            outputs = [level.states[t] for t in op.outputs]
            if chosen is None and PARTIAL in outputs:
                assert set(outputs) == {PARTIAL}
                assert set(held) <= {PARTIAL, WHOLE}
                assert passes_partial(op, frozenset(i for i, h in enumerate(held) if h == PARTIAL)) or passes_partial(
                    op, frozenset(range(len(held)))
                )
                continue
            if chosen is None:
                held = [WHOLE if t in level.comms else h for t, h in zip(op.inputs, held, strict=True)]
            wanted = (WHOLE,) * len(held) if chosen is None else chosen[0].wanted(chosen[1])
            for t, have, want in zip(op.inputs, held, wanted, strict=True):
                is_slice = have is WHOLE and isinstance(want, Shard)
                assert have == want or is_slice, (op.name, op.op_type, t, have, want)
            made = (WHOLE,) * len(outputs) if chosen is None else chosen[0].made(chosen[1])
            assert outputs == list(made), op.name


@pytest.mark.parametrize("degree", [2, 4])
def test_every_op_finds_its_inputs_as_its_split_wants_them(graph, degree):
    graph = regroup_gradient_sums(graph)
    assert_sound(graph, propagate(graph, degree, 4))


def test_every_final_gradient_is_spread_like_its_parameter(graph):
    sharding = propagate(graph, 2, 4)
    (level,) = sharding.levels
    states = {t.name: level.states[t.id] for t in graph.parameters}
    for t in graph.tensors:
        if t.kind == "gradient":
            state, comm = level.states[t.id], level.comms.get(t.id)
            # a whole gradient of a split parameter is sliced for free; summands of a whole one are summed at the end
            is_summed = state == PARTIAL and states[t.name] is WHOLE and t.name in sharding.summed
            assert state == states[t.name] or state is WHOLE or comm is not None or is_summed, t.name


def test_degree_one_shares_nothing(graph):
    sharding = propagate(graph, 1, 4)
    assert not sharding.comms
    assert not sharding.levels
    assert {sharding.op_fraction(op) for op in graph.ops} == {1.0}


def traced(module, *shape):
    """Return the graph of a module on a random input, with a smooth loss."""
    return trace(module, torch.randn(*shape), loss_fn=lambda y: (y * y).mean(), name="small")


def kinds(sharding):
    """Return how many collectives of each kind run."""
    found = {}
    for comm in (c for comms in sharding.comms.values() for c in comms):
        found[comm.kind] = found.get(comm.kind, 0) + 1
    return found


def test_two_linear_layers_need_one_all_reduce_forward_and_none_for_the_models_input():
    graph = traced(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)), 8, 64)
    sharding = propagate(graph, 4, 8)
    assert kinds(sharding) == {"all_reduce": 1}
    states = {".".join(t.name.split(".")[-2:]): sharding.levels[0].states[t.id] for t in graph.parameters}
    assert states == {
        "0.weight": Shard(0, 1, (256,)), "0.bias": Shard(0, 1, (256,)), "2.weight": Shard(1, 1, (256,)),
        "2.bias": WHOLE,
    }  # fmt: skip


def test_axis_that_does_not_divide_stays_whole():
    graph = traced(nn.Sequential(nn.Linear(64, 10), nn.ReLU(), nn.Linear(10, 10)), 8, 64)
    assert kinds(propagate(graph, 4, 8)) == {}


def test_small_column_that_would_be_gathered_at_once_runs_whole():
    # the norm needs whole rows: splitting 8 x 64 x 64 products saves less than the gather costs
    graph = traced(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)), 8, 64)
    assert kinds(propagate(graph, 4, 8)) == {}


class Residual(nn.Module):
    """y = x W + x: a partial sum meets a whole tensor."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256, bias=False), nn.Linear(256, 64, bias=False)

    def forward(self, x):
        """Add the branch to its input."""
        return self.down(torch.relu(self.up(x))) + x


def test_partial_sum_is_reduced_before_it_is_added_to_a_whole_tensor():
    graph = traced(Residual(), 8, 64)
    sharding = propagate(graph, 4, 8)
    assert_sound(graph, sharding)
    ((tensor, (comm,)),) = sharding.comms.items()
    assert (comm.kind, graph.ops[graph.tensors[tensor].producer].role) == ("all_reduce", "product")


class Branches(nn.Module):
    """Two row-parallel products summed: one all-reduce serves both, forward and backward."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.a, self.b = nn.Linear(64, 256, bias=False), nn.Linear(64, 256, bias=False)
        self.c, self.d = nn.Linear(256, 64, bias=False), nn.Linear(256, 64, bias=False)

    def forward(self, x):
        """Sum the branches."""
        x = nn.functional.layer_norm(self.first(x), (64,))
        return self.c(torch.relu(self.a(x))) + self.d(torch.relu(self.b(x)))


def test_sum_of_partial_sums_is_reduced_once():
    graph = traced(Branches(), 8, 64)
    sharding = propagate(graph, 4, 8)
    assert_sound(graph, sharding)
    assert kinds(sharding) == {"all_reduce": 2}


def test_padding_is_allowed_up_to_one_percent():
    assert is_divisible(50257, 8)
    assert local_extent(50257, 8) == 6283
    assert not is_divisible(12, 8)
    assert not is_divisible(25, 2)
    assert not is_divisible(4, 8)
