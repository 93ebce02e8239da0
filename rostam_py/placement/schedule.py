"""Pipeline schedules: in which order a stage runs the forwards and backwards of its micro-batches.

Model: with equal stages and free communication both schedules last (m + pp - 1) (f + b), a bubble of
(pp - 1) / m of the work; they differ in how many micro-batches' activations a stage holds.
Source: GPipe (Huang et al. 2019); 1F1B without interleaving (Narayanan et al. 2021, section 2.2).
"""

from rostam_py.errors import ConfigError

Program = tuple[tuple[str, int], ...]


def stage_program(schedule: str, stage: int, num_stages: int, num_microbatches: int) -> Program:
    """Return (template, micro-batch) in execution order; the last micro-batch runs "backward_last".

    Raises: ConfigError for an unknown schedule.
    """
    warmup = _warmup(schedule, stage, num_stages, num_microbatches)
    program = [("forward", m) for m in range(warmup)]
    for m in range(num_microbatches):
        if warmup + m < num_microbatches:
            program.append(("forward", warmup + m))
        program.append(("backward_last" if m == num_microbatches - 1 else "backward", m))
    return tuple(program)


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
