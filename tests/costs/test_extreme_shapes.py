"""Properties of calibrated times on every accelerator with a table, far inside and far outside what was measured."""

import itertools
import math

import numpy as np
import pytest

from rostam_py.costs import ACCELERATORS, make_cost_model
from rostam_py.costs.kernel_kinds import KERNEL_KINDS, LAYOUTS
from rostam_py.costs.kernel_shapes import KernelQuestion
from rostam_py.costs.kernel_table import shipped_table
from tests.costs.conftest import build_linear_graph

MEASURED = [name for name in ACCELERATORS if shipped_table(name) is not None]
SIDES = (1, 3, 64, 129, 1024, 4095, 65536, 2**21)


def answered(cost, kind, sizes, precision="bf16"):
    """Return the time of a kernel of these sizes that does just its kind's work, and that work at the data sheet."""
    columns = {name: np.array([float(size)]) for name, size in zip(KERNEL_KINDS[kind].fields, sizes, strict=True)}
    flops = float(KERNEL_KINDS[kind].flops(columns)[0])
    moved = float(KERNEL_KINDS[kind].traffic(columns, 2.0)[0])
    found = cost.answers.answer(
        KernelQuestion(
            kind=kind, sizes=tuple(map(float, sizes)), precision=precision if flops else "", flops=flops, traffic=moved
        )
    )
    peak = cost.accelerator.peak(precision)
    return found.seconds, max(flops / peak, moved / cost.accelerator.memory_bandwidth_bytes_per_s)


def models():
    """Return a cost model of each accelerator with a table, and its 16-bit precision."""
    found = []
    graph = build_linear_graph()
    for name in MEASURED:
        cost = make_cost_model("calibrated", name, graph=graph)
        found.append((cost, "bf16" if "bf16" in cost.accelerator.peak_flops_per_s else "fp16"))
    return found


@pytest.mark.parametrize(("cost", "precision"), models(), ids=MEASURED)
def test_products_are_never_above_a_peak_nor_absurdly_below(cost, precision):
    layout = LAYOUTS.index("TN")
    for m, n, k in itertools.product(SIDES, SIDES[:6], SIDES[:6]):
        seconds, ideal_s = answered(cost, "product", (1, m, n, k, layout, 2), precision)
        assert seconds >= ideal_s, (m, n, k)
        # No kernel of real work takes 1,000 times its data sheet's time beyond 100 us of overheads: 1 x 1 x k included.
        assert seconds <= 1e-4 + 1000 * ideal_s, (m, n, k, seconds, ideal_s)


@pytest.mark.parametrize(("cost", "precision"), models(), ids=MEASURED)
def test_a_far_larger_product_never_takes_less(cost, precision):
    # Four times a side is past tile and wave effects: less time would be an artefact of the surface. Skinny products
    # are at the edge of what was measured, where sources change and differ: there it may take half as long.
    layout = LAYOUTS.index("TN")
    for place, (m, n, k) in itertools.product(range(3), itertools.product((32, 512, 4096), repeat=3)):
        larger = [m, n, k]
        larger[place] *= 4
        small, _ = answered(cost, "product", (1, m, n, k, layout, 2), precision)
        large, _ = answered(cost, "product", (1, *larger, layout, 2), precision)
        assert large >= (0.8 if min(m, n) >= 512 else 0.5) * small, (m, n, k, place)


@pytest.mark.parametrize(("cost", "precision"), models(), ids=MEASURED)
@pytest.mark.parametrize("kind", ["attention_forward", "attention_backward"])
def test_attention_is_bounded_and_grows_with_the_sequence(cost, precision, kind):
    for heads, size in ((1, 64), (32, 128), (128, 64)):
        before = 0.0
        for sequence in (1, 64, 1024, 4096, 16384, 131072):
            seconds, ideal_s = answered(cost, kind, (1, sequence, heads, heads, size, size), precision)
            assert ideal_s <= seconds <= 1e-3 + 100 * ideal_s, (sequence, heads, size)
            assert seconds >= 0.8 * before
            before = seconds


@pytest.mark.parametrize(("cost", "precision"), models(), ids=MEASURED)
def test_attention_of_few_heads_is_bounded_by_its_busiest_multiprocessor(cost, precision):
    # The last 64 queries of a head attend to all keys, on one multiprocessor; 64 is the smaller block of
    # FlashAttention-2. An H100 took 13 us for one head of 4,096, and 2.45 times as long for four heads as for two.
    for sequence, size in ((2048, 128), (4096, 128), (4096, 64)):
        block_s = 4.0 * 64 * sequence * size / (cost.accelerator.peak(precision) / cost.accelerator.multiprocessors)
        before = math.inf
        for heads in (1, 2, 4, 8, 16):
            seconds, _ = answered(cost, "attention_forward", (1, sequence, heads, heads, size, size), precision)
            assert seconds >= block_s
            assert seconds <= 2.1 * before, (sequence, size, heads)
            before = seconds


@pytest.mark.parametrize(("cost", "precision"), models(), ids=MEASURED)
def test_backward_attention_takes_longer_than_forward_at_any_size(cost, precision):
    # It multiplies five times, forward twice. Extrapolated apart, an A100's took less below what was measured, and a
    # B200's of one token seven times as long.
    for sequence, heads, size in itertools.product((1, 64, 512, 2048, 8192), (1, 4, 16, 64), (64, 128)):
        shape = (1, sequence, heads, heads, size, size)
        forward, backward = (answered(cost, f"attention_{way}", shape, precision)[0] for way in ("forward", "backward"))
        assert 1.05 * forward <= backward <= 5 * forward, shape


@pytest.mark.parametrize(("cost", "precision"), models(), ids=MEASURED)
def test_streams_are_bounded_and_grow_with_their_bytes(cost, precision):
    before = 0.0
    for size in (1, 1e3, 1e5, 1e6, 1e7, 1e8, 1e9, 1e11):
        seconds, ideal_s = answered(cost, "elementwise", (size,), precision)
        assert ideal_s <= seconds <= 1e-4 + 3 * ideal_s
        assert seconds >= before
        before = seconds
