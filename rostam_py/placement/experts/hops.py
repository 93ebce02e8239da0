"""Rows of experts that cross to a server once, and are copied to the ranks of their experts there.

Legend: k experts of N for each token, S servers of an expert-parallel group, r ranks of it on each, M servers that a
token may go to.

Model: of M servers, drawn alike, a token takes k of their M N / S experts, drawn alike: it has some on
M (1 - C(M N / S - N / S, k) / C(M N / S, k)) servers, and on as many ranks with N / (S r) in place of the second N / S.
A copy goes to each of those servers, to the rank of the sender's number there, and from there to each rank, in chunks,
so that both hops run at once: an all-to-all over the ranks of equal number, and one over the ranks of a server. Sums of
what experts make go back the same way. Ignores that nearer servers may be preferred.

Source: DeepSeek-V3 (arXiv 2412.19437, sections 2.1.2 and 3.2.2: at most 4 servers a token); its kernels are DeepEP
(deepseek-ai/DeepEP, README); Megatron-Core's flex dispatcher calls them, or HybridEP.
"""

import math
from dataclasses import dataclass

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.expert_groups import BETWEEN, EXPERTS, INSIDE
from rostam_py.plan.groups import GroupSet


@dataclass(frozen=True)
class Hop:
    """An all-to-all that dispatch or combine takes. share: of the bytes that a copy for each expert would take."""

    group: str
    share: float


@dataclass(frozen=True)
class ExpertHops:
    """What takes the place of an all-to-all over an expert-parallel group: hops that run at once, and their groups.

    num_servers, num_ranks: that a token has experts on, in the mean. num_experts: of a layer. per_token: that it has.
    spans_servers: whether a group does.
    """

    hops: tuple[Hop, ...] = ()
    groups: tuple[GroupSet, ...] = ()
    num_servers: float = 0.0
    num_ranks: float = 0.0
    num_experts: int = 0
    per_token: int = 0
    spans_servers: bool = False

    @property
    def rank_share(self) -> float:
        """Rows that ranks receive over those of their experts; 0 where a row is sent for each of them."""
        return self.num_ranks / self.per_token if self.hops else 0.0


def num_parts_hit(num_parts: int, experts_per_part: int, per_token: int, num_drawn: int = 0) -> float:
    """Return on how many parts a token has experts, in the mean.

    Args: num_drawn: experts of the parts that it may choose from, all of them by default.
    """
    drawn = num_drawn or num_parts * experts_per_part
    missed = math.comb(drawn - experts_per_part, per_token) / math.comb(drawn, per_token)
    return num_parts * (1 - missed)


def expert_hops(
    groups: np.ndarray, servers: np.ndarray, num_experts: int, per_token: int, most_servers: int
) -> ExpertHops:
    """Return the hops of expert-parallel groups.

    Args:
        groups: device numbers, int array (groups, ranks). servers: of each device, int array (devices).
        most_servers: software.rules.servers_per_token.
    Raises: ConfigError for groups that are not spread evenly over servers, or servers with fewer experts than a token
        has.
    """
    degree, where = groups.shape[1], servers[groups]
    num_servers = len(np.unique(where[0]))
    inside = degree // num_servers
    parts = where.reshape(len(groups), num_servers, -1) if degree % num_servers == 0 else where[:, None]
    is_even = (parts == parts[:, :, :1]).all() and all(len(set(row)) == num_servers for row in parts[:, :, 0].tolist())
    if not is_even:
        raise ConfigError(
            f"software.rules.servers_per_token is {most_servers}, but groups of strategy.ep = {degree} ranks do not"
            " have the same number of neighbouring ranks on each of their servers; leave it out, or choose ep,"
            " rank_order and mapping so that they do"
        )
    reached = min(most_servers, num_servers)
    on_server = num_experts // num_servers
    drawn = reached * on_server
    if drawn < per_token:
        raise ConfigError(
            f"software.rules.servers_per_token is {most_servers}: {reached} of {num_servers} servers hold {drawn}"
            f" experts, but a token needs {per_token}; it must be at least {-(-per_token // on_server)}"
        )
    hit = num_parts_hit(reached, on_server, per_token, drawn)
    ranks = num_parts_hit(reached * inside, num_experts // degree, per_token, drawn)
    hops, found = [], []
    if num_servers > 1:
        same_number = groups.reshape(-1, num_servers, inside).transpose(0, 2, 1).reshape(-1, num_servers)
        label = BETWEEN if inside > 1 else EXPERTS
        hops.append(Hop(label, hit / per_token))
        found += [GroupSet("ep", label, same_number)] if inside > 1 else []
    if inside > 1:
        label = INSIDE if num_servers > 1 else EXPERTS
        hops.append(Hop(label, ranks / per_token))
        found += [GroupSet("ep", label, groups.reshape(-1, inside))] if num_servers > 1 else []
    return ExpertHops(tuple(hops), tuple(found), hit, ranks, num_experts, per_token, num_servers > 1)
