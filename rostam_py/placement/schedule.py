"""Pipeline schedules: in which order a stage runs the forwards and backwards of its micro-batches.

A schedule is a file in ``schedules`` and one line: SCHEDULES.add("mine", "my_package.mine:Mine") (plan/strategy.py).

Legend: F, B, W = forward, backward and, where it is split off the backward, weight gradients of a micro-batch.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from rostam_py.errors import ConfigError
from rostam_py.plan.phases import BACKWARD, FORWARD, WEIGHT, chunk_of, is_last, phase_of, template_name
from rostam_py.plan.program import Entry, Program, Segment
from rostam_py.plan.strategy_names import SCHEDULES


class Schedule(ABC):
    """One order of forwards and backwards.

    splits_backward: weight gradients are templates of their own. takes_chunks: a device may hold several chunks.
    runs_ahead: its program takes ``ahead``, more forwards in front of the first backward.
    """

    splits_backward: ClassVar[bool] = False
    takes_chunks: ClassVar[bool] = False
    runs_ahead: ClassVar[bool] = False

    @classmethod
    def splits(cls, num_stages: int) -> bool:
        """Say whether weight gradients run apart: nowhere without a pipeline, which has no bubble to fill."""
        return cls.splits_backward and num_stages > 1

    @abstractmethod
    def program(self, stage: int, num_stages: int, num_microbatches: int, num_chunks: int) -> Program:
        """Return what a stage runs; the last micro-batch's final gradients are in templates of their own names."""


def stage_program(
    schedule: str, stage: int, num_stages: int, num_microbatches: int, virtual_stages: int = 1, ahead: int = 0
) -> Program:
    """Return what a stage runs: warm-up, steady state, cool-down; "..._last" templates end it.

    Args: virtual_stages: chunks of layers on a device. ahead: forwards more in front of the first backward, of a
        schedule that ``runs_ahead``.
    Raises: ConfigError for an unknown schedule.
    """
    if schedule not in SCHEDULES:
        raise ConfigError(f"strategy.schedule is {schedule!r}; it must be one of: {', '.join(SCHEDULES)}")
    made: Schedule = SCHEDULES.get(schedule)()
    more = {"ahead": ahead} if ahead else {}
    return made.program(stage, num_stages, num_microbatches, virtual_stages, **more)


def most_in_flight(program: Program) -> int:
    """Return the most forwards that wait for their backwards at once: (chunk, micro-batch) pairs."""
    change = {FORWARD: (1.0, 0.0), BACKWARD: (0.0, -1.0)}
    return round(program.peak({name: change.get(phase_of(name), (0.0, 0.0)) for name in program.counts()}))


def in_flight_words(program: Program) -> str:
    """Return in words how much a program has in flight."""
    of_chunks = " x chunks" if any(chunk_of(name) is not None for name in program.counts()) else ""
    return f"micro-batches{of_chunks} in flight: {most_in_flight(program)}"


def final_templates(program: Program) -> list[str]:
    """Return the templates in which gradients are final, in the order in which they run."""
    return [name for name in program.counts() if is_last(name)]


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
