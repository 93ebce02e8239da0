"""Stored results: the newest of a processor, and what has become slower since."""

import json
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement

STORED = Path(__file__).parent / "results"
WORST_RATIO = 1.5  # of CPU seconds; runs of one build on a busy machine differ by up to a third
LEAST_S = 0.1  # smaller differences are the clock's and the machine's


def newest(folder: Path, processor: str) -> dict[str, Any] | None:
    """Return the stored result of the latest date that this processor measured, with its ``file``, or None."""
    found = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        # A comparison of checkouts (benchmarks.against) has no figures: a list, or rows of "there".
        if isinstance(document, list) or any("there" in one for one in document["measurements"]):
            continue
        if document["machine"]["processor"] == processor:
            found.append({**document, "file": path.name})
    return max(found, key=lambda one: (one["date"], one["file"]), default=None)


def regressions(before: list[dict[str, Any]], now: list[Measurement]) -> list[str]:
    """Return a line for each case that takes over ``WORST_RATIO`` x and ``LEAST_S`` more CPU seconds than it took.

    A case that was ended at its limit before has no time to compare with; one that is ended now takes at least its
    limit.
    """
    took = {one["name"]: one["cpu_s"] for one in before if not one["error"] and not one.get("is_over")}
    found = []
    for one in now:
        if one.error or one.name not in took:
            continue
        old = took[one.name]
        if one.cpu_s > WORST_RATIO * old and one.cpu_s > old + LEAST_S:
            more = "more than " if one.is_over else ""
            found.append(f"{one.name}: {more}{one.cpu_s:.3g} CPU s, was {old:.3g}")
    return found
