"""Properties of ops: linearity against torch (op(a + b) with other inputs fixed is op(a) + op(b)), roles by hand."""

import pytest
import torch
from torch import nn

from rostam_py.graph import Op, OperatorGraph, passes_partial
from rostam_py.graph.vocabulary import ROLES
from rostam_py.tracing import trace
from rostam_py.tracing.op_properties import with_properties


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
            assert op.linear_in == ()


def _op(name: str, num_inputs: int, arguments: list[object] | None = None) -> Op:
    inputs = tuple(range(num_inputs))
    plain = Op(
        id=0,
        name=name,
        module="",
        phase="forward",
        op_type=f"aten.{name}",
        inputs=inputs,
        outputs=(9,),
        arguments={"args": arguments or [], "kwargs": {}},
    )
    (op,) = with_properties([plain])
    return op


def test_sums_pass_partial_only_if_all_terms_are_partial() -> None:
    add = _op("add.Tensor", 2, [{"tensor": 0}, {"tensor": 1}])
    assert passes_partial(add, frozenset({0, 1}))
    assert not passes_partial(add, frozenset({0}))
    assert not passes_partial(_op("add.Tensor", 1, [{"tensor": 0}, 1.0]), frozenset({0}))
    assert passes_partial(_op("add.Tensor", 1, [{"tensor": 0}, 0]), frozenset({0}))


def test_products_of_two_partial_tensors_do_not_pass() -> None:
    mul = _op("mul.Tensor", 2)
    assert passes_partial(mul, frozenset({0}))
    assert not passes_partial(mul, frozenset({0, 1}))
    assert not passes_partial(mul, frozenset())


@pytest.mark.parametrize(
    ("name", "num_inputs", "role", "linear_in"),
    [
        ("mm.default", 2, "product", ((0,), (1,))),
        ("addmm.default", 3, "product", ((1,), (2,))),  # input 0 is the bias
        ("bmm.default", 2, "batched_product", ((0,), (1,))),
        ("convolution.default", 3, "convolution", ((0,), (1,))),  # input 2 is the bias
        ("convolution_backward.default", 3, "", ((0,),)),
        ("embedding.default", 2, "embedding", ((0,),)),
        ("_embedding_bag_forward_only.default", 3, "embedding", ()),
        ("index.Tensor", 2, "gather", ((0,),)),
        ("add_.Tensor", 2, "sum", ((0, 1),)),
        ("sub.Tensor", 2, "sum", ((0, 1),)),
        ("cat.default", 3, "join", ((0, 1, 2),)),
        ("clone.default", 1, "copy", ((0,),)),
        ("neg.default", 1, "scale", ((0,),)),
        ("div.Scalar", 1, "scale", ((0,),)),
        ("div.Tensor", 2, "", ((0,),)),
        ("mul.Tensor", 1, "scale", ((0,),)),
        ("_softmax.default", 1, "softmax", ()),
        ("_log_softmax.default", 1, "", ()),
        ("_scaled_dot_product_flash_attention.default", 3, "attention", ()),
        ("relu.default", 1, "", ()),
        ("arange.start", 0, "", ()),
    ],
)
def test_an_op_has_the_role_and_linearity_of_its_name(name, num_inputs, role, linear_in):
    op = _op(name, num_inputs)
    assert role in ROLES
    assert (op.role, op.linear_in) == (role, linear_in)


@pytest.mark.parametrize(
    "families", [("gpt", "mixtral", "resnet", "dlrm"), pytest.param((), marks=pytest.mark.slow)], ids=["four", "all"]
)
def test_every_op_of_a_trace_has_its_properties(small_graphs, families) -> None:
    for graph in (small_graphs[name] for name in families or small_graphs):
        assert with_properties(graph.ops) == graph.ops
        assert {op.role for op in graph.ops} > {"", "product"}
