"""Write the report of a folder: report.html, and figures for papers if asked.

write_report("runs/my-sweep", formats=("pdf", "svg"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rostam_py import __version__
from rostam_py.documents import undamaged, write_whole
from rostam_py.errors import ConfigError
from rostam_py.extras import require
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.software import Software
from rostam_py.report.drawing.figure import Figure, Section, unique_names
from rostam_py.report.drawing.scales import named_label, number
from rostam_py.report.jobs.load import is_jobs_folder, load_jobs
from rostam_py.report.needs import page_needs
from rostam_py.report.page.page import Page, PlainTable, render
from rostam_py.report.run.headline import run_headline
from rostam_py.report.run.load import load_run
from rostam_py.report.sinks.static import check_formats, write_static
from rostam_py.report.sweep.figures import sweep_sections
from rostam_py.report.sweep.headline import sweep_headline
from rostam_py.report.sweep.load import SweepData, is_sweep_folder, load_sweep
from rostam_py.report.sweep.reading import has_values
from rostam_py.report.validation.load import is_validation_folder, load_validation
from rostam_py.report.weeks.load import is_weeks_folder, load_weeks
from rostam_py.simulation.controllers import controller_words
from rostam_py.simulation.messages import CAPTION, COLUMNS, message_rows
from rostam_py.spec.keys import MODES
from rostam_py.spread.lost_time import WORDS, signed_time
from rostam_py.units import format_bandwidth, format_count, format_share, format_size, format_time

_MOST_LABELS = 12
_LOST = (
    "Of all iterations, by the kind of part that failed. Detection, waiting for a repair and restart: the job is down."
    " Redone: work since the last checkpoint. Stalled: messages that decided an iteration's end stood still. Longer or"
    " shared ways: the remaining additional time of iterations, cold starts after restarts included."
)
_STREAMS_SAID = (
    "Of one rank in one iteration. Kernels of several streams that run at once share the device evenly; bytes are those"
    " of whole buffers. The timeline has a row for each stream."
)
_FAMILIES_SAID = "Kernels of one steady iteration by function, replays of recomputation included, mean over devices."


def write_report(folder: str | Path, *, out: str | Path | None = None, formats: Sequence[str] = ()) -> Path:
    """Write the HTML report of the folder of a sweep, a run, weeks or jobs and return its path.

    Args: out: the HTML file; None takes report.html in the folder. formats: "pdf", "svg": also write
        figures/NAME.FORMAT, in the HTML file's folder.
    Raises: ConfigError if the folder holds no results, or they are damaged; for an unknown format; if ``out`` is a
        folder, or cannot be written; MissingPackageError without the packages of the extra "report".
    """
    return draw_report(folder, out=out, formats=formats)[0]


def draw_report(
    folder: str | Path, *, out: str | Path | None = None, formats: Sequence[str] = ()
) -> tuple[Path, list[Path]]:
    """Do as write_report does and return the page's path and those of the static figures.

    Raises: as write_report.
    """
    check_formats(formats)
    require(*page_needs("a report", formats))
    folder = Path(folder)
    path = Path(out) if out else folder / "report.html"
    page_of = _page_maker(folder)
    _check_writable(path)
    with undamaged(str(folder), *_refusals()):
        page = page_of(folder)
        text = render(page)
    write_whole(path, text.encode())
    figures = [one for section in page.sections for one in section.figures]
    if not formats:
        return path, []
    with _writing(path.parent / "figures"), undamaged(str(folder), *_refusals()):
        return path, write_static(figures, path.parent / "figures", formats)


def _page_maker(folder: Path) -> Callable[[Path], Page]:
    """Return what makes the page of a folder. Raises: ConfigError if it holds no results."""
    if is_validation_folder(folder):
        return lambda found: validation_page(load_validation(found))
    if is_weeks_folder(folder):
        from rostam_py.report.weeks.page import weeks_page

        return lambda found: weeks_page(load_weeks(found))
    if is_jobs_folder(folder):
        from rostam_py.report.jobs.page import jobs_page

        return lambda found: jobs_page(load_jobs(found))
    if is_sweep_folder(folder):
        return lambda found: sweep_page(load_sweep(found))
    return lambda found: run_page(load_run(found))


def _check_writable(path: Path) -> None:
    """Make the folder of a page that is to be written, and see that the page can be: before it is drawn."""
    if path.is_dir():
        raise ConfigError(f"out is {path}, a folder; give a file: out={path / 'report.html'}")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()


def _refusals() -> tuple[type[Exception], ...]:
    """Return what the library of tables raises for a column of another type than was expected."""
    import polars as pl

    return (pl.exceptions.PolarsError,)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the system says against writing into a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}; give another out=FILE") from error


def sweep_page(data: SweepData) -> Page:
    """Return the page of a sweep."""
    from rostam_py.report.page.table import points_table

    sections = sweep_sections(data)
    sections += [_detail_section(data, key, detail) for key, detail in data.details.items()]
    finished, failed = len(data.finished()), len(data.failed())
    facts = {f"{key} ({len(labels)})": _listed(labels) for key, labels in data.axes.items()}
    facts["points"] = f"{finished:,} finished, {failed:,} ended with an error"
    if len(data.table) < data.manifest["num_points"]:
        facts["points"] += f", of {data.manifest['num_points']:,}: the sweep has not ended"
    facts["versions"] = f"simulated by rostam {data.manifest.get('rostam_version', '?')}, drawn by {__version__}"
    words = MODES[data.mode].WORDS  # type: ignore[attr-defined]
    return Page(
        title=data.title, kicker=f"A sweep of {len(data.table):,} {words}", headline=sweep_headline(data),
        facts=facts, sections=_unique(sections), settings=data.manifest.get("base") or {}, table=points_table(data),
    )  # fmt: skip


def run_page(detail: dict[str, Any]) -> Page:
    """Return the page of one run."""
    from rostam_py.report.run.figures import run_figures

    facts = {
        _plain_name(name): _said(name, value)
        for name, value in detail.get("result", {}).items()
        if name in _RUN_FACTS and (value is not None or name in _SHARES)
    }
    facts |= _answer_facts(detail.get("result", {}).get("time_to_accuracy") or {})
    facts["drawn by"] = f"rostam {__version__}"
    sections = [Section("Figures", run_figures(detail))]
    title = str(detail.get("title") or "run")
    return Page(title, "One simulated run", run_headline(detail), facts, _unique(sections), tables=_tables(detail))


def validation_page(document: dict[str, Any]) -> Page:
    """Return the page of a validation."""
    from rostam_py.report.validation.figures import validation_figures
    from rostam_py.report.validation.tables import validation_headline, validation_tables

    names = ", ".join(table["name"] for table in document["tables"])
    facts = {
        "tables": names, "predicted by": f"rostam {document['rostam_version']}", "drawn by": f"rostam {__version__}"
    }  # fmt: skip
    sections = _unique([Section("Errors", validation_figures(document))])
    headline, tables = validation_headline(document), validation_tables(document)
    return Page("Measured against predicted", "A validation", headline, facts, sections, tables=tables)


def _answer_facts(answer: dict[str, Any]) -> dict[str, str]:
    """Return what a run needs to its target: time, dollars, energy; nothing where none was asked for."""
    if not answer:
        return {}
    steps = f"{answer['iterations']:,.0f} iterations" + (f", {answer['basis']}" if answer.get("basis") else "")
    facts = {"time to target": f"{format_time(answer['time_s'])} to {answer['target']} ({steps})"}
    if answer["is_extrapolated"]:
        facts["time to target"] += ", EXTRAPOLATED"
    if "usd" in answer:
        facts["price of training"] = f"{answer['usd']:,.0f} USD of accelerator hours"
    if "energy_j" in answer:
        facts["energy to the target"] = f"{answer['energy_j'] / 3.6e9:.4g} MWh at most"
    return facts


def _tables(detail: dict[str, Any]) -> list[PlainTable]:
    """Return compute by op family, and what the axes communicate where more than one does."""
    tables = [
        *_family_table(detail.get("result", {})), *_stream_table(detail.get("streams") or ()),
        *_lost_table(detail.get("outages")),
    ]  # fmt: skip
    axes = detail.get("messages_by_axis") or ()
    if len(axes) < 2:
        return tables
    rows = message_rows(axes)
    shown = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows)]
    cells = [[row[place] for place in shown] for row in rows]
    columns = [COLUMNS[place] for place in shown]
    return [*tables, PlainTable("messages", "Communication by axis", columns, cells, CAPTION, has_sum=True)]


def _family_table(result: Mapping[str, Any]) -> list[PlainTable]:
    families, total = result.get("compute_by_family_s") or {}, result.get("iteration_time_s")
    if not families or not total:
        return []
    rows = [[name, format_time(seconds), f"{seconds / total:.1%}"] for name, seconds in families.items()]
    spent = sum(families.values())
    rows.append(["compute", format_time(spent), f"{spent / total:.1%}"])
    columns = ["op family", "mean device", "share of the iteration"]
    return [PlainTable("compute", "Compute by op family", columns, rows, _FAMILIES_SAID, has_sum=True)]


def _stream_table(streams: Sequence[Mapping[str, Any]]) -> list[PlainTable]:
    """Return what is on each stream that a program names; nothing where it names none."""
    if not streams:
        return []
    rows = [
        [
            one["role"], one["stream"], f"{one['num_tasks']:,}",
            format_time(one["kernels_s"]) if one["kernels_s"] else "",
            format_size(one["num_bytes"]) if one["num_bytes"] else "",
        ]
        for one in streams
    ]  # fmt: skip
    columns = ["role", "stream", "steps", "kernels, each alone", "collectives and sends"]
    return [PlainTable("streams", "Streams of the program", columns, rows, _STREAMS_SAID)]


def _lost_table(found: Mapping[str, Any] | None) -> list[PlainTable]:
    """Return where the time goes that failures cost, by kind of part; nothing where they cost none."""
    by_part = (found or {}).get("lost_by_part_s") or {}
    causes = [cause for cause in WORDS if any(cause in parts for parts in by_part.values())]
    if not causes:
        return []
    rows = [[part.replace("_", " "), *_lost_cells(parts, causes)] for part, parts in by_part.items()]
    sums = {cause: sum(parts.get(cause, 0.0) for parts in by_part.values()) for cause in causes}
    columns = ["failed part", *(WORDS[cause] for cause in causes), "sum"]
    rows.append(["all", *_lost_cells(sums, causes)])
    return [PlainTable("lost", "Time lost to failures", columns, rows, _LOST, has_sum=True)]


def _lost_cells(parts: Mapping[str, float], causes: Sequence[str]) -> list[str]:
    return [signed_time(parts.get(cause, 0.0)) for cause in causes] + [signed_time(sum(parts.values()))]


def _detail_section(data: SweepData, key: str, detail: dict[str, Any]) -> Section:
    """Return the figures of one detailed point, named after its axes."""
    import polars as pl

    from rostam_py.report.run.figures import run_figures

    rows = data.table.filter(pl.col("key") == key)
    labels = [named_label(axis, str(data.labels_of(rows, axis)[0])) for axis in data.axes] if len(rows) else []
    title = ", ".join(labels) or str(detail.get("title") or key[:12])
    if has_values(rows, "exposed_s") and has_values(rows, "iteration_time_s"):
        title += f" ({rows['exposed_s'][0] / rows['iteration_time_s'][0]:.0%} exposed communication)"
    return Section(f"In detail: {title}", run_figures(detail, prefix=f"p{key[:8]}"))


def _unique(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with figure names that differ over all of them."""
    figures: list[Figure] = unique_names([one for section in sections for one in section.figures])
    found, start = [], 0
    for section in sections:
        found.append(Section(section.title, figures[start : start + len(section.figures)]))
        start += len(section.figures)
    return found


