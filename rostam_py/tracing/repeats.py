"""Find what a program does again and again: stretches of its calls that are equal up to a shift by one iteration.

A repeat is any stretch of ``period`` calls that runs ``count`` times in a row: blocks of a stack, two kinds of blocks
that alternate, steps of a recurrence. Iterations are equal if, call by call,
    the functions, the constants, the forms of all tensors and the state of autograd and autocast are the same,
    integers are the same or grow by the same step from one iteration to the next,
    each tensor that is read is made at the same place of this iteration or of the one before, is a weight that only
    this iteration reads, or is one that all of them read.
What is read behind the repeat comes from its first or its last iteration, or from all of them in order.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

_NUM_PERIODS = 12  # periods that are tried, by the number of calls that come again after them
_MULTIPLES = (2, 3, 4, 5, 6)  # of the most frequent periods: patterns over several blocks
_LEAST_CALLS = 16  # that must be saved


class CallLike(Protocol):
    """What is read of a stream's calls."""

    signature: Any
    reads: tuple[int, ...]
    integers: tuple[int, ...]
    results: tuple[int, ...]
    path: str
    region: int | None
    may_repeat: bool


@dataclass(frozen=True)
class Repeat:
    """A stretch of calls that repeats, and the iterations that a trace leaves out.

    start: place of its first call. paths: of the calls' modules, by iteration. leaves: names of the weights that an
    iteration reads alone, by iteration. outer: for calls behind the repeat that read all iterations, the places of
    what skipped ones make, and what it is (its value in the last iteration before the gap).
    """

    start: int
    period: int
    count: int
    paths: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[str, ...], ...]
    first_skipped: int
    end_skipped: int
    shares_gradients: bool
    outer: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def traced(self) -> tuple[int, ...]:
        """The iterations that are traced."""
        return (*range(self.first_skipped), *range(self.end_skipped, self.count))

    @property
    def num_saved(self) -> int:
        """Calls that are left out."""
        return (self.end_skipped - self.first_skipped) * self.period


def find_repeats(calls: Sequence[CallLike], names: dict[int, str], num_ends: int | None = None) -> list[Repeat]:
    """Return the repeats of a stream of calls that are worth leaving out, in order; they do not overlap.

    Args: names: of weights, by value. num_ends: iterations traced at either end, None for as few as can be enough.
    Cost: linear in calls, for each period that is tried.
    """
    flow = _Flow(calls, names)
    found: list[Repeat] = []
    for period in _periods(flow.codes):
        for start, count in _equal_stretches(flow.codes, period):
            found.extend(flow.repeats(start, period, count, num_ends))
    chosen: list[Repeat] = []
    for repeat in sorted(found, key=lambda r: (-r.num_saved, r.period, r.start)):
        end = repeat.start + repeat.period * repeat.count
        if all(end <= c.start or repeat.start >= c.start + c.period * c.count for c in chosen):
            chosen.append(repeat)
    return sorted(chosen, key=lambda r: r.start)


def have_steady_integers(integers: Sequence[tuple[int, ...]], repeat: Repeat) -> bool:
    """Say whether the integers of a repeat's calls are constant or grow evenly over all its iterations."""
    first, second = (_integers_of(integers, repeat, k) for k in (0, 1))
    if len(first) != len(second):
        return False
    base, step = np.array(first, dtype=object), np.array(second, dtype=object) - np.array(first, dtype=object)
    for k in range(2, repeat.count):
        here = _integers_of(integers, repeat, k)
        if len(here) != len(first) or any(x != y for x, y in zip(here, base + k * step, strict=True)):
            return False
    return True


def _integers_of(integers: Sequence[tuple[int, ...]], repeat: Repeat, k: int) -> list[int]:
    begin = repeat.start + k * repeat.period
    return [number for place in range(begin, begin + repeat.period) for number in integers[place]]


def _periods(codes: Any) -> list[int]:
    """Return the distances after which many calls come again, and their multiples."""
    places: dict[int, list[int]] = {}
    for place, code in enumerate(codes.tolist()):
        places.setdefault(code, []).append(place)
    gaps: Counter[int] = Counter()
    for seen in places.values():
        if len(seen) > 2:
            gaps.update(b - a for a, b in zip(seen, seen[1:], strict=False))
    usual = [gap for gap, _ in gaps.most_common(_NUM_PERIODS)]
    return list(dict.fromkeys([*usual, *(gap * factor for gap in usual for factor in _MULTIPLES)]))


