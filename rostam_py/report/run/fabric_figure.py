"""Link utilisation of a run on drawings of its fabric, one for each plane that differs from the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import new_plot
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, PAPER_DASHES, PAPER_SYMBOLS, label
from rostam_py.report.run.conditions import algorithms_said, faults_said, planes_said
from rostam_py.report.run.vertex_looks import vertex_looks
from rostam_py.units import format_size

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

# From idle to hot, readable on white and on black, lightness falling with load for colour-blind readers.
RAMP = ("#A6B8C8", "#BDB6AE", "#D6B592", "#EDAE73", "#F59B54", "#F2813E", "#E6632F", "#D24325", "#B5241D", "#8E0B16")
_IDLE = "rgba(140,150,160,0.45)"
_FAILED, _UNUSED = -2, -1  # in place of a tenth of the scale
_FRAME = "rgba(128,128,128,0.5)"
_WIDTH_PX, _TREE_HEIGHT_PX, _MAX_HEIGHT_PX = 460, 380, 480  # two figures stand side by side on a page
_CURVE_POINTS = 9
# Width of the coolest lines [px] by how many there are.
_THIN = ((150, 1.0), (600, 0.7), (math.inf, 0.5))

_TOUCHING = 0.9  # of the distance between switches, so that their squares stay apart
_MIX_SWITCH = "#6B7785"  # where colours tell jobs apart


@dataclass(frozen=True)
class _Pair:
    """Both directions between two drawn vertices: drawn once, as loaded as the busier one."""

    load: float
    points: list[tuple[float, float] | None]
    at: tuple[float, float]
    hover: str
    failed: float  # share of its links


def drawing_figures(detail: Mapping[str, Any], head: str) -> list[Figure]:
    """Return the fabric with its links coloured by utilisation: one drawing for planes that are alike."""
    planes = detail["drawing"]["planes"]
    return [_drawing_figure(_of_plane(detail, plane), plane, len(planes) == 1, head) for plane in planes]


def _of_plane(detail: Mapping[str, Any], plane: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document with the links of one plane, and its failed switches among the vertices."""
    failed = dict(plane["failed_vertices"])
    vertices = [
        vertex | ({"num_failed": failed[k] + vertex.get("num_failed", 0)} if k in failed else {})
        for k, vertex in enumerate(detail["drawing"]["vertices"])
    ]
    return {**detail, "drawing": detail["drawing"] | {"vertices": vertices, "links": plane["links"]}}


def _drawing_figure(detail: Mapping[str, Any], plane: Mapping[str, Any], is_only: bool, head: str) -> Figure:
    import polars as pl

    drawing = detail["drawing"]
    vertices = drawing["vertices"]
    pairs = _pairs(drawing)
    table = pl.DataFrame(
        [{"source": vertices[link["source"]]["label"], "target": vertices[link["target"]]["label"]}
         | {key: link[key] for key in ("num_bytes", "utilization", "max_utilization", "count")}
         for link in drawing["links"]]
    )  # fmt: skip
    name, title = f"{head}fabric", "Link utilisation on the fabric"
    if not is_only:
        name += f"-plane-{plane['planes'][0]}"
        title = f"Link utilisation in {planes_said(plane['planes'])}{', with a fault' if plane['faults'] else ''}"
    return Figure(
        name=name, title=title, caption=_caption(detail, plane), table=table,
        plotly=_plot(detail, pairs), paper=partial(_paper, detail, pairs),
    )  # fmt: skip


def _bin_of(load: float) -> int:
    """Return the place of a load in the ramp, which always spans 0 to 100%."""
    return min(len(RAMP) - 1, int(load * len(RAMP) * (1 - 1e-9)))


def _caption(detail: Mapping[str, Any], plane: Mapping[str, Any]) -> str:
    drawing = detail["drawing"]
    words = faults_said(drawing, plane)
    words += "Every line is a link, both directions in one, coloured by the busier: bytes in one iteration over"
    words += " bandwidth times iteration time, in one plane. The colours always span 0 to 100%."
    words += f" Routing: {detail['result']['routing']}."
    words += algorithms_said(detail)
    if drawing["grouping"]:
        words += f" Too large to draw whole: vertices are grouped by {drawing['grouping']}, a line is all links"
        words += " between two groups and shows the busiest of them, a ring around a vertex the busiest inside."
    if any("path" in link and None in link["path"] for link in drawing["links"]):
        words += " Stubs at the rim are cables that wrap to the opposite side."
    if drawing["note"]:
        words += f" {drawing['note']}"
    if any("num_failed" in part for part in (*drawing["links"], *drawing["vertices"])):
        words += " Failed parts are dotted or crossed; pairs that have lost some of their links are dashed."
    if detail["jobs"]:
        words += " Accelerators are coloured by job."
    return words


