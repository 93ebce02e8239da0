"""ProgramData: what every rank of a job runs in one iteration, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.host import DEFAULT_HOST, HOSTS
from rostam_py.plan.tasks import COMPUTE_STREAM
from rostam_py.programs.groups import RankGroups
from rostam_py.programs.kernels import Kernel
from rostam_py.programs.ranks import MAX_RANKS, expand_ranks
from rostam_py.programs.roles import Role


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProgramData:
    """What the ranks of a job run in one iteration.

    name: of the job. num_ranks: ranks are 0 to num_ranks - 1. roles: name -> ranks that run the same; every rank has
    one. groups: label -> process groups. kernels: name -> kernel. description: for readers. host: how its code runs,
    which is what launches take hosts (rostam list hosts), where the machine's host is the default.
    """

    name: str
    num_ranks: int
    roles: Mapping[str, Role]
    groups: Mapping[str, RankGroups] = field(default_factory=dict)
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    description: str = ""
    host: str = DEFAULT_HOST

    def __post_init__(self) -> None:
        if check_integer("num_ranks", self.num_ranks, 1) > MAX_RANKS:
            raise ConfigError(f"num_ranks is {self.num_ranks}; it must be at most {MAX_RANKS}")
        if self.host not in HOSTS:
            raise ConfigError(f"host is {self.host!r}; it must be one of: {', '.join(HOSTS)}")
        if not self.roles:
            raise ConfigError("roles is empty; every rank has a role")
        _ = self.role_of  # every rank has one
        for label, groups in self.group_sets.items():
            if label == COMPUTE_STREAM:
                raise ConfigError(f"groups.{label} is called as the stream of kernels is; give it another name")
            if groups.num_ranks < 1:
                raise ConfigError(f"groups.{label} has no ranks")

    @cached_property
    def role_of(self) -> np.ndarray:
        """Index of each rank's role, int array (num_ranks,).

        Raises: ConfigError for a rank with two roles, or none.
        """
        found = np.full(self.num_ranks, -1, np.int64)
        names = list(self.roles)
        for index, (name, role) in enumerate(self.roles.items()):
            mine = self._ranks_of(name, role)
            taken = mine[found[mine] >= 0]
            if len(taken):
                other = names[found[taken[0]]]
                raise ConfigError(f"rank {taken[0]} is in roles {other!r} and {name!r}; every rank has one role")
            found[mine] = index
        if (found < 0).any():
            raise ConfigError(f"rank {np.flatnonzero(found < 0)[0]} has no role; roles are: {', '.join(names)}")
        return found

    def _ranks_of(self, name: str, role: Role) -> np.ndarray:
        if role.ranks is None:
            return np.arange(self.num_ranks)
        return expand_ranks(role.ranks, self.num_ranks, f"roles.{name}.ranks")

    @cached_property
    def group_sets(self) -> dict[str, GroupSet]:
        """The process groups, as a plan has them, by label."""
        return {label: one.group_set(label, self.num_ranks) for label, one in self.groups.items()}

    @property
    def num_steps(self) -> int:
        """Steps of all roles in one iteration, repeats counted."""
        runs = ((role, role.order.counts()) for role in self.roles.values())
        return sum(len(role.phases[name]) * count for role, counts in runs for name, count in counts.items())
