"""RankGroups: process groups of a program, as lists of ranks or as a rule.

Example:
    RankGroups(kind="tp", size=8)              # ranks 0-7, 8-15, ...
    RankGroups(kind="dp", size=4, stride=8)    # ranks 0, 8, 16, 24; 1, 9, 17, 25; ...
    RankGroups(kind="dp")                      # all ranks
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.plan.group_kinds import GROUP_KINDS
from rostam_py.plan.groups import GroupSet
from rostam_py.programs.ranks import expand_ranks, written_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """Equal-sized groups of ranks that communicate inside each group; a rank is in at most one of them.

    kind: under which results list what they communicate, of GROUP_KINDS. ranks: of each group, in rank order, as
    numbers and texts such as "0-7". size: ranks of each group where ``ranks`` is left out, by default all; stride: from
    one rank of a group to the next.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    kind: str = "dp"
    ranks: tuple[tuple[int | str, ...], ...] | None = None
    size: int | None = None
    stride: int = 1

    def __post_init__(self) -> None:
        if self.kind not in GROUP_KINDS:
            raise ConfigError(f"kind is {self.kind!r}; it must be one of: {', '.join(GROUP_KINDS)}")
        if self.ranks is not None and (self.size is not None or self.stride != 1):
            raise ConfigError("ranks is given together with size or stride; give the ranks, or the rule")
        if self.ranks is None:
            if self.size is not None:
                check_integer("size", self.size, 1)
            check_integer("stride", self.stride, 1)

    @classmethod
    def of(cls, groups: GroupSet, num_ranks: int) -> "RankGroups":
        """Return a plan's groups, by a rule where one gives the same."""
        members = groups.members
        stride = int(members[0, 1] - members[0, 0]) if members.shape[1] > 1 else 1
        size = members.shape[1]
        if stride >= 1 and num_ranks % (size * stride) == 0:
            rule = cls(kind=groups.kind, size=size, stride=stride)
            if np.array_equal(rule.members(groups.label, num_ranks), members):
                return rule
        return cls(kind=groups.kind, ranks=tuple(written_ranks(row) for row in members))

    def members(self, label: str, num_ranks: int) -> np.ndarray:
        """Return the ranks, int array (groups, ranks).

        Raises: ConfigError for groups of different sizes, ranks that there are not, and a rule that does not divide
            the ranks.
        """
        if self.ranks is not None:
            return self._listed(self.ranks, label, num_ranks)
        size = num_ranks if self.size is None else self.size
        if size * self.stride > num_ranks or num_ranks % (size * self.stride):
            raise ConfigError(
                f"groups.{label} has size {size} and stride {self.stride}, whose product must divide num_ranks ="
                f" {num_ranks}"
            )
        return np.arange(num_ranks).reshape(-1, size, self.stride).transpose(0, 2, 1).reshape(-1, size)

    def group_set(self, label: str, num_ranks: int) -> GroupSet:
        """Return the groups as those of a plan."""
        return GroupSet(self.kind, label, self.members(label, num_ranks))

    def _listed(self, ranks: Sequence[Sequence[int | str]], label: str, num_ranks: int) -> np.ndarray:
        rows = [expand_ranks(row, num_ranks, f"groups.{label}.ranks[{k}]") for k, row in enumerate(ranks)]
        sizes = sorted({len(row) for row in rows})
        if len(sizes) != 1:
            raise ConfigError(
                f"groups.{label} has groups of {', '.join(map(str, sizes)) or 'no'} ranks; groups of one label have"
                " equally many: give the others a label of their own"
            )
        return np.stack(rows)
