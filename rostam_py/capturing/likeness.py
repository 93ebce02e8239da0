"""Whether two steps of a rank, or the same step of two ranks, are one: row by row, groups and events renamed.

Model: kernels are equal by op, shapes, types and arguments; communications by kind, bytes, the size of the group, how
far the peer is, and the number of the group in the order in which groups first communicate; events and joins by the
row that they refer to, those of earlier steps alike.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from rostam_py.capturing.records import MESSAGES, Record, Row
from rostam_py.errors import ConfigError

_EARLIER = -1  # a row of an earlier step


def check_repeats(record: Record) -> None:
    """Raise ConfigError unless the recorded step of a rank is the one before once more."""
    found = first_difference(record, record.before, record, record.rows)
    if found is not None:
        place, before, now = found
        step = record.step
        raise ConfigError(
            f"step {step} of rank {record.rank} is not step {step - 1} once more: row {place} is {now}, and was"
            f" {before}; choose a later --step, from which on the program repeats its steps"
        )


def first_difference(
    first: Record, rows: Sequence[Row], second: Record, others: Sequence[Row]
) -> tuple[int, str, str] | None:  # fmt: skip
    """Return the first row that differs, and both in words; None if all are alike."""
    ours, theirs = list(_keys(first, rows)), list(_keys(second, others))
    for place, (mine, its) in enumerate(zip(ours, theirs, strict=False)):
        if mine != its:
            return place, _words(first, rows[place]), _words(second, others[place])
    if len(ours) == len(theirs):
        return None
    place = min(len(ours), len(theirs))
    return place, _words_at(first, rows, place), _words_at(second, others, place)


def _keys(record: Record, rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield what tells rows apart."""
    events: dict[int, int] = {}
    places: dict[int, int] = {}
    for place, (kind, stream, what) in enumerate(rows):
        if kind == "kernel":
            yield kind, stream, record.kernels[what].key
        elif kind == "comm":
            places[what] = place
            yield kind, stream, _communication(record, record.communications[what])
        elif kind == "record":
            events[what] = place
            yield kind, stream
        elif kind in ("wait", "host"):
            yield kind, stream, what == -1, events.get(what, _EARLIER)
        elif kind == "join":
            yield kind, stream, places.get(what, _EARLIER)
        else:
            yield kind, stream, what


def _communication(record: Record, one: dict[str, Any]) -> tuple[Any, ...]:
    group = record.groups[one["group"]]
    peer = record.peer_offset(one) if one["kind"] in MESSAGES else None
    parts = None if one["send_bytes"] is None else tuple(one["send_bytes"])
    return (
        one["kind"], one["num_bytes"], one["group"], len(group.ranks), one["is_own"], peer, one["root"], parts,
    )  # fmt: skip


def _words_at(record: Record, rows: Sequence[Row], place: int) -> str:
    return _words(record, rows[place]) if place < len(rows) else "the end"


def _words(record: Record, row: Row) -> str:
    kind, stream, what = row
    if kind == "kernel":
        return f"{record.kernels[what].words} (at {record.kernels[what].source})"
    if kind == "comm":
        one = record.communications[what]
        group = record.groups[one["group"]]
        return f"{one['kind']} of {one['num_bytes']} bytes in a group of {len(group.ranks)} ranks"
    said = {
        "record": "an event of", "wait": "a wait for an event on", "join": "a wait for a collective on",
        "host": "a wait of the host for",
    }  # fmt: skip
    return f"{said.get(kind, kind)} stream {stream}"
