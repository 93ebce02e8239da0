"""What compute rests on: shares by hand."""

import pytest

import rostam_py as rostam
from rostam_py.costs import make_cost_model
from rostam_py.costs.limits import BY_ROOFLINE, KernelLimits
from rostam_py.plan import KernelTime
from rostam_py.spread.bases import GIVEN, compute_by_basis
from tests.spread.hand import A100, compute, copy, plan, product


class MeasuredCopies:
    """Times as the roofline's; copies say that they are measured."""

    def __init__(self):
        self.inner = make_cost_model("roofline", A100, ramp_time=0.0, min_kernel_time=0.0)

    def duration_s(self, call):
        return self.inner.duration_s(call)

    def limits(self, call):
        found = self.inner.limits(call)
        return KernelLimits(found.family, found.arithmetic_s, found.memory_s, basis="interpolated")

    def notes(self):
        return []


def test_compute_is_divided_by_what_its_kernels_rest_on_as_by_hand():
    given = KernelTime(name="work", module="", op_type="hand", duration_s=0.003)
    kernels = [copy(0.010, MeasuredCopies()), product(0.040), given, copy(0.020, MeasuredCopies())]
    found = compute_by_basis(rostam.simulate(plan([compute(*kernels)])))
    assert found == pytest.approx({BY_ROOFLINE: 0.040, "interpolated": 0.030, GIVEN: 0.003}, rel=1e-9)
    assert list(found) == [BY_ROOFLINE, "interpolated", GIVEN]


def test_given_times_rest_on_nothing_that_could_be_said():
    assert (
        compute_by_basis(
            rostam.simulate(plan([compute(KernelTime(name="work", module="", op_type="hand", duration_s=0.003))]))
        )
        == {}
    )
