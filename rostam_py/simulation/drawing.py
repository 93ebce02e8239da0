"""Drawings of runs: where a fabric's vertices lie and what its links carried, of each plane that differs.

Planes that are alike carry equal bytes and are drawn as one. Of planes with different faults each is a drawing of its
own, up to ``MAX_DRAWN_PLANES``: what most planes are, then those with the most faults.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostam_py.fabrics.layout import Layout
from rostam_py.simulation.job_result import JobResult

MAX_DRAWN_PLANES = 4
_MOST_NAMED = 6  # failed parts of a plane


def drawing_of(
    results: Sequence[JobResult], layout: Layout, links: np.ndarray, utilization: np.ndarray
) -> dict[str, Any]:
    """Return vertices with positions, and for every plane that differs its links and what of it has failed.

    Args:
        results: of the jobs of one simulation; link loads are the first one's.
        links: of the fabric. utilization: of each.
    """
    fabric = results[0].fabric
    drawn, left_out = _chosen_planes(fabric)
    return {
        "fabric": fabric.name,
        "num_planes": fabric.planes,
        "grouping": layout.grouping,
        "note": layout.note,
        "is_to_scale": layout.is_to_scale,
        "boxes": [[short(value, 5) for value in box] for box in layout.boxes],
        "vertices": _vertices(results, layout),
        "planes": [_plane(results[0], planes, layout, links, utilization) for planes in drawn],
        "planes_not_drawn": left_out,
    }


def _chosen_planes(fabric: Any) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the classes of planes to draw, and the planes of all others."""

    def rank(planes: tuple[int, ...]) -> tuple[int, int]:
        own = fabric.failures_in(planes[0])
        return -len(own.switches) - len(own.links), planes[0]

    classes = fabric.plane_classes
    usual = max(classes, key=lambda planes: (len(planes), -planes[0]))
    others = sorted((planes for planes in classes if planes != usual), key=rank)
    drawn = sorted([usual, *others[: MAX_DRAWN_PLANES - 1]])
    return drawn, sorted(plane for planes in others[MAX_DRAWN_PLANES - 1 :] for plane in planes)


def _plane(
    result: JobResult, planes: tuple[int, ...], layout: Layout, links: np.ndarray, utilization: np.ndarray
) -> dict[str, Any]:
    """Return the links of planes that are alike, those of one direction between two groups as one, and the faults."""
    mine = links["plane"] == planes[0]
    failed = _failed_switches(result.fabric, planes[0], len(layout.group_of))
    groups, counts = np.unique(layout.group_of[failed], return_counts=True)
    return {
        "planes": list(planes),
        "links": _links(result, layout, links[mine], result.link_bytes[mine], utilization[mine]),
        "failed_vertices": [[group, count] for group, count in zip(groups.tolist(), counts.tolist(), strict=True)],
        "faults": _faults(result.fabric, planes[0], layout, links[mine]),
    }


def _failed_switches(fabric: Any, plane: int, num_vertices: int) -> np.ndarray:
    """Return the vertices of a plane's failed switches; none where circuits are drawn, which go without."""
    vertices = fabric.num_accelerators + np.array(fabric.failures_in(plane).switches, np.int64)
    return vertices[vertices < num_vertices]


def _faults(fabric: Any, plane: int, layout: Layout, links: np.ndarray) -> list[str]:
    """Return in words what of one plane has failed, besides accelerators; an optical fabric's parts are not drawn."""
    if fabric.is_circuit_switched:
        return []
    own = fabric.failures_in(plane)
    names = [layout.name_of[vertex] for vertex in _failed_switches(fabric, plane, len(layout.name_of)).tolist()]
    first = plane * (fabric.num_links // fabric.planes)
    for cable in own.links:
        ends = links[links["cable"] == first + cable][0]
        names.append(f"link {layout.name_of[ends['src']]} - {layout.name_of[ends['dst']]}")
    more = len(names) - _MOST_NAMED
    return names if more <= 0 else [*names[:_MOST_NAMED], f"{more:,} more"]


def _links(
    result: JobResult, layout: Layout, links: np.ndarray, num_bytes: np.ndarray, utilization: np.ndarray
) -> list[dict[str, Any]]:
    num_groups, iteration_s = len(layout.x), result.iteration_time_s
    ends = layout.group_of[links["src"]] * num_groups + layout.group_of[links["dst"]]
    keys, which, count = np.unique(ends, return_inverse=True, return_counts=True)
    sums = [np.bincount(which, weights=values) for values in (num_bytes, links["bandwidth_bytes_per_s"])]
    highest = np.zeros(len(keys))
    np.maximum.at(highest, which, utilization)
    failed = np.bincount(which, weights=links["is_failed"]).astype(np.int64)
    columns = (keys // num_groups, keys % num_groups, *sums, highest, count, failed)
    joined = set(zip(columns[0].tolist(), columns[1].tolist(), strict=True))
    drawn = []
    for source, target, moved, capacity, peak, number, lost in zip(*(c.tolist() for c in columns), strict=True):
        link = {
            "source": source, "target": target, "num_bytes": whole(moved),
            "utilization": short(moved / (capacity * iteration_s), 4),
            "max_utilization": short(peak, 4), "count": number,
        }  # fmt: skip
        # the way back runs alike, and is not said again
        is_back = source > target and (target, source) in joined
        route = {} if is_back else _rounded(layout.route(source, target))
        drawn.append(link | ({"num_failed": lost} if lost else {}) | route)
    return drawn


def _vertices(results: Sequence[JobResult], layout: Layout) -> list[dict[str, Any]]:
    """Return the drawn vertices; those with accelerators say whose they are: a job's number, or -1 for idle ones."""
    fabric = results[0].fabric
    job_of = np.full(len(layout.group_of), -1)
    for number, result in enumerate(results):
        job_of[result.devices] = number
    accelerators = np.arange(fabric.num_accelerators)
    votes = np.zeros((len(layout.x), len(results) + 1), np.int64)
    np.add.at(votes, (layout.group_of[accelerators], job_of[accelerators] + 1), 1)
    failed = np.zeros(len(layout.group_of), np.int64)
    failed[list(fabric.failures.accelerators)] = 1
    num_failed = np.bincount(layout.group_of, weights=failed, minlength=len(layout.x)).astype(np.int64)
    role = np.full(len(layout.x), "switch", dtype=object)
    role[layout.group_of[fabric.num_accelerators + int(fabric.core.num_switches) :]] = "inside"
    role[layout.group_of[accelerators]] = "accelerator"
    vertices = []
    for group in range(len(layout.x)):
        vertex = {
            "x": short(float(layout.x[group]), 5), "y": short(float(layout.y[group]), 5),
            "kind": layout.kind[group], "role": role[group], "label": layout.label[group],
            "count": int(layout.count[group]),
        }  # fmt: skip
        if votes[group].any():
            vertex["job"] = int(votes[group].argmax()) - 1
        vertices.append(vertex | ({"num_failed": int(num_failed[group])} if num_failed[group] else {}))
    return vertices


def _rounded(route: dict[str, Any]) -> dict[str, Any]:
    """Return a link's course with short numbers."""
    if "bend" in route:
        return {"bend": [short(value, 4) for value in route["bend"]]}
    if "path" in route:
        return {"path": [None if point is None else [short(value, 5) for value in point] for point in route["path"]]}
    return {}


def short(value: float, digits: int = 9) -> float:
    """Return ``value`` to some significant digits."""
    return float(f"{value:.{digits}g}")


def whole(num_bytes: float) -> int:
    """Return bytes as an integer: spraying divides them, and fractions of a byte mean nothing."""
    return round(num_bytes)
