"""A pipeline as it ran: what each stage worked on when, for the figure of a run."""

from typing import Any

from rostam_py.plan.phases import FORWARD
from rostam_py.plan.plan import Plan
from rostam_py.simulation.drawing import short
from rostam_py.simulation.phase_spans import phase_spans, recorded_stages
from rostam_py.simulation.picoseconds import PS
from rostam_py.simulation.result import RunResult

# More than 200 side by side are a blur on a page 900 pixels wide; 2,000 with their words are some 500 kB of it.
MAX_MARKS, MAX_MARKS_A_STAGE = 2_000, 200
# Tasks of an iteration on one device of every stage up to which a run records them unasked. A record is about 150 bytes
# in the core and in Python together, and a run has up to 10 iterations: 150 MB.
MAX_RECORDED = 100_000


def is_drawable(plan: Plan) -> bool:
    """Return whether a plan is a pipeline, and small enough to record one device of each stage in any run."""
    if plan.strategy.pp == 1:
        return False
    counts = ((stage, stage.program.counts()) for stage in plan.stages)
    return sum(len(stage.templates[name]) * n for stage, found in counts for name, n in found.items()) <= MAX_RECORDED


def pipeline_detail(result: RunResult) -> dict[str, Any] | None:
    """Return what the recorded device of each stage did in the last iteration; of several, the first one did.

    Model: marks are phases of micro-batches, by start, from the end of the iteration before; a stage that begins before
        it has negative ones. Only as many as can be told apart are listed, up to end_s, where the next one begins.
    Returns: None without a pipeline, where a stage has no recorded device, and for jobs that were restarted.
    """
    plan, names = result.plan, result._names
    is_whole = not result.restarts
    stage_of = recorded_stages(names, result._timeline, result.devices, len(plan.stages)) if is_whole else None
    if plan.strategy.pp == 1 or stage_of is None:
        return None
    spans = [
        span for span in phase_spans(names, result._timeline, len(result._ends_ps) - 2) if span.device in stage_of
    ]  # fmt: skip
    spans.sort(key=lambda span: (span.start_ps, stage_of[span.device]))
    begin, end = int(result._ends_ps[-2]), int(result._ends_ps[-1])
    shown = spans[: min(MAX_MARKS, MAX_MARKS_A_STAGE * len(plan.stages))]
    if len(shown) < len(spans):
        end = spans[len(shown)].start_ps
    stage_column = [stage_of[span.device] for span in shown]
    return {
        "schedule": plan.strategy.schedule,
        "virtual_stages": plan.strategy.virtual_stages,
        "num_stages": len(plan.stages),
        "num_microbatches": plan.num_microbatches,
        "num_shown": len({span.microbatch for span in shown if span.phase == FORWARD}),
        "accelerators": [int(names.accelerators[device]) for device in stage_of],
        "end_s": short((end - begin) * PS, 10),
        "is_whole": len(shown) == len(spans),
        "marks": {
            "stage": stage_column,
            "phase": [span.phase for span in shown],
            "chunk": [span.chunk or 0 for span in shown],
            "microbatch": [span.microbatch for span in shown],
            "start_s": [short((span.start_ps - begin) * PS, 10) for span in shown],
            "duration_s": [short((span.end_ps - span.start_ps) * PS, 10) for span in shown],
            "busy_s": [short(span.busy_ps * PS, 10) for span in shown],
        },
    }
