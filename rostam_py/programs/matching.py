"""What ranks must agree on with each other: collectives in one order, and messages that are sent and received.

The core takes a collective's size from the rank that joins first, and keeps a message that no rank asks for; a program
in which ranks disagree would hang, or worse, so it is refused here.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.programs.data import ProgramData
from rostam_py.programs.roles import Role
from rostam_py.programs.steps import Collective, Receive, Send, ends_of

MAX_RUNS = 4_000_000  # of phases, in an iteration of all roles: as many as can be simulated
_MOST_COMPARED = 1_000_000  # collectives whose order is compared; how many there are of each is compared always
_Called = tuple[str, int, str, int]  # collective, bytes (of unequal parts 0), algorithm, root
_Way = tuple[str, str, int]  # group, channel, peer


def check_matches(program: ProgramData) -> None:
    """Raise ConfigError for collectives and messages that ranks disagree on, and for too long an iteration.

    Cost: phases that are run and have such steps, of roles that share groups.
    """
    runs = sum(len(role.order) for role in program.roles.values())
    if runs > MAX_RUNS:
        raise ConfigError(f"roles run {runs:,} phases in an iteration; it must be at most {MAX_RUNS:,}: lower times")
    _check_collectives(program)
    _check_messages(program)


def _check_collectives(program: ProgramData) -> None:
    roles = list(program.roles.items())
    used = [_groups_of(role) for _, role in roles]
    for label, groups in program.group_sets.items():
        if not any(label in found for found in used):
            continue
        together = np.unique(np.sort(program.role_of[groups.members], axis=1), axis=0)
        for row in together:
            first, *others = dict.fromkeys(row.tolist())
            for other in others:
                _compare(roles[first], roles[other], label)


def _groups_of(role: Role) -> set[str]:
    """Return the groups of a role's collectives."""
    steps = (step for name in role.order.counts() for step in role.phases[name])
    return {step.group for step in steps if isinstance(step, Collective)}


def _compare(one: tuple[str, Role], other: tuple[str, Role], label: str) -> None:
    counts = [_counts(role, label) for _, role in (one, other)]
    for called in dict.fromkeys([*counts[0], *counts[1]]):
        if counts[0][called] != counts[1][called]:
            raise ConfigError(
                f"roles {one[0]!r} and {other[0]!r} run {_words(called)} in groups {label!r} {counts[0][called]} and"
                f" {counts[1][called]} times; all ranks of a group run its collectives alike"
            )
    pairs = zip(_calls(one[1], label), _calls(other[1], label), strict=False)
    for place, (mine, its) in enumerate(itertools.islice(pairs, _MOST_COMPARED)):
        if mine != its:
            raise ConfigError(
                f"roles {one[0]!r} and {other[0]!r} run collectives in groups {label!r} in different orders: number"
                f" {place} is {_words(mine)} and {_words(its)}"
            )


def _of_phase(role: Role, name: str, label: str) -> list[_Called]:
    return [
        (step.collective, 0 if step.send_bytes is not None else step.size_bytes, step.algorithm, step.root)
        for step in role.phases[name]
        if isinstance(step, Collective) and step.group == label
    ]


def _counts(role: Role, label: str) -> Counter[_Called]:
    found: Counter[_Called] = Counter()
    for name, count in role.order.counts().items():
        for called in _of_phase(role, name, label):
            found[called] += count
    return found


def _calls(role: Role, label: str) -> Iterator[_Called]:
    """Yield the collectives of an iteration in order."""
    order = role.order
    phases = {name: _of_phase(role, name, label) for name in order.counts()}
    for segment in order.segments:
        calls = [called for name, _ in segment.entries for called in phases[name]]
        for _ in range(segment.count if calls else 0):
            yield from calls


def _words(called: _Called) -> str:
    root = f" at root {called[3]}" if called[3] else ""
    return f"{called[0]} of {called[1]} bytes{root}" if called[1] else f"{called[0]} of unequal parts"


def _check_messages(program: ProgramData) -> None:
    roles = list(program.roles.items())
    sent = [_microbatches(role, Send) for _, role in roles]
    received = [_microbatches(role, Receive) for _, role in roles]
    for k in range(len(roles)):
        for way in sent[k]:
            for other in _partners(program, k, way):
                _check_ends(program, (k, other), way, sent[k], received[other])
        for label, channel, peer in received[k]:
            for other in _partners(program, k, (label, channel, peer)):
                _check_ends(program, (other, k), (label, channel, -peer), sent[other], received[k])


def _check_ends(
    program: ProgramData, ends: tuple[int, int], way: _Way, sent: dict[_Way, np.ndarray],
    received: dict[_Way, np.ndarray],
) -> None:  # fmt: skip
    """Check that a role receives what another one sends it. Args: ends: the sender and the receiver. way: it sends."""
    label, channel, peer = way
    none = np.empty(0, np.int64)
    out, into = sent.get(way, none), received.get((label, channel, -peer), none)
    if np.array_equal(out, into):
        return
    sender, receiver = (list(program.roles)[end] for end in ends)
    lost = np.setdiff1d(out, into)
    what = f"message on channel {channel!r} in groups {label!r}"
    if len(lost):
        raise ConfigError(
            f"role {sender!r} sends a {what} to its peer {peer:+d}, of micro-batch {lost[0]}, which role"
            f" {receiver!r} does not receive"
        )
    missing = np.setdiff1d(into, out)
    if len(missing):
        raise ConfigError(
            f"role {receiver!r} receives a {what} from its peer {-peer:+d}, of micro-batch {missing[0]}, which role"
            f" {sender!r} does not send"
        )
    raise ConfigError(
        f"roles {sender!r} and {receiver!r} send and receive a {what} {len(out)} and {len(into)} times in an iteration;"
        " each is received once"
    )


def _partners(program: ProgramData, role: int, way: _Way) -> list[int]:
    """Return the roles of the ranks that a role's ranks send to, or receive from."""
    members = program.group_sets[way[0]].members
    rows, places = np.nonzero(program.role_of[members] == role)
    found: list[int] = np.unique(program.role_of[members[rows, places + way[2]]]).tolist()
    return found


def _microbatches(role: Role, kind: type[Send] | type[Receive]) -> dict[_Way, np.ndarray]:
    """Return the micro-batches of a role's messages in one iteration, ascending."""
    by_phase: dict[str, list[_Way]] = {
        name: [
            (end.group, end.channel, end.peer)
            for step in role.phases[name]
            for end in ends_of(step)
            if isinstance(end, kind)
        ]
        for name in role.order.counts()
    }
    found: dict[_Way, list[np.ndarray]] = {}
    for segment in role.order.segments:
        repetitions = segment.stride * np.arange(segment.count)
        for name, microbatch in segment.entries:
            for way in by_phase[name]:
                found.setdefault(way, []).append(microbatch + repetitions)
    return {way: np.sort(np.concatenate(parts)) for way, parts in found.items()}
