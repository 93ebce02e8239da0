"""What the report of a run says first, in a sentence computed from its result."""

from __future__ import annotations

from typing import Any

from rostam_py.plan.software import Software
from rostam_py.report.drawing.scales import breakdown_looks
from rostam_py.report.run.conditions import faults_said
from rostam_py.spread.lost_time import cause_words, lost_words, part_words
from rostam_py.units import format_count, format_number_of, format_share, format_time


def run_headline(detail: dict[str, Any]) -> list[str]:
    """Return sentences about one run: its time, the largest parts of it, and planes with faults."""
    result = detail.get("result", {})
    total, breakdown = result.get("iteration_time_s"), result.get("breakdown_s") or {}
    if not total:
        return []
    parts = sorted(((seconds, kind) for kind, seconds in breakdown.items() if seconds > 0), reverse=True)
    looks = breakdown_looks()
    words = {column.removesuffix("_s").removeprefix("exposed_"): name for column, (name, _) in looks.items()}
    shares = ", ".join(f"{seconds / total:.1%} {words.get(kind, kind)}" for seconds, kind in parts[:3])
    rates = ((key, key.removesuffix("_per_s")) for key in ("tokens_per_s", "samples_per_s"))
    rate = next((f", {format_count(result[key])} {what}/s" for key, what in rates if result.get(key)), "")
    bar = detail.get("error_bar") or {}
    between = f" ({format_time(bar['low_s'])} to {format_time(bar['high_s'])})" if "low_s" in bar else ""
    return [
        f"One iteration takes {format_time(total)}{between}{_steadiness(result)}{rate}"
        + (f": {shares}." if shares else "."),
        *_expected(result),
        *_beyond_measured(result),
        *_steps(detail),
        *_outages(detail),
        *_faults(detail),
    ]


def _expected(result: dict[str, Any]) -> list[str]:
    """Return a sentence on what measured jobs let one expect of the time."""
    found = result.get("expected")
    if not found:
        is_ideal = "software" in result and Software.of(result["software"]).is_ideal
        words = "This is an upper bound at these settings: software=ideal loses nothing to a program's own habits."
        return [words] if is_ideal else []
    middle, low, high = (format_time(found[key]) for key in ("iteration_time_s", "low_s", "high_s"))
    return [
        f"{found['jobs']:,} measured jobs ({found['of']}) took {found['ratio']:.2f} times as long as simulated: expect"
        f" {middle} (80% of such jobs: {low} to {high})."
    ]


def _beyond_measured(result: dict[str, Any]) -> list[str]:
    """Return a sentence on an MFU that no job is known to have reached; of the ideal program another one says so."""
    if not result.get("is_upper_bound") or not result.get("expected"):
        return []
    most = result.get("highest_measured_mfu")
    known = (
        "no job of this part and precision is known" if most is None else f"the most measured is {format_share(most)}"
    )
    return [f"The simulated MFU of {format_share(result['mfu'])} is an upper bound: {known}."]


def _steadiness(result: dict[str, Any]) -> str:
    """Return what an iteration's time is of a run that is not steady, "" of one that is."""
    averaged = result.get("num_averaged", 1)
    if averaged == 1:
        return "" if result.get("is_steady", True) else ", not steady yet"
    low, high = (format_time(one(result["iteration_times_s"][-averaged:])) for one in (min, max))
    return f", the mean of the last {averaged:,}, which are not steady ({low} to {high})"


def _steps(detail: dict[str, Any]) -> list[str]:
    """Return a sentence on what the step takes of fleets that vary."""
    found = detail.get("variability")
    if not found:
        return []
    half, most = format_time(found["p50_s"]), format_time(found["p95_s"])
    return [f"With varying parts, half of {len(found['steps_s']):,} fleets take at most {half}, 95% at most {most}."]


def _outages(detail: dict[str, Any]) -> list[str]:
    """Return a sentence on the time that failures during a run cost."""
    found = detail.get("outages")
    if not found:
        return []
    lost, without = found["total_s"] - found["without_s"], found["without_s"]
    what = " in ".join(
        (format_number_of(len(found["failures"]), "failure"), format_number_of(found["iterations"], "iteration"))
    )
    said = [
        f"{what} cost {format_time(max(0.0, lost))}, {lost / without:.1%} more time: {lost_words(found['lost_s'])}."
    ]
    causes, parts = cause_words(found["lost_s"]), part_words(found)
    said += [f"Of it {name}: {words}." for name, words in causes.items()]
    if parts:
        said.append(f"Lost to {'; to '.join(f'{part} {words}' for part, words in parts.items())}.")
    if found.get("shrunk"):
        last = found["shrunk"][-1]
        replicas = format_number_of(last["dp"], "replica")
        said.append(f"The job ends on {replicas}, with a global batch of {last['global_batch']:,}.")
    return said


def _faults(detail: dict[str, Any]) -> list[str]:
    """Return a sentence on each drawn class of planes with failed parts, where planes differ."""
    drawing = detail.get("drawing", {})
    planes = drawing.get("planes", ())
    return [faults_said(drawing, plane).strip() for plane in planes if plane["faults"]] if len(planes) > 1 else []
