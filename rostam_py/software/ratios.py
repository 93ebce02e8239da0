"""Ratios: how many times as long as simulated published jobs took, by program, accelerator and kind of model.

Example:
    expected = Ratios.shipped().time_of(plan.software, "h100_80gb", has_experts=False)
    expected.of(2.5)                     # Range(3.3, 3.05, 3.5) [s], 80% of such jobs between the last two

``rostam validate save_ratios=FILE`` writes such a file from the rows that it predicted; ``ratios.json`` beside this
module is that of the shipped tables. No constant of a simulation is fitted to any of it.
"""

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from rostam_py.costs import DEFAULT_COST
from rostam_py.documents import Reader, read_document, write_document
from rostam_py.errors import ConfigError
from rostam_py.plan.data import PlanData
from rostam_py.plan.software import IDEAL, Software
from rostam_py.software.names import STACKS
from rostam_py.units import format_number_of

FORMAT, VERSION = "rostam-ratios", 1
FILE = "ratios.json"
SHARE = 0.8  # of jobs that a range is to hold
LEAST_ROWS = 5  # that make a group
_MANY = 10  # jobs whose spread is their own; fewer have that of the shipped ones
_MEASURED = ("time", "memory", "mfu")
_FIELDS = ("table", "row", "source", "software", "release", "accelerator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measured job.

    time, memory: measured over simulated; None where that was not measured. mfu: as measured, by the simulation's count
    of FLOPs; peak: of the accelerator's that it is a share of, such as "bf16".
    """

    table: str
    row: str
    source: str
    software: str
    release: str
    accelerator: str
    has_experts: bool
    time: float | None = None
    memory: float | None = None
    mfu: float | None = None
    peak: str = ""


class Range(NamedTuple):
    """A figure and what holds SHARE of measured ones."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Expected:
    """What measured jobs took, as multiples of what was simulated.

    ratios: the median, and what holds SHARE of them. num_jobs, whose: the jobs that it is of, in words.
    """

    ratios: Range
    num_jobs: int
    whose: str

    def describe(self, what: str = "took {} times as long as simulated") -> str:
        """Return whose jobs they are, in words. Args: what: they did, a place left for how many times."""
        middle, low, high = self.ratios
        jobs = format_number_of(self.num_jobs, "measured job")
        return (
            f"{jobs} ({self.whose}) {what.format(f'{middle:.2f}')}, {SHARE:.0%} of them {low:.2f} to {high:.2f} times"
        )

    def of(self, simulated: float) -> Range:
        """Return what to expect of a simulated time [s], or memory [bytes]."""
        return Range(*(simulated * one for one in self.ratios))


@dataclass(frozen=True)
class Ratios:
    """Measured jobs, and what they say of others."""

    jobs: tuple[Job, ...]

    @classmethod
    @functools.cache
    def shipped(cls) -> "Ratios":
        """Return those of the shipped tables."""
        return cls.load(str(resources.files("rostam_py.software").joinpath(FILE)))

    @classmethod
    def load(cls, path: str | Path) -> "Ratios":
        """Return those of a file. Raises: ConfigError that names the file and the place in it."""
        reader = read_document(path, FORMAT, (VERSION,), "ratios of measured jobs")
        return cls(tuple(_job(one) for one in reader.item("jobs").entries()))

    def save(self, path: str | Path) -> None:
        """Write them to a file. Raises: ConfigError if it cannot be written."""
        write_document(path, {"format": FORMAT, "version": VERSION, "jobs": [_record(one) for one in self.jobs]})

    def highest_mfu(self, accelerator: str, peak: str) -> float | None:
        """Return the highest MFU that was measured on an accelerator; None where none was."""
        alike = [one for one in self.jobs if (one.accelerator, one.peak) == (accelerator, peak)]
        return max((one.mfu for one in alike if one.mfu is not None), default=None)

    def groups_of(self, name: str) -> list[tuple[str, str, bool, list[float]]]:
        """Return what took how many times as long as simulated: (release, accelerator, has experts, ratios) of jobs."""
        groups: dict[tuple[str, str, bool], list[float]] = {}
        for one in self.jobs:
            if one.software == name and one.time is not None:
                groups.setdefault((one.release, one.accelerator, one.has_experts), []).append(one.time)
        return [(*key, ratios) for key, ratios in sorted(groups.items())]

    def without(self, is_left_out: Callable[[Job], bool]) -> "Ratios":
        """Return those of the other jobs."""
        return replace(self, jobs=tuple(one for one in self.jobs if not is_left_out(one)))

    def time_of(self, software: Software, accelerator: str, *, has_experts: bool) -> Expected | None:
        """Return what iterations took; None for the ideal program, which no job runs, and where no job is known."""
        return self._expected("time", software, accelerator, has_experts)

    def memory_of(self, software: Software, accelerator: str, *, has_experts: bool) -> Expected | None:
        """Return what the fullest device held; None as of times."""
        return self._expected("memory", software, accelerator, has_experts)

    def _expected(self, what: str, software: Software, accelerator: str, has_experts: bool) -> Expected | None:
        known = [one for one in self.jobs if getattr(one, what) is not None and one.software != IDEAL]
        if software.is_ideal or not known:
            return None
        for words, is_alike in _groups(software, accelerator, has_experts):
            group = [getattr(one, what) for one in known if is_alike(one)]
            if len(group) >= LEAST_ROWS or not words:
                break
        spread: list[float] = []
        if len(group) < round(2 / (1 - SHARE)) - 1 or not words:
            spread = _deviations(known if len(known) >= _MANY else Ratios.shipped().jobs, what)
        middle = statistics.median(group)
        low, high = _quantiles(group)
        if spread:
            below, above = _quantiles(spread)
            low, high = min(low, middle * below), max(high, middle * above)
        return Expected(Range(middle, low, high), len(group), words or "any program on any accelerator")


def ratios_for(software: Software) -> Ratios:
    """Return the ratios that hold for a program: those of its file, or the shipped ones.

    Raises: ConfigError for a file that cannot be read.
    """
    if not software.ratios:
        return Ratios.shipped()
    path = Path(software.ratios)
    found = _loaded(str(path), path.stat().st_mtime_ns if path.is_file() else 0)
    if not any(one.time is not None for one in found.jobs):
        raise ConfigError(f"software.ratios is {software.ratios!r}, which holds no job with a measured time")
    return found


@functools.lru_cache(maxsize=8)
def _loaded(path: str, changed_ns: int) -> Ratios:
    return Ratios.load(path)


def expected_of(plan: PlanData, what: str = "time") -> Expected | None:
    """Return what measured jobs like a plan's took (``time``), or held on their fullest device (``memory``).

    Returns: None for the ideal program, an upper bound that no job is like, and for times of another cost model than
        published jobs were simulated with, unless the ratios are the user's own.
    Raises: ConfigError for a file of ratios that cannot be read.
    """
    software = plan.software
    ratios = ratios_for(software)
    device = plan.machine.device.name
    if what == "time":
        if plan.cost != DEFAULT_COST and not software.ratios:
            return None
        return ratios.time_of(software, device, has_experts=plan.has_experts)
    own = ratios.memory_of(software, device, has_experts=plan.has_experts)
    return own or Ratios.shipped().memory_of(software, device, has_experts=plan.has_experts)


def may_not_fit(plan: PlanData) -> bool:
    """Tell whether a plan that fits as simulated does not by its upper bound."""
    share = safe_share(plan.software, plan.machine.device.name, has_experts=plan.has_experts)
    return plan.memory_bytes > share * plan.machine.device.memory_bytes


def safe_share(software: Software, accelerator: str, *, has_experts: bool) -> float:
    """Return the share of a device's memory that a plan may take for its upper bound to fit; 1 of the ideal program."""
    expected = ratios_for(software).memory_of(software, accelerator, has_experts=has_experts)
    expected = expected or Ratios.shipped().memory_of(software, accelerator, has_experts=has_experts)
    return 1.0 if expected is None else min(1.0, 1 / expected.ratios.high)


def _groups(
    software: Software, accelerator: str, has_experts: bool
) -> Iterable[tuple[str, Callable[[Job], bool]]]:  # fmt: skip
    """Yield groups of jobs, the most alike first, each in words; all jobs, without words, last."""
    names = (software.name, *STACKS.get(software.name).RATIOS_OF)
    kind = "mixtures of experts" if has_experts else "dense models"
    said = " or ".join(names)

    def alike(job: Job) -> bool:
        return job.software in names and job.accelerator == accelerator and job.has_experts == has_experts

    if software.release:
        yield (
            f"{said} {software.release} on {accelerator}, {kind}",
            lambda job: alike(job) and job.release == software.release,
        )
    yield f"{said} on {accelerator}, {kind}", alike
    yield (
        f"any program on {accelerator}, {kind}",
        lambda job: job.accelerator == accelerator and job.has_experts == has_experts,
    )
    yield f"any program on {accelerator}", lambda job: job.accelerator == accelerator
    yield "", lambda job: True


def _deviations(jobs: Sequence[Job], what: str) -> list[float]:
    """Return the ratios of all jobs, each over the median of its program, accelerator and kind."""
    groups: dict[Any, list[float]] = {}
    for one in jobs:
        ratio = getattr(one, what)
        if ratio is not None:
            groups.setdefault((one.software, one.accelerator, one.has_experts), []).append(ratio)
    return [ratio / statistics.median(group) for group in groups.values() for ratio in group]


def _quantiles(ratios: Sequence[float]) -> tuple[float, float]:
    """Return what SHARE of further ones lie between (split conformal: ranks of n + 1, the ends where n is too few)."""
    ordered, rest = sorted(ratios), (1 - SHARE) / 2
    n = len(ordered)
    low = max(1, math.floor((n + 1) * rest + 1e-9))
    return ordered[low - 1], ordered[n - low]


def _record(job: Job) -> dict[str, Any]:
    measured = {what: round(value, 6) for what in _MEASURED if (value := getattr(job, what)) is not None}
    peak = {"peak": job.peak} if job.peak else {}
    return {**{key: getattr(job, key) for key in _FIELDS}, "has_experts": job.has_experts, **measured, **peak}


def _job(reader: Reader) -> Job:
    found: dict[str, Any] = {key: reader.item(key).text() for key in _FIELDS}
    found |= {what: reader.item(what).number() for what in _MEASURED if what in reader.names()}
    for key in _MEASURED:
        if key in found and not found[key] > 0:
            raise reader.item(key).error("it must be > 0")
    found |= {"peak": reader.item("peak").text()} if "peak" in reader.names() else {}
    return Job(**found, has_experts=reader.item("has_experts").flag())
