"""Program: in which order a device runs its templates; repeated stretches are stored once.

Example:
    Program((Segment((("forward", 0),), 3), Segment((("forward", 3), ("backward", 0)), 5)))    # 3 F, then 5 x F B

Memory is that of the segments, whatever the number of micro-batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError

Entry = tuple[str, int]  # template, micro-batch


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch that repeats, its micro-batches ``stride`` higher each time.

    entries: (template, micro-batch in the first repetition). count: repetitions.
    """

    entries: tuple[Entry, ...]
    count: int = 1
    stride: int = 1

    def __post_init__(self) -> None:
        if not is_integer(self.count) or self.count < 1:
            raise ConfigError(f"program segment has count {self.count!r}; it must be an integer >= 1")
        if not is_integer(self.stride) or self.stride < 1:
            raise ConfigError(f"program segment has stride {self.stride!r}; it must be an integer >= 1")
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
                    yield name, microbatch + repetition * segment.stride

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
                later = tuple((template, m + segment.stride) for template, m in segment.entries)
                found.append(Segment(later, segment.count - 1, segment.stride))
            return Program((*found, *self.segments[place + 1 :]))
        return self

    def peak(self, changes: Mapping[str, tuple[float, float]]) -> float:
        """Return the most of something that templates take and give back, which is 0 when the program begins.

        Args: changes: template -> what its begin and its end add; templates that are left out change nothing.
        Cost: entries of the segments, whatever their repetitions.
        """
        level = highest = 0.0
        for segment in self.segments:
            net = top = 0.0
            for name, _ in segment.entries:
                for change in changes.get(name, ()):
                    net += change
                    top = max(top, net)
            # Repetitions change the level by the same amount, so the highest is in the first or in the last of them.
            highest = max(highest, level + top, level + top + net * (segment.count - 1))
            level += net * segment.count
        return highest
