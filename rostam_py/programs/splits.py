"""All-to-alls of unequal parts: what each rank has for each, put together from the steps of all ranks of a group.

A step says what its own rank has for each place of the group, or the parts of all; the n-th such collective of a group
is one on all of its ranks. Scatters and gathers are such all-to-alls, in which one rank alone sends, or receives.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from rostam_py.collectives.unequal import UnequalBytes
from rostam_py.errors import ConfigError
from rostam_py.programs.data import ProgramData
from rostam_py.programs.roles import Role
from rostam_py.programs.steps import GATHER, SCATTER, Collective

Place = tuple[int, str, int]  # role, phase, step
_MOST_CALLS = 4_000_000  # that are told apart in an iteration


def unequal_parts(program: ProgramData) -> dict[Place, UnequalBytes]:
    """Return the parts of every unequal all-to-all, by the places of its steps.

    Raises: ConfigError for lists that do not fit the group, received parts that are not what is sent, and a step that
        is part of different all-to-alls.
    Cost: such calls of an iteration, times the ranks of a group.
    """
    found: dict[Place, UnequalBytes] = {}
    roles = list(program.roles.items())
    for label, groups in program.group_sets.items():
        calls = [list(_calls(index, role, label)) for index, (_, role) in enumerate(roles)]
        if not any(calls):
            continue
        for row in np.unique(program.role_of[groups.members], axis=0).tolist():
            _resolve(program, row, calls, found)
    return found


def _calls(index: int, role: Role, label: str) -> Iterator[Place]:
    """Yield where the unequal collectives of an iteration stand, in order."""
    order = role.order
    phases = {
        name: [
            (index, name, k)
            for k, step in enumerate(role.phases[name])
            if isinstance(step, Collective) and step.group == label and step.is_unequal
        ]
        for name in order.counts()
    }
    count = sum(len(phases[name]) * times for name, times in order.counts().items())
    if count > _MOST_CALLS:
        raise ConfigError(
            f"groups {label!r} run {count:,} unequal all-to-alls in an iteration; at most {_MOST_CALLS:,}"
        )
    for segment in order.segments:
        calls = [call for name, _ in segment.entries for call in phases[name]]
        for _ in range(segment.count if calls else 0):
            yield from calls


def _resolve(
    program: ProgramData, row: Sequence[int], calls: Sequence[Sequence[Place]], found: dict[Place, UnequalBytes]
) -> None:
    """Find the parts of all calls of groups whose ranks have these roles."""
    known: dict[tuple[Place, ...], None] = {}
    for together in zip(*(calls[role] for role in dict.fromkeys(row)), strict=False):
        known.setdefault(together)
    for together in known:
        steps = {place[0]: (place, step_at(program, place)) for place in together}
        parts = UnequalBytes([_row(steps[role], k, len(row), program) for k, role in enumerate(row)])
        for place, step in steps.values():
            places = [k for k, role in enumerate(row) if role == place[0]]
            _check_received(step, parts, places, where(program, place))
            if found.setdefault(place, parts) != parts:
                raise ConfigError(
                    f"{where(program, place)} is part of all-to-alls that other ranks send other parts in; give them"
                    " steps of their own"
                )


def _row(one: tuple[Place, Collective], place: int, size: int, program: ProgramData) -> Sequence[int]:
    """Return what the rank at a place of the group has for each."""
    at, step = one
    if step.collective in (SCATTER, GATHER):
        if step.root >= size:
            raise ConfigError(f"{where(program, at)}.root is {step.root}; places of the group are 0 to {size - 1}")
        part = -(-step.size_bytes // size)
        if step.collective == GATHER:
            return [part * (peer == step.root) for peer in range(size)]
        return [part * (place == step.root)] * size
    given = step.sent
    row = given[place] if len(given) == size and len(given[0]) == size and len(given) > 1 else given[0]
    if len(row) != size or len(given) not in (1, size):
        raise ConfigError(
            f"{where(program, at)}.send_bytes has {len(given)} rows of {len(row)} sizes; its groups have {size} ranks:"
            " give a size for each, or a row of them for each"
        )
    return row


def _check_received(step: Collective, parts: UnequalBytes, places: Sequence[int], place: str) -> None:
    for k in places if step.receive_bytes is not None else ():
        column = tuple(row[k] for row in parts.parts)
        if step.received != column:
            raise ConfigError(
                f"{place}.receive_bytes is {list(step.received)}, but the ranks of its group have {list(column)} for"
                f" the one at place {k}"
            )


def step_at(program: ProgramData, place: Place) -> Collective:
    """Return the step at a place."""
    role, phase, k = place
    return cast(Collective, list(program.roles.values())[role].phases[phase][k])


def where(program: ProgramData, place: Place) -> str:
    """Return a place as errors have it."""
    role, phase, k = place
    name = list(program.roles)[role]
    return f"roles.{name}.{program.roles[name].place(phase)}[{k}]"
