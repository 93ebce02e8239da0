"""``rostam reproduce NAME ...|--all``: experiments' figures next to the published ones, in the ledger of a folder.

The ledger has all experiments that are finished in its folder, in the order of their names, whichever are asked for.
"""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rostam_py.checks import check_folder
from rostam_py.cli.compose import compose_config
from rostam_py.cli.schema import ReproduceConfig
from rostam_py.errors import ConfigError
from rostam_py.reproduction.experiment import (
    Experiment,
    chosen,
    entries_in,
    experiments_in,
    kept_entry,
)
from rostam_py.reproduction.ledger import COLUMNS, cells, counts, write_ledger
from rostam_py.reproduction.reasons import Entry, Verdict

ALL = "--all"
_COLOURS = {Verdict.REPRODUCED: "green", Verdict.DEVIATES: "yellow", Verdict.UNEXPLAINED: "red"}


def reproduce(arguments: list[str], as_json: bool) -> int:
    """Run the experiments named, print each as it is done, and fill the ledger. Returns the exit status."""
    names = [one for one in arguments if "=" not in one and one != ALL]
    config: ReproduceConfig = compose_config("reproduce", [one for one in arguments if "=" in one])
    known = experiments_in(config.folder)
    experiments = _wanted(names, ALL in arguments, known)
    out = Path(config.out)
    check_folder(out, "out")
    console, progress = Console(width=max(140, Console().width), highlight=False), Console(stderr=True)
    entries: list[Entry] = []
    others, stale = entries_in(out, (one for one in known.values() if one not in experiments))
    with progress.status("starting") as status:
        for place, experiment in enumerate(experiments, 1):
            status.update(f"{experiment.name}, {place} of {len(experiments)}")
            entry, is_kept = kept_entry(experiment, out, rerun=config.rerun)
            entries.append(entry)
            done = others | {one.name: one for one in entries}
            # What a stopped run leaves is whole.
            paths = write_ledger(out, [done[name] for name in known if name in done])
            if not as_json:
                _print_entry(console, entry, out if is_kept else None)
    if as_json:
        print(json.dumps({"experiments": [entry.to_dict() for entry in entries]}, indent=2))
    else:
        _print_end(console, entries, paths, stale)
    return 1 if any(entry.failed or entry.count(Verdict.UNEXPLAINED) for entry in entries) else 0


def _wanted(names: list[str], is_all: bool, known: dict[str, Experiment]) -> list[Experiment]:
    if is_all and names:
        raise ConfigError(f"{ALL} and {', '.join(names)} are given; give one of them")
    if not is_all and not names:
        raise ConfigError(f"no experiment is named; give names, or {ALL}. There are: {', '.join(known)}")
    return list(known.values()) if is_all else chosen(names, known)


def _print_entry(console: Console, entry: Entry, kept_in: Path | None) -> None:
    took = f"kept in {kept_in}" if kept_in else f"{entry.cpu_s:.1f} CPU s"
    console.print(f"\n{entry.name}: {entry.title} ({took})", style="bold", markup=False)
    if entry.failed:
        console.print(f"failed: {entry.failed}", style="red", markup=False, soft_wrap=True)
        return
    grid = Table(show_edge=False, pad_edge=False)
    for name in COLUMNS:
        grid.add_column(name, justify="right" if name in ("published", "ours", "difference") else "left")
    for row in entry.rows:
        grid.add_row(*cells(row), style=_COLOURS.get(row.verdict))
    console.print(grid, markup=False)


def _print_end(console: Console, entries: list[Entry], paths: list[Path], stale: list[str]) -> None:
    grid = Table(title="\nfigures of each experiment by verdict", title_justify="left")
    for name in ("experiment", *Verdict, ""):
        grid.add_column(name, justify="left" if name in ("experiment", "") else "right")
    for row in counts(entries):
        grid.add_row(*row)
    total = [str(sum(entry.count(verdict) for entry in entries)) for verdict in Verdict]
    grid.add_row("all", *total, "", style="bold")
    console.print(grid, markup=False)
    console.print(f"written: {', '.join(map(str, paths))}", markup=False, soft_wrap=True)
    if stale:
        said = f"left out of the ledger, since their files or rostam's code have changed: {', '.join(stale)}"
        console.print(said, style="dim", markup=False, soft_wrap=True)
