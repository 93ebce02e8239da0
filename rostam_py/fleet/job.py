"""Job: one training job of a mix, and mixes drawn from templates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rostam_py.checks import check_integers, check_seed
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import OperatorGraph
from rostam_py.plan.strategy import Strategy
from rostam_py.units import parse_time


@dataclass(frozen=True)
class Job:
    """One training job of a mix.

    name: of the job, in results; names of one mix differ. graph: the model. strategy: its degrees; an open dp is one
        replica. global_batch: samples of one iteration.
    start_s: when its first iteration begins [s, or text such as "2 s"].
    accelerators: ids that it runs on, one a rank; None lets ``place_mix`` choose.
    """

    name: str
    graph: OperatorGraph
    strategy: Strategy
    global_batch: int
    start_s: float | str = 0.0
    accelerators: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.strategy.dp is None:
            object.__setattr__(self, "strategy", replace(self.strategy, dp=1))
        object.__setattr__(self, "start_s", parse_time(self.start_s, f"jobs.{self.name}.start_s"))
        if self.accelerators is None:
            return
        ids = tuple(check_integers(f"jobs.{self.name}.accelerators", self.accelerators).tolist())
        object.__setattr__(self, "accelerators", ids)
        if self.strategy.accelerators is not None or not isinstance(self.strategy.mapping, str):
            raise ConfigError(
                f"jobs.{self.name}.accelerators and the accelerators or mapping list of its strategy exclude each"
                " other; give one"
            )
        if len(ids) != self.num_accelerators:
            raise DegreeError(
                f"jobs.{self.name}.accelerators has {len(ids)} entries, but {self.strategy.describe()} has"
                f" {self.num_accelerators} ranks; it needs one for every rank"
            )

    @property
    def num_accelerators(self) -> int:
        """Accelerators the job uses."""
        return self.strategy.num_ranks

    @property
    def fixed_accelerators(self) -> tuple[int, ...] | None:
        """The accelerators that the job or its strategy names, None where ``place_mix`` chooses them."""
        if self.accelerators is not None:
            return self.accelerators
        given = self.strategy.accelerators if isinstance(self.strategy.mapping, str) else self.strategy.mapping
        return None if given is None else tuple(given)


def draw_jobs(
    templates: Sequence[Job],
    num_jobs: int,
    *,
    seed: int = 0,
    arrival_window_s: float | str = 0.0,
    num_accelerators: int | None = None,
) -> list[Job]:
    """Draw a mix: templates with replacement, start times uniform over a window.

    Model: every job is a template drawn with equal chances, named "<template>_<number>". The n-th job of a seed does
        not depend on ``num_jobs`` while there is room, so mixes of one seed grow by adding jobs.
    Args: templates: at least one, without accelerators of their own. num_jobs: >= 1. seed: of the draw.
        arrival_window_s: start times lie in [0, window) [s, or text]; 0 starts all at once, at 0.
        num_accelerators: of the machine; if given, each job is drawn among the templates that leave room for the rest.
    Returns: the jobs, in the order they were drawn.
    Raises: ConfigError for bad arguments, or more jobs than the machine has room for.
    Source: own; uniform arrivals over a window as in Cohen et al., "Routing for Large ML Models".
    """
    if isinstance(num_jobs, bool) or not isinstance(num_jobs, int) or num_jobs < 1:
        raise ConfigError(f"mix.num_jobs is {num_jobs!r}; it must be an integer >= 1")
    if not templates:
        raise ConfigError("jobs is empty; a mix is drawn from at least one job")
    for job in templates:
        if job.fixed_accelerators is not None:
            raise ConfigError(
                f"jobs.{job.name} names accelerators; a job that mixes are drawn from must leave them open"
            )
    window_s = parse_time(arrival_window_s, "mix.arrival_window")
    seed = check_seed("mix.seed", seed)
    least = min(job.num_accelerators for job in templates)
    if num_accelerators is not None and num_jobs * least > num_accelerators:
        raise ConfigError(
            f"mix.num_jobs is {num_jobs}, but even the smallest job takes {least} of the machine's {num_accelerators}"
            f" accelerators; draw at most {num_accelerators // least} jobs or take a larger fabric"
        )
    rng = np.random.default_rng(seed)
    left = num_accelerators
    jobs: list[Job] = []
    for number in range(num_jobs):
        reserved = (num_jobs - number - 1) * least
        fitting = [job for job in templates if left is None or job.num_accelerators + reserved <= left]
        pick, start = rng.random(2)
        drawn = fitting[int(pick * len(fitting))]
        jobs.append(replace(drawn, name=f"{drawn.name}_{number}", start_s=float(start) * window_s))
        left = None if left is None else left - drawn.num_accelerators
    return jobs
