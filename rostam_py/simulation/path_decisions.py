"""What controllers of paths decided in a run, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rostam_py.units import format_number_of

_NAME, _HASHED = "path_assignment", "hash"
_CHOOSING = (_NAME, "path_rehash")


def decision_notes(
    acting: Sequence[tuple[str, Mapping[str, Any]]], reports: Sequence[Mapping[str, Any]], routing: str
) -> Iterator[str]:
    """Yield notes of each controller that assigned paths. Args: acting, reports: in the same order."""
    for (name, _), report in zip(acting, reports, strict=False):
        if name not in _CHOOSING:
            continue
        if routing != _HASHED:
            yield (
                f"{name} gives large messages single paths, where routing={routing} has others for them; it is for"
                f" routing={_HASHED}"
            )
        if name != _NAME:
            continue
        count = len(report["decision_ps"])
        if count == 0:
            yield f"{_NAME} decided nothing: no pair with a choice of paths sent messages of least_bytes or more"
            continue
        yield (
            f"{_NAME} decided {format_number_of(count, 'time')}, for up to {max(report['num_commodities']):,} pairs;"
            f" at most {max(report['largest_load']):g} of their paths share a link, if all send at once"
        )
        if unplanned := sum(report["num_unplanned"]):
            yield f"{_NAME} had no planned path {format_number_of(unplanned, 'time')} and assigned one as greedy does"
