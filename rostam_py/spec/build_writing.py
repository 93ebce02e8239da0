"""Checkpoints that are written while a job of weeks goes on, from their settings."""

from dataclasses import replace

from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import FaultTrace, LongJob
from rostam_py.fleet.goodput.writing import Writing, checkpoint_bytes, writing_of
from rostam_py.plan.plan import Plan
from rostam_py.simulation.options import SimulationOptions
from rostam_py.spec.build_fleet import between_checkpoints_s
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.units import format_time, parse_bandwidth, parse_size


def build_writing(options: FleetOptions, plan: Plan, how: SimulationOptions) -> Writing | None:
    """Return how a plan's checkpoints are written, None where the job stops for all of it."""
    if not options.asynchronous:
        return None
    given = options.checkpoint_bytes
    size = checkpoint_bytes(plan) if given is None else parse_size(given, "fleet.checkpoint_bytes")
    rate = parse_bandwidth(options.storage_bandwidth, "fleet.storage_bandwidth")
    return writing_of(plan, num_bytes=size, bytes_per_s=rate, options=how)


def with_writing(job: LongJob, writing: Writing | None, options: FleetOptions, faults: FaultTrace) -> LongJob:
    """Return a job whose checkpoints are written while it goes on; Daly's interval counts all that one costs.

    Raises: ConfigError for a given interval in which a checkpoint is not written.
    """
    if writing is None:
        return job
    iteration_s = job.whole.iteration_s
    cost_s = float(job.checkpoint) + writing.iterations * iteration_s * (writing.stretch - 1)
    every = max(round(between_checkpoints_s(options, job.num_servers, faults, cost_s) / iteration_s), 1)
    if options.checkpoint_every is not None and every < writing.iterations:
        least = format_time(writing.iterations * iteration_s)
        raise ConfigError(
            f"fleet.checkpoint_every is {options.checkpoint_every!r}, but a checkpoint of"
            f" {writing.num_bytes / 1e9:,.1f} GB takes {writing.iterations:,} iterations to be written; it must be at"
            f" least {least}, or fleet.storage_bandwidth higher"
        )
    return replace(
        job, checkpoint_iterations=max(every, writing.iterations), write_iterations=writing.iterations,
        write_stretch=writing.stretch,
    )  # fmt: skip
