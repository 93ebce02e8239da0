"""What to know of a collective that leaves most direct links between its ranks idle.

Example:
    link_note(fabric, key, members)     # "all_gather by ring uses 8 of the 56 direct links between its ranks, 14%"
"""

import numpy as np

from rostam_py.collectives.direct_links import has_direct_links
from rostam_py.collectives.group_costs import link_seconds
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.fabrics.fabric import Fabric

_NAMED_BELOW = 0.5
# In which every rank has a part, so that all links could serve.
_SPREAD = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")


def link_note(
    fabric: Fabric, key: ScheduleKey, members: np.ndarray, *, routing: str = "spray", label: str = ""
) -> str | None:
    """Return which share of the directed links between a group's ranks a collective uses, where it is below a half.

    Args: members: accelerators in the order of the schedule's ranks. label: of the groups, to begin with.
    Returns: None from a half on, where no direct links join the ranks, and for collectives that few ranks take part in.
    Cost: one route for each message of each distinct step, on fabrics with direct links.
    """
    if key.collective not in _SPREAD or key.num_ranks < 2 or not has_direct_links(fabric):
        return None
    links = fabric.links
    is_member = np.zeros(links["src"].max(initial=links["dst"].max(initial=0)) + 1, bool)
    is_member[members] = True
    is_own = is_member[links["src"]] & is_member[links["dst"]] & ~links["is_failed"].astype(bool)
    if not is_own.any():
        return None
    busy = link_seconds(fabric, key, members[None, :], routing=routing)
    used, total = int((busy[is_own] > 0).sum()), int(is_own.sum())
    if used >= _NAMED_BELOW * total:
        return None
    what = f"{label} {key.collective}".strip()
    return f"{what} by {key.algorithm} uses {used} of the {total} direct links between its ranks, {used / total:.0%}"