def _equal_stretches(codes: Any, period: int) -> Iterator[tuple[int, int]]:
    """Yield (start, count) of stretches in which each call equals the one a period later."""
    if period >= len(codes):
        return
    equal = np.concatenate([[0], (codes[:-period] == codes[period:]).astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(equal))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        count = (end - start) // period + 1
        if count > 3:
            yield start, count


class _Flow:
    """Who makes and who reads the values of a stream."""

    def __init__(self, calls: Sequence[CallLike], names: dict[int, str]) -> None:
        self.calls, self.names = calls, names
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(c.signature, len(numbers)) if c.may_repeat else -1 - i for i, c in enumerate(calls)]
        self.codes = np.array(codes, dtype=np.int64)
        self.made: dict[int, tuple[int, int]] = {}  # value -> (call, place among its results)
        self.readers: dict[int, list[int]] = {}
        self.begins: dict[int, int] = {}  # region -> its first call
        for place, call in enumerate(calls):
            for value in call.reads:
                self.readers.setdefault(value, []).append(place)
            for index, value in enumerate(call.results):
                if value not in self.readers:  # one that was read before is changed in place
                    self.made.setdefault(value, (place, index))
            if call.region is not None:
                self.begins.setdefault(call.region, place)

    def repeats(self, start: int, period: int, count: int, num_ends: int | None) -> Iterator[Repeat]:
        """Yield the repeats inside a stretch of equal signatures."""
        ways = [self._ways(start, period, k) for k in range(count)]
        begin = 1
        while begin < count:
            end = begin + 1
            while end < count and ways[end] == ways[begin]:
                end += 1
            lead = self._ways(start, period, begin - 1, is_first=True)
            first = begin - 1 if _leads(lead, ways[begin]) else begin
            repeat = self._repeat(start + first * period, period, end - first, ways[begin], num_ends)
            if repeat is not None:
                yield repeat
            begin = end

    def _ways(self, start: int, period: int, k: int, is_first: bool = False) -> tuple[Any, ...]:
        """Return how each tensor that an iteration reads comes to it, and where checkpointed regions begin.

        is_first: nothing before it belongs to an iteration.
        """
        base = start + k * period
        leaves: dict[int, int] = {}
        ways: list[Any] = []
        for place in range(base, base + period):
            call = self.calls[place]
            if call.region is not None:
                begin = self.begins[call.region] - base
                ways.append(("region", begin if begin >= 0 else "outside"))
            for value in call.reads:
                ways.append(self._way(value, base, period, leaves, is_first))
        return tuple(ways)

    def _way(self, value: int, base: int, period: int, leaves: dict[int, int], is_first: bool) -> tuple[Any, ...]:
        made = self.made.get(value)
        if made is not None:
            place = made[0] - base
            if 0 <= place < period:
                return ("own", place, made[1])
            if -period <= place < 0 and not is_first:
                return ("previous", place + period, made[1])
        elif value in self.names and all(0 <= r - base < period for r in self.readers[value]):
            return ("leaf", leaves.setdefault(value, len(leaves)))
        return ("outside", value)

    def _repeat(self, start: int, period: int, count: int, ways: Any, num_ends: int | None) -> Repeat | None:
        if count < 4:
            return None
        shares = self._shares_gradients(start + period, period, ways)
        head, tail = (num_ends, num_ends) if num_ends is not None else (2, 2 if shares else 1)
        repeat = Repeat(
            start=start,
            period=period,
            count=count,
            paths=(),
            leaves=(),
            first_skipped=head,
            end_skipped=count - tail,
            shares_gradients=shares,
        )
        if repeat.end_skipped - repeat.first_skipped < 2 or repeat.num_saved < _LEAST_CALLS:
            return None
        if not have_steady_integers([c.integers for c in self.calls], repeat):
            return None
        outer = self._outer(repeat)
        if outer is None:
            return None
        spans = [range(start + k * period, start + (k + 1) * period) for k in range(count)]
        paths = tuple(tuple(self.calls[place].path for place in span) for span in spans)
        return replace(repeat, paths=paths, leaves=tuple(map(self._leaves, spans)), outer=outer)

    def _leaves(self, span: range) -> tuple[str, ...]:
        read = dict.fromkeys(value for place in span for value in self.calls[place].reads)
        return tuple(
            self.names[value]
            for value in read
            if value not in self.made and value in self.names and all(r in span for r in self.readers[value])
        )

    def _shares_gradients(self, base: int, period: int, ways: Any) -> bool:
        """Say whether an iteration reads a tensor that takes a gradient and is not its own or the last one's."""
        shared = {value for kind, value, *_ in ways if kind == "outside"}
        for place in range(base, base + period):
            call = self.calls[place]
            forms = call.signature[2]
            if any(value in shared and form[3] for value, form in zip(call.reads, forms, strict=True)):
                return True
        return False

    def _outer(self, repeat: Repeat) -> dict[int, dict[int, int]] | None:
        """Return the calls behind a repeat that read all iterations; None if one reads some in the middle."""
        end = repeat.start + repeat.period * repeat.count
        found: dict[int, dict[int, int]] = {}
        for place in range(end, len(self.calls)):
            roles: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
            for argument, value in enumerate(self.calls[place].reads):
                made = self.made.get(value)
                if made is not None and repeat.start <= made[0] < end:
                    k, step = divmod(made[0] - repeat.start, repeat.period)
                    roles.setdefault((step, made[1]), []).append((k, argument, value))
            for role, reads in roles.items():
                if all(k in (0, repeat.count - 1) for k, _, _ in reads):
                    continue
                if not _is_whole_list(reads, repeat.count):
                    return None
                before = repeat.start + (repeat.first_skipped - 1) * repeat.period + role[0]
                kind = self.calls[before].results[role[1]]
                for k, argument, _ in reads:
                    if repeat.first_skipped <= k < repeat.end_skipped:
                        found.setdefault(place, {})[argument] = kind
        return found


def _leads(first: tuple[Any, ...], ways: tuple[Any, ...]) -> bool:
    """Say whether an iteration is one of those behind it, but for what it takes from the one before."""
    return len(first) == len(ways) and all(
        a == b or (b[0] == "previous" and a[0] == "outside") for a, b in zip(first, ways, strict=True)
    )


def _is_whole_list(reads: list[tuple[int, int, int]], count: int) -> bool:
    """Say whether the results of all iterations are read once each, in even distances, forwards or backwards."""
    reads = sorted(reads)
    if [k for k, _, _ in reads] != list(range(count)):
        return False
    step = reads[1][1] - reads[0][1]
    return all(argument == reads[0][1] + k * step for k, argument, _ in reads)