def _pairs(drawing: Mapping[str, Any]) -> list[_Pair]:
    """Join the two directions of every link, the least loaded pair first."""
    vertices = drawing["vertices"]
    found: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for link in drawing["links"]:
        ends = sorted((link["source"], link["target"]))
        found.setdefault((ends[0], ends[1]), []).append(link)
    pairs = []
    for links in found.values():
        points = _points(next((link for link in links if "path" in link or "bend" in link), links[0]), vertices)
        lines = [
            f"<b>{label(vertices[link['source']]['label'])} -> {label(vertices[link['target']]['label'])}</b><br>"
            f"{format_size(link['num_bytes'])}, {link['utilization']:.2%} busy" + _crowd(link)
            for link in links
        ]
        load = max(link["max_utilization"] for link in links)
        failed = sum(link.get("num_failed", 0) for link in links) / sum(link["count"] for link in links)
        pairs.append(_Pair(load, points, _anchor(points), "<br>".join(lines), failed))
    return sorted(pairs, key=lambda pair: pair.load)


def _crowd(link: Mapping[str, Any]) -> str:
    failed = f"<br>{link['num_failed']} failed" if link.get("num_failed") else ""
    if link["count"] == 1:
        return failed
    return f"<br>{link['count']:,} links, the busiest {link['max_utilization']:.2%}{failed}"


def _points(link: Mapping[str, Any], vertices: Sequence[Mapping[str, Any]]) -> list[tuple[float, float] | None]:
    """Return the points of a link's line, None where it is broken."""
    if "path" in link:
        return [None if point is None else (point[0], point[1]) for point in link["path"]]
    source, target = vertices[link["source"]], vertices[link["target"]]
    begin, end = (source["x"], source["y"]), (target["x"], target["y"])
    if "bend" not in link:
        return [begin, end]
    curve: list[tuple[float, float] | None] = []
    for k in range(_CURVE_POINTS):
        t = k / (_CURVE_POINTS - 1)
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        x, y = (a * begin[d] + b * link["bend"][d] + c * end[d] for d in (0, 1))
        curve.append((round(x, 4), round(y, 4)))
    return curve


