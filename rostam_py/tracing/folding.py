"""Trace a program that repeats from a few iterations: watch it, find what repeats, trace that, grow the trace.

tracing/stream.py records and follows calls, tracing/repeats.py finds repeats in them, tracing/growing.py fills the gap.
"""

import contextlib

from rostam_py.errors import TracingError
from rostam_py.tracing.checkpoints import Regions
from rostam_py.tracing.finishing import finish
from rostam_py.tracing.growing import grow
from rostam_py.tracing.iterations import UnevenError
from rostam_py.tracing.laws import UnevenBatchError
from rostam_py.tracing.pairing import Draft, pair_traces, with_notes
from rostam_py.tracing.quick import NeedsRunError
from rostam_py.tracing.repeats import find_repeats, have_steady_integers
from rostam_py.tracing.running import Attempt, RouteFailedError, prepared, reason_of, run_both
from rostam_py.tracing.step import ModuleTrail, module_path, named_tensors, parameter_names
from rostam_py.tracing.stream import Player, Recorder, Stream
from rostam_py.tracing.subject import Subject

_MORE_ENDS = 3  # iterations traced at either end of a repeat where as few as may be were too few


class NotFoldedError(Exception):
    """Why a program that repeats cannot be traced from a few iterations."""


def fold(subject: Subject, attempt: Attempt, batches: tuple[int, int]) -> Draft | None:
    """Trace what repeats a few times only, and grow it; None where nothing repeats. Raises: NotFoldedError."""
    try:
        stream = watch(subject, batches[0], is_quick=True)
    except (NeedsRunError, NotFoldedError):
        stream = watch(subject, batches[0], is_quick=False)
    reason = ""
    for num_ends in (None, _MORE_ENDS):
        repeats = find_repeats(stream.calls, stream.names, num_ends)
        if not repeats:
            break
        players = Player(stream, repeats), Player(stream, repeats)
        try:
            raws = run_both(subject, attempt, batches, players)
            if not all(have_steady_integers(p.integers, repeat) for p in players for repeat in repeats):
                raise NotFoldedError("at another batch its iterations differ")
            draft = finish(pair_traces(raws[0], raws[1], batches), raws[0])
            grown, num_checkpoints = grow(draft, raws[0], batches[0], repeats)
        except UnevenError as error:
            reason = str(error)
            continue
        except (RouteFailedError, TracingError) as error:  # the whole trace says it, if it is the program's
            raise NotFoldedError(str(error)) from error
        return with_notes(grown, raws[0].unknown_flops, num_checkpoints)
    if reason:
        raise NotFoldedError(reason)
    return None


def watch(subject: Subject, batch: int, is_quick: bool) -> Stream:
    """Run the step on fake tensors and return its calls. Raises: NotFoldedError, NeedsRunError of a quick run."""
    with prepared(subject, batch) as (step, inputs, mode):
        regions = Regions(lambda number: contextlib.nullcontext())
        trail = ModuleTrail(step, lambda name: contextlib.nullcontext())
        recorder = Recorder(
            mode,
            named_tensors(step, parameter_names(step)),
            lambda: module_path(trail.current),
            regions,
            is_quick,
        )
        step.around = recorder.watch
        try:
            with mode, regions.watch():
                step(*inputs)
        except (UnevenBatchError, NeedsRunError):
            raise
        except Exception as error:  # a program's own, of any kind: if it can be traced at all, it is told
            raise NotFoldedError(f"it cannot be run on its own: {reason_of(error, [trail])}") from error
        finally:
            trail.remove()
        return recorder.stream
