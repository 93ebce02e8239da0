"""Changes of the network during a run: dark circuits, failed parts, waits for new routes, jobs that are cut.

Example:
    for one in changes_of(result.controllers, result.restarts, result.reconfigurations, result.moves, end_ps):
        one.lane, one.words, one.begin_ps, one.end_ps
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.simulation.network import link_name
from rostam_py.simulation.reconfigurations import Reconfigurations
from rostam_py.simulation.restarts import Restart

CIRCUITS, FAILED, REROUTING, RESTARTS = "circuits", "failed parts", "new routes", "restarts"
MOVED = "moved messages"
LANES = (CIRCUITS, FAILED, REROUTING, MOVED, RESTARTS)
_PS = 1e-12
_PARTS = (("accelerator", "accelerators"), ("link", "links"), ("switch", "switches"))  # by the core's kind
_NAMED = 4
_TOLD_APART = 16  # messages of one time, by the core


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as usual for a while. lane: of LANES. count: circuits or parts; of a restart, 1."""

    lane: str
    words: str
    begin_ps: int
    end_ps: int
    count: int


@dataclass(frozen=True, slots=True)
class MovedMessage:
    """A message that took other links. ends: "3 -> 7". left, taken: its links before and after, in words.

    end_ps: when its last byte had left, or it took others again; None if it was under way when the run ended.
    """

    ends: str
    left: str
    taken: str
    end_ps: int | None


@dataclass(frozen=True, slots=True)
class Move:
    """Messages that took other links when routes were renewed. messages: the first of them.

    wait_ps: from the failure or repair until then.
    """

    time_ps: int
    wait_ps: int
    num_messages: int
    messages: tuple[MovedMessage, ...]


def moves_of(fabric: Any, router: Any, parameters: Mapping[str, Any], report: Mapping[str, Any]) -> list[Move]:
    """Return what a run's failures moved. Args: parameters, report: what the controller of failures got, and said."""
    links, members = fabric.links, router.members

    def paths(kind: str) -> list[str]:
        cut = np.split(report[f"{kind}_links"], np.cumsum(report[f"{kind}_num_links"])[:-1])
        return ["; ".join(link_name(fabric, links, members[link][0]) for link in one.tolist()) for one in cut]

    each = zip(
        *(report[key].tolist() for key in ("moved_src", "moved_dst", "moved_end_ps")), paths("left"), paths("moved"),
        strict=False,
    )  # fmt: skip
    messages = [
        MovedMessage(f"{src} -> {dst}", left, taken, None if end < 0 else end) for src, dst, end, left, taken in each
    ]
    found, told = [], 0
    for time, count in zip(report["move_ps"].tolist(), report["num_moved"].tolist(), strict=True):
        first, told = told, told + min(count, _TOLD_APART)
        found.append(Move(time, parameters["reroute_ps"][0], count, tuple(messages[first:told])))
    return found


def changes_of(
    controllers: Iterable[Mapping[str, Any]],
    restarts: Iterable[Restart],
    switched: Reconfigurations | None,
    moves: Iterable[Move],
    end_ps: int,
) -> list[Change]:
    """Return the changes of a run by lane and begin.

    Model: parts that fail and are repaired together are one change; parts never repaired last until ``end_ps``, the
        end of the run. From a failure or repair until routes are recomputed, messages on failed links wait; of those
        that take other links then, as many as are told apart are changes until their last byte has left.
    """
    found: list[Change] = []
    if switched is not None:
        found += _failed_light(switched, end_ps)
        found += [
            Change(CIRCUITS, f"{count:,} circuits change", begin, end, count)
            for begin, end, count in switched.spans_ps()
        ]
    for one in controllers:
        if one["name"] == "failures":
            found += _failures(one, end_ps)
    for move in moves:
        for message in move.messages:
            end = end_ps if message.end_ps is None else message.end_ps
            words = f"{message.ends}: {message.taken}; before: {message.left}"
            found.append(Change(MOVED, words, move.time_ps, end, 1))
    for restart in restarts:
        words = f"cut, goes on with iteration {restart.from_iteration}"
        found.append(Change(RESTARTS, words, round(restart.cut_s / _PS), round(restart.start_s / _PS), 1))
    return sorted(found, key=lambda change: (LANES.index(change.lane), change.begin_ps, change.end_ps, change.words))


def _failures(parameters: Mapping[str, Any], end_ps: int) -> list[Change]:
    together: dict[tuple[int, int, int], list[int]] = {}
    for kind, number, begin, repair in zip(
        *(parameters[key] for key in ("kind", "id", "fail_ps", "repair_ps")), strict=True
    ):
        end = end_ps if repair < 0 or repair > end_ps else repair
        if begin < end:
            together.setdefault((kind, begin, end), []).append(number)
    found = [
        Change(FAILED, _named(kind, numbers), begin, end, len(numbers))
        for (kind, begin, end), numbers in together.items()
    ]
    wait = parameters["reroute_ps"][0]
    if wait:
        begins = {begin for _, begin, _ in together} | {end for _, _, end in together if end < end_ps}
        found += [Change(REROUTING, "routes are recomputed", begin, begin + wait, 1) for begin in sorted(begins)]
    return found


def _failed_light(switched: Reconfigurations, end_ps: int) -> list[Change]:
    """Return the changes of parts that circuits go through, and from when on circuits were planned around them."""
    found, begins = [], set()
    for words, begin, repair in switched.failed:
        end = end_ps if repair < 0 or repair > end_ps else repair
        if begin < end:
            found.append(Change(FAILED, words, begin, end, 1))
            begins |= {begin} | ({end} if end < end_ps else set())
    if wait := switched.reroute_ps:
        found += [Change(REROUTING, "circuits wait for a plan", begin, begin + wait, 1) for begin in sorted(begins)]
    return found


def _named(kind: int, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
    return f"{_PARTS[kind][len(numbers) > 1]} {shown}"


MAX_MARKS = 2_000  # of a document: more side by side are a blur on a page 900 pixels wide


def changes_detail(changes: Sequence[Change], ends_ps: Sequence[int]) -> dict[str, Any] | None:
    """Return the changes of a run for the figure of its report, None where nothing changed.

    Args: ends_ps: of iterations, the run's begin first.
    """
    if not changes:
        return None
    shown = sorted(changes, key=lambda one: one.begin_ps)[:MAX_MARKS]
    return {
        "iteration_ends_s": [int(end) * _PS for end in ends_ps],
        "num_changes": len(changes),
        "marks": {
            "lane": [one.lane for one in shown], "words": [one.words for one in shown],
            "begin_s": [one.begin_ps * _PS for one in shown], "end_s": [one.end_ps * _PS for one in shown],
            "count": [one.count for one in shown],
        },
    }  # fmt: skip
