"""The page of weeks: what each policy leaves, figures, and tables of shares and costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rostam_py import __version__
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.goodput.result import CAUSES
from rostam_py.plan.software import Software
from rostam_py.report.drawing.figure import Figure, Section
from rostam_py.report.page.page import Page, PlainTable
from rostam_py.report.weeks.break_even_figures import break_even_figures, least_cost_rows
from rostam_py.report.weeks.down_figure import down_figure
from rostam_py.report.weeks.goodput_figure import goodput_figure
from rostam_py.report.weeks.load import WeeksData
from rostam_py.report.weeks.tokens_figure import tokens_figure
from rostam_py.units import format_count, format_number_of, format_time

_COSTS = (("accelerator_hours", "accelerator-hours"), ("usd", "USD"), ("energy_kwh", "kWh at most"))
# Sections in their order: a figure of weeks is a function and a line here.
SECTIONS: tuple[tuple[str, Callable[[WeeksData], list[Figure]]], ...] = (
    ("Training", lambda data: [tokens_figure(data)]),
    ("Where the time goes", lambda data: [goodput_figure(data, policy) for policy in data.policies]),
    ("Faults", lambda data: [down_figure(data)]),
    ("Break-even", break_even_figures),
)


def weeks_page(data: WeeksData) -> Page:
    """Return the page."""
    document = data.document
    sections = [Section(title, draw(data)) for title, draw in SECTIONS]
    window = f"{data.days:,.1f} days" if data.days > 1 else format_time(data.days * DAY_S)
    return Page(
        title=f"{document['graph']} for {window}",
        kicker=f"Weeks of one job on {format_number_of(document['num_servers'], 'server')}",
        headline=_headline(data), facts=_facts(data), sections=[one for one in sections if one.figures],
        tables=[_shares(data), _costs(data), *_refused(data)],
    )  # fmt: skip


def _headline(data: WeeksData) -> list[str]:
    ranked = sorted(data.policies.items(), key=lambda one: -one[1]["goodput"])
    name, best = ranked[0]
    said = [f"Policy {name} leaves the most: {best['goodput']:.1%} of the time, {_trained(data, best)}."]
    if len(ranked) > 1:
        last, worst = ranked[-1]
        said.append(f"The least is {worst['goodput']:.1%} by {last}, {_trained(data, worst)}.")
    points = (data.document["break_even"] or {}).get("points") or ()
    cheapest = [row for row in least_cost_rows(points, "spares").values() if row["server_days_per_iteration"]]
    if cheapest:
        row = min(cheapest, key=lambda one: one["server_days_per_iteration"])
        said.append(
            f"An iteration is cheapest with {format_number_of(row['num_spares'], 'spare')} by policy {row['policy']}."
        )
    return said


def _trained(data: WeeksData, one: dict[str, Any]) -> str:
    return f"{format_count(round(one['iterations'] * data.per_iteration))} {data.unit}"


def _facts(data: WeeksData) -> dict[str, str]:
    document, faults = data.document, data.document["faults"]
    own_s, simulated_s = document["iteration_s"], document["simulated_iteration_s"]
    expected = "" if own_s == simulated_s else f", as measured jobs let expect ({format_time(simulated_s)} simulated)"
    every_s = document["checkpoint_iterations"] * own_s
    return {
        "model": document["graph"], "fabric": document["fabric"], "accelerator": document["accelerator"],
        "strategy": document["strategy"], "software": Software.of(document["software"]).describe(),
        "global batch": f"{document['global_batch']:,}", "iteration": format_time(own_s) + expected,
        "spares": f"{document['num_spares']}",
        "checkpoint": f"{format_time(document['checkpoint_s'])}, every {format_time(every_s)}{_written(data)}",
        "detection, restart, rejoin": ", ".join(
            format_time(document[key]) for key in ("detection_s", "restart_s", "rejoin_s")
        ),
        "faults": f"{faults['num_faults']:,}, {faults['per_1000_server_days']:.2f} for 1,000 server-days;"
        f" {faults['share_of_time_down']:.2%} of servers' time is lost",
        "versions": f"simulated by rostam {document['rostam_version']}, drawn by {__version__}",
    }  # fmt: skip


def _written(data: WeeksData) -> str:
    """Return how checkpoints are written that the job does not stop for."""
    found = data.document["writing"]
    if found is None:
        return ""
    count = format_number_of(found["iterations"], "iteration")
    return f"; written in {count}, each {found['stretch'] - 1:.1%} longer ({found['basis']})"


def _shares(data: WeeksData) -> PlainTable:
    rows = []
    for policy, one in data.policies.items():
        shares = [f"{one['seconds'][cause] / one['wall_s']:.2%}" for cause in CAUSES]
        rows.append([policy, *shares, f"{one['num_cuts']:,}", f"{one['iterations']:,.0f}", _trained(data, one)])
    columns = ["policy", *CAUSES, "cuts", "iterations", data.unit]
    caption = "Shares of the window by cause; useful is the goodput. Cuts: those while the job was down included."
    return PlainTable("policies", "Policies", columns, rows, caption)


def _costs(data: WeeksData) -> PlainTable:
    known = [(key, words) for key, words in _COSTS if any(one["cost"][key] for one in data.policies.values())]
    rows = []
    for policy, one in data.policies.items():
        rows.append([policy, "the window", f"{data.days:,.1f} days", *(_cost(one["cost"][key]) for key, _ in known)])
        if data.document["iterations_to_target"] is not None:
            seconds = one["time_to_target_s"]
            when = "never" if seconds is None else f"{seconds / DAY_S:,.1f} days"
            rows.append([policy, "to the target", when, *(_cost(one["cost_to_target"][key]) for key, _ in known)])
    caption = (
        f"Of {data.document['num_accelerators']:,} accelerators, those of spares included; to the target at the"
        " window's mean pace."
    )
    if any(key == "energy_kwh" for key, _ in known):
        caption += " Energy: all of them draw the most that the machine can, all the time."
    return PlainTable("costs", "Costs", ["policy", "of", "time", *(words for _, words in known)], rows, caption)


def _cost(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _refused(data: WeeksData) -> list[PlainTable]:
    rows = [[policy, why] for policy, why in data.document["refused"].items()]
    return [PlainTable("left-out", "Policies left out", ["policy", "why"], rows, "")] if rows else []
