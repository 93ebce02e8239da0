"""HTML fragments that notebooks show for rostam's objects: tables, pairs and bars; no scripts, no outside requests.

Colours come from the notebook (light or dark); those drawn here are readable on both. All text is escaped.

Example:
    html_pairs("gpt_125m", {"parameters": "124.4 M"}) + html_bars({"compute": 0.8, "dp": 0.2})
"""

from collections.abc import Mapping, Sequence
from html import escape

from rostam_py.units import format_time

# Okabe and Ito's colours, told apart by colour-blind readers too, and a report's for where time goes: communication is
# warm, the rest cool.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
_KIND_COLOURS = {"compute": "#0072b2", "launch": "#56b4e9", "bubble": "#b8b8b8", "host": "#5b6c8f"}
_LINE = "1px solid rgba(128,128,128,0.35)"
_CELL = f"padding:2px 10px 2px 0;border:0;border-bottom:{_LINE};background:none;color:inherit"
_BLOCK = "margin:4px 0 8px 0;font-size:13px;max-width:100%;overflow-x:auto"
_TITLE = "font-weight:600;margin-bottom:3px"


def html_table(
    title: str, rows: Sequence[Mapping[str, object]] | Sequence[Sequence[object]], columns: Sequence[str] | None = None
) -> str:
    """Return a table; figures are to carry their units already. None is an empty cell; empty columns are left out.

    Args: rows: mappings, or sequences in the order of ``columns``. columns: headings, by default the first mapping's
        keys; a column of which every cell starts with a digit is set flush right.
    """
    cells = [_cells(row, columns) for row in rows]
    names = list(columns) if columns is not None else _keys(rows)
    filled = [k for k in range(len(names)) if not cells or any(row[k] for row in cells)]
    names, cells = [names[k] for k in filled], [[row[k] for k in filled] for row in cells]
    styles = [_CELL + f";text-align:{_alignment([row[k] for row in cells])}" for k in range(len(names))]
    head = "".join(
        f'<th style="{style};font-weight:600">{escape(name)}</th>' for style, name in zip(styles, names, strict=True)
    )
    body = "".join(f"<tr>{_row(styles, row)}</tr>" for row in cells)
    return _block(title, f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def html_pairs(title: str, pairs: Mapping[str, object]) -> str:
    """Return a two-column table of names and figures with units; pairs whose value is None are left out."""
    name = f"{_CELL};text-align:left;opacity:0.75;white-space:nowrap"
    value = f"{_CELL};text-align:left"
    shown = [(key, text) for key, text in pairs.items() if text is not None]
    body = "".join(_row((name, value), (key, str(text)), "tr") for key, text in shown)
    return _block(title, f"{_TABLE}<tbody>{body}</tbody></table>")


def html_bars(parts: Mapping[str, float], title: str = "", colours: Mapping[str, str] | None = None) -> str:
    """Return one stacked bar of seconds with a legend: each part's time and share; parts of 0 are left out.

    Args:
        parts: name -> seconds >= 0; "compute", "launch", "bubble" and "host" have colours of their own.
        colours: of further parts, "#rrggbb"; the rest take theirs in turn.
    """
    shown = {name: seconds for name, seconds in parts.items() if seconds > 0}
    total = sum(shown.values())
    known = _KIND_COLOURS | dict(colours or {})
    colour_of = {name: known.get(name, _COLOURS[k % len(_COLOURS)]) for k, name in enumerate(shown)}
    pieces, legend = [], []
    for name, seconds in shown.items():
        share = seconds / total
        label = f"{escape(name)} {format_time(seconds)} ({share:.1%})"
        colour = f"background:{colour_of[name]}"
        pieces.append(f'<div title="{label}" style="flex:{share:.6f} 0 0;{colour}"></div>')
        swatch = f'<span style="display:inline-block;width:9px;height:9px;margin-right:4px;{colour}"></span>'
        legend.append(f'<span style="margin-right:14px;white-space:nowrap">{swatch}{label}</span>')
    bar = f'<div style="display:flex;width:480px;max-width:100%;height:16px">{"".join(pieces)}</div>'
    return _block(title, f'{bar}<div style="margin-top:3px;max-width:640px">{" ".join(legend)}</div>')


_TABLE = '<table style="border-collapse:collapse;border:0;margin:0;color:inherit">'


def _block(title: str, inner: str) -> str:
    heading = f'<div style="{_TITLE}">{escape(title)}</div>' if title else ""
    return f'<div class="rostam" style="{_BLOCK}">{heading}{inner}</div>'


def _keys(rows: Sequence[Mapping[str, object]] | Sequence[Sequence[object]]) -> list[str]:
    first = rows[0] if rows else {}
    return [str(key) for key in first] if isinstance(first, Mapping) else [""] * len(first)


def _cells(row: Mapping[str, object] | Sequence[object], columns: Sequence[str] | None) -> list[str]:
    if isinstance(row, Mapping):
        values = [row.get(name) for name in columns] if columns is not None else list(row.values())
    else:
        values = list(row)
    return ["" if value is None else str(value) for value in values]


def _alignment(cells: Sequence[str]) -> str:
    is_figure = bool(cells) and all(cell[:1].isdigit() or cell[:1] in ("", "-", "+") for cell in cells)
    return "right" if is_figure else "left"


def _row(styles: Sequence[str], cells: Sequence[str], element: str = "") -> str:
    text = "".join(f'<td style="{style}">{escape(cell)}</td>' for style, cell in zip(styles, cells, strict=True))
    return f"<{element}>{text}</{element}>" if element else text