def _listed(labels: Sequence[str]) -> str:
    if len(labels) <= _MOST_LABELS:
        return ", ".join(labels)
    return ", ".join([*labels[: _MOST_LABELS - 2], "...", labels[-1]])


_RUN_FACTS = (
    "model", "fabric", "accelerator", "num_accelerators", "strategy", "software", "global_batch", "fidelity", "routing",
    "algorithms", "controllers", "seed", "iteration_time_s", "first_iteration_s", "is_steady", "samples_per_s",
    "tokens_per_s", "mfu", "mfu_causal", "hfu", "memory_bytes",
)  # fmt: skip


_SHARES = ("mfu", "mfu_causal", "hfu")  # None where they are not known, which is said


def _said(name: str, value: Any) -> str:
    """Return a result's value in words, by the unit in its name."""
    if name == "algorithms":
        return algorithm_words(value) or "none"
    if name == "controllers":
        return controller_words(value) or "none"
    if name == "software":
        return Software.of(value).describe()
    if name in _SHARES:
        return format_share(value)
    if isinstance(value, dict):
        return " x ".join(f"{key} {one}" for key, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("_bytes_per_s"):
        return format_bandwidth(value)
    if name.endswith("_bytes"):
        return format_size(value)
    if name.endswith("_per_s"):
        return format_count(value)
    if name.endswith("_s"):
        return format_time(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def _plain_name(name: str) -> str:
    """Return a result's name without its unit, which its value says."""
    return name if name.endswith("_per_s") else name.removesuffix("_s").removesuffix("_bytes")
