"""Utilisation of accelerators: FLOPs over peak x devices x time, by what counts as work (MODEL D15)."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from rostam_py.costs.precision import get_precision
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import Stage
from rostam_py.units import format_share

UTILIZATIONS = "MFU / causal MFU / HFU"
_ROUNDING = 1e-9  # by which a sum of kernels at the peak may exceed it


class Utilized(Protocol):
    """What has utilisations: a result, or a validated row."""

    @property
    def mfu(self) -> float: ...

    @property
    def mfu_causal(self) -> float | None: ...

    @property
    def hfu(self) -> float | None: ...


def utilization(plan: Plan, iteration_s: float) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """Return ``mfu``, ``mfu_causal`` and ``hfu`` of a plan, and what to know of them.

    Model: FLOPs of matrix products and all else over the peak of the plan's precision, of all devices. MFU: the
        model's, attention whole (PaLM, appendix B). mfu_causal: half of attention's where its mask is causal. HFU: what
        kernels run, replays among them; at most 1, so that it is None where times are published or measured ones that
        the accelerator cannot reach.
    """
    peak = plan.machine.device.peak(get_precision(plan.precision).matrix_peak)
    available = peak * plan.num_devices * iteration_s
    counts = np.bincount(plan.stage_of, minlength=len(plan.stages)).tolist()
    shares = [_total(plan.stages, counts, what) for what in ("flops", "causal_flops", "hardware_flops")]
    mfu, causal, hfu = (None if work is None else work / available for work in shares)
    notes: tuple[str, ...] = ()
    if hfu is not None and hfu > 1 + _ROUNDING:
        notes = (
            f"HFU is not known: kernels run {hfu:.1%} of what {plan.machine.device.name} can in"
            f" {plan.precision} in their times, which are of another precision or another accelerator",
        )
        hfu = None
    elif hfu is not None:
        hfu = min(hfu, 1.0)
    return {"mfu": mfu, "mfu_causal": causal, "hfu": hfu}, notes


def utilization_words(result: Utilized, slowdown: float = 1.0) -> str:
    """Return a result's utilisations, in the order of ``UTILIZATIONS``.

    Args: slowdown: of iterations that take this many times as long.
    """
    shares = (result.mfu, result.mfu_causal, result.hfu)
    return " / ".join(format_share(None if one is None else one / slowdown) for one in shares)


def _total(stages: Iterable[Stage], counts: list[int], what: str) -> float | None:
    """Return the sum over devices; stages that as many devices run are added up first."""
    alike: dict[int, list[Any]] = {}
    for stage, count in zip(stages, counts, strict=True):
        alike.setdefault(count, []).append(getattr(stage, what))
    if any(one is None for found in alike.values() for one in found):
        return None
    return float(sum(sum(found) * count for count, found in alike.items()))
