"""Program: in which order a device runs its templates; repeated stretches are stored once.

Example:
    Program((Segment((("forward", 0),), 3), Segment((("forward", 3), ("backward", 0)), 5)))    # 3 F, then 5 x F B

Memory is that of the segments, whatever the number of micro-batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError

Entry = tuple[str, int]  # template, micro-batch


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch that repeats, its micro-batches one higher each time.

    entries: (template, micro-batch in the first repetition). count: repetitions.
    """

    entries: tuple[Entry, ...]
    count: int = 1

    def __post_init__(self) -> None:
        if not is_integer(self.count) or self.count < 1:
            raise ConfigError(f"program segment has count {self.count!r}; it must be an integer >= 1")
        for entry in self.entries:
            is_pair = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
            if not is_pair or not is_integer(entry[1]) or entry[1] < 0:
                raise ConfigError(f"program entry is {entry!r}; it must be (template, micro-batch >= 0)")


@dataclass(frozen=True, slots=True)
class Program:
    """One iteration of a device: segments in order. Iterating yields (template, micro-batch), one at a time."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Program":
        """Return a program of entries that are written out."""
        written = tuple((name, int(microbatch)) for name, microbatch in entries)
        return cls((Segment(written),) if written else ())

    def __iter__(self) -> Iterator[Entry]:
        for segment in self.segments:
            for repetition in range(segment.count):
                for name, microbatch in segment.entries:
                    yield name, microbatch + repetition

    def __len__(self) -> int:
        return sum(len(segment.entries) * segment.count for segment in self.segments)

    def counts(self) -> dict[str, int]:
        """Return how often each template runs, in the order of first use."""
        found: Counter[str] = Counter()
        for segment in self.segments:
            for name, _ in segment.entries:
                found[name] += segment.count
        return dict(found)

    def with_first(self, name: str, first: str) -> "Program":
        """Return the program in which the first instance of template ``name`` is one of template ``first``."""
        found: list[Segment] = []
        for place, segment in enumerate(self.segments):
            at = next((k for k, (template, _) in enumerate(segment.entries) if template == name), None)
            if at is None:
                found.append(segment)
                continue
            entries = list(segment.entries)
            entries[at] = first, entries[at][1]
            found.append(Segment(tuple(entries)))
            if segment.count > 1:
                found.append(Segment(tuple((t, m + 1) for t, m in segment.entries), segment.count - 1))
            return Program((*found, *self.segments[place + 1 :]))
        return self
