"""Pipeline schedules: in which order a stage runs the forwards and backwards of its micro-batches.

Model: with equal stages and free communication both schedules last (m + pp - 1) (f + b), a bubble of
(pp - 1) / m of the work; they differ in how many micro-batches' activations a stage holds.
Source: GPipe (Huang et al. 2019); 1F1B without interleaving (Narayanan et al. 2021, section 2.2).
"""

from rostam_py.errors import ConfigError
from rostam_py.plan.program import Entry, Program, Segment


def stage_program(schedule: str, stage: int, num_stages: int, num_microbatches: int) -> Program:
    """Return what a stage runs: warm-up, pairs of a forward and a backward, cool-down; "backward_last" ends it.

    Raises: ConfigError for an unknown schedule.
    """
    warmup, last = _warmup(schedule, stage, num_stages, num_microbatches), num_microbatches - 1
    num_pairs = num_microbatches - warmup
    segments: list[tuple[tuple[Entry, ...], int]] = [((("forward", 0),), warmup)]
    if warmup:
        segments.append(((("forward", warmup), ("backward", 0)), num_pairs))
        segments.append(((("backward", num_pairs),), last - num_pairs))
        segments.append(((("backward_last", last),), 1))
    else:
        segments.append(((("forward", 0), ("backward", 0)), num_pairs - 1))
        segments.append(((("forward", last), ("backward_last", last)), 1))
    return Program(tuple(Segment(entries, count) for entries, count in segments if count))


def microbatches_in_flight(schedule: str, stage: int, num_stages: int, num_microbatches: int) -> int:
    """Return the most micro-batches whose activations a stage holds at once.

    GPipe holds all of them, 1F1B min(pp - stage, m) (MODEL D15).
    """
    return min(num_microbatches, _warmup(schedule, stage, num_stages, num_microbatches) + 1)


def _warmup(schedule: str, stage: int, num_stages: int, num_microbatches: int) -> int:
    """Return the forwards a stage runs before its first backward, less the one paired with it."""
    if schedule == "gpipe":
        return num_microbatches if num_stages > 1 else 0
    if schedule == "1f1b":
        return min(num_stages - stage - 1, num_microbatches)
    raise ConfigError(f"strategy.schedule is {schedule!r}; it must be one of: 1f1b, gpipe")
