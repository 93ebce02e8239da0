"""Lost time: where the time goes that failures cost a job, by cause and by the kind of part that failed.

Example:
    lost = lost_time(result.outage_log, without.outage_log, spans_of(failures, after_ps=0))
    lost.total_s("detection"), lost.by_kind_s()["links"]

Model: MODEL F19, in whole picoseconds, so that all parts sum to the difference. A job is down from its cut until it
    goes on: "detection", "waiting" for a repair where there is no spare, "restarting", as the controller of failures
    logs it. What it had done since its last checkpoint when it was cut is "redone". An iteration that counted lasts
    from the end of the one before it, or a restart, to its own end, and longer than without failures where it was
    "stalled": its critical path waits for messages that nothing carries, for at most as long as the iteration is
    longer; or, the rest, by longer or shared "ways", cold starts behind restarts included, which may be below 0.
    "replicas" are iterations of a job that has shrunk. Circuits that change are dark without failures, too: there
    "stalled" is what comes on top of that.
    Down and redone are put down to the failure that holds, or cut, the job; stalls to the first failure that the
    messages suffer from; ways to the failures whose parts have failed, or are not used again yet, in the iteration, by
    how long, and else to the last one before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import InternalError
from rostam_py.plan.failures import Failure
from rostam_py.simulation.outage_log import PHASES, Down, OutageLog, RestartSpan, Stall
from rostam_py.simulation.picoseconds import PS
from rostam_py.units import format_time, parse_time

REDONE, STALLED, WAYS, REPLICAS = "redone", "stalled", "ways", "replicas"
DOWN_CAUSES, SLOWER_CAUSES = PHASES, (STALLED, WAYS, REPLICAS)
CAUSES = (*DOWN_CAUSES, REDONE, *SLOWER_CAUSES)
OTHER = "other"  # than failures: controllers that restart jobs, rounding
_RESTARTING = PHASES[-1]
# Causes in words, and what they are parts of.
WORDS = {
    "detection": "detection", "waiting": "waiting for a repair", "restarting": "restart", "redone": "redone",
    "stalled": "stalled", "ways": "longer or shared ways", "replicas": "fewer replicas",
}  # fmt: skip
_GROUPS = {"down": DOWN_CAUSES, "redone": (REDONE,), "slower": SLOWER_CAUSES}


def lost_words(lost_s: Mapping[str, float]) -> str:
    """Return where time goes in words: "down 30 ms, redone 8 ms, slower 0 s". Args: lost_s: by cause; 0 if left out."""
    sums = {name: sum(lost_s.get(cause, 0.0) for cause in causes) for name, causes in _GROUPS.items()}
    return ", ".join(f"{name} {signed_time(seconds)}" for name, seconds in sums.items())


def cause_words(lost_s: Mapping[str, float]) -> dict[str, str]:
    """Return what time down and slower is made of, in words: {"down": "detection 10 ms, restart 20 ms"}."""
    found = {
        name: ", ".join(f"{WORDS[cause]} {signed_time(lost_s[cause])}" for cause in _GROUPS[name] if lost_s.get(cause))
        for name in ("down", "slower")
    }
    return {name: words for name, words in found.items() if words}


def part_words(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what each kind of part that failed cost, in words, where there are several; of OutageTimes' document."""
    parts = document["lost_by_part_s"]
    if len(parts) < 2:
        return {}
    return {
        part.replace("_", " "): f"{signed_time(sum(lost_s.values()))}: {lost_words(lost_s)}"
        for part, lost_s in parts.items()
    }


def signed_time(seconds: float) -> str:
    """Return a time in words, with its sign if that is a minus."""
    return f"{'-' if seconds < 0 else ''}{format_time(abs(seconds))}"


@dataclass(slots=True)
class LostTime:
    """Picoseconds by cause and kind of part; they add up."""

    table: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, cause: str, kind: str, ps: int) -> None:
        """Put time down to a cause and a kind of part."""
        if ps:
            self.table[cause, kind] = self.table.get((cause, kind), 0) + ps

    def add_all(self, other: "LostTime") -> None:
        """Add another's."""
        for (cause, kind), ps in other.table.items():
            self.add(cause, kind, ps)

    @property
    def total_ps(self) -> int:
        """All of it."""
        return sum(self.table.values())

    def total_s(self, *causes: str) -> float:
        """Return what was lost to these causes [s]."""
        return sum(ps for (cause, _), ps in self.table.items() if cause in causes) * PS

    def by_kind_s(self) -> dict[str, dict[str, float]]:
        """Return what was lost to each kind of part, and by which causes [s]; none of 0."""
        kinds = dict.fromkeys(kind for _, kind in self.table)
        return {
            kind: {cause: self.table[cause, kind] * PS for cause in CAUSES if self.table.get((cause, kind))}
            for kind in kinds
        }


@dataclass(frozen=True, slots=True)
class Span:
    """When a part was failed, and until routes or circuits use it again."""

    begin_ps: int
    end_ps: float
    kind: str


