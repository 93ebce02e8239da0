"""Where embedding tables lie, and the process groups that exchange their pooled vectors: all data-parallel ranks."""

import numpy as np

from rostam_py.plan.groups import GroupSet

REPLICATED = "replicated"
TABLE_PLACES = (REPLICATED, "sharded", "columns", "balanced")
TABLES = "tables"


def table_groups(ids: np.ndarray, where: str) -> tuple[GroupSet, ...]:
    """Return the groups "tables". Args: ids: device numbers, int array (data-parallel ranks, stages, tp)."""
    if where == REPLICATED or ids.shape[0] == 1:
        return ()
    return (GroupSet("tables", TABLES, ids.transpose(1, 2, 0).reshape(-1, ids.shape[0])),)
