"""Roles: which ranks of a program run what a captured one runs."""

from collections.abc import Mapping, Sequence

from rostam_py.capturing.likeness import first_difference
from rostam_py.capturing.records import Record
from rostam_py.errors import ConfigError


def ranks_by_role(
    records: Sequence[Record], stages: Sequence[int], *, are_given: bool
) -> tuple[dict[str, tuple[Record, list[int]]], tuple[int, int] | None]:  # fmt: skip
    """Return (record, ranks) of every role, and two captured ranks of a stage between which others must be captured.

    Model: captured ranks of a stage that run alike stand for all between them; given ones stand for those that follow,
        up to the next.
    Args:
        records: by rank, ascending.
        stages: of every rank.
        are_given: a user has named the ranks.
    Raises: ConfigError for a stage of which no rank is captured.
    """
    roles: dict[str, tuple[Record, list[int]]] = {}
    for stage in sorted(set(stages)):
        ranks = [rank for rank, one in enumerate(stages) if one == stage]
        mine = [record for record in records if stages[record.rank] == stage]
        if not mine:
            raise ConfigError(
                f"no rank of pipeline stage {stage} is captured; name one of {_few(ranks)} by --ranks, or leave it out"
            )
        parts, gap = _parts(mine, ranks, are_given=are_given)
        if gap is not None:
            return roles, gap
        for record, members in parts:
            name = "rank" if len(set(stages)) == 1 else f"stage {stage}"
            roles[name if len(parts) == 1 else f"{name}s from {members[0]}"] = (record, members)
    return roles, None


def _parts(
    records: Sequence[Record], ranks: Sequence[int], *, are_given: bool
) -> tuple[list[tuple[Record, list[int]]], tuple[int, int] | None]:  # fmt: skip
    """Return the ranks of a stage by the captured one that they run like."""
    parts: list[tuple[Record, list[int]]] = []
    starts = [ranks.index(record.rank) for record in records]
    bounds = [0, *starts[1:], len(ranks)]
    for k, record in enumerate(records):
        members = list(ranks[bounds[k] : bounds[k + 1]])
        if parts and first_difference(parts[-1][0], parts[-1][0].rows, record, record.rows) is None:
            parts[-1][1].extend(members)
        elif parts and not are_given and starts[k] - starts[k - 1] > 1:
            return [], (ranks[starts[k - 1]], ranks[starts[k]])
        else:
            parts.append((record, members))
    return parts, None


def middle(gap: tuple[int, int], stages: Sequence[int]) -> int:
    """Return the rank in the middle of two of the same stage."""
    between = [rank for rank in range(gap[0] + 1, gap[1]) if stages[rank] == stages[gap[0]]]
    return between[len(between) // 2]


def _few(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def role_ranks(roles: Mapping[str, tuple[Record, list[int]]]) -> dict[str, list[int]]:
    """Return the ranks of every role."""
    return {name: ranks for name, (_, ranks) in roles.items()}
