"""One HTML file with everything in it: text, style, scripts, figures and their numbers. It asks the network nothing.

A content security policy in its head makes the browser refuse any outside request, whatever a library might try.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from rostam_py import __version__
from rostam_py.report.drawing.figure import Figure, Section
from rostam_py.report.page.table import PointsTable, bundle

MOST_BYTES = 9_900_000
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:;"
    " font-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class PlainTable:
    """A small table of text below a heading of its own, and the words below it.

    has_sum: its last row sums up the others.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    has_sum: bool = False


@dataclass(frozen=True)
class Page:
    """What a page holds; all strings are plain text.

    headline: sentences. facts: what it is about, by name. settings: shown as JSON, folded. sections: figures below
    their headings, names unique over all of them. tables: behind the figures.
    """

    title: str
    kicker: str
    headline: Sequence[str]
    facts: dict[str, str]
    sections: Sequence[Section]
    settings: dict[str, Any] = field(default_factory=dict)
    table: PointsTable | None = None
    tables: Sequence[PlainTable] = ()


def render(page: Page) -> str:
    """Return the page's HTML, below MOST_BYTES: figures that would exceed it are left out, and named at the end.

    Cost: figures are turned to JSON once; the scripts make up about 6 MB of every page.
    """
    head, tail = _head(page), _tail(page)
    table = "\n".join(map(_plain_table, page.tables)) + (_table(page.table) if page.table else "")
    left = MOST_BYTES - len(head) - len(tail) - len(table) - 20_000
    sections, left_out = [], []
    for number, section in enumerate(page.sections):
        cards = []
        for figure in section.figures:
            card = _card(figure)
            if len(card.encode()) > left:
                left_out.append(figure.title)
                continue
            left -= len(card.encode())
            cards.append(card)
        if cards:
            sections.append((f"section-{number}", section.title, "\n".join(cards)))
    body = [_header(page, [(name, title) for name, title, _ in sections]), "<main>"]
    for name, title, cards_text in sections:
        body.append(f'<section id="{name}"><h2>{_text(title)}</h2><div class="grid">{cards_text}</div></section>')
    if left_out:
        body.append(_left_out(left_out))
    body += [table, _settings(page.settings), "</main>"]
    return "\n".join([head, *body, tail])


def plotly_json(figure: Figure) -> str:
    """Return a figure's drawing as JSON, without plotly's template (the page brings its own look)."""
    drawn = json.loads(figure.plotly.to_json())
    drawn.get("layout", {}).pop("template", None)
    return json.dumps({"data": drawn["data"], "layout": drawn.get("layout", {})}, separators=(",", ":"))


def _text(text: object) -> str:
    return html.escape(str(text))


def _script_safe(text: str) -> str:
    """Return JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _json_script(name: str, text: str) -> str:
    return f'<script type="application/json" id="{name}">{_script_safe(text)}</script>'


def _asset(name: str) -> str:
    return resources.files("rostam_py.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _head(page: Page) -> str:
    styles = [bundle()[1]] if page.table else []
    styles.append(_asset("page.css"))
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="rostam {__version__}">', '<link rel="icon" href="data:,">',
        f"<title>{_text(page.title)}</title>", *(f"<style>{style}</style>" for style in styles), "</head>", "<body>",
    ])  # fmt: skip


def _tail(page: Page) -> str:
    from plotly.offline import get_plotlyjs

    parts = [
        f"<footer>Written by rostam {_text(__version__)}. Everything is in this file; it needs no network. Drag in a"
        " figure to zoom, click twice to zoom out; click a name in its legend to hide its marks.</footer>"
    ]
    if page.table:
        parts.append(_json_script("itables", json.dumps(bundle()[0])))
    parts.append(f"<script>{get_plotlyjs()}</script>")
    parts.append(f"<script>{_asset('page.js')}</script>")
    return "\n".join([*parts, "</body>", "</html>", ""])


def _header(page: Page, sections: Sequence[tuple[str, str]]) -> str:
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in page.facts.items())
    links = [
        *sections,
        *((one.name, one.title) for one in page.tables),
        *([("points", "Points")] if page.table else []),
    ]
    contents = "".join(f'<li><a href="#{name}">{_text(title)}</a></li>' for name, title in links)
    said = "".join(f"<p>{_text(one)}</p>" for one in page.headline)
    return (
        f'<header><div class="top"><div><h1>{_text(page.title)}</h1><p class="kicker">{_text(page.kicker)}</p></div>'
        f'<button id="theme" type="button">dark</button></div>'
        + (f'<div class="headline">{said}</div>' if said else "")
        + f'<dl class="facts">{facts}</dl><nav aria-label="contents"><ul>{contents}</ul></nav></header>'
    )


def _plain_table(table: PlainTable) -> str:
    columns = list(zip(*table.rows, strict=True))
    are_numbers = [all(not cell or cell.lstrip("+-")[:1].isdigit() for cell in column) for column in columns]
    classes = [' class="number"' if is_number else "" for is_number in are_numbers]
    head = "".join(f"<th{of}>{_text(name)}</th>" for name, of in zip(table.columns, classes, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{of} data-name="{_text(name)}">{_text(cell)}</td>'
            for cell, name, of in zip(row, table.columns, classes, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    summed = " summed" if table.has_sum else ""
    rows = f'<div class="plain{summed}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    words = f'<p class="note">{_text(table.caption)}</p>'
    return f'<section id="{table.name}"><h2>{_text(table.title)}</h2>{rows}{words}</section>'


def _card(figure: Figure) -> str:
    content = f'{{"plotly":{plotly_json(figure)},"csv":{json.dumps(csv_text(figure))}}}'
    return (
        f'<figure class="card" id="{figure.name}" data-figure="{figure.name}"><div class="top">'
        f'<h3>{_text(figure.title)}</h3><div class="tools"><button type="button">PNG</button>'
        f'<button type="button">CSV</button></div></div>'
        f'<div class="plot" role="img" aria-label="{_text(figure.title)}"></div>'
        f"<figcaption>{_text(figure.caption)}</figcaption>{_json_script(f'json-{figure.name}', content)}</figure>"
    )


def csv_text(figure: Figure) -> str:
    """Return the numbers of a figure as CSV."""
    return figure.table.write_csv()


def _table(table: PointsTable) -> str:
    return (
        f'<section id="points"><h2>Points</h2><p class="note">{_text(table.words)}</p><div class="points">'
        f'<table id="points-table"></table></div>{_json_script("points-data", json.dumps(table.options))}</section>'
    )


def _left_out(titles: Sequence[str]) -> str:
    named = "; ".join(titles[:40]) + (f"; and {len(titles) - 40} more" if len(titles) > 40 else "")
    return f'<p class="note">{len(titles)} figures were left out to keep this page below 10 MB: {_text(named)}.</p>'


def _settings(settings: dict[str, Any]) -> str:
    if not settings:
        return ""
    text = json.dumps(settings, indent=2, sort_keys=True, default=str)
    if len(text) > 100_000:
        text = text[:100_000] + "\n... cut here; the whole is in the folder"
    return f"<details><summary>Settings that all points share</summary><pre>{_text(text)}</pre></details>"
