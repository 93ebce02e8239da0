"""The traffic of the routing study: the authors' own jobs, or the same jobs on random hosts, as a task graph.

Example:
    jobs = authors_jobs(jobs=2, ring=8)
    graph = task_graph(jobs, machine(), staggered=False)
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import rostam_py as rostam
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.program import Program
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.simulation.graph_job import GraphJob, StageTasks

FILE = Path(__file__).with_name("traffic.csv")
NUM_HOSTS, HOSTS_PER_TOR, NUM_SPINES, SERVER = 2_048, 32, 32, 8
NUM_TORS = NUM_HOSTS // HOSTS_PER_TOR
RATE = 12.5e9  # of a link of 100 Gb/s
_INSTANT_S = 1e-9  # of a kernel that has to be there
_MODELS = {"BLOOM": "BLOOM", "GPT_3": "GPT-3", "LLaMA2_70B": "LLaMA2-70B"}


@dataclass(frozen=True)
class Job:
    """One job. rings: hosts, int array (rings, hosts), each row a ring. chunk: bytes of a chunk of its all-reduce."""

    model: str
    start_s: float
    chunk: int
    compute_s: float
    rings: np.ndarray

    @property
    def ideal_s(self) -> float:
        """What its all-reduce takes where every link is its flow's alone [s]."""
        return 2 * (self.rings.shape[1] - 1) * self.chunk / RATE

    @property
    def pairs(self) -> np.ndarray:
        """Each host and the next one of its ring, int array (pairs, 2)."""
        return np.stack([self.rings, np.roll(self.rings, -1, axis=1)], axis=-1).reshape(-1, 2)


@cache
def _rows() -> dict[tuple[int, int], list[Job]]:
    found: dict[tuple[int, int, int], list[dict[str, str]]] = {}
    with FILE.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            found.setdefault((int(row["jobs"]), int(row["ring"]), int(row["job"])), []).append(row)
    sets: dict[tuple[int, int], list[Job]] = {}
    for (jobs, ring, _), rows in sorted(found.items()):
        first = rows[0]
        rings = np.array([row["hosts"].split() for row in rows], int)
        job = Job(
            _MODELS[first["model"]], int(first["start_ns"]) * 1e-9, int(first["bytes"]),
            int(first["compute_ns"]) * 1e-9, rings,
        )  # fmt: skip
        sets.setdefault((jobs, ring), []).append(job)
    return sets


def authors_sets() -> list[tuple[int, int]]:
    """Return (number of jobs, hosts of a ring) of the authors' sets."""
    return list(_rows())


def authors_jobs(jobs: int, ring: int) -> list[Job]:
    """Return the jobs of a set, on whole ToRs that the authors drew."""
    return _rows()[jobs, ring]


def on_random_hosts(jobs: list[Job], seed: int) -> list[Job]:
    """Return the jobs on servers of 8 that are drawn anew, each server one job's, ranks in the order of their hosts."""
    rng = np.random.default_rng(seed)
    free = rng.permutation(NUM_HOSTS // SERVER)
    placed = []
    for job in jobs:
        ranks = np.sort(job.rings, axis=None)
        count = -(-len(ranks) // SERVER)
        servers, free = np.sort(free[:count]), free[count:]
        hosts = (servers[:, None] * SERVER + np.arange(SERVER)).ravel()[: len(ranks)]
        # A copy of the model after another, as ranks are numbered: the k-th of each is in the k-th ring.
        copies = hosts.reshape(job.rings.shape[1], -1)
        placed.append(Job(job.model, job.start_s, job.chunk, job.compute_s, copies.T))
    return placed


def machine(failed_spines: int = 0, failed_links: int = 0, seed: int = 0) -> rostam.Machine:
    """Return the study's Clos, the first spines or random cables between switches failed."""
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=NUM_HOSTS, levels=2, radix=64, leaf_down=HOSTS_PER_TOR, leaf_up=NUM_SPINES,
        num_spines=NUM_SPINES, link_bandwidth="100 Gb/s",
    )  # fmt: skip
    between = (fabric.links["src"] >= NUM_HOSTS) & (fabric.links["dst"] >= NUM_HOSTS)
    cables = np.unique(fabric.links["cable"][between])
    dead = np.random.default_rng([seed, failed_links]).choice(cables, failed_links, replace=False)
    broken = fabric.with_failures(switches=range(NUM_TORS, NUM_TORS + failed_spines), links=sorted(dead.tolist()))
    return rostam.Machine(fabric=broken, accelerator="a100_80gb")


def task_graph(jobs: list[Job], where: rostam.Machine, *, staggered: bool) -> rostam.TaskGraph:
    """Return the jobs as they compute and then all-reduce; without computing and all at once unless staggered."""
    return rostam.TaskGraph(where, tuple(_graph_job(job, staggered) for job in jobs))


def _graph_job(job: Job, staggered: bool) -> GraphJob:
    size = job.chunk * job.rings.shape[1]
    compute = Task(kind="compute", name="compute", kernels=(_kernel(job.compute_s if staggered else _INSTANT_S),))
    reduce = Task(kind="collective", name="all-reduce", deps=(0,), group="dp", collective="all_reduce", num_bytes=size)
    update = Task(kind="compute", name="update", deps=(1,), kernels=(_kernel(_INSTANT_S),), is_optimizer=True)
    stage = StageTasks(0, {"iteration": (compute, reduce, update)}, Program.of((("iteration", 0),)))
    members = np.arange(job.rings.size).reshape(job.rings.shape)
    return GraphJob(
        job.model, job.rings.ravel(), np.zeros(job.rings.size, int), (stage,), (GroupSet("dp", "dp", members),),
        {("dp", "all_reduce", size): ScheduleKey("all_reduce", "ring", job.rings.shape[1])},
        start_ps=round(job.start_s * 1e12) if staggered else 0,
    )  # fmt: skip


def _kernel(seconds: float) -> KernelTime:
    return KernelTime(name="kernel", module="", op_type="matmul", duration_s=seconds)
