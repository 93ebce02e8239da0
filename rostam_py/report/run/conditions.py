"""Under which conditions a run's figures hold, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from rostam_py.plan.algorithms import algorithm_words

_MOST_NAMED = 4  # different sets of algorithms that a caption names


def algorithms_said(detail: Mapping[str, Any]) -> str:
    """Return a sentence that names the algorithms of a run's collectives, of a mix those of each job, alike ones once.

    Empty where there were none, or none are named.
    """
    words = algorithm_words(detail.get("result", {}).get("algorithms", ()))
    jobs = detail.get("jobs") or ()
    ran: dict[str, list[str]] = {}
    for job in jobs:
        ran.setdefault(job.get("algorithms") or "none", []).append(job["name"])
    if len(ran) > _MOST_NAMED:
        return " Algorithms differ between jobs: see the table of jobs."
    if len(ran) > 1:
        words = " | ".join(f"{one} ({', '.join(names)})" for one, names in ran.items())
    return f" Algorithms: {words}." if words else ""


def planes_said(planes: Sequence[int]) -> str:
    """Return "plane 3", or "planes 0, 1 and 3"."""
    numbers = [str(plane) for plane in planes]
    return f"plane {numbers[0]}" if len(numbers) == 1 else f"planes {', '.join(numbers[:-1])} and {numbers[-1]}"


def faults_said(drawing: Mapping[str, Any], plane: Mapping[str, Any]) -> str:
    """Return which planes a drawing shows and what of them has failed, ending in a space; empty for a single plane."""
    named, total, faults = planes_said(plane["planes"]), drawing["num_planes"], plane["faults"]
    words = f"{named[0].upper()}{named[1:]} of {total}"
    if len(plane["planes"]) > 1:
        words += ", which are alike and carry equal bytes" if len(plane["planes"]) < total else ", all alike"
    if faults:
        words += f". Failed {'in each' if len(plane['planes']) > 1 else 'there'}: {', '.join(faults)}"
    if total == 1:
        words = f"Failed: {', '.join(faults)}" if faults else ""
    left_out = drawing["planes_not_drawn"]
    if left_out:
        words += f". Not drawn: {planes_said(left_out)}, each with faults of its own"
    return f"{words}. " if words else ""
