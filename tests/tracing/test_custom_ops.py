"""Ops and modules that users register: costed as told, split as told, refused where nobody told (MODEL 30)."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.costs.families import op_family
from rostam_py.errors import ConfigError, TracingError
from rostam_py.graph import PARTIAL, WHOLE, Affine
from rostam_py.tracing import custom, register_module, register_op, trace


@torch.library.custom_op("rostam_test::product", mutates_args=())
def _product(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


@_product.register_fake
def _product_fake(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@torch.library.custom_op("rostam_test::product_backward", mutates_args=())
def _product_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return grad @ weight.T, x.T @ grad


@_product_backward.register_fake
def _product_backward_fake(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


_product.register_autograd(
    lambda ctx, grad: torch.ops.rostam_test.product_backward(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Custom(nn.Module):
    """x (B, 8) times a weight (8, 6) by a custom kernel; ``cast`` reads the weight through a cast and a view."""

    def __init__(self, cast: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 8) if cast else torch.zeros(8, 6))
        self.cast = cast

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(torch.float64).t() if self.cast else self.weight
        return torch.ops.rostam_test.product(x.to(weight.dtype), weight)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(custom, "_OPS", {})
    monkeypatch.setattr(custom, "_STAND_INS", {})
    return


@pytest.mark.parametrize("route", ["joint", "dispatch"])
@pytest.mark.parametrize("cast", [False, True])
def test_an_op_that_reads_a_parameter_matrix_without_a_formula_is_an_error(route: str, cast: bool) -> None:
    with pytest.raises(TracingError, match=r"rostam_test\.product.* reads the parameter .*register_op\('rostam_test::"):
        trace(Custom(cast), torch.zeros(4, 8), route=route)


def test_another_librarys_op_is_not_taken_for_torchs_of_that_name() -> None:
    @torch.library.custom_op("rostam_test::embedding", mutates_args=())
    def embedding(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight

    embedding.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[1]))
    embedding.register_autograd(
        lambda ctx, grad: (grad @ ctx.saved_tensors[0].T, None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
    )

    class Net(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return embedding(super().forward(x), self.weight)

    with pytest.raises(TracingError, match=r"rostam_test\.embedding.* has no FLOP formula"):
        trace(Net(8, 8), torch.zeros(4, 8))


def test_an_op_that_reads_none_is_listed_with_its_bytes() -> None:
    class Project(nn.Linear):
        def __init__(self) -> None:
            super().__init__(8, 4)
            self.register_buffer("basis", torch.zeros(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.rostam_test.product(super().forward(x), self.basis)

    # One sample: y (1, 4) times basis (4, 3): 4 + 12 floats read, 3 written; backward reads 3 + 4 + 12, writes 4 + 12.
    graph = trace(Project(), torch.zeros(4, 8))
    note = next(note for note in graph.notes if "no FLOP formula" in note).replace(".0 B", " B")
    assert "rostam_test.product.default (76 B), rostam_test.product_backward.default (140 B)" in note


def test_a_registered_op_costs_and_splits_as_told() -> None:
    register_op(
        "rostam_test::product",
        flops=lambda x, weight, out: 2 * x.numel() * weight.shape[1],
        bytes=lambda x, weight, out: (100 * x.shape[0], 7),
        splits=[("sample", (0, None), (0,)), ("column", (None, 1), (1,)), ("row", (1, 0), ("partial",))],
        role="product",
    )
    register_op("rostam_test.product_backward", flops=11)
    graph = trace(Custom(), torch.zeros(4, 8))
    forward = next(op for op in graph.ops if op.op_type == "rostam_test.product.default")
    assert forward.flops == Affine(0, 2 * 8 * 6)
    assert op_family(forward.op_type, forward.role) == "matmul"
    assert (forward.bytes_read, forward.bytes_written) == (Affine(0, 100), Affine(7))
    found = {(s.kind, s.input_dims, s.output_dims, s.size) for s in forward.splits}
    assert found == {
        ("sample", (0, WHOLE), (0,), Affine(0, 1)),
        ("column", (WHOLE, 1), (1,), Affine(6)),
        ("row", (1, 0), (PARTIAL,), Affine(8)),
    }
    backward = next(op for op in graph.ops if op.op_type == "rostam_test.product_backward.default")
    assert backward.flops == Affine(11)
    assert backward.bytes_read == Affine(4 * 8 * 6, 4 * (6 + 8))
    assert not any("no FLOP formula" in note for note in graph.notes)


class Opaque(nn.Module):
    """A layer of a weight (8, 6) that runs on real memory only."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() @ self.kernel.detach().numpy().T)


class Plain(nn.Module):
    """What stands in for Opaque."""

    def __init__(self, opaque: Opaque) -> None:
        super().__init__()
        self.weight = opaque.kernel

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_registered_module_is_traced_by_its_stand_in(by_name: bool) -> None:
    module = nn.Sequential(Opaque(), nn.Linear(6, 2, bias=False))
    with pytest.raises(TracingError, match="module '0'"):
        trace(module, torch.zeros(4, 8))
    register_module(f"{__name__}.Opaque" if by_name else Opaque, Plain)
    graph = trace(module, torch.zeros(4, 8))
    assert graph.num_parameters == 8 * 6 + 6 * 2
    products = [op for op in graph.ops if op.op_type == "aten.mm.default" and op.phase == "forward"]
    assert [op.module for op in products] == ["0", "1"]
    assert isinstance(module[0], Opaque)
    register_module(Opaque, lambda opaque: 3)
    with pytest.raises(TracingError, match=r"stand-in registered for Opaque.*not a module"):
        trace(module, torch.zeros(4, 8))


def test_what_cannot_be_registered_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ConfigError, match="'library::op'"):
        register_op("product", flops=1)
    with pytest.raises(ConfigError, match=r"split kind is 'rows'; allowed: sample"):
        register_op("a::b", flops=1, splits=[("rows", (0,), (0,))])
    with pytest.raises(ConfigError, match=r"role is 'fast'; allowed: .*'product'"):
        register_op("a::b", flops=1, role="fast")
    with pytest.raises(ConfigError, match=r"flops is -1; it must be"):
        register_op("a::b", flops=-1)
    with pytest.raises(ConfigError, match=r"it must be a class or its name"):
        register_module("Opaque", Plain)
    with pytest.raises(ConfigError, match=r"stand_in is 3"):
        register_module(Opaque, 3)  # type: ignore[arg-type]


def test_grouped_products_count_every_row_once() -> None:
    # 3 experts of (16, 32), 24 rows sorted by expert: 2 * 24 * 16 * 32 FLOPs forward, twice that backward.
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 16, 32, dtype=torch.bfloat16))

        def forward(self, x: Tensor) -> Tensor:
            rows = torch.histc(x[:, 0].float(), bins=3)
            offsets = rows.cumsum(0, dtype=torch.int32)
            return torch._grouped_mm(x * self.weight[0, 0, 0], self.weight, offs=offsets)

    graph = trace(Grouped(), torch.zeros(24, 16, dtype=torch.bfloat16))
    flops = {
        phase: [op.flops for op in graph.ops if "_grouped_mm" in op.op_type and op.phase == phase]
        for phase in ("forward", "backward")
    }
    assert flops["forward"] == [Affine(0, 2 * 16 * 32)]
    assert flops["backward"] == [Affine(0, 2 * 16 * 32)] * 2
