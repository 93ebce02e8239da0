"""Rates that accelerators hold at their power limits."""

import math

import pytest

from calibration import sustained
from rostam_py.costs import ACCELERATORS, make_cost_model
from rostam_py.costs.model import KernelCall
from rostam_py.costs.sustained import RATES, sustained_rates
from rostam_py.errors import ConfigError
from tests.costs.conftest import build_linear_graph


def product(accelerator, clocks, m=8192, n=8192, precision="bf16_mixed"):
    """Rate of an m x n x n product [TFLOP/s], and the run's note."""
    graph = build_linear_graph(n, n)
    op = graph.ops[0]
    cost = make_cost_model("calibrated", accelerator, graph=graph, clocks=clocks)
    call = KernelCall(
        ops=(op,), flops=op.flops.at(m), bytes_read=4.0 * n * n, bytes_written=4.0 * m * n, batch=m, precision=precision
    )
    return call.flops / cost.duration_s(call) / 1e12, cost.notes()[0]


def test_shipped_rates_are_what_the_measurements_give(tmp_path):
    assert sustained.write(tmp_path / "rates.json").read_bytes() == RATES.read_bytes()


def test_no_product_is_above_the_rate_that_is_held():
    # 4096 x 6144 x 6144 on an H100: 782 to 793 TFLOP/s timed one by one; 755.5 is held at 700 W.
    burst, note = product("h100_80gb", "burst", m=4096, n=6144)
    assert burst > 770
    assert "sustained" not in note
    held, note = product("h100_80gb", "sustained", m=4096, n=6144)
    assert held == pytest.approx(755.5, rel=1e-9)
    assert note.startswith("calibrated matmul kernels: 1 interpolated with rows of h200_141gb above the sustained rate")


def test_slower_products_stay_as_they_were_timed():
    small = [product("h200_141gb", clocks, m=512, n=1024)[0] for clocks in ("burst", "sustained")]
    assert small[0] == small[1] < 700


def test_same_die_holds_the_same_and_less_power_less():
    rates = sustained_rates()
    # A B200 holds 1,437.5 TFLOP/s of bf16 at 1,000 W, and reaches 1,087.7 where it is locked to 750.
    exponent = math.log(1087.7 / 1437.5) / math.log(750 / 1000)
    assert rates.held_exponent == pytest.approx(exponent, rel=1e-3)
    held = {name: rates.rate(ACCELERATORS[name], "bf16") for name in ("h200_141gb", "h100_80gb", "h100_96gb")}
    assert held["h100_80gb"] == held["h200_141gb"] == 755.5e12
    assert held["h100_96gb"] == pytest.approx(755.5e12 * (500 / 700) ** exponent, rel=1e-3)
    # What the exponent was not taken from: an H100, taken to be of 500 W, reaches 568.5 TFLOP/s (4,096^3); a GB300
    # reaches 1,600 to 2,174 at 1,400 W and 617 at 500.
    assert held["h100_96gb"] == pytest.approx(568.5e12, rel=0.05)
    assert 1600 < 1437.5 * (1400 / 1000) ** exponent < 2174
    assert 1437.5 * (500 / 1000) ** exponent == pytest.approx(617, rel=0.2)


def test_arithmetic_below_the_held_rate_follows_the_limit_less():
    rates = sustained_rates()
    # Two A100s of 400 and 300 W reach 271.2 and 252.9 TFLOP/s in short runs: 0.933 for 0.75 of the power.
    assert rates.exponent == pytest.approx(math.log(252.9 / 271.2) / math.log(300 / 400), rel=1e-3)
    # What the exponent was not taken from: a GH200 of 900 W and an H100 of 700 W reach 828.6 and 794.5.
    assert (900 / 700) ** rates.exponent == pytest.approx(828.6 / 794.5, rel=0.03)


