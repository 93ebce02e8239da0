"""Pairs of a program: a forward, and behind it, in one segment, the backward of an earlier micro-batch.

They may take turns, or send and receive what they need together.

Example:
    pair_up(Program((Segment((("forward", 1), ("backward", 0)), 3),)))[0]   # 3 x one entry of micro-batch 0, 1, 2
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rostam_py.plan.phases import BACKWARDS, FORWARD, phase_of
from rostam_py.plan.program import Entry, Program, Segment


@dataclass(frozen=True, slots=True)
class Pair:
    """A forward and a backward. ahead: micro-batches that the forward is ahead of the backward."""

    forward: str
    backward: str
    ahead: int

    @property
    def name(self) -> str:
        """A name of its own in a program."""
        return f"{self.forward} and {self.backward}, {self.ahead} ahead"


def pair_up(program: Program) -> tuple[Program, dict[str, Pair]]:
    """Return a program in which every pair is one entry, with the backward's micro-batch, and the pairs by name."""
    pairs: dict[str, Pair] = {}
    segments = []
    for segment in program.segments:
        entries = []
        for one, other in _in_pairs(segment):
            if other is not None:
                pair = Pair(one[0], other[0], one[1] - other[1])
                pairs[pair.name] = pair
                one = pair.name, other[1]
            entries.append(one)
        segments.append(Segment(tuple(entries), segment.count, segment.stride))
    return Program(tuple(segments)), pairs


def backwards_first(program: Program) -> Program:
    """Return a program in which the two of every pair have changed places."""
    segments = []
    for segment in program.segments:
        entries = [entry for pair in _in_pairs(segment) for entry in reversed(pair) if entry is not None]
        segments.append(Segment(tuple(entries), segment.count, segment.stride))
    return Program(tuple(segments))


def _in_pairs(segment: Segment) -> Iterator[tuple[Entry, Entry | None]]:
    """Yield a segment's entries, a forward with the backward behind it, others alone."""
    waiting: Entry | None = None
    for entry in segment.entries:
        if waiting is not None:
            if phase_of(entry[0]) in BACKWARDS and entry[1] <= waiting[1]:
                yield waiting, entry
                waiting = None
                continue
            yield waiting, None
        waiting = entry if phase_of(entry[0]) == FORWARD else None
        if waiting is None:
            yield entry, None
    if waiting is not None:
        yield waiting, None
