"""Ragged: a replica that lost servers goes on with a smaller share of the batch."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.long_job import LongJob, Pace
from rostam_py.fleet.goodput.policy import Policy
from rostam_py.plan.table_groups import REPLICATED


class Ragged(Policy):
    """Roll back and go on with replicas that lost servers and do fewer micro-batches; grow behind a checkpoint.

    Model: iterations take as long as before; a replica with k of its s servers does LongJob.parts[k] of its samples
        (parts.py), the global batch shrinks by what is missing. A replica too small for its state is given up, as
        policy shrink does. Every change of shape takes LongJob.reshard, as the checkpoint is cut anew.
    Source: own replay; the share is that of nonuniform tensor parallelism (arXiv 2504.06095): a replica contributes
        "throughput equal to the percentage of still-functional GPUs", here in whole micro-batches.
    """

    NEEDS: ClassVar[Mapping[str, Any]] = {"ep": 1, "tables": REPLICATED}
    GROWS_AT: ClassVar[str] = "checkpoint"

    def lose(self, crew: Crew, server: int) -> None:
        """Take the server out of its replica."""
        crew.shed(server)

    def fill(self, crew: Crew) -> None:
        """Take out servers that do not work, and put in those that do."""
        for server in crew.missing():
            if crew.has(server):
                crew.shed(server)
        crew.mend()

    def pace(self, job: LongJob, crew: Crew) -> Pace:
        """Return the pace of so many replicas, with the mean of their shares."""
        whole = job.pace(len(crew.replicas))
        mean = math.fsum(job.part(len(one)) for one in crew.replicas) / len(crew.replicas)
        return Pace(whole.iteration_s, whole.share * mean)

    def can_grow(self, crew: Crew) -> bool:
        """Tell whether a server that works is free for a replica that lost one."""
        return crew.can_mend()

    def grow(self, crew: Crew) -> None:
        """Take such servers."""
        crew.mend()

    def restart_s(self, job: LongJob) -> float:
        """Return how long it takes to load the checkpoint in another shape [s]."""
        return float(job.reshard)

    def grow_s(self, job: LongJob) -> float:
        """Return the same [s]."""
        return float(job.reshard)
