"""Costs of a plan's communication on one fabric: collectives of every axis, messages between stages."""

from typing import Any

import numpy as np

from rostam_py.fabrics.group_costs import GroupCosts, group_costs, message_costs
from rostam_py.fabrics.rank_groups import group_size, unit_size
from rostam_py.placement import Plan


class AxisCosts:
    """Alpha-beta costs of all axes of a plan on a fabric; each axis is routed once, when first asked for.

    Model: all process groups of an axis run at once; axes do not share links with each other.
    Args: fabric: with circuits set where it is circuit-switched. shared: costs of other plans on this fabric, filled
        and used; equal groups cost the same whatever the plan.
    """

    def __init__(self, plan: Plan, fabric: Any, routing: str, shared: dict[Any, Any]) -> None:
        self._plan, self._fabric, self._routing, self._shared = plan, fabric, routing, shared
        self._collectives: dict[tuple[str, str], GroupCosts] = {}
        self._times: dict[tuple[str, str, int], float] = {}
        self._messages: dict[tuple[int, int], tuple[float, float]] = {}

    def collective_s(self, axis: str, collective: str, num_bytes: int) -> float:
        """Return the time of one collective of an axis [s]."""
        key = (axis, collective, num_bytes)
        if key not in self._times:
            self._times[key] = self._costs(axis, collective).time_s(num_bytes)
        return self._times[key]

    def message(self, stage: int, peer: int) -> tuple[float, float]:
        """Return (alpha [s], beta [s per byte]) of messages from a stage to another, all replicas' at once."""
        key = (stage, peer)
        if key not in self._messages:
            ids = self._plan.accelerators
            src, dst = ids[:, stage, :].ravel(), ids[:, peer, :].ravel()
            name = ("message", src.tobytes(), dst.tobytes())
            if name not in self._shared:
                self._shared[name] = message_costs(self._fabric, src, dst, routing=self._routing)
            self._messages[key] = self._shared[name]
        return self._messages[key]

    def _costs(self, axis: str, collective: str) -> GroupCosts:
        key = (axis, collective)
        if key not in self._collectives:
            groups = np.stack(self._plan.groups(axis))
            algorithm = self._plan.algorithms.get(collective, "ring")
            name = (collective, algorithm, groups.shape, groups.tobytes())
            if name not in self._shared:
                self._shared[name] = self._route(axis, collective, algorithm, groups)
            self._collectives[key] = self._shared[name]
        return self._collectives[key]

    def _route(self, axis: str, collective: str, algorithm: str, groups: np.ndarray) -> GroupCosts:
        # Of a unit's consecutive accelerators a group holds as many as its axis is dense there.
        strategy = self._plan.strategy
        stride = {"tp": 1, "dp": strategy.tp * strategy.pp}.get(axis, 1)
        unit = 1
        if algorithm == "hierarchical":
            unit = group_size(groups.shape[1], max(1, unit_size(self._fabric) // stride))
        return group_costs(self._fabric, collective, algorithm, groups, unit=unit, routing=self._routing)
