"""When recorded devices ran which phase of which micro-batch: a timeline's kernels, added up.

Example:
    spans = phase_spans(names, timeline)
    spans[0].title          # "forward 3, chunk 1"
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rostam_py.plan.phases import PHASES, chunk_of, phase_of
from rostam_py.simulation.compile import GraphNames

OPTIMIZER = "optimizer"
_Key = tuple[int, int, int, bool]  # template, micro-batch, iteration, whether it is the optimizer's part
_KEYS = ("template", "task", "microbatch", "iteration", "start_ps", "end_ps")


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase of a micro-batch on a device, from its first kernel to its last.

    phase: one of PHASES, or the optimizer's step. chunk: of layers, None on a device with one. busy_ps: of kernels;
    the rest of the span are waits inside the phase, for tensor parallelism above all.
    """

    device: int
    phase: str
    chunk: int | None
    microbatch: int
    iteration: int
    start_ps: int
    end_ps: int
    busy_ps: int

    @property
    def title(self) -> str:
        """What runs: "forward 3, chunk 1"; the optimizer steps once, for all micro-batches."""
        if self.phase == OPTIMIZER:
            return self.phase
        return f"{self.phase} {self.microbatch}" + ("" if self.chunk is None else f", chunk {self.chunk}")


def recorded_stages(
    names: GraphNames, timeline: Mapping[str, np.ndarray], accelerators: np.ndarray, num_stages: int
) -> dict[int, int] | None:
    """Return a recorded device of each stage of the job on the accelerators, with its stage; None if one has none."""
    recorded = np.unique(timeline["device"])
    recorded = recorded[np.isin(names.accelerators[recorded], accelerators)]
    stages, first = np.unique(names.stage_of[recorded], return_index=True)
    if len(stages) < num_stages:
        return None
    return dict(zip(recorded[first].tolist(), stages.tolist(), strict=True))


def phase_spans(names: GraphNames, timeline: Mapping[str, np.ndarray], iteration: int | None = None) -> list[PhaseSpan]:
    """Return the spans of recorded devices, by device and start; templates that are no phase have none.

    Model: kernels of one instance of a template are one span, the optimizer's another. A wait for another stage's
        message that begins after some kernels of the instance is no part of it: there is a span on either side.
    Args: iteration: of this one alone.
    """
    is_wanted = np.ones(len(timeline["device"]), bool) if iteration is None else timeline["iteration"] == iteration
    spans: list[PhaseSpan] = []
    for device in np.unique(timeline["device"][is_wanted]).tolist():
        mine = np.flatnonzero(is_wanted & (timeline["device"] == device))
        mine = mine[np.lexsort((timeline["end_ps"][mine], timeline["start_ps"][mine]))]
        spans += _spans_of(names, device, list(zip(*(timeline[key][mine].tolist() for key in _KEYS), strict=True)))
    return spans


def _spans_of(names: GraphNames, device: int, rows: list[tuple[int, ...]]) -> Iterator[PhaseSpan]:
    """Yield the spans of a device whose recorded tasks are in the order of their start."""
    arrivals: dict[tuple[int, int, int], list[int]] = {}
    for template, task, microbatch, iteration, _, end in rows:
        if names.templates[template].tasks[task].kind == "recv":
            arrivals.setdefault((template, microbatch, iteration), []).append(end)
    open_key: _Key | None = None
    begin = stop = busy = 0
    for template, task, microbatch, iteration, start, end in rows:
        info = names.templates[template]
        entry = info.tasks[task]
        if entry.kind != "compute" or phase_of(info.name) not in PHASES:
            continue
        instance = template, microbatch, iteration
        key = (*instance, entry.is_optimizer)
        has_waited = any(stop < arrival <= start for arrival in arrivals.get(instance, ()))
        if open_key is not None and (key != open_key or has_waited):
            yield _span(names, device, open_key, begin, stop, busy)
            open_key = None
        if open_key is None:
            open_key, begin, busy = key, start, 0
        stop, busy = end, busy + end - start
    if open_key is not None:
        yield _span(names, device, open_key, begin, stop, busy)


def _span(names: GraphNames, device: int, key: _Key, begin: int, stop: int, busy: int) -> PhaseSpan:
    template, microbatch, iteration, is_optimizer = key
    name = names.templates[template].name
    phase, chunk = (OPTIMIZER, None) if is_optimizer else (phase_of(name), chunk_of(name))
    return PhaseSpan(device, phase, chunk, microbatch, iteration, begin, stop, busy)
