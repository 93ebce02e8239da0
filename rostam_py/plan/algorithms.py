"""Which algorithms a plan's collectives run, and that in words.

Example:
    algorithm_words([{"group": "dp", "collective": "all_reduce", "num_bytes": 10**6, "algorithm": "ring", "count": 3}])
    # "dp all_reduce ring"
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.plan.traffic import Volumes
from rostam_py.units import format_size


def collectives_of(volumes: Volumes, schedules: Mapping[tuple[str, str, int], ScheduleKey]) -> list[dict[str, Any]]:
    """Return what every collective runs, by groups, collective and size, smallest first.

    Returns: dicts of group (its label), collective, num_bytes (S of MODEL A4), num_ranks, algorithm, num_pieces (of the
        buffer, where the algorithm works in several), protocol ("" on ideal links) and count: of one iteration, each
        stage's once.
    """
    counts: dict[tuple[str, str, int], int] = {}
    for (label, _, collective, size), count in volumes.collectives.items():
        counts[label, collective, size] = counts.get((label, collective, size), 0) + count
    return [
        {"group": label, "collective": collective, "num_bytes": size, "num_ranks": schedules[key].num_ranks,
         "algorithm": schedules[key].algorithm, "num_pieces": schedules[key].num_pieces,
         "protocol": schedules[key].protocol, "count": counts[key]}
        for key in sorted(counts) for label, collective, size in [key]
    ]  # fmt: skip


def _way(one: Mapping[str, Any]) -> str:
    """Return the algorithm, and the protocol on links that have some."""
    return " ".join(filter(None, (one["algorithm"], one.get("protocol", ""))))


def algorithm_words(collectives: Iterable[Mapping[str, Any]]) -> str:
    """Return in words which algorithms run, with protocols: of several sizes, where they change.

    Args: collectives: as ``collectives_of`` returns them, or as result.json holds them.
    """
    runs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in collectives:
        if one.get("num_ranks", 2) > 1:
            runs.setdefault((one["group"], one["collective"]), []).append(one)
    words = []
    for (group, collective), sizes in runs.items():
        parts: list[str] = []
        for one, after in zip(sizes, [*sizes[1:], None], strict=True):
            if after is None or _way(after) != _way(one):
                limit = f" up to {format_size(one['num_bytes'])}" if after is not None else ""
                parts.append(f"{_way(one)}{limit}")
        words.append(f"{group} {collective} {', '.join(parts)}")
    return "; ".join(words)