def spans_of(failures: Iterable[Failure], after_ps: int) -> list[Span]:
    """Return when failures last, by begin. Args: after_ps: from a repair until the part is used again."""
    found = []
    for one in failures:
        end = float("inf") if one.repair is None else _ps(one.repair) + after_ps
        found.append(Span(_ps(one.time), end, one.kind))
    return sorted(found, key=lambda span: (span.begin_ps, span.kind))


def lost_time(
    log: OutageLog, without: OutageLog, failures: Sequence[Span], *, has_light: bool = False, rest: str = WAYS
) -> LostTime:
    """Return where the time goes that iterations take longer than without failures.

    Args: without: of the same iterations. failures: ``spans_of`` all of the run. has_light: circuits of the fabric are
        set around what fails; stalls of both logs must be known. rest: of WAYS and REPLICAS.
    Raises: InternalError unless it sums to the difference.
    """
    lost = LostTime()
    ends, usual = log.ends_ps, [b - a for a, b in zip(without.ends_ps, without.ends_ps[1:], strict=False)]
    begins = list(ends[:-1])
    last_start = 0
    for one in log.restarts:
        downs = [down for down in log.downs if one.cut_ps <= down.begin_ps and down.end_ps <= one.start_ps]
        _add_downs(lost, one, downs)
        cause = _kind_at(failures, one.cut_ps, downs[0].failure if downs else None)
        lost.add(REDONE, cause, one.cut_ps - max(ends[one.from_iteration], last_start))
        last_start = one.start_ps
        begins[one.from_iteration] = max(begins[one.from_iteration], one.start_ps)
    stalls, normal = (_by_iteration(one.stalls, failures, has_light) for one in (log, without))
    for i, begin in enumerate(begins):
        slower = ends[i + 1] - begin - usual[i]
        found = stalls.get(i, {})
        more = sum(found.values()) - sum(normal.get(i, {}).values())
        by_kind = {kind: ps for kind, ps in found.items() if kind != OTHER}
        counted = min(max(0, more), max(0, slower)) if by_kind else 0
        for kind, ps in _divided(counted, by_kind).items():
            lost.add(STALLED, kind, ps)
        for kind, ps in _divided(slower - counted, _in_force(failures, begin, ends[i + 1])).items():
            lost.add(rest, kind, ps)
    _check_sum(lost.total_ps, ends[-1] - ends[0] - sum(usual))
    return lost


def _add_downs(lost: LostTime, restart: RestartSpan, downs: Sequence[Down]) -> None:
    """Add the phases of a restart; what no controller of failures logged is its restart's."""
    known = 0
    for one in downs:
        lost.add(one.phase, OTHER if one.failure is None else one.failure.kind, one.end_ps - one.begin_ps)
        known += one.end_ps - one.begin_ps
    lost.add(_RESTARTING, OTHER, restart.start_ps - restart.cut_ps - known)


def _by_iteration(stalls: Sequence[Stall], failures: Sequence[Span], has_light: bool) -> dict[int, dict[str, int]]:
    """Return how long iterations were stalled, by kind of part; by dark circuits only where failures darken some."""
    found: dict[int, dict[str, int]] = {}
    for one in stalls:
        if one.failure is not None or has_light:
            kind, own = _kind_at(failures, one.begin_ps, one.failure), found.setdefault(one.iteration, {})
            own[kind] = own.get(kind, 0) + one.end_ps - one.begin_ps
    return found


def _kind_at(failures: Sequence[Span], time_ps: int, failure: Failure | None) -> str:
    """Return the kind of a failure; where it is not known, of the first one in force then, or the last one before."""
    if failure is not None:
        return failure.kind
    begun = [one for one in failures if one.begin_ps <= time_ps]
    in_force = [one for one in begun if time_ps < one.end_ps]
    return in_force[0].kind if in_force else begun[-1].kind if begun else OTHER


def _in_force(failures: Sequence[Span], begin_ps: int, end_ps: int) -> dict[str, int]:
    """Return for how long failures of each kind were in force in a time; of the last one before it if none was."""
    found: dict[str, int] = {}
    last = OTHER
    for one in failures:
        if one.begin_ps >= end_ps:
            break
        last = one.kind
        both = int(min(end_ps, one.end_ps)) - max(begin_ps, one.begin_ps)
        if both > 0:
            found[one.kind] = found.get(one.kind, 0) + both
    return found or {last: 1}


def _divided(ps: int, weights: dict[str, int]) -> dict[str, int]:
    """Return a time divided by weights, in whole picoseconds that sum to it."""
    total, cursor, given = sum(weights.values()), 0, 0
    found = {}
    for kind, weight in weights.items():
        cursor += weight
        found[kind] = ps * cursor // total - given
        given += found[kind]
    return found


def _check_sum(lost_ps: int, difference_ps: int) -> None:
    if lost_ps != difference_ps:
        raise InternalError(f"lost times sum to {lost_ps} ps, but iterations took {difference_ps} ps longer")


def _ps(time: str | float) -> int:
    return round(parse_time(time, "failure.time") / PS)
