"""Pipeline schedules: in which order a stage runs the forwards and backwards of its micro-batches.

A schedule is a file in ``schedules`` and one line: SCHEDULES.add("mine", "my_package.mine:Mine") (plan/strategy.py).

Legend: F, B, W = forward, backward and, where it is split off the backward, weight gradients of a micro-batch.
F0, F1 and so on = of chunk 0 and 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import ClassVar

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan.phases import BACKWARD, BACKWARDS, FORWARD, FULL, WEIGHT, chunk_of, is_last, phase_of, template_name
from rostam_py.plan.program import Entry, Program, Segment
from rostam_py.plan.strategy_names import SCHEDULES


class Schedule(ABC):
    """One order of forwards and backwards.

    splits_backward: weight gradients are templates of their own. takes_chunks: a device may hold several chunks.
    takes_groups: its program takes ``group``. runs_ahead: its program takes ``ahead``, more forwards in front of the
    first backward. is_v: it runs two chunks on a device, the second half of the stages on the devices of the first half
    in reverse. joins_pairs: a forward and a full backward behind it in one segment receive what they need and send what
    they make together.
    """

    splits_backward: ClassVar[bool] = False
    takes_chunks: ClassVar[bool] = False
    takes_groups: ClassVar[bool] = False
    runs_ahead: ClassVar[bool] = False
    is_v: ClassVar[bool] = False
    joins_pairs: ClassVar[bool] = False

    @classmethod
    def splits(cls, num_stages: int) -> bool:
        """Say whether weight gradients run apart: nowhere without a pipeline, which has no bubble to fill."""
        return cls.splits_backward and num_stages > 1

    @classmethod
    def least_microbatches(cls, num_stages: int) -> int:
        """Return the fewest micro-batches that the schedule takes on so many devices."""
        return 1

    @classmethod
    def check_microbatches(
        cls, num_microbatches: int, num_stages: int, num_chunks: int, said: str, group: int | None = None
    ) -> None:
        """Check how many micro-batches there are.

        Args:
            said: in words, how many a replica has.
            group: as of ``stage_program``.
        Raises: DegreeError.
        """
        least = cls.least_microbatches(num_stages)
        if num_microbatches < least:
            raise DegreeError(f"{said}; with strategy.pp = {num_stages} this schedule needs at least {least}")

    @abstractmethod
    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int) -> Program:
        """Return what a stage runs; the last micro-batch's final gradients are in templates of their own names."""


def stage_program(
    schedule: str, stage: int, num_stages: int, num_microbatches: int, virtual_stages: int = 1, ahead: int = 0,
    *, group: int | None = None,
) -> Program:  # fmt: skip
    """Return what a stage runs: warm-up, steady state, cool-down; "..._last" templates end it.

    Args: virtual_stages: chunks of layers on a device. ahead: forwards more in front of the first backward, of a
        schedule that ``runs_ahead``. group: micro-batches that go through a chunk before the next one, of one that
        ``takes_groups``; as many as there are stages if unset.
    Raises: ConfigError for an unknown schedule.
    """
    if schedule not in SCHEDULES:
        raise ConfigError(f"strategy.schedule is {schedule!r}; it must be one of: {', '.join(SCHEDULES)}")
    made: Schedule = SCHEDULES.get(schedule)()
    more = ({"ahead": ahead} if ahead else {}) | ({} if group is None else {"group": group})
    return made.program(stage, num_stages, num_microbatches, virtual_stages, **more)


def most_in_flight(program: Program) -> int:
    """Return the most forwards that wait for their backwards at once: (chunk, micro-batch) pairs."""
    change = {FORWARD: (1.0, 0.0)} | dict.fromkeys(BACKWARDS, (0.0, -1.0))
    return round(program.peak({name: change.get(phase_of(name), (0.0, 0.0)) for name in program.counts()}))


def in_flight_words(program: Program) -> str:
    """Return in words how much a program has in flight."""
    of_chunks = " x chunks" if any(chunk_of(name) is not None for name in program.counts()) else ""
    return f"micro-batches{of_chunks} in flight: {most_in_flight(program)}"