def test_a_lower_limit_slows_what_is_lent_where_power_is_not_modelled_and_memory_never():
    # Of h100_96gb, of 500 W, power is: its kernels are timed as the H100's of 700 W, and steps of them are slowed
    # (tests/simulation/test_power.py). Of a part whose power is not, arithmetic is slower by 0.714^0.243 = 0.922.
    rates = sustained_rates()
    fast, slow = (product(name, "sustained", precision="fp8_mixed")[0] for name in ("h100_80gb", "h100_96gb"))
    assert slow == pytest.approx(fast, rel=1e-9)
    less = rates.slowed(ACCELERATORS["h100_96gb"], ACCELERATORS["h100_80gb"])
    assert less == pytest.approx((500 / 700) ** rates.exponent)
    same = [product(name, "burst", precision="fp8_mixed")[0] for name in ("h100_80gb", "h100_96gb")]
    assert same[0] == pytest.approx(same[1], rel=1e-9)
    assert rates.slowed(ACCELERATORS["h100_80gb"], ACCELERATORS["h100_96gb"]) == 1.0  # more power: as it was timed
    assert rates.slowed(ACCELERATORS["a100_80gb"], ACCELERATORS["h100_80gb"]) == 1.0  # another die
    graph = build_linear_graph(4096, 4096)
    moved = 2.0**30
    times = [
        make_cost_model("calibrated", name, graph=graph).duration_s(
            KernelCall(
                ops=(graph.ops[1],), flops=0.0, bytes_read=moved, bytes_written=0.0, batch=8, precision="bf16_mixed"
            )
        )
        for name in ("h100_80gb", "h100_96gb")
    ]
    assert times[1] / times[0] == pytest.approx(3350 / 2400, rel=0.01)


def test_fp8_keeps_the_share_that_bf16_keeps_of_short_runs():
    rates = sustained_rates()
    # short runs: 1,453.4 of fp8 and 794.5 of bf16 on H200, 3,432.5 and 1,745 on B200; bf16 is held at 755.5 and 1,437.5
    assert rates.rate(ACCELERATORS["h100_80gb"], "fp8") == pytest.approx(1453.4e12 * 755.5 / 794.5, rel=1e-3)
    assert rates.rate(ACCELERATORS["b200_180gb"], "mxfp8") == pytest.approx(3432.5e12 * 1437.5 / 1745, rel=1e-3)
    assert product("h100_80gb", "sustained", precision="fp8_mixed")[0] == pytest.approx(1382, rel=1e-3)
    assert product("h100_80gb", "burst", precision="fp8_mixed")[0] > 1450


def test_what_nobody_measured_is_not_limited():
    rates = sustained_rates()
    assert rates.rate(ACCELERATORS["h100_80gb"], "fp32") is None
    assert rates.rate(ACCELERATORS["b200_180gb"], "nvfp4") is None
    assert rates.rate(ACCELERATORS["gb200_186gb"], "bf16") is None
    assert rates.rate(ACCELERATORS["gb200_186gb"], "fp8") is None
    assert rates.rate(ACCELERATORS["v100_32gb"], "fp16") is None
    assert rates.rate(ACCELERATORS["b200_180gb"], "fp16") == 1437.5e12


def test_unknown_clocks_are_refused():
    with pytest.raises(ConfigError, match=r"cost.clocks is 'boost'; it must be one of sustained, burst"):
        make_cost_model("calibrated", "h100_80gb", graph=build_linear_graph(), clocks="boost")


def test_limits_of_a_held_product_are_its_duration():
    from rostam_py.costs.limits import Speeds

    graph = build_linear_graph(6144, 6144)
    op = graph.ops[0]
    cost = make_cost_model("calibrated", "h100_80gb", graph=graph)
    call = KernelCall(
        ops=(op,), flops=op.flops.at(4096), bytes_read=1e8, bytes_written=1e8, batch=4096, precision="bf16_mixed"
    )
    assert cost.limits(call).duration_s(Speeds()) == pytest.approx(cost.duration_s(call), rel=1e-12)
    assert cost.duration_s(call) == pytest.approx(call.flops / 755.5e12, rel=1e-9)
