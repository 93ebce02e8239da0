"""Products and the collectives of their tensor-parallel group, on 8 H100s of a server: published times, and ours.

One after the other they are cuBLAS and NCCL as torch calls them; beside each other Transformer Engine's ring exchange.
Nothing is calibrated on any of these.
Sources: bytedance/flux, issue 90 (GEMM and reduce-scatter, N = 8,192, K = 28,672 over 8; its 1,024 rows, 0.18 ms of
which some 25 us are neither, are left out); pytorch/pytorch, pull request 143160 (all-gather and GEMM); NVIDIA/Fuser,
pull request 5259, by samnordmann/ddlb, whose TPColumnwise multiplies gathered A (m, k) by all of B (k, n).
"""

import pytest

import rostam_py as rostam
from rostam_py.costs import ACCELERATORS
from rostam_py.costs.calibrated import CalibratedCost
from rostam_py.costs.kernel_kinds import LAYOUTS
from rostam_py.costs.kernel_shapes import KernelQuestion
from rostam_py.graph import OperatorGraph

RANKS = 8


@pytest.fixture(scope="module")
def cost():
    return CalibratedCost(CalibratedCost.Config(), ACCELERATORS["h100_80gb"], OperatorGraph("", (), ()))


@pytest.fixture(scope="module")
def fabric():
    return rostam.machine("dgx_h100", servers=1).fabric


def product_s(cost, m, n, k):
    sizes = (1.0, float(m), float(n), float(k), float(LAYOUTS.index("TN")), 2.0)
    return cost.seconds(
        KernelQuestion(
            kind="product", sizes=sizes, precision="bf16", flops=2.0 * m * n * k, traffic=2.0 * (m * k + k * n + m * n)
        )
    )


def moved_s(cost, num_bytes):
    return cost.seconds(
        KernelQuestion(kind="elementwise", sizes=(float(num_bytes),), precision="", flops=0.0, traffic=float(num_bytes))
    )


def collective_s(fabric, kind, num_bytes):
    return rostam.run_collective(fabric, kind, num_bytes=num_bytes).time_s


@pytest.mark.parametrize(
    ("rows", "measured_ms", "within"),
    [(2048, 0.2895, 0.06), (4096, 0.54225, 0.05), (8192, 1.04, 0.02), (16384, 2.01063, 0.03), (32768, 3.978, 0.03)],
)
def test_a_product_and_its_reduce_scatter_one_after_the_other(cost, fabric, rows, measured_ms, within):
    found = product_s(cost, rows, 8192, 28672 / RANKS) + collective_s(fabric, "reduce_scatter", 2 * rows * 8192)
    assert 1e3 * found == pytest.approx(measured_ms, rel=within)


def test_an_all_gather_and_its_product_one_after_the_other(cost, fabric):
    found = collective_s(fabric, "all_gather", 2 * 2048 * 8192) + product_s(cost, 2048, 3584, 8192)
    assert found == pytest.approx(301e-6, rel=0.08)


def test_parts_on_two_streams_take_longer_than_one_after_the_other(cost):
    # The same pull request: 354 us in 8 parts on two streams, so that nothing is taken off parts that may overlap.
    parts_s = RANKS * product_s(cost, 2048 / RANKS, 3584, 8192)
    assert product_s(cost, 2048, 3584, 8192) < parts_s < 354e-6


def test_ring_exchange_beside_one_after_the_other(cost, fabric):
    m, k, n = 32768, 16384, 8192
    whole_s = product_s(cost, m, n, k)
    gathered = 2 * m * k

    def tflops(found_s):
        return 2 * m * n * k / found_s * 1e-12

    plain_s = collective_s(fabric, "all_gather", gathered) + whole_s
    assert tflops(plain_s) == pytest.approx(560, rel=0.02)
    # Transformer Engine: a copy into the buffer, then parts, which hide the ring.
    part_s = product_s(cost, m / RANKS, n, k)
    assert gathered / RANKS / fabric.config.server_bytes_per_s < part_s
    ring_s = moved_s(cost, 2 * gathered / RANKS) + RANKS * max(part_s, whole_s / RANKS)
    assert tflops(ring_s) == pytest.approx(660, rel=0.05)
    assert tflops(RANKS * part_s) > 1.1 * 660  # parts at the clocks of short products
