"""What controllers of paths decided in a run, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rostam_py.units import format_number_of

_NAME = "path_assignment"


def decision_notes(
    acting: Sequence[tuple[str, Mapping[str, Any]]], reports: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield a note for each controller that assigned paths. Args: acting, reports: in the same order."""
    for (name, _), report in zip(acting, reports, strict=False):
        if name != _NAME:
            continue
        count = len(report["decision_ps"])
        if count == 0:
            yield f"{_NAME} decided nothing: no pair with a choice of paths sent messages of least_bytes or more"
            continue
        yield (
            f"{_NAME} decided {format_number_of(count, 'time')}, for up to {max(report['num_commodities']):,} pairs;"
            f" at most {max(report['largest_load']):g} of their paths share a link"
        )
