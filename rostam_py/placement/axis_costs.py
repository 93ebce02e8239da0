"""Costs of a plan's communication on one fabric: collectives of every axis, messages between stages."""

from typing import Any

import numpy as np

from rostam_py.collectives.group_costs import GroupCosts, link_seconds, message_costs, schedule_costs
from rostam_py.collectives.rank_groups import ScheduleKey, in_grid_order, in_server_order
from rostam_py.collectives.transport import message_transport, transport
from rostam_py.plan import Plan
from rostam_py.plan.traffic import schedule_of

ALL_STAGES = -1
_OF_STATE = ("dp", "zero")  # kinds of groups


class AxisCosts:
    """Alpha-beta costs of all axes of a plan on a fabric; each is routed once, when first asked for.

    Model: all process groups of the tp axis, and of a tied set, run at once; of those that reduce gradients or gather
        weights (dp and its parts, zero) the ones of one stage or those of all. ``contention`` says what collectives of
        two axes do to each other.
    Args: fabric: with circuits set where it is circuit-switched. shared: costs of other plans on this fabric, filled
        and used; equal groups cost the same whatever the plan.
    """

    def __init__(self, plan: Plan, fabric: Any, routing: str, shared: dict[Any, Any]) -> None:
        self._plan, self._fabric, self._routing, self._shared = plan, fabric, routing, shared
        self._schedules: dict[tuple[str, str, int], ScheduleKey] = {}
        self._groups: dict[tuple[str, int, bool], np.ndarray] = {}
        self._collectives: dict[tuple[str, int, ScheduleKey], GroupCosts] = {}
        self._times: dict[tuple[str, int, str, int], float] = {}
        self._messages: dict[tuple[int, int], tuple[float, float]] = {}
        self._of_state: dict[str, bool] = {}

    def collective_s(self, stage: int, axis: str, collective: str, num_bytes: int) -> float:
        """Return the time of one collective [s].

        Args: stage: of collectives of the state, concurrent with the groups of this stage; ALL_STAGES for all of them.
        """
        key = (axis, self._stage(axis, stage), collective, num_bytes)
        if key not in self._times:
            schedule = self._schedule(axis, collective, num_bytes)
            how = transport(self._fabric, schedule, num_bytes)
            self._times[key] = self._costs(key[0], key[1], schedule).time_s(num_bytes, how)
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
            self._messages[key] = self._started(self._shared[name], src, dst)
        return self._messages[key]

    def _started(self, costs: tuple[float, float], src: np.ndarray, dst: np.ndarray) -> tuple[float, float]:
        """Return alpha and beta with what starting a message costs; it has the fewest channels here."""
        per_server = self._fabric.config.accelerators_per_server
        inside = src // per_server == dst // per_server
        how = message_transport(self._fabric, 1, self._plan.accelerators.shape[1], is_both_ways=True)
        alpha = costs[0] + how.startup_s + (how.server_hop_s if inside.all() else how.network_hop_s)
        return alpha, max(costs[1], 1 / how.server_rate if inside.any() else 0.0)

    def is_of_state(self, axis: str) -> bool:
        """Tell whether an axis' groups reduce gradients or gather weights: each lies within a stage."""
        if axis not in self._of_state:
            self._of_state[axis] = self._plan.group_set(axis).kind in _OF_STATE
        return self._of_state[axis]

    def contention(self, stage: int, one: tuple[str, str, int, float], other: tuple[str, str, int, float]) -> float:
        """Return how much longer collectives of one axis take during another's, relative: 1 if each alone fills a link.

        Args: of each the axis, a collective, its bytes, and the bytes of buffers that go through in a second while the
            axis runs alone.
        """
        keys = [self._schedule(*of[:3]) for of in (one, other)]
        places = [(of[0], self._stage(of[0], stage), key) for of, key in zip((one, other), keys, strict=True)]
        name = ("contention", *keys, *(self._group(*place).tobytes() for place in places))
        if name not in self._shared:
            busy = np.stack([self._busy(*place) for place in places])
            self._shared[name] = np.unique(busy[:, (busy > 0).all(axis=0)], axis=1)
        shared_links = self._shared[name]
        if not shared_links.size:
            return 0.0
        return max(0.0, float((shared_links[0] * one[3] + shared_links[1] * other[3]).max()) - 1)

    def _stage(self, axis: str, stage: int) -> int:
        return stage if self.is_of_state(axis) else ALL_STAGES

    def _schedule(self, axis: str, collective: str, num_bytes: int) -> ScheduleKey:
        """Return what a collective runs."""
        key = (axis, collective, num_bytes)
        if key not in self._schedules:
            self._schedules[key] = schedule_of(self._plan, axis, collective, num_bytes)
        return self._schedules[key]

    def _busy(self, axis: str, stage: int, schedule: ScheduleKey) -> np.ndarray:
        groups = self._group(axis, stage, schedule)
        return link_seconds(self._fabric, schedule, groups, routing=self._routing)

    def _costs(self, axis: str, stage: int, schedule: ScheduleKey) -> GroupCosts:
        key = (axis, stage, schedule)
        if key not in self._collectives:
            groups = self._group(*key)
            name = (schedule, groups.shape, groups.tobytes())
            if name not in self._shared:
                self._shared[name] = schedule_costs(self._fabric, schedule, groups, routing=self._routing)
            self._collectives[key] = self._shared[name]
        return self._collectives[key]

    def _group(self, axis: str, stage: int, schedule: ScheduleKey) -> np.ndarray:
        """Return the groups that run at once in the order of the schedule's ranks, int array (groups, ranks)."""
        is_on_grid = bool(schedule.grid)
        key = (axis, stage, is_on_grid)
        if key not in self._groups:
            stages = [stage] if stage != ALL_STAGES else self._talking(axis)
            groups = np.concatenate([self._plan.members(axis, s) for s in stages])
            groups = (in_grid_order if is_on_grid else in_server_order)(self._fabric, groups)
            self._groups[key] = groups
        return self._groups[key]

    def _talking(self, label: str) -> list[int]:
        """Return stages whose devices together are in all groups that run collectives, each group once.

        In a deep pipeline some stages have nothing to reduce; groups that span stages count at their first rank's.
        """
        found = {stage for of, stage, _, _ in self._plan.volumes.collectives if of == label}
        return sorted(found)
