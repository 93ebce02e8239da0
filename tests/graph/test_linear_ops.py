"""passes_partial against torch: op(a + b) with other inputs fixed equals op(a) + op(b)."""

import pytest
import torch
from torch import nn

from rostam_py.graph import Op, OperatorGraph, is_linear_in, passes_partial
from rostam_py.tracing import trace


@pytest.fixture(scope="module")
def graph() -> OperatorGraph:
    layers = [nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Softmax(-1), nn.Tanh(), nn.Linear(8, 4)]
    return trace(nn.Sequential(*layers), torch.zeros(2, 8))


def _call(op: Op, tensors: list[torch.Tensor]) -> torch.Tensor:
    def value(argument):  # type: ignore[no-untyped-def]
        if isinstance(argument, dict):
            if "tensor" in argument:
                return tensors[argument["tensor"]]
            if "affine" in argument:
                return int(argument["affine"][0] + argument["affine"][1] * 2)
            return getattr(torch, next(iter(argument.values())))
        return [value(a) for a in argument] if isinstance(argument, list) else argument

    _, packet, overload = op.op_type.split(".")
    kwargs = {k: value(v) for k, v in op.arguments["kwargs"].items() if k != "dtype"}
    args = [value(a) for a in op.arguments["args"]]
    args = [torch.float64 if isinstance(a, torch.dtype) else a for a in args]
    result = getattr(getattr(torch.ops.aten, packet), overload)(*args, **kwargs)
    return result if isinstance(result, torch.Tensor) else result[0]


def test_linear_inputs_are_linear_in_torch(graph: OperatorGraph) -> None:
    torch.manual_seed(0)
    num_linear = 0
    for op in graph.ops:
        shapes = [[int(d.at(2)) for d in graph.tensors[v].shape] for v in op.inputs]
        others = [torch.rand(s, dtype=torch.float64) + 0.5 for s in shapes]
        for place in range(len(op.inputs)):
            if not passes_partial(op, frozenset({place})):
                continue
            a, b = (torch.randn(shapes[place], dtype=torch.float64) for _ in range(2))
            parts = [_call(op, [*others[:place], x, *others[place + 1 :]]) for x in (a, b, a + b)]
            if op.op_type.startswith("aten.addmm"):  # the bias is added by one member only
                parts[2] = parts[2] + others[0]
            torch.testing.assert_close(parts[0] + parts[1], parts[2], msg=op.op_type)
            num_linear += 1
    assert num_linear > 20


def test_nonlinear_ops_stop_partial_sums(graph: OperatorGraph) -> None:
    for op in graph.ops:
        if op.op_type in ("aten.gelu.default", "aten.tanh.default", "aten._softmax.default"):
            assert not passes_partial(op, frozenset({0}))
        if op.op_type == "aten.native_layer_norm.default":
            assert not any(is_linear_in(op, place) for place in range(3))


def _add(arguments: list[object], inputs: tuple[int, ...]) -> Op:
    return Op(0, "add", "", "forward", "aten.add.Tensor", inputs, (9,), {"args": arguments, "kwargs": {}})


def test_sums_pass_partial_only_if_all_terms_are_partial() -> None:
    add = _add([{"tensor": 0}, {"tensor": 1}], (1, 2))
    assert passes_partial(add, frozenset({0, 1}))
    assert not passes_partial(add, frozenset({0}))
    assert not passes_partial(_add([{"tensor": 0}, 1.0], (1,)), frozenset({0}))
    assert passes_partial(_add([{"tensor": 0}, 0], (1,)), frozenset({0}))


def test_products_of_two_partial_tensors_do_not_pass() -> None:
    mul = Op(0, "mul", "", "forward", "aten.mul.Tensor", (1, 2), (3,), {"args": [], "kwargs": {}})
    assert passes_partial(mul, frozenset({0}))
    assert not passes_partial(mul, frozenset({0, 1}))
