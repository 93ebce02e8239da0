"""What is the batch, and what an input may be: sequence-first layers, chance sizes, nested values, wrappers."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from rostam_py.errors import TracingError
from rostam_py.tracing import trace

S, B, D = 6, 2, 16


def _flops(graph: Any, phase: str = "forward") -> float:
    return sum(op.flops.at(1) for op in graph.ops if op.phase == phase and "mm" in op.op_type)


def test_sequence_first_layers_find_the_batch_in_dim_1() -> None:
    first = trace(nn.Transformer(D, 2, 1, 1, 32), (torch.zeros(S, B, D), torch.zeros(S // 2, B, D)))
    module = nn.Transformer(D, 2, 1, 1, 32, batch_first=True)
    second = trace(module, (torch.zeros(B, S, D), torch.zeros(B, S // 2, D)))
    for phase in ("forward", "backward"):  # element-wise work differs: biases are added in other places
        assert _flops(first, phase) == _flops(second, phase)
    assert any("dim 1 of the inputs" in note for note in first.notes)


def test_sequence_first_recurrence_equals_batch_first() -> None:
    first = trace(nn.LSTM(D, 8), torch.zeros(S, B, D))
    assert _flops(first) == _flops(trace(nn.LSTM(D, 8, batch_first=True), torch.zeros(B, S, D)))
    assert _flops(first) == S * 2 * 4 * 8 * (D + 8)


def test_a_layer_inside_that_gets_the_batch_as_its_sequence_is_refused_with_the_remedy() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(D, 2)
            self.head = nn.Linear(S * D, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.attend(x, x, x)[0]
            return self.head(y.flatten(1))  # flattens (S, D) of each sample: dim 1 cannot be the batch

    inputs = torch.zeros(B, S, D)
    with pytest.raises(TracingError, match=r"MultiheadAttention at 'attend' takes \(sequence, batch.*batch_dims=1"):
        trace(Mixed(), inputs)
    with pytest.raises(TracingError, match=r"MultiheadAttention at 'attend' takes"):
        trace(Mixed(), inputs, batch_dims=0)


def test_batch_dims_are_given_for_all_for_each_or_by_name() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(D, D)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.linear(x.transpose(0, 1)) * mask

    x, mask = torch.zeros(S, B, D), torch.zeros(B, 1, D)
    for dims in (1, (1, 0), {0: 1}):
        assert _flops(trace(Turned(), (x, mask), batch_dims=dims)) == 2 * S * D * D
    assert _flops(trace(Turned(), {"x": x, "mask": mask}, batch_dims={"x": 1, "mask": 0})) == 2 * S * D * D
    with pytest.raises(TracingError, match=r"batch_dims names 'y'; inputs are 'x', 'mask'"):
        trace(Turned(), {"x": x, "mask": mask}, batch_dims={"y": 1})
    with pytest.raises(TracingError, match="batch_dims of input 0 is 3; it has 3 dims"):
        trace(Turned(), (x, mask), batch_dims=(3, 0))
    with pytest.raises(TracingError, match="batch_dims give batches of 6 and of 2"):
        trace(Turned(), (x, mask), batch_dims=(0, 0))


def test_a_small_tensor_whose_first_dim_equals_the_batch_by_chance_stays_as_it_is() -> None:
    class Weighted(nn.Linear):
        def forward(self, x: Tensor, weights: Tensor) -> Tensor:
            return super().forward(x) * weights  # one weight for each of 4 outputs

    graph = trace(Weighted(8, 4), (torch.zeros(4, 8), torch.zeros(4)))
    assert _flops(graph) == 2 * 8 * 4
    assert any("have no batch" in note for note in graph.notes)
    given = trace(Weighted(8, 4), (torch.zeros(4, 8), torch.zeros(4)), batch_dims=(0, None))
    assert given.ops == graph.ops


def test_plain_nested_and_missing_inputs_reach_the_module() -> None:
    class Many(nn.Linear):
        def forward(
            self, pair: dict[str, Any], scale: float, mask: Tensor | None = None, double: bool = False
        ) -> Tensor:
            y = super().forward(pair["x"]) * scale + pair["more"][0]
            return y * 2 if double and mask is None else y

    pair = {"x": torch.zeros(2, 8), "more": [torch.zeros(2, 8)]}
    for inputs in ((pair, 0.5, None, True), {"pair": pair, "scale": 0.5, "double": True}):
        graph = trace(Many(8, 8), inputs, route="joint")
        assert _flops(graph) == 2 * 8 * 8
        assert sum(op.op_type == "aten.mul.Tensor" and op.phase == "forward" for op in graph.ops) == 2


def test_a_tensor_in_several_places_is_one_input() -> None:
    class Three(nn.Linear):
        def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
            return super().forward(x) + super().forward(y) + super().forward(z)

    x, y = torch.zeros(2, 8), torch.zeros(2, 8)
    assert trace(Three(8, 8), (x, x, x)).saved_bytes(1) == 4 * 8
    assert trace(Three(8, 8), (x, y, x)).saved_bytes(1) == 2 * 4 * 8


def test_targets_are_not_taken_for_optional_inputs() -> None:
    class Masked(nn.Linear):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            y = super().forward(x)
            return y if mask is None else y * mask

    x, y = torch.zeros(4, 8), torch.zeros(4, 8)
    plain = trace(Masked(8, 8), (x, y), loss_fn=functional.mse_loss)
    masked = trace(Masked(8, 8), (x, torch.zeros(4, 1), y), loss_fn=functional.mse_loss)
    muls = [sum(op.op_type == "aten.mul.Tensor" and op.phase == "forward" for op in g.ops) for g in (plain, masked)]
    assert muls == [0, 1]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


def test_wrapped_programs_are_traced_as_what_they_wrap() -> None:
    x = torch.zeros(4, 8)
    plain = trace(Mlp(), x)
    inside = nn.Sequential(torch.compile(Mlp()))
    by_call = Mlp()
    by_call.compile()
    dynamic = torch.export.export(Mlp(), (torch.zeros(4, 8),), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    for wrapped in (torch.compile(Mlp()), by_call, fx.symbolic_trace(Mlp()), dynamic):
        graph = trace(wrapped, x)
        assert (graph.forward_flops(3), graph.backward_flops(3)) == (plain.forward_flops(3), plain.backward_flops(3))
        assert [t.name for t in graph.parameters] == [t.name for t in plain.parameters]
    assert [t.name for t in trace(inside, x).parameters] == [f"0.{t.name}" for t in plain.parameters]
    assert hasattr(inside[0], "_orig_mod")
    assert by_call._compiled_call_impl is not None


def test_a_program_exported_for_one_batch_works_or_says_how() -> None:
    class Flat(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.reshape(x.shape[0] * 2, 8))

    static = torch.export.export(Flat(), (torch.zeros(4, 2, 8),))
    with pytest.raises(TracingError, match=r"dynamic_shapes=.*torch\.export\.Dim"):
        trace(static, torch.zeros(4, 2, 8))
