"""``rostam search``: one machine in; ranked strategies and batches out, as table, JSON and search.json."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rostam_py import __version__
from rostam_py.checks import check_folder
from rostam_py.cli.compose import compose_config, resolved_yaml
from rostam_py.cli.point import point_settings
from rostam_py.cli.progress_lines import EVERY_S, ProgressLines
from rostam_py.cli.schema import SearchConfig, name_of
from rostam_py.cli.tables import UNSTEADY, UNSTEADY_NOTE
from rostam_py.convergence import Curve, notes_for
from rostam_py.documents import staged
from rostam_py.models import registered
from rostam_py.plan import Strategy
from rostam_py.plan.open_strategy import OpenStrategy
from rostam_py.searching import Candidate, Searcher, SearchResult
from rostam_py.software.ratios import expected_of
from rostam_py.spec.build import build_machine, cost_arguments
from rostam_py.spec.settings import goal_of_settings
from rostam_py.units import format_size, format_time

_SHOWN_REASONS = 8


def search(overrides: list[str], as_json: bool) -> int:
    """Search what the overrides describe, print the ranking, and fill the run folder. Returns the exit status."""
    config: SearchConfig = compose_config("search", overrides)
    console = Console(stderr=True)
    folder = Path(config.out) if config.out else _default_folder(config, overrides)
    check_folder(folder, "out")
    kept = _KeptResults(folder, config, overrides)
    # Off a terminal a bar would only leave an empty line behind.
    drawn = Progress(console=console, transient=True, disable=not console.is_terminal)
    with drawn as bar, ProgressLines(console) as log:
        task = bar.add_task("starting", total=None)

        def progress(text: str, done: int, total: int | None) -> None:
            bar.update(task, description=text, completed=done, total=total)
            log.say(f"{text} ({done:,} of {total:,})" if total else text)

        found = _search_config(config, progress, kept.so_far)
    text = kept.write(found)
    if as_json:
        print(text, end="")
    else:
        _print_found(Console(width=max(150, Console().width)), found, config.search.show, str(folder))
    return 0


class _KeptResults:
    """A search's folder, in which what was found lies as it comes."""

    def __init__(self, folder: Path, config: SearchConfig, overrides: list[str]) -> None:
        self._folder, self._config, self._overrides = folder, config, overrides
        self._written_at = time.monotonic()

    def so_far(self, make: Callable[[], SearchResult]) -> None:
        """Write what is known, at most every ten seconds."""
        if time.monotonic() - self._written_at >= EVERY_S:
            self.write(make())
            self._written_at = time.monotonic()

    def write(self, found: SearchResult) -> str:
        """Write a result, and return it as search.json holds it."""
        text = json.dumps(found.to_dict(), indent=2) + "\n"
        _write_folder(self._folder, self._config, self._overrides, text)
        return text


def _search_config(config: SearchConfig, progress: Any, so_far: Any = lambda make: None) -> SearchResult:
    settings = point_settings("search", config)
    goal, options = goal_of_settings(settings), settings["search"]
    if isinstance(goal, Curve) and registered(config.model) is not None:
        notes_for(goal, config.model)  # a curve that does not fit is refused before tracing
    machine = build_machine(settings)
    progress(f"tracing {config.model}", 0, None)
    from rostam_py.tracing import trace

    searcher = Searcher(
        trace(config.model, cache=config.trace_cache),
        base=OpenStrategy(**settings["strategy"]),
        placers=None if config.search.placers is None else options["placers"],
        routing=settings["routing"], fidelity=settings["fidelity"], seed=settings["seed"],
        controllers=settings["controllers"], **cost_arguments(settings),
    )  # fmt: skip
    return searcher.search(
        machine, convergence=goal, batches=options["batches"], axes=options["axes"],
        extrapolate=config.extrapolate, max_circuit_degree=options["max_circuit_degree"],
        accelerator_usd_per_hour=settings["accelerator_usd_per_hour"],
        num_simulated=options["num_simulated"], budget=options.get("budget"), progress=progress, so_far=so_far,
    )  # fmt: skip


