"""Process groups of expert parallelism: it adds no devices, its groups are parts of the data-parallel ones.

Legend: d data-parallel ranks (dp x cp; times tp where it splits no expert), e of them a group whose members hold
different experts; ranks of equal number mod e hold the same ones.

Example:
    ids = np.arange(8).reshape(8, 1, 1)
    expert_groups(ids, 4)            # ep: [[0, 1, 2, 3], [4, 5, 6, 7]], dp_experts: [[0, 4], [1, 5], [2, 6], [3, 7]]
"""

import numpy as np

from rostam_py.plan.groups import GroupSet

EXPERTS = "ep"
EXPERT_DATA = "dp_experts"
# Of rows that cross to a server once (software.rules.servers_per_token): ranks of equal number, ranks of a server.
BETWEEN, INSIDE = "ep_between", "ep_inside"


def expert_groups(ids: np.ndarray, degree: int, are_whole: bool = False) -> tuple[GroupSet, ...]:
    """Return the groups that exchange rows of experts, "ep", and those that reduce their gradients, "dp_experts".

    Args:
        ids: device numbers, int array (data-parallel ranks, stages, tp).
        degree: divides the data-parallel ranks, or those of tp as well.
        are_whole: tp splits no expert: a group takes the tp ranks of a data-parallel rank, then those of the next.
    Returns: nothing for a degree of 1; no "dp_experts" where every expert is on one rank only.
    """
    if degree == 1:
        return ()
    num_data = ids.shape[0] * (ids.shape[2] if are_whole else 1)
    by_stage = ids.transpose((1, 0, 2) if are_whole else (1, 2, 0)).reshape(-1, num_data // degree, degree)
    sets = [GroupSet("ep", EXPERTS, by_stage.reshape(-1, degree))]
    if num_data > degree:
        sets.append(GroupSet("dp", EXPERT_DATA, by_stage.transpose(0, 2, 1).reshape(-1, num_data // degree)))
    return tuple(sets)
