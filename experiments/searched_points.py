"""Points of an experiment: searches on many machines, each kept as JSON with its command, date and version.

A kept point is not searched again; delete its entry, or the file, to do so. Experiments that one process runs share
traces and searches: what two figures ask alike is searched once. Example:
    points = SearchedPoints(Path("points.json"), "python experiments/x/compare.py")
    points.search("flat 400", Job("resnet50", "resnet50_sip_ml"), PAPER, machine)["best"]["iteration_s"]
"""

import datetime
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.searching import Candidate, Searcher

ACCELERATOR = "v100_32gb"  # SiP-ML 4.1
Point = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A model and its convergence curve. batches: global ones to search; default the powers of two it measured.

    Without a curve the iteration time per sample is minimised. sequence_length: of transformer_350m, in
    place of its 64 tokens a side.
    """

    model: str
    convergence: str | None
    batches: tuple[int, ...] | None = None
    sequence_length: int | None = None


@dataclass(frozen=True)
class Space:
    """Strategies to search. placers: of PLACERS. all_reduce: algorithm. bucket_size: gradients of one all-reduce.

    quantum: length of Algorithm 1's sub-ops. weight_splits: least_sent, or sliced: one copy of weights in each group.
    """

    name: str
    placers: tuple[str, ...]
    all_reduce: str
    bucket_size: str = "25 MB"
    quantum: str = "10 us"
    weight_splits: str = "least_sent"
    precision: str = "fp32"
    check_memory: bool = True

    def base(self) -> rostam.Strategy:
        """Return what all its strategies share."""
        return rostam.Strategy.of(
            precision=self.precision,
            fusion="producer",
            accumulation="free",
            algorithms={"all_reduce": self.all_reduce},
            bucket_size=self.bucket_size,
            quantum=self.quantum,
            weight_splits=self.weight_splits,
            check_memory=self.check_memory,
            mapping="linear",
        )

    def groups(self, num_accelerators: int, degrees: Sequence[int]) -> list[rostam.Strategy]:
        """Return Algorithm 1's strategies on all accelerators with groups of these sizes."""
        base = self.base()
        return [replace(base, dp=num_accelerators // mp, mp=mp, placer="sip_ml") for mp in degrees]


COST = "roofline"  # of the papers' machines, data sheets alone
TRANSFORMER = Job("transformer_350m", "transformer_sip_ml")
# As the paper: Algorithm 1 on every fabric (3.2, step 4), one ring all-reduce among counterparts (step 3).
PAPER = Space("paper", ("sip_ml",), "ring")
SLICED = replace(PAPER, name="paper, weights in slices", weight_splits="sliced")
# Megatron's 18 B parameters with Adam take 288 GB, so that groups have at least 16 of these accelerators, weights in
# slices. Activations, which Algorithm 1 keeps, are assumed to find room by recomputation, which is not timed.
MEGATRON = Job("megatron_18b", "megatron_18b_sip_ml")
HALF = Space("paper, fp16, memory unchecked", PAPER.placers, "ring", weight_splits="sliced",
             precision="fp16_mixed", check_memory=False)  # fmt: skip
SINGLE = replace(HALF, name="paper, fp32, memory unchecked", precision="fp32")
MEGATRON_GROUP = 16  # 32-way groups are slower on every fabric (experiments/sip_ml_fig5), and beyond SiP-Ring's reach
# The paper's search is over batches, too (3.2, step 4), on curves of Shallue et al. whose data are not in our sources.
# MLPerf's reference points, fitted, are what we hold over several batches (MODEL E17): larger ones need more epochs.
FREE_BATCH = {
    "resnet50": Job("resnet50", "resnet50_mlperf_rcp", (2_048, 4_096, 8_192, 16_384, 32_768)),
    "transformer_350m": Job("transformer_350m", "transformer_mlperf", (2_048, 4_096, 8_192)),
}
ANY_BATCH = replace(PAPER, name="paper, batch searched")
# What rostam adds: tensor and pipeline parallelism, and the all-reduce that is fastest on the fabric.
ALL = Space("all", ("sip_ml", "megatron"), "auto")


# 16-way groups are the largest that figures 6 and 7 show, and none larger is best here (experiments/sip_ml_fig6).
DEGREES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Variant:
    """What is varied of a case. degrees: sizes of Algorithm 1's groups. speed: of computing, 1 as V100s."""

    name: str
    job: Job
    space: Space
    degrees: tuple[int, ...] = DEGREES
    speed: float = 1.0


def with_speeds(first: Variant) -> tuple[Variant, ...]:
    """Return a case and its variants that compute at 70% and 130%."""
    return (first, *(replace(first, name=f"compute {speed:.0%}", speed=speed) for speed in (0.7, 1.3)))


def transformer_variants(batch: int) -> tuple[Variant, ...]:
    """Return the Transformer of the paper's space at one batch, then what bands are over: speed, and assumed shapes.

    Shapes: weights in slices, layers that share weights, 32 and 128 tokens a side.
    """
    first = Variant("as stated", Job(TRANSFORMER.model, None, (batch,)), PAPER)
    return (
        *with_speeds(first), replace(first, name="slices", space=SLICED),
        replace(first, name="shared layers", job=replace(first.job, model="universal_transformer")),
        *(replace(first, name=f"{n} tokens", job=replace(first.job, sequence_length=n)) for n in (32, 128)),
    )  # fmt: skip


# What the bands of ResNet-50 and Megatron are over, at the batches of the authors' script: speed, and precision.
RESNET_VARIANTS = with_speeds(Variant("as stated", Job("resnet50", None, (8_192,)), PAPER))
_GPT = Variant("as stated", Job(MEGATRON.model, None, (1_024,)), HALF, (MEGATRON_GROUP,))
MEGATRON_VARIANTS = (*with_speeds(_GPT), replace(_GPT, name="fp32", space=SINGLE))
# Of figures 5 and 10, by model: as stated first.
VARIANTS = {
    "resnet50": RESNET_VARIANTS, "transformer_350m": transformer_variants(1_024), "megatron_18b": MEGATRON_VARIANTS,
}  # fmt: skip


def band_words(values: Sequence[float], form: str) -> str:
    """Return the first value, as stated, and the least and the most of all in the form: "1.2x (0.9x to 1.4x)"."""
    stated, least, most = (form.format(value) for value in (values[0], min(values), max(values)))
    return f"{stated} ({least} to {most})"


# What experiments of one process share.
_GRAPHS: dict[Hashable, rostam.OperatorGraph] = {}
_FOUND: dict[Hashable, Point] = {}
# Kept by one experiment: they hold the plans of their model, more than a gigabyte with groups of up to 64.
_NUM_SEARCHERS = 2


class SearchedPoints:
    """Searches, computed once.

    path: of the JSON file, written after every point. enable_search: otherwise a point that is not kept is a KeyError.
    """

    def __init__(self, path: Path, command: str, enable_search: bool = True) -> None:
        self.path, self.command, self.enable_search = path, command, enable_search
        self.points: dict[str, Point] = {}
        if path.exists():
            self.points = json.loads(path.read_text(encoding="utf-8"))["points"]
        self._searchers: OrderedDict[Hashable, Searcher] = OrderedDict()

    def keep(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return a kept value, computed and written if there is none."""
        if key not in self.points:
            if not self.enable_search:
                raise KeyError(f"{self.path} holds no {key!r}")
            self.points[key] = compute()
            self._write()
        return self.points[key]

    def search(
        self,
        key: str,
        job: Job,
        space: Space,
        machine: Callable[[], rostam.Machine],
        *,
        strategies: Sequence[rostam.Strategy] | None = None,
        num_simulated: int = 4,
    ) -> Point:
        """Return the best and all simulated strategies of a search, or {"refused": why} where nothing fits."""

        def compute() -> Point:
            where = machine()
            asked = (job, replace(space, name=""), _machine_key(where), repr(strategies), num_simulated)
            if asked not in _FOUND:
                _FOUND[asked] = search(where)
            return _FOUND[asked]

        def search(where: rostam.Machine) -> Point:
            try:
                found = self.searcher(job, space).search(
                    where, convergence=job.convergence, batches=job.batches, strategies=strategies,
                    num_simulated=num_simulated,
                )  # fmt: skip
            except ConfigError as error:
                return {"refused": str(error)}
            return {"best": describe(found.best, in_full=True), "simulated": [describe(c) for c in found.simulated]}

        return self.keep(key, compute)

    def searcher(self, job: Job, space: Space) -> Searcher:
        """Return the one searcher of a model and space; it keeps placements between machines."""
        key = (job.model, job.sequence_length, replace(space, name=""))
        if key not in self._searchers:
            self._searchers[key] = Searcher(
                self.graph(job), base=space.base(), placers=space.placers, cost=COST, software="ideal"
            )
            if len(self._searchers) > _NUM_SEARCHERS:
                self._searchers.popitem(last=False)
        self._searchers.move_to_end(key)
        return self._searchers[key]

    def graph(self, job: Job) -> rostam.OperatorGraph:
        """Return a job's model, traced once."""
        return traced(job)

    def _write(self) -> None:
        kept = {
            "command": self.command, "date": datetime.date.today().isoformat(), "rostam_version": rostam.__version__,
            "points": self.points,
        }  # fmt: skip
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.path)


def traced(job: Job) -> rostam.OperatorGraph:
    """Return a job's model, traced once in a process."""
    key = (job.model, job.sequence_length)
    if key not in _GRAPHS:
        _GRAPHS[key] = rostam.trace(_model(job))
    return _GRAPHS[key]


def _machine_key(where: rostam.Machine) -> Hashable:
    """Return what two machines of these experiments differ in, if they do."""
    return type(where.fabric).__name__, repr(where.fabric.config), where.device.name, tuple(where.slow.items())


def _model(job: Job) -> Any:
    if job.sequence_length is None:
        return job.model
    from rostam_py.models.transformer import Config, build

    return build(job.model, Config(sequence_length=job.sequence_length))


def machine(fabric: str, bandwidth: str, speed: float = 1.0, **parameters: Any) -> rostam.Machine:
    """Return V100s on a fabric with this bandwidth each. Args: speed: at which they compute, 1 as V100s do."""
    built = rostam.fabric(fabric, accelerator_bandwidth=bandwidth, **parameters)
    slow = {} if speed == 1 else dict.fromkeys(range(built.num_accelerators), speed)
    return rostam.Machine(fabric=built, accelerator=ACCELERATOR, slow=slow)


def describe(candidate: Candidate, in_full: bool = False) -> Point:
    """Return a candidate's times, and in full where they go: breakdown, algorithms, bytes per accelerator."""
    entry: Point = {
        "strategy": candidate.describe(), "placer": candidate.strategy.placer, **candidate.degrees,
        "batch": candidate.global_batch, "micro_batch": candidate.micro_batch,
        "recompute": candidate.strategy.recompute, "iteration_s": candidate.iteration_time_s,
        "estimate_s": candidate.estimate_s, "time_to_accuracy_s": candidate.time_to_accuracy_s,
    }  # fmt: skip
    result, plan = candidate.result, candidate.plan
    if in_full and result is not None and plan is not None:
        ranks = plan.accelerators.size
        entry["breakdown_s"] = {key: value for key, value in result.breakdown.items() if value > 0}
        entry["critical_path_s"] = {key: value for key, value in result.critical_path_by_kind().items() if value > 0}
        entry["sent_bytes"] = {key: value / ranks for key, value in result.bytes_sent.items() if value}
        entry["algorithms"] = sorted({schedule[1] for schedule in plan.schedules.values()})
        entry["busiest_link"] = result.busiest_links(1)[0].utilization if result.link_bytes.any() else 0.0
    return entry


def strategy_of(entry: Point, base: rostam.Strategy) -> rostam.Strategy:
    """Return the strategy that ``describe`` noted, all else as in ``base``."""
    degrees = {key: entry[key] for key in ("dp", "tp", "pp", "mp") if key in entry}
    micro_batch = None if entry["placer"] == "sip_ml" else entry["micro_batch"]
    return replace(base, placer=entry["placer"], micro_batch=micro_batch, recompute=entry["recompute"], **degrees)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a Markdown table, as the README files hold them."""
    table = Table(title=Text(title), title_justify="left", box=box.MARKDOWN)
    for name in columns:
        table.add_column(Text(name), no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=1000).print(table)
