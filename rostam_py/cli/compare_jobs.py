"""``rostam compare A B`` of two folders of ``rostam fleet fleet.jobs=...``: waits, goodput and price side by side."""

from typing import Any

from rich.console import Console

from rostam_py.cli.comparison_tables import Look, print_comparison
from rostam_py.report.jobs.comparison import jobs_comparison, load_jobs_side
from rostam_py.units import format_time

_WAIT = Look(lambda name: f"waiting, {name}", lambda name, value: format_time(value))
_WINDOW = Look(str, lambda name, value: format_time(value))
_SLOW = Look(lambda name: f"slow-down, {name}", lambda name, value: f"{value:.4g}")
_SHARE = Look(str, lambda name, value: f"{value:.1%}", lambda name, value: f"{100 * value:.1f} points")
_HOURS = Look(str, lambda name, value: f"{value:,.1f}")
_COUNT = Look(str, lambda name, value: f"{value:,.0f}")
_USD = Look(lambda what: f"price, {what}", lambda name, value: f"{value:,.2f} USD")
_KWH = Look(str, lambda name, value: f"{value:,.0f} kWh")
_TABLES = (
    ("waiting and slow-down", {"wait_s": _WAIT, "slowdown": _SLOW, "window_s": _WINDOW}),
    ("goodput", {"goodput": _SHARE}),
    ("accelerator-hours that jobs asked for", {"job_accelerator_hours": _HOURS}),
    ("accelerator-hours of the cluster", {"cluster_accelerator_hours": _HOURS}),
    ("jobs, price and energy", {"counts": _COUNT, "usd": _USD, "most_kwh": _KWH}),
)


def compared_jobs(a: str, b: str) -> dict[str, Any]:
    """Return the comparison of two folders. Raises: ConfigError for a folder that is damaged."""
    return jobs_comparison(load_jobs_side(a), load_jobs_side(b))


def print_jobs(console: Console, document: dict[str, Any]) -> None:
    """Print it."""
    print_comparison(console, "two queues of jobs", document, _TABLES)
