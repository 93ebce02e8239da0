"""Ledger: figures of all experiments, published value, ours, difference and the verdict, as Markdown and HTML."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rostam_py.documents import write_whole
from rostam_py.html import html_table
from rostam_py.reproduction.reasons import Entry, Row, Verdict

COLUMNS = ("figure", "published", "ours", "difference", "verdict")
_TITLE = "Published figures and rostam's"
_ABOUT = (
    "Each experiment is a folder of experiments/ whose README states the assumptions; its own comparison judges what is"
    " reproduced. No constant is fitted to a figure."
)
_STYLE = "body{font-family:sans-serif;margin:2em;max-width:120em}h2{margin-top:2em}"


def cells(row: Row) -> list[str]:
    """Return a row of the ledger, one text for each of COLUMNS."""
    figure = row.figure
    difference = figure.difference if figure.difference.endswith("%") else _with_unit(figure.difference, figure.unit)
    return [
        figure.name, _with_unit(figure.published, figure.unit), _with_unit(figure.ours, figure.unit), difference,
        row.words,
    ]  # fmt: skip


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}".rstrip() if text else "-"


def counts(entries: Sequence[Entry]) -> list[list[str]]:
    """Return the table of contents: experiment, and how many figures have each verdict."""
    return [
        [entry.name, *(str(entry.count(verdict)) for verdict in Verdict), "failed" if entry.failed else ""]
        for entry in entries
    ]


def markdown(entries: Sequence[Entry]) -> str:
    """Return the ledger as Markdown; equal entries give equal text."""
    parts = [f"# {_TITLE}\n\n{_ABOUT}\n", _markdown_table(("experiment", *Verdict, ""), counts(entries))]
    for entry in entries:
        parts.append(f"\n## {entry.title}\n\n`experiments/{entry.name}`\n")
        parts.append(f"Failed: {entry.failed}\n" if entry.failed else _markdown_table(COLUMNS, _all_cells(entry)))
    return "\n".join(parts)


def html(entries: Sequence[Entry]) -> str:
    """Return the ledger as one HTML page without outside requests; equal entries give equal text."""
    parts = [f"<h1>{_TITLE}</h1><p>{escape(_ABOUT)}</p>", html_table("", counts(entries), ("experiment", *Verdict, ""))]
    for entry in entries:
        parts.append(f"<h2>{escape(entry.title)}</h2>")
        failed = f"<p>Failed: {escape(entry.failed)}</p>"
        parts.append(failed if entry.failed else html_table(f"experiments/{entry.name}", _all_cells(entry), COLUMNS))
    head = f'<meta charset="utf-8"><title>{_TITLE}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def write_ledger(out: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write ledger.md and ledger.html into a folder, each whole or not at all, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {out / "ledger.md": markdown(entries), out / "ledger.html": html(entries)}
    for path, text in texts.items():
        write_whole(path, text.encode())
    return list(texts)


def _all_cells(entry: Entry) -> list[list[str]]:
    return [cells(row) for row in entry.rows]


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"
