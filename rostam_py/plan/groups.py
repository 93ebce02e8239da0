"""GroupSet: process groups of one kind, as rows of device numbers.

Legend: D = dp x cp, P = stages, T = tp degrees; devices of a grid are numbered row-major, (d, s, t) is (d P + s) T + t.

Example:
    grid_groups((2, 1, 4))[0].members      # tp: [[0, 1, 2, 3], [4, 5, 6, 7]]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.group_kinds import GROUP_KINDS
from rostam_py.plan.state_sharding import GATHERED_AGAIN


@dataclass(frozen=True, eq=False)
class GroupSet:
    """Equal-sized groups of devices that communicate inside each group.

    kind: registered in GROUP_KINDS. label: names the set within a plan; tasks refer to it. members: device numbers,
    int array (groups, ranks), rank order; a device is in at most one group of a set.
    """

    kind: str
    label: str
    members: np.ndarray

    def __post_init__(self) -> None:
        GROUP_KINDS.get(self.kind)
        members = np.ascontiguousarray(self.members, dtype=np.int64)
        if members.ndim != 2 or members.size == 0:
            raise ConfigError(
                f"groups {self.label!r} have members of shape {members.shape}; it must be (groups, ranks >= 1)"
            )
        if len(np.unique(members)) != members.size:
            raise ConfigError(f"groups {self.label!r} name a device twice; a device is in at most one group of a set")
        object.__setattr__(self, "members", members)

    @property
    def num_ranks(self) -> int:
        """Ranks of each group."""
        return int(self.members.shape[1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupSet):
            return NotImplemented
        return (self.kind, self.label) == (other.kind, other.label) and np.array_equal(self.members, other.members)

    def __hash__(self) -> int:
        return hash((self.kind, self.label, self.members.tobytes()))


def grid_groups(
    shape: tuple[int, int, int], tied: Sequence[Sequence[int]] = (), tp_levels: Sequence[int] = (), cp: int = 1
) -> tuple[GroupSet, ...]:
    """Return the groups of (dp x cp, pp, tp) ranks: "tp", "dp", "pp" (one whole pipeline each), "tied<k>" and "tp<k>".

    "dp" groups, which reduce weight gradients, are of all replicas and all parts of their sequences. If a sequence has
    several, "cp" groups are of the ranks that share one.

    Args:
        tied: for each set of tied parameters the stages that hold it, in order.
        tp_levels: degrees w, r of two levels of the tp groups (rank = r x outer + inner): "tp0" are the w ranks of one
            inner rank, "tp1" the r consecutive ranks of one outer rank, which replicate key heads.
        cp: consecutive ranks of the first axis that share a sequence.
    """
    ids = np.arange(int(np.prod(shape))).reshape(shape)
    num_dp, num_stages, num_tp = shape
    pipelines = ids.transpose(0, 2, 1)
    sets = [
        GroupSet("tp", "tp", ids.reshape(-1, num_tp)),
        GroupSet("dp", "dp", ids.transpose(1, 2, 0).reshape(-1, num_dp)),
        GroupSet("pp", "pp", pipelines.reshape(-1, num_stages)),
    ]
    for k, stages in enumerate(tied):
        sets.append(GroupSet("tied", f"tied{k}", pipelines[:, :, list(stages)].reshape(-1, len(stages))))
    for k, degree in enumerate(tp_levels):
        by_level = ids.reshape(-1, *tp_levels)
        sets.append(GroupSet("tp", f"tp{k}", np.moveaxis(by_level, k + 1, -1).reshape(-1, degree)))
    if cp > 1:
        by_part = ids.reshape(num_dp // cp, cp, num_stages, num_tp)
        sets.append(GroupSet("cp", "cp", by_part.transpose(0, 2, 3, 1).reshape(-1, cp)))
    return tuple(sets)


def sharding_groups(shape: tuple[int, int, int], degree: int, again: int = 0) -> tuple[GroupSet, ...]:
    """Return the groups of (dp, pp, tp) ranks that share state, consecutive along dp: "zero".

    If they are smaller than dp also "dp_shard", the same ranks, which reduce gradients there, and "dp_replicate",
    the ranks of all groups that hold the same share.

    Args: again: ranks that share a second copy of the weights, "zero_again", consecutive too; 0 for none.
    """
    if again:
        found = GroupSet("zero", GATHERED_AGAIN, sharding_groups(shape, again)[0].members)
        return (*sharding_groups(shape, degree), found)
    num_dp, num_stages, num_tp = shape
    by_group = np.arange(int(np.prod(shape))).reshape(num_dp // degree, degree, num_stages, num_tp)
    sharing = by_group.transpose(0, 2, 3, 1).reshape(-1, degree)
    gathered = GroupSet("zero", "zero", sharing)
    if degree == num_dp:
        return (gathered,)
    copies = by_group.transpose(1, 2, 3, 0).reshape(-1, num_dp // degree)
    return gathered, GroupSet("dp", "dp_shard", sharing), GroupSet("dp", "dp_replicate", copies)


def model_parallel_groups(num_groups: int, num_devices: int) -> tuple[GroupSet, ...]:
    """Return the groups of (dp, mp) ranks: "dp" between counterparts, "mp" within a group and "mp_gradient" too.

    What goes into gradients has groups of its own, hence streams of its own, so that no sub-op waits behind it.
    """
    ids = np.arange(num_groups * num_devices).reshape(num_groups, num_devices)
    return GroupSet("dp", "dp", ids.T), GroupSet("mp", "mp", ids), GroupSet("mp_gradient", "mp_gradient", ids)