def _write_folder(folder: Path, config: SearchConfig, overrides: list[str], text: str) -> None:
    about = {"rostam_version": __version__, "seed": config.seed, "overrides": overrides}
    with staged(folder) as stage:
        (stage / "config.yaml").write_text(resolved_yaml("search", overrides), encoding="utf-8")
        (stage / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (stage / "search.json").write_text(text, encoding="utf-8")


def _default_folder(config: SearchConfig, overrides: list[str]) -> Path:
    digest = hashlib.sha256(resolved_yaml("search", overrides).encode()).hexdigest()[:8]
    model = Path(config.model.split(":")[0]).name.partition(".")[0]
    return Path("runs") / f"search-{model}-{name_of('fabric', config.fabric)}-{digest}"


def _print_found(console: Console, found: SearchResult, show: int, folder: str) -> None:
    goal = "time to accuracy" if found.convergence else "time per sample"
    table = Table(
        title=f"{found.model} on {found.fabric} ({found.accelerator}): least {goal}"
        + (f" by {found.convergence}" if found.convergence else "")
    )
    table.add_column("strategy")
    for name in ("batch", "micro-batches", "memory", "estimate", "simulated", "error", "exposed comm", goal):
        table.add_column(name, justify="right", no_wrap=True)
    is_priced = found.best.time_to_accuracy_s is not None and found.accelerator_usd_per_hour is not None
    if is_priced:
        table.add_column("price of training", justify="right", no_wrap=True)
    table.add_column("algorithms", min_width=30, overflow="fold")
    for candidate in found.estimated[:show]:
        usd = [f"{found.training_usd(candidate) or 0.0:,.0f} USD"] if is_priced else []
        table.add_row(*_row(candidate), *usd, candidate.algorithms or "")
    console.print(table)
    if any(_is_unsteady(candidate) for candidate in found.estimated[:show]):
        console.print(UNSTEADY_NOTE, highlight=False)
    _print_software(console, found.best)
    for name, words in found.prices.items():
        console.print(f"{name}: {words}", highlight=False)
    reasons = Counter(_short(c.reason) for c in found.candidates if c.reason)
    reasons.update({_short(reason): count for reason, count in found.left_out})
    counts = f"{len(found.candidates)} candidates, {len(found.estimated)} estimated, {len(found.simulated)} simulated"
    console.print(f"{counts} in {found.cpu_s:.1f} CPU seconds", highlight=False)
    if found.simulated:
        console.print(f"worst error of an estimate: {found.worst_estimate_error:.1%}", highlight=False)
    for reason, count in reasons.most_common(_SHOWN_REASONS):
        console.print(f"left out: {count} x {reason}", style="dim", markup=False, highlight=False)
    for note in found.notes:
        console.print(f"note: {note}", style="dim", markup=False, highlight=False)
    console.print(f"written to {folder}", highlight=False, markup=False)


def _print_software(console: Console, best: Candidate) -> None:
    """Print the program of all candidates, and what to expect of the best."""
    if best.plan is None:
        return
    software, expected, seconds = best.plan.software, expected_of(best.plan), best.expected_s
    chosen = " (none was named)" if software.was_chosen else ""
    console.print(f"software: {software.describe()}{chosen}", highlight=False, markup=False)
    if expected is not None and seconds is not None:
        middle, low, high = map(format_time, seconds)
        console.print(f"expected time per iteration of the best: {middle} ({low} to {high})", highlight=False)
        console.print(f"note: {expected.describe()}", style="dim", highlight=False, markup=False)


def _is_unsteady(candidate: Candidate) -> bool:
    return candidate.result is not None and not candidate.result.is_steady


def _row(candidate: Candidate) -> list[str]:
    seconds = candidate.iteration_time_s or 0.0
    simulated, error, exposed = candidate.simulated_s, candidate.estimate_error, candidate.exposed_s
    placer = "" if candidate.strategy.placer == Strategy().placer else f"{candidate.strategy.placer}: "
    return [
        placer + candidate.describe(), f"{candidate.global_batch:,}",
        f"{candidate.num_microbatches} x {candidate.micro_batch}", _memory(candidate),
        format_time(candidate.estimate_s or 0.0),
        "" if simulated is None else format_time(simulated) + (f" {UNSTEADY}" if _is_unsteady(candidate) else ""),
        "" if error is None else f"{error:+.1%}", "" if exposed is None else format_time(exposed),
        format_time(candidate.objective(seconds)),
    ]  # fmt: skip


def _memory(candidate: Candidate) -> str:
    return format_size(candidate.memory_bytes or 0) + (" (may not fit)" if candidate.may_not_fit else "")


def _short(reason: str, width: int = 100) -> str:
    return reason if len(reason) <= width else reason[: width - 3] + "..."
