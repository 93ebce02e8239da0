"""Casts of torchao as PyTorch's compiler makes them: what each kernel moves, at what rate, by hand.

An input of 16 bits of A bytes; its copies of 8 bits have A / 2.
"""

import pytest

from rostam_py.costs import ACCELERATORS
from rostam_py.costs.precision import get_precision
from rostam_py.costs.row_scales import row_scaled_seconds
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy
from rostam_py.software.product_inputs import CastInput, CastTraffic, cast_inputs
from rostam_py.tracing import trace

TENSOR, ROWS = get_precision("fp8_mixed"), get_precision("fp8_row_mixed")
TILED, SCATTERED = 2.2 / 1.4, 2.1 / 0.65


@pytest.mark.parametrize(
    ("one", "gathered", "kernels"),
    [
        # Rows alone: as elsewhere, a read for the largest value and one for the cast.
        (CastInput(True, False), False, [CastTraffic(2, 1)]),
        # Read by three weights' gradients: a copy by columns for each, from the kernel that casts.
        (CastInput(True, True, num_columns=3), False, [CastTraffic(1, 0), CastTraffic(1, 4, pace=TILED)]),
        # Cast by those that hold it, gathered, and transposed behind.
        (CastInput(True, True, num_columns=2), True, [CastTraffic(2, 1), CastTraffic(0, 0, 1, 2, TILED)]),
    ],
)
def test_kernels_of_a_scale_for_each_tensor(one, gathered, kernels):
    assert list(one.compiled(TENSOR, True, is_gathered=gathered)) == kernels


@pytest.mark.parametrize(
    ("one", "kernels"),
    [
        (CastInput(True, False), [CastTraffic(1, 1)]),
        (CastInput(False, True, num_columns=3), [CastTraffic(1, 0), CastTraffic(1, 3, pace=TILED)]),
        # A gradient of results: by rows and by columns from a kernel that works through rows.
        (CastInput(True, True, is_gradient=True), [CastTraffic(1, 0), CastTraffic(1, 2, pace=SCATTERED)]),
    ],
)
def test_kernels_of_a_scale_for_each_row(one, kernels):
    assert list(one.compiled(ROWS, True)) == kernels


def test_columns_are_counted_by_the_products_that_read_them():
    graph = trace("gpt_125m", num_layers=2)
    found = cast_inputs(graph, by_product=True)
    assert {one.num_columns for (phase, _), one in found.items() if phase == "backward" and one.by_columns} == {1}
    llama = trace("llama3_8b", num_layers=2)
    columns = [one.num_columns for (_, _), one in cast_inputs(llama).items() if one.by_columns and not one.is_gradient]
    assert sorted(columns) == sorted([3, 1, 2, 1] * 2)  # of q, k, v; proj; gate, up; down


def test_row_scales_take_their_instructions():
    # 150 instructions for each of 402,653,184 elements, 128 a cycle on 132 multiprocessors at 1.83 GHz: 1.95 ms.
    expected = 402_653_184 * 150 / (132 * 128 * 1.83e9)
    assert row_scaled_seconds(402_653_184, 132) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(1.953e-3, rel=1e-3)
    assert row_scaled_seconds(1e9, 0) == 0.0
    assert ACCELERATORS["h100_96gb"].multiprocessors == 132


def test_unknown_kernels_are_refused():
    with pytest.raises(ConfigError, match=r"cast_kernels is 'triton'.*library, inductor"):
        Strategy.of(cast_kernels="triton")