def _anchor(points: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    """Return where a link is touched: halfway along its first stroke, or along the last leg of a lane's riser."""
    first = points[: points.index(None)] if None in points else points
    stroke = [point for point in first if point is not None]
    if len(stroke) > 4:
        return stroke[len(stroke) // 2]
    (x0, y0), (x1, y1) = stroke[0], stroke[1]
    return (x0 + x1) / 2, (y0 + y1) / 2


def _plot(detail: Mapping[str, Any], pairs: Sequence[_Pair]) -> plotly.graph_objects.Figure:
    drawing = detail["drawing"]
    xs, ys = zip(*((point[0], point[1]) for point in _all_points(drawing, pairs)), strict=True)
    margin_x, margin_y = (max(max(side) - min(side), 1e-9) * 0.04 for side in (xs, ys))
    height = _height(drawing, xs, ys)
    hidden = {"visible": False, "showgrid": False, "zeroline": False}
    plot = new_plot(
        height + 70, margin={"l": 10, "r": 10, "t": 40, "b": 10},
        xaxis=hidden | {"range": [min(xs) - margin_x, max(xs) + margin_x]},
        yaxis=hidden | {"range": [min(ys) - margin_y, max(ys) + margin_y]}
        | ({"scaleanchor": "x"} if drawing["is_to_scale"] else {}),
    )  # fmt: skip
    for x0, y0, x1, y1 in drawing["boxes"]:
        plot.add_shape(type="rect", x0=x0, y0=y0, x1=x1, y1=y1, layer="below", line={"color": _FRAME, "width": 1},
                       fillcolor="rgba(128,128,128,0.08)")  # fmt: skip
    sizes = _marker_sizes(drawing, max(max(xs) - min(xs), 1e-9), max(max(ys) - min(ys), 1e-9), height)
    _add_links(plot, pairs, max(1.0, 0.6 * min(sizes)))
    _add_rings(plot, drawing, sizes)
    _add_touch(plot, pairs)
    _add_vertices(plot, detail, sizes)
    plot.update_layout(legend_itemsizing="constant")
    return plot


def _all_points(drawing: Mapping[str, Any], pairs: Sequence[_Pair]) -> Iterator[tuple[float, float]]:
    yield from ((vertex["x"], vertex["y"]) for vertex in drawing["vertices"])
    yield from (point for pair in pairs for point in pair.points if point is not None)


def _height(drawing: Mapping[str, Any], xs: Sequence[float], ys: Sequence[float]) -> int:
    if not drawing["is_to_scale"]:
        return _TREE_HEIGHT_PX
    aspect = (max(ys) - min(ys)) / max(max(xs) - min(xs), 1e-9)
    return int(min(_MAX_HEIGHT_PX, max(240, _WIDTH_PX * aspect)))


def _marker_sizes(drawing: Mapping[str, Any], width: float, height: float, height_px: int) -> list[float]:
    """Return the diameter of every vertex [px]: a share of the distance between neighbours (in its layer), 3 to 15."""
    vertices, looks = drawing["vertices"], vertex_looks(drawing["vertices"])
    if drawing["is_to_scale"]:
        places = [(vertex["x"], vertex["y"]) for vertex in vertices if vertex["role"] == "accelerator"]
        near = min((_median_gap(one) for one in (places, sorted(places))), default=width)
        room = dict.fromkeys((vertex["y"] for vertex in vertices), near * min(_WIDTH_PX / width, height_px / height))
    else:
        rows = Counter(vertex["y"] for vertex in vertices)
        room = {y: _WIDTH_PX / count for y, count in rows.items()}
    share = 0.3 if drawing["is_to_scale"] and drawing["grouping"] else 0.5  # groups may have rings
    sizes = [min(15.0, max(3.0, share * room[vertex["y"]]) * looks[vertex["kind"]].size) for vertex in vertices]
    if not drawing["is_to_scale"]:
        return sizes
    near = _nearest([vertex for vertex in vertices if vertex["role"] == "switch"])
    most = max(3.0, _TOUCHING * near * min(_WIDTH_PX / width, height_px / height))
    return [min(size, most) if v["role"] == "switch" else size for size, v in zip(sizes, vertices, strict=True)]


def _nearest(vertices: Sequence[Mapping[str, Any]]) -> float:
    """Return the least distance between two vertices, along either axis the larger; infinite for fewer than two."""
    places = sorted((vertex["x"], vertex["y"]) for vertex in vertices)
    least = math.inf
    for k, (x, y) in enumerate(places):
        for other_x, other_y in places[k + 1 :]:
            if other_x - x >= least:
                break
            least = min(least, max(other_x - x, abs(other_y - y)))
    return least


def _median_gap(places: Sequence[tuple[float, float]]) -> float:
    gaps = sorted(math.dist(a, b) for a, b in zip(places, places[1:], strict=False))
    return gaps[len(gaps) // 2] if gaps else 1.0


def _add_links(plot: plotly.graph_objects.Figure, pairs: Sequence[_Pair], widest: float) -> None:
    """Add a line trace for every tenth of the scale, failed links and idle ones first, hot ones on top."""
    traces: dict[tuple[int, str], tuple[list[float | None], list[float | None]]] = {}
    for pair in pairs:
        place = _FAILED if pair.failed == 1 else (_UNUSED if pair.load == 0 else _bin_of(pair.load))
        xs, ys = traces.setdefault((place, _dash(pair)), ([], []))
        for point in (*pair.points, None):
            xs.append(None if point is None else point[0])
            ys.append(None if point is None else point[1])
    thin = next(width for most, width in _THIN if len(pairs) <= most)
    for key in sorted(traces):
        place, dash = key
        line: dict[str, Any] = {"color": _IDLE, "width": thin, "dash": dash}
        if place >= 0:
            line |= {"color": RAMP[place], "width": min(widest, thin * (1.2 + 0.35 * place))}
        plot.add_scatter(x=traces[key][0], y=traces[key][1], mode="lines", line=line, hoverinfo="skip",
                         showlegend=False)  # fmt: skip


def _dash(pair: _Pair) -> str:
    """Return the stroke of a pair that works, has lost some of its links, or all."""
    return "dot" if pair.failed == 1 else "dash" if pair.failed > 0 else "solid"


def _add_rings(plot: plotly.graph_objects.Figure, drawing: Mapping[str, Any], sizes: Sequence[float]) -> None:
    """Draw the load of links inside a group as a ring round its vertex."""
    inner = [link for link in drawing["links"] if link["source"] == link["target"]]
    if not inner:
        return
    vertices, looks = [drawing["vertices"][link["source"]] for link in inner], vertex_looks(drawing["vertices"])
    colours = [RAMP[_bin_of(link["max_utilization"])] for link in inner]
    plot.add_scatter(
        x=[vertex["x"] for vertex in vertices], y=[vertex["y"] for vertex in vertices], mode="markers",
        marker={"color": colours, "size": [sizes[link["source"]] + 5 for link in inner],
                "line": {"width": 0}, "opacity": 1,
                "symbol": [looks[vertex["kind"]].symbol for vertex in vertices]},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip


def _add_touch(plot: plotly.graph_objects.Figure, pairs: Sequence[_Pair]) -> None:
    """Add invisible points that say what a link carries, and the colour bar."""
    bands = [[edge / len(RAMP), colour] for k, colour in enumerate(RAMP) for edge in (k, k + 1)]
    apart = [pair for pair in pairs if len(set(pair.points)) > 1]
    plot.add_scatter(
        x=[pair.at[0] for pair in apart], y=[pair.at[1] for pair in apart], mode="markers", hoverinfo="text",
        hovertext=[pair.hover for pair in apart], showlegend=False,
        marker={
            "color": [100 * pair.load for pair in apart], "cmin": 0, "cmax": 100, "opacity": 0, "size": 9,
            "colorscale": bands, "showscale": True,
            "colorbar": {"title": {"text": "utilisation [%]"}, "thickness": 14, "len": 0.8,
                         "tickvals": [0, 20, 40, 60, 80, 100]},
        },
    )  # fmt: skip


def _legend_groups(detail: Mapping[str, Any]) -> list[tuple[str, str, list[Mapping[str, Any]]]]:
    """Return (words, colour, vertices): by kind, accelerators of a mix by job; idle and failed ones apart."""
    jobs = [job["name"] for job in detail["jobs"]]
    looks = vertex_looks(detail["drawing"]["vertices"])
    order = {kind: place for place, kind in enumerate(looks)}
    groups: dict[tuple[float, int, str, str], list[Mapping[str, Any]]] = {}
    for vertex in detail["drawing"]["vertices"]:
        kind, job = vertex["kind"], vertex.get("job", -2)
        words, colour = kind, looks[kind].colour if not jobs or job == -1 else _MIX_SWITCH
        if vertex.get("num_failed") == vertex["count"]:
            words = f"failed {kind}"
        elif job == -1:
            words = f"idle {kind}"
        elif jobs and job >= 0:
            words, colour = jobs[job], COLOURS[job % len(COLOURS)]
        key = (order[kind], job if job >= 0 else len(jobs), words, colour)
        groups.setdefault(key, []).append(vertex)
    return [(words, colour, groups[key]) for key in sorted(groups) for *_, words, colour in [key]]


def _add_vertices(plot: plotly.graph_objects.Figure, detail: Mapping[str, Any], sizes: Sequence[float]) -> None:
    inner = {link["source"]: link for link in detail["drawing"]["links"] if link["source"] == link["target"]}
    number = {id(vertex): k for k, vertex in enumerate(detail["drawing"]["vertices"])}
    looks = vertex_looks(detail["drawing"]["vertices"])
    for words, colour, vertices in _legend_groups(detail):
        symbol = looks[vertices[0]["kind"]].symbol
        own = [sizes[number[id(vertex)]] for vertex in vertices]
        is_idle = words.startswith("idle ")
        plot.add_scatter(
            x=[vertex["x"] for vertex in vertices], y=[vertex["y"] for vertex in vertices], mode="markers",
            name=label(words + _each(vertices)), hoverinfo="text",
            hovertext=[_vertex_hover(vertex, words, inner.get(number[id(vertex)])) for vertex in vertices],
            marker={
                "color": "#FFFFFF" if is_idle else colour, "size": own, "opacity": 1,
                "symbol": "x" if words.startswith("failed ") else symbol,
                "line": {"color": colour if is_idle else "#FFFFFF", "width": 1 if max(own) > 5 or is_idle else 0},
            },
        )  # fmt: skip


def _each(vertices: Sequence[Mapping[str, Any]]) -> str:
    """Return how many each drawn vertex stands for, if more than one."""
    counts = {vertex["count"] for vertex in vertices}
    if counts == {1}:
        return ""
    return f" (each {min(counts):,})" if len(counts) == 1 else f" (each {min(counts):,} to {max(counts):,})"


def _vertex_hover(vertex: Mapping[str, Any], words: str, inner: Mapping[str, Any] | None) -> str:
    lines = [f"<b>{label(vertex['label'])}</b>"]
    if words != vertex["kind"]:
        lines.append(label(words))
    if vertex["count"] > 1:
        lines.append(f"{vertex['count']:,} drawn as one")
    if vertex.get("num_failed"):
        lines.append(f"{vertex['num_failed']} failed")
    if inner is not None:
        lines.append(f"inside: {format_size(inner['num_bytes'])}, {inner['utilization']:.2%} busy{_crowd(inner)}")
    return "<br>".join(lines)


def _paper(detail: Mapping[str, Any], pairs: Sequence[_Pair], axes: matplotlib.axes.Axes) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import BoundaryNorm, ListedColormap

    drawing = detail["drawing"]
    for x0, y0, x1, y1 in drawing["boxes"]:
        axes.fill([x0, x1, x1, x0], [y0, y0, y1, y1], facecolor="#F2F2F2", edgecolor="#C0C0C0", linewidth=0.5)
    strokes, colours, widths, dashes = [], [], [], []
    for pair in pairs:
        place = _bin_of(pair.load)
        for stroke in _strokes(pair.points):
            strokes.append(stroke)
            colours.append(RAMP[place] if pair.load > 0 else "#D5DADF")
            widths.append(0.3 + 0.12 * place if pair.load > 0 else 0.25)
            dashes.append(PAPER_DASHES[_dash(pair)])
    axes.add_collection(LineCollection(strokes, colors=colours, linewidths=widths, linestyles=dashes))
    sizes = _marker_sizes(drawing, *_extent(drawing), 400)
    number = {id(vertex): k for k, vertex in enumerate(drawing["vertices"])}
    looks = vertex_looks(drawing["vertices"])
    for words, colour, vertices in _legend_groups(detail):
        symbol = PAPER_SYMBOLS["x" if words.startswith("failed ") else looks[vertices[0]["kind"]].symbol]
        axes.scatter(
            [vertex["x"] for vertex in vertices], [vertex["y"] for vertex in vertices], label=words, zorder=3,
            s=[sizes[number[id(vertex)]] ** 2 / 8 for vertex in vertices], marker=symbol, edgecolors=colour,
            facecolors="white" if words.startswith("idle ") else colour, linewidths=0.5,
        )  # fmt: skip
    axes.autoscale_view()
    if drawing["is_to_scale"]:
        axes.set_aspect("equal")
    axes.set_axis_off()
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    norm = BoundaryNorm([100 * k / len(RAMP) for k in range(len(RAMP) + 1)], len(RAMP))
    shades = ScalarMappable(norm, ListedColormap(RAMP))
    axes.figure.colorbar(shades, ax=axes, label="utilisation [%]", shrink=0.8)


def _extent(drawing: Mapping[str, Any]) -> tuple[float, float]:
    spans = []
    for axis in ("x", "y"):
        values = [vertex[axis] for vertex in drawing["vertices"]]
        spans.append(max(max(values) - min(values), 1e-9))
    return spans[0], spans[1]


def _strokes(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    strokes: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            strokes.append([])
        else:
            strokes[-1].append(point)
    return strokes
