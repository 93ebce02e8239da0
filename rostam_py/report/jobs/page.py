"""The page of many jobs: what they waited and what they left of the cluster, in words, figures and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rostam_py import __version__
from rostam_py.fleet.queueing.run import CAUSES
from rostam_py.fleet.queueing.timeline import MEANINGS, STATES
from rostam_py.report.drawing.figure import Figure, Section
from rostam_py.report.jobs.allocation_figure import allocation_figure
from rostam_py.report.jobs.boards_figure import boards_figure
from rostam_py.report.jobs.goodput_figures import goodput_figure, hours_figure
from rostam_py.report.jobs.load import JobsData
from rostam_py.report.jobs.queue_figure import queue_figure
from rostam_py.report.jobs.slowdown_figure import slowdown_figure
from rostam_py.report.jobs.states_figure import states_figure
from rostam_py.report.jobs.waiting_figure import waiting_figure
from rostam_py.report.page.page import Page, PlainTable
from rostam_py.units import format_number_of, format_time

# Sections in their order: a figure of jobs is a function and an entry here; None where there is nothing to draw.
SECTIONS: tuple[tuple[str, tuple[Callable[[JobsData], Figure | None], ...]], ...] = (
    ("The cluster", (states_figure, allocation_figure, boards_figure)),
    ("The queue", (queue_figure, waiting_figure, slowdown_figure)),
    ("Where the time goes", (hours_figure, goodput_figure)),
)


def jobs_page(data: JobsData) -> Page:
    """Return the page."""
    document = data.document
    drawn = [(title, [one for draw in draws if (one := draw(data)) is not None]) for title, draws in SECTIONS]
    return Page(
        title=f"{format_number_of(document['num_jobs'], 'job')} for {format_time(data.window_s)}",
        kicker=f"A queue of jobs on {format_number_of(document['accelerators'], 'accelerator')}",
        headline=_headline(data), facts=_facts(data),
        sections=[Section(title, figures) for title, figures in drawn if figures],
        tables=[
            _hours("job-hours", "Accelerator-hours that jobs asked for", document["job_accelerator_hours"], CAUSES),
            _hours("cluster-hours", "Accelerator-hours of the cluster",
                   {name: document["cluster_accelerator_hours"][name] for name in STATES}, MEANINGS),
        ],
    )  # fmt: skip


def _headline(data: JobsData) -> list[str]:
    document, parts = data.document, data.document["goodput"]
    said = [
        _waiting_said(document),
        f"Jobs hold {document['utilisation']:.1%} of the time of all accelerators{_until_last(document)}.",
        f"Goodput is {parts['whole']:.1%}: scheduling {parts['scheduling']:.1%} x runtime {parts['runtime']:.1%} x"
        f" program {parts['program']:.1%}.",
    ]
    if document["usd"] is not None:
        each = document["usd_per_useful_accelerator_hour"]
        useful = "" if each is None else f", {each:,.2f} USD for each useful accelerator-hour"
        said.append(f"The cluster costs {document['usd']:,.0f} USD over this time{useful}.")
    if unfinished := document["num_jobs"] - document["num_ended"]:
        words = format_number_of(unfinished, "job")
        said.append(f"{words} had not ended at the end of the window, {document['num_not_started']:,} not started.")
    return said


def _waiting_said(document: dict[str, Any]) -> str:
    mean, median, most = (document["wait_s"][key] for key in ("mean", "median", "p95"))
    if not most:
        return f"Jobs wait {format_time(mean)} on average, and 95% of them do not wait." if mean else "No job waits."
    half = f"half of the jobs wait at most {format_time(median)}" if median else "half of the jobs do not wait"
    return f"Jobs wait {format_time(mean)} on average; {half}, 95% wait at most {format_time(most)}."


def _until_last(document: dict[str, Any]) -> str:
    until = document["utilisation_until_last_submit"]
    return "" if until is None else f", {until:.1%} until the last submission"


def _facts(data: JobsData) -> dict[str, str]:
    document = data.document
    facts = {
        "fabric": document["fabric"], "accelerators": f"{document['accelerators']:,}",
        "accelerators of a server": f"{document['accelerators_per_server']:,}", "jobs": str(document["jobs"]),
        "queue": f"{document['order']}, placed by {document['allocation']}",
        "window": f"{format_time(data.window_s)}; the last job was submitted after"
        f" {format_time(document['last_submit_s'])}",
        "slow-down": _spread(document["slowdown"]),
    }  # fmt: skip
    if "without_network" in document:
        facts["slow-down without network"] = _spread(document["without_network"]["slowdown"])
    facts["fragmentation"] = f"{document['fragmentation']:.1%} of the time of all accelerators"
    facts["faults"] = (
        f"{format_number_of(document['num_faults'], 'fault')} of servers cut {document['num_cuts']:,} jobs"
    )
    if document["num_moves"]:
        facts["moves"] = f"{document['num_moves']:,}, of jobs that made room for the next one"
    if document["num_after_window"]:
        facts["left out"] = f"{format_number_of(document['num_after_window'], 'job')} submitted after the window"
    if document["most_kwh"] is not None:
        facts["energy"] = f"{document['most_kwh']:,.0f} kWh at most, all accelerators at their limit"
    return facts | {"versions": f"simulated by rostam {document['rostam_version']}, drawn by {__version__}"}


def _spread(of: dict[str, float | None]) -> str:
    if of["mean"] is None:
        return "of no job: none has ended"
    return ", ".join(f"{name} {value:.4g}" for name, value in of.items())


def _hours(name: str, title: str, hours: dict[str, float], meanings: dict[str, str]) -> PlainTable:
    whole = sum(hours.values())
    cells = [*((key, value, meanings[key]) for key, value in hours.items()), ("all", whole, "")]
    rows = [[key, f"{value:,.1f}", f"{value / whole:.1%}" if whole else "-", words] for key, value, words in cells]
    columns = ["cause" if meanings is CAUSES else "state", "hours", "share", "meaning"]
    return PlainTable(name, title, columns, rows, "", has_sum=True)
