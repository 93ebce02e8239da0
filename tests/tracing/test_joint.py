"""Contract of torch's unstable joint-graph functions: what trace_joint reads must be there."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rostam_py.tracing.joint import trace_joint
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.step import Layout, Step, fake_parameters


def _raw(module: nn.Module) -> RawTrace:
    step = Step(module, None, Layout.positional(1))
    mode = FakeTensorMode()
    with fake_parameters(step, mode):
        with mode:
            inputs = (torch.empty(2, 4),)
        return trace_joint(step, inputs, mode, [])


def test_joint_graph_of_a_linear_layer_is_as_expected() -> None:
    raw = _raw(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    named = {(value.kind, value.name) for value in raw.values if value.kind in ("parameter", "input")}
    assert named == {("parameter", "0.weight"), ("parameter", "0.bias"), ("input", "input_0")}
    assert set(raw.gradients) == {"0.weight", "0.bias"}
    assert raw.values[raw.loss].shape == ()
    product = next(op for op in raw.ops if str(op.target) == "aten.addmm.default")
    gradient = next(op for op in raw.ops if str(op.target) == "aten.mm.default")
    assert (product.phase, product.module) == ("forward", "0")
    assert (gradient.phase, gradient.module) == ("backward", "0")
    assert product.sequence_number == gradient.sequence_number
    relu = next(op for op in raw.ops if str(op.target) == "aten.threshold_backward.default")
    assert (relu.phase, relu.module) == ("backward", "1")


def test_sums_of_gradients_have_no_module_of_their_own() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            return y.relu() + y.tanh()

    adds = [op for op in _raw(Twice()).ops if str(op.target) == "aten.add.Tensor" and op.phase == "backward"]
    assert [op.module for op in adds] == [None]


def test_views_share_storage_with_what_they_view() -> None:
    raw = _raw(nn.Linear(4, 3))
    transposed = next(op for op in raw.ops if str(op.target) == "aten.t.default" and op.phase == "forward")
    assert raw.values[transposed.inputs[0]].storage == raw.values[transposed.outputs[0][1]].storage
