"""Random jobs in whole seconds, for simulators that are to agree to the second."""

import random

import numpy as np

from rostam_py.fleet.queueing.job import QueuedJob
from rostam_py.fleet.queueing.places.count import Count
from rostam_py.fleet.queueing.places.servers import Servers


def job(name="job", submit=0, size=1, work=100, stated=None):
    return QueuedJob(
        name=str(name), submit_s=float(submit), accelerators=size, work_s=float(work),
        stated_s=float(work if stated is None else stated),
    )  # fmt: skip


def drawn(seed, count=60, total=32):
    """Return (submit, size, work) with equal submissions, equal ends, durations of 0 and jobs of all sizes."""
    draw = random.Random(seed)
    sizes = [1, 1, 1, 2, 3, 4, 7, 8, 8, 9, 12, 16, 20, total]
    return [
        (
            0 if k == 0 else draw.randrange(0, 40 * count // 4),
            draw.choice(sizes),
            draw.choice([0, 1, 5, 20, 20, 77, 200]),
        )
        for k in range(count)
    ]


def queued(rows):
    return [job(k, *row) for k, row in enumerate(rows)]


def count(total=32, size=8):
    return Count(np.ones(total, bool), size)


def servers(total=32, size=8):
    return Servers(np.ones(total, bool), size)


def starts(found):
    return {run.job.name: run.first_start_s for run in found.runs}