def final_templates(program: Program) -> list[str]:
    """Return the templates in which gradients are final, in the order in which they run."""
    return [name for name in program.counts() if is_last(name)]


def written_out(units: Iterable[Sequence[Entry]]) -> Program:
    """Return a program of units, each of one entry or of a forward and a full backward that run as a pair.

    Model: entries are (phase of a chunk, micro-batch); what ends the gradients of a chunk gets the last one's name.
        Pairs are told by segments: in none is a backward behind a forward that it makes no pair with. What repeats is
        one segment.
    Cost: units, each compared with as many behind it as repeat.
    """
    given = [tuple(unit) for unit in units]
    ends = {chunk_of(name): at for at, unit in enumerate(given) for name, _ in unit if phase_of(name) in _FINAL}
    named = [
        tuple((_final_name(name) if phase_of(name) in _FINAL and ends[chunk_of(name)] == at else name, m)
              for name, m in unit)
        for at, unit in enumerate(given)
    ]  # fmt: skip
    has_pairs = any(len(unit) > 1 for unit in named)
    segments: list[Segment] = []
    loose: list[Sequence[Entry]] = []

    def close() -> None:
        if loose:
            segments.append(Segment(tuple(entry for unit in loose for entry in unit)))
            loose.clear()

    at = 0
    while at < len(named):
        length, count = _repeats(named, at, has_pairs)
        if count > 1:
            close()
            segments.append(Segment(tuple(entry for unit in named[at : at + length] for entry in unit), count))
        else:
            if has_pairs and loose and _would_pair(loose[-1], named[at]):
                close()
            loose.append(named[at])
        at += length * count
    close()
    return Program(tuple(segments))


_FINAL = (WEIGHT, FULL)
_LONGEST_PERIOD = 6  # units: both halves of a backward and a forward of two chunks


def _final_name(name: str) -> str:
    return template_name(phase_of(name), chunk_of(name), is_last=True)


def _would_pair(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Tell whether the end of one unit and the begin of another would be taken for a pair."""
    return phase_of(one[-1][0]) == FORWARD and phase_of(other[0][0]) in BACKWARDS


def _repeats(units: Sequence[Sequence[Entry]], at: int, has_pairs: bool) -> tuple[int, int]:
    """Return (units, how often) of a stretch from a place on that repeats a micro-batch later, (1, 1) if none does."""
    best = 1, 1
    for length in range(1, _LONGEST_PERIOD + 1):
        period = units[at : at + length]
        if has_pairs and any(_would_pair(*two) for two in pairwise(period)):
            continue
        count = 1
        while [tuple((name, m + count) for name, m in unit) for unit in period] == units[
            at + count * length : at + (count + 1) * length
        ]:
            count += 1
        if count > 1 and count * length > best[0] * best[1]:
            best = length, count
    return best


def in_turn(warmup: int, num_microbatches: int, delay: int | None = None) -> Program:
    """Return F ``warmup`` micro-batches ahead of B, and W ``delay`` behind it; no W where that is None.

    Model: step i runs F of micro-batch i + warmup, B of i and W of i - delay, as far as there are such.
    """
    m, behind = num_microbatches, 0 if delay is None else delay
    final = BACKWARD if delay is None else WEIGHT
    edges = sorted({e for e in (0, m - warmup, behind, m, m + behind - 1, m + behind) if 0 <= e <= m + behind})
    segments: list[tuple[tuple[Entry, ...], int]] = [(((FORWARD, 0),), warmup)] if warmup else []
    for begin, end in zip(edges, edges[1:], strict=False):
        entries: list[Entry] = []
        for phase, lead, last in ((FORWARD, warmup, m - warmup), (BACKWARD, 0, m)):
            if begin < last:
                entries.append((phase, begin + lead))
        if delay is not None and begin >= behind:
            entries.append((WEIGHT, begin - behind))
        entries = [(template_name(name, is_last=name == final and at == m - 1), at) for name, at in entries]
        segments.append((tuple(entries), end - begin))
    return Program(tuple(Segment(entries, count) for entries, count in segments))
