"""EngineNetwork: what jobs that have a model take on their accelerators, alone and beside those that share their links.

Example:
    network = EngineNetwork(machine, {kind_of(job): template}, How(cost={}, routing="spray"))
    network.reference(kind_of(job), places)         # its iteration in the empty cluster [s]
    simulate_queue(jobs, places, order, Setting(network=network))

Model: a job's pace is its iteration in the empty cluster over its iteration now: on its own accelerators, beside the
jobs with which it shares links, and those with which they share some, and so on. Each such group is simulated once,
from a cold start of all, and its times are kept. Jobs without a model have no traffic.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError, RostamError
from rostam_py.fleet.job import Job
from rostam_py.fleet.mix import Baselines, simulate_mix
from rostam_py.fleet.place_mix import place_mix
from rostam_py.fleet.queueing.job import Kind, kind_of
from rostam_py.fleet.queueing.places.place import Places
from rostam_py.fleet.queueing.run import Run
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan

Member = tuple[Kind, tuple[int, ...]]  # a job's kind and its accelerators


@dataclass(frozen=True)
class How:
    """How iterations are simulated. cost: arguments of ``place_mix``; num_iterations: whose mean counts."""

    cost: Mapping[str, Any] = field(default_factory=dict)
    routing: str = "spray"
    seed: int = 0
    num_iterations: int = 3


@dataclass(frozen=True, slots=True)
class _Alone:
    """An iteration of a job that has the fabric to itself [s], and the links that it uses."""

    iteration_s: float
    links: frozenset[int]


class EngineNetwork:
    """Iteration times of jobs by the engine, each group of jobs simulated once.

    Args: templates: of each kind of job, accelerators left open.
    Source: own, tests/fleet/queueing/test_network.py.
    """

    def __init__(self, machine: Machine, templates: Mapping[Kind, Job], how: How) -> None:
        self._machine, self._templates, self._how = machine, templates, how
        self._placed: dict[Any, Any] = {}
        self._alone: dict[Member, _Alone] = {}
        self._groups: dict[tuple[Member, ...], tuple[float, ...]] = {}  # slow-downs
        self._baselines = Baselines()
        self._references: dict[Kind, float] = {}
        self._members: dict[int, Member] = {}  # of the jobs with a model that run
        self._paces: dict[int, float] = {}

    @property
    def num_groups(self) -> int:
        """Groups of several jobs that were simulated."""
        return len(self._groups)

    def reference(self, kind: Kind, places: Places) -> float:
        """Return a job's iteration on the accelerators that it gets in the empty cluster [s].

        Raises: ConfigError where they are too few or the job cannot be placed.
        """
        if kind not in self._references:
            place = places.take(kind[1])
            if place is None:
                raise ConfigError(f"fleet.jobs: a job of {kind[1]:,} accelerators has no room in the empty cluster")
            places.give_back(place)
            try:
                self._references[kind] = self._of((kind, place.accelerators())).iteration_s
            except RostamError as error:
                raise type(error)(f"fleet.jobs: a job of {kind[0]} on {kind[1]:,} accelerators: {error}") from error
        return self._references[kind]

    def paces(self, began: Sequence[Run], left: Sequence[Run], running: Iterable[Run]) -> Iterator[tuple[Run, float]]:
        """Yield the jobs whose pace changes, and their new one: work for each second."""
        has_changed = False
        for run in left:
            has_changed |= self._members.pop(run.number, None) is not None
            self._paces.pop(run.number, None)
        for run in began:
            kind = kind_of(run.job)
            if kind is not None and run.place is not None and not run.is_dead:
                self._members[run.number] = (kind, run.place.accelerators())
                self._paces[run.number] = 1.0
                has_changed = True
        if not has_changed:
            return
        by_number = {run.number: run for run in running if run.number in self._members}
        for group in self._sharing():
            for number, seconds in zip(group, self._times(group), strict=True):
                pace = self._references[self._members[number][0]] / seconds
                if pace != self._paces[number]:
                    self._paces[number] = pace
                    yield by_number[number], pace

    def _sharing(self) -> list[list[int]]:
        """Return the running jobs by groups that share links, each by kind and place."""
        first: dict[int, int] = {}  # link -> a job that uses it
        root = {number: number for number in self._members}

        def find(number: int) -> int:
            while root[number] != number:
                root[number] = root[root[number]]
                number = root[number]
            return number

        for number, member in self._members.items():
            for link in self._of(member).links:
                root[find(number)] = find(first.setdefault(link, number))
        groups: dict[int, list[int]] = {}
        for number in self._members:
            groups.setdefault(find(number), []).append(number)
        return [sorted(group, key=lambda number: self._members[number]) for group in groups.values()]

    def _times(self, group: list[int]) -> tuple[float, ...]:
        """Return the iteration of each job of a group [s]."""
        members = tuple(self._members[number] for number in group)
        alone = [self._of(member).iteration_s for member in members]
        if len(members) == 1:
            return tuple(alone)
        if members not in self._groups:
            self._groups[members] = self._slowdowns(members)
        return tuple(one * slow for one, slow in zip(alone, self._groups[members], strict=True))

    def _of(self, member: Member) -> _Alone:
        if member not in self._alone:
            kind, accelerators = member
            if len(accelerators) == 1 and (known := self._single(kind)) is not None:
                self._alone[member] = known  # wherever it is, it sends nothing
            else:
                self._alone[member] = self._simulated_alone(member)
        return self._alone[member]

    def _single(self, kind: Kind) -> _Alone | None:
        return next((one for (known, _), one in self._alone.items() if known == kind), None)

    def _slowdowns(self, members: tuple[Member, ...]) -> tuple[float, ...]:
        """Return each job's iteration beside the others over that alone, both by the plan that it has in the group.

        Model: jobs whose programs have different hosts are ideal beside one another (``place_mix``), so that times of
            a group and of a job alone are not compared.
        """
        jobs, plans = self._planned(members)
        how = self._how
        mix = simulate_mix(
            jobs, self._machine, plans=plans, routing=how.routing, seed=how.seed, num_iterations=how.num_iterations,
            baselines=False,
        )  # fmt: skip
        found = []
        for outcome, plan in zip(mix.jobs, plans, strict=True):
            alone = self._baselines.iteration_times_s(
                plan, routing=how.routing, seed=how.seed, num_iterations=how.num_iterations
            )
            found.append(fmean(outcome.iteration_times_s) / fmean(alone))
        return tuple(found)

    def _simulated_alone(self, member: Member) -> _Alone:
        jobs, plans = self._planned((member,))
        how = self._how
        mix = simulate_mix(
            jobs, self._machine, plans=plans, routing=how.routing, seed=how.seed, num_iterations=how.num_iterations,
            baselines=False,
        )  # fmt: skip
        outcome, result = mix.jobs[0], mix.results[0]
        expected = result.expected_iteration_s
        scale = 1.0 if expected is None else expected.middle / result.iteration_time_s
        links = frozenset(np.flatnonzero(result.link_bytes > 0).tolist())
        return _Alone(scale * fmean(outcome.iteration_times_s), links)

    def _planned(self, members: tuple[Member, ...]) -> tuple[list[Job], list[Plan]]:
        jobs = [
            replace(self._templates[kind], name=f"{kind[0]}_{k}", accelerators=accelerators)
            for k, (kind, accelerators) in enumerate(members)
        ]
        return jobs, place_mix(jobs, self._machine, host_size=1, placed=self._placed, **self._how.cost)
