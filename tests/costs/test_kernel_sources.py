"""Parts of one die answer alike: what was measured on one of them counts on all."""

import itertools

import numpy as np
import pytest

from rostam_py.costs import ACCELERATORS, make_cost_model
from rostam_py.costs.kernel_kinds import KERNEL_KINDS
from rostam_py.costs.kernel_shapes import KernelQuestion
from rostam_py.costs.kernel_sources import KernelSources, is_one_die, shipped
from rostam_py.costs.programs import programs_of
from rostam_py.graph import OperatorGraph

BYTES = {"bf16": 2.0, "fp8": 1.0, "tf32": 4.0, "fp32": 4.0}
PROGRAMS = programs_of("best")
PAIRS = [("h100_80gb", "h200_141gb"), ("h100_96gb", "h100_80gb"), ("h100_96gb", "h200_141gb"),
         ("a100_40gb", "a100_80gb")]  # slower, faster  # fmt: skip


def asked(kind, sizes, precision):
    columns = {name: np.array([size]) for name, size in zip(KERNEL_KINDS[kind].fields, sizes, strict=True)}
    flops, moved = KERNEL_KINDS[kind].flops(columns)[0], KERNEL_KINDS[kind].traffic(columns, BYTES[precision])[0]
    return KernelQuestion(kind=kind, sizes=sizes, precision=precision, flops=float(flops), traffic=float(moved))


def questions(precision):
    for batch, sequence, heads, shared in itertools.product((1.0, 8.0), (512.0, 2048.0, 16384.0), (8.0, 32.0), (1, 4)):
        for kind in ("attention_forward", "attention_backward") if precision != "fp8" else ():
            yield asked(kind, (batch, sequence, heads, heads / shared, 128.0, 128.0), precision)
    for m, n, k in itertools.product((256.0, 4096.0, 65536.0), (1024.0, 14336.0), (1024.0, 14336.0)):
        yield asked("product", (1.0, m, n, k, 1.0, 2.0), precision)
        yield asked("grouped_product", (8.0, m, n, k, 0.0, 2.0), precision)


def test_pairs_are_all_parts_of_one_die():
    alike = [pair for pair in itertools.combinations(ACCELERATORS.values(), 2) if is_one_die(*pair)]
    assert {frozenset(pair) for pair in PAIRS} == {frozenset(one.name for one in pair) for pair in alike}


@pytest.mark.parametrize(("slower", "faster"), PAIRS)
@pytest.mark.parametrize("precision", ["bf16", "fp8", "tf32", "fp32"])
def test_part_with_the_faster_memory_is_slower_at_nothing(slower, faster, precision):
    if precision not in ACCELERATORS[slower].peak_flops_per_s:
        pytest.skip(f"{slower} has none")
    graph = OperatorGraph("", (), ())
    costs = [make_cost_model("calibrated", name, graph=graph) for name in (slower, faster)]
    for one in questions(precision):
        if precision == "fp32" and one.kind.startswith("attention"):
            continue  # no table has it
        before, after = (cost.seconds(one) for cost in costs)
        assert after <= before * (1 + 1e-9), one


def test_source_that_measured_two_parts_counts_once_with_its_mean():
    # fp8: aiconfigurator's rows of H100 and H200 alone, so that the answer is the mean of both surfaces' times.
    one = asked("product", (1.0, 8192.0, 4096.0, 4096.0, 1.0, 2.0), "fp8")
    times = []
    for name in ("h100_80gb", "h200_141gb"):
        (series,) = (s for s in shipped(name).series if (s.kind, s.precision) == ("product", "fp8"))
        ideal = max(one.flops / 1978.9e12, one.traffic / 3350e9)
        times.append(series.ratios(one.columns, 132)[0] * (ideal + series.fit.fixed_s))
    cost = make_cost_model("calibrated", "h100_80gb", graph=OperatorGraph("", (), ()), clocks="burst")
    assert cost.seconds(one) == pytest.approx(np.sqrt(times[0] * times[1]), rel=1e-9)


def test_kernels_without_arithmetic_keep_their_own_rows():
    for name in ("a100_40gb", "a100_80gb"):
        sources = KernelSources(ACCELERATORS[name], shipped(name), PROGRAMS).of("elementwise", "")
        assert [one.lender for one in sources] == [""]


def lends(name, kind, norms="fused"):
    found = KernelSources(ACCELERATORS[name], shipped(name), programs_of("best", norms)).of(kind, "")
    return {(one.lender, one.series.kind, one.series.program) for one in found}


def test_element_wise_kernels_take_a_devices_own_casts_then_those_of_its_die():
    for name in ("h100_80gb", "h200_141gb", "b200_180gb", "gb300_288gb"):
        assert lends(name, "elementwise") == {("", "cast", "")}
    # An A100's bandwidth is nearer to its 2.4 TB/s, an H100 is the same die.
    assert lends("h100_96gb", "elementwise") == {("h100_80gb", "cast", "")}


def test_norms_are_those_of_the_programs_asked_for_wherever_they_were_measured():
    triton = {"liger", "inductor"}
    for name, lender in (("h100_80gb", ""), ("a100_80gb", ""), ("h200_141gb", "h100_80gb"), ("h100_96gb", "h100_80gb")):
        assert lends(name, "normalization") == {(lender, "normalization", one) for one in triton}
        assert lends(name, "normalization", "aten") == {(lender, "normalization", "aten")}
    # It has PyTorch's own alone, its die's other part Triton's.
    assert lends("a100_40gb", "normalization") == {("a100_80gb", "normalization", one) for one in triton}
    assert lends("a100_40gb", "normalization", "aten") == {("", "normalization", "aten")}
    assert lends("gb200_186gb", "normalization") == {("b200_180gb", "normalization", "cudnn")}


def test_table_of_the_users_own_answers_alone():
    own = shipped("h200_141gb")
    given = KernelSources(ACCELERATORS["h200_141gb"], own, PROGRAMS, is_given=True)
    assert {one.lender for one in given.of("product", "bf16")} == {""}
    assert {one.lender for one in given.of("attention_forward", "bf16")} == {""}
    # What it lacks is lent: backward attention, and a program without rows in it.
    assert {one.lender for one in given.of("attention_backward", "bf16")} == {"h100_80gb"}
    flash2 = KernelSources(ACCELERATORS["h200_141gb"], own, programs_of("flash2"), is_given=True)
    assert {one.lender for one in flash2.of("attention_forward", "bf16")} == {"h100_80gb"}
