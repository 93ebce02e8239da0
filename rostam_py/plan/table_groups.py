"""Where embedding tables lie, and the process groups that exchange their pooled vectors.

All data-parallel ranks; of tables that lie on servers the ranks of a server, and those of equal number on all servers.
"""

import numpy as np

from rostam_py.plan.groups import GroupSet

REPLICATED = "replicated"
HIERARCHICAL = "hierarchical"
TABLE_PLACES = (REPLICATED, "sharded", "columns", "balanced", HIERARCHICAL)
TABLES = "tables"
INSIDE, BETWEEN = "tables_inside", "tables_between"  # labels of groups: ranks of a server, ranks of equal number


def table_groups(ids: np.ndarray, where: str, server_size: int) -> tuple[GroupSet, ...]:
    """Return the groups "tables".

    Args: ids: device numbers, int array (data-parallel ranks, stages, tp). server_size: ranks of a server, which follow
        one another.
    """
    degree = ids.shape[0]
    if where == REPLICATED or degree == 1:
        return ()
    ranks = ids.transpose(1, 2, 0)
    if where != HIERARCHICAL:
        return (GroupSet("tables", TABLES, ranks.reshape(-1, degree)),)
    inside = GroupSet("tables", INSIDE, ranks.reshape(-1, server_size))
    if degree == server_size:
        return (inside,)
    same_number = ranks.reshape(-1, degree // server_size, server_size).transpose(0, 2, 1)
    return inside, GroupSet("tables", BETWEEN, same_number.reshape(-1, degree // server_size))
