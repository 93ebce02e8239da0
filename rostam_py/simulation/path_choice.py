"""Which of its single paths each pair of accelerators takes, all at once: what controllers of paths decide, by itself.

Example:
    found = assign_paths(fabric, src=[0, 1], dst=[40, 41], assigner="greedy")
    found.largest_load, found.job_shares      # 1.0, {0: 12.5e9}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed
from rostam_py.errors import ConfigError, UnknownNameError
from rostam_py.fabrics.fabric import Fabric, check_fabric
from rostam_py.simulation.network import make_router
from rostam_py.units import format_number_of, format_share

MAX_JOBS = 63  # of planned paths, a bit each in one signed number
_ROUTING = "hash"  # whose paths are single ones


@dataclass(frozen=True, repr=False)
class AssignedPaths:
    """A path for each pair, and what congestion control, sharing links max-min fairly, then gives them.

    paths: place of each pair's path among all it may take, in the order of the switches that they go through, int array
        (pairs,). rates: of each pair [bytes/s], float array. job_shares: job -> the least of its pairs' rates.
    largest_load: pairs on the busiest link that any pair has a choice about, in relation to the fastest link.
    bound: the least that any assignment can have there, where that is known.
    """

    paths: np.ndarray
    rates: np.ndarray
    job_shares: Mapping[int, float]
    largest_load: float
    bound: float | None = None

    @property
    def gap(self) -> float:
        """How much larger than the bound the largest load is, as a share of it; nan without a bound."""
        return self.largest_load / self.bound - 1 if self.bound else float("nan")

    def __repr__(self) -> str:
        gap = ""
        if self.bound:
            gap = f", at most {format_share(self.gap)} above the least" if self.gap > 0 else ", the least there is"
        return f"AssignedPaths({format_number_of(len(self.paths), 'pair')}, {self.largest_load:g} on one link{gap})"


@dataclass(frozen=True)
class Pairs:
    """Pairs of accelerators that send, and all of their paths.

    src, dst, job: int arrays (pairs,). core: the core's choice among their paths.
    """

    fabric: Fabric
    src: np.ndarray
    dst: np.ndarray
    job: np.ndarray
    core: Any = field(repr=False)

    @classmethod
    def of(cls, fabric: Fabric, src: Any, dst: Any, job: Any = None) -> "Pairs":
        """Return checked pairs.

        Args: src, dst: accelerators, lists or int arrays. job: of each pair, by default all 0.
        Raises: ConfigError; NoRouteError for a pair that is cut.
        """
        check_fabric(fabric)
        sources, targets = (
            _integers(key, values, fabric.num_accelerators) for key, values in (("src", src), ("dst", dst))
        )
        jobs = _integers("job", np.zeros(len(sources), int) if job is None else job, 2**31)
        for key, values in (("dst", targets), ("job", jobs)):
            if len(values) != len(sources):
                raise ConfigError(f"src has {len(sources)} entries and {key} {len(values)}; give both for every pair")
        failed = set(fabric.failures.accelerators)
        for accelerator in (one for ends in (sources, targets) for one in ends.tolist() if one in failed):
            raise ConfigError(f"src or dst holds accelerator {accelerator}, which has failed")
        for source in sources[sources == targets]:
            raise ConfigError(f"src and dst hold accelerator {source} as one pair; the ends of a pair must differ")
        core = _core.PathChoice(make_router(fabric, _ROUTING, has_events=True), sources, targets, jobs)
        return cls(fabric, sources, targets, jobs, core)

    def assigned(self, paths: Sequence[int], bound: float | None = None) -> AssignedPaths:
        """Return what an assignment gives the pairs. Raises: ConfigError for another number of paths than pairs."""
        found = self.core.shares(list(paths))
        return AssignedPaths(
            np.array(paths, int), np.array(found["rates"]), found["of_jobs"], found["largest_load"], bound
        )

    def planned(self, paths: Sequence[int]) -> list[int]:
        """Return the ``planned`` of controllers of paths for the time in which exactly these jobs send.

        Lists for other sets of jobs may follow each other. Raises: ConfigError for jobs above 62.
        """
        if int(self.job.max(initial=0)) >= MAX_JOBS:
            raise ConfigError(f"job holds {self.job.max()}; paths are planned for jobs 0 to {MAX_JOBS - 1}")
        mask = sum(1 << int(one) for one in np.unique(self.job))
        rows = zip(self.src.tolist(), self.dst.tolist(), paths, strict=True)
        return [number for source, target, path in rows for number in (mask, source, target, int(path))]


def _integers(key: str, values: Any, end: int) -> np.ndarray:
    found = check_integers(key, values)
    for value in found[(found < 0) | (found >= end)]:
        raise ConfigError(f"{key} holds {value}; it must be from 0 to {end - 1}")
    return found


def assigners() -> dict[str, str]:
    """Return what each registered assigner of paths does, in one line, by name."""
    return {name: _core.assigner_summary(name) for name in _core.assigner_names()}


def assign_paths(
    fabric: Fabric, *, src: Sequence[int], dst: Sequence[int], job: Sequence[int] | None = None,
    assigner: str = "greedy_by_sets", seed: int = 0,
) -> AssignedPaths:  # fmt: skip
    """Give every pair of accelerators one of its shortest paths.

    Args: fabric: with its failures; planes must be alike. src, dst: accelerators, one pair an entry, assigned in this
        order where an assigner has none of its own. job: of each pair, by default one job. assigner: rostam list
        assigners. seed: of those that draw.
    Raises: ConfigError for bad arguments, and for pairs that an assigner is not for; NoRouteError for a cut pair.
    Source: Cohen et al., "Routing for Large ML Models": greedy is algorithm 1.
    """
    if assigner not in assigners():
        raise UnknownNameError(f"assigner is {assigner!r}; it must be one of: {', '.join(assigners())}")
    pairs = Pairs.of(fabric, src, dst, job)
    return pairs.assigned(pairs.core.assign(assigner, seed=check_seed("seed", seed)))
