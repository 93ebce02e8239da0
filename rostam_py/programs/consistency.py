"""What steps of a program must agree on: the kernels, groups, peers and algorithms that they name."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.programs.data import ProgramData
from rostam_py.programs.steps import PREVIOUS, AnyMessage, Batch, Collective, Compute, Receive, Send, Step, dependences


def check_steps(program: ProgramData) -> None:
    """Raise ConfigError for the first step that names what there is not, or contradicts another one."""
    places = {label: _places(one.members, program.num_ranks) for label, one in program.group_sets.items()}
    agreement = _Agreement()
    for index, (name, role) in enumerate(program.roles.items()):
        mine = np.flatnonzero(program.role_of == index)
        for phase, steps in role.phases.items():
            place = f"roles.{name}.{role.place(phase)}"
            dependences(steps, place, role.after)
            if not role.has_one_phase and role.after == PREVIOUS:
                _check_start(steps, place)
            for k, step in enumerate(steps):
                where = f"{place}[{k}]"
                if isinstance(step, Compute):
                    _check_kernels(step, program.kernels, where)
                elif isinstance(step, AnyMessage | Batch):
                    if step.group not in places:
                        known = ", ".join(places) or "none"
                        raise ConfigError(f"{where}.group is {step.group!r}; groups are: {known}")
                    for at, one in _messages_of(step, where):
                        _check_members(one, places[step.group][mine], program, mine, at)
                        agreement.check(one, at)
    _check_some_work(program)


def _messages_of(step: AnyMessage | Batch, where: str) -> list[tuple[str, AnyMessage]]:
    """Return the messages of a step with their places."""
    if isinstance(step, Batch):
        return [(f"{where}.messages[{k}]", end) for k, end in enumerate(step.ends)]
    return [(where, step)]


def _check_start(steps: Sequence[Step], place: str) -> None:
    """Refuse a phase that begins with a collective or a send without saying that it waits for nothing.

    Tasks of one phase cannot name those of another; the kernels of all phases have one order, and so has each stream.
    """
    if steps and isinstance(steps[0], Collective | Send | Batch) and steps[0].after is None:
        raise ConfigError(
            f"{place}[0] communicates, and would not wait for the phases before its own; put a step of kind 'wait' in"
            " front, which waits for their kernels, or say that it waits for nothing: after: []"
        )


def _places(members: np.ndarray, num_ranks: int) -> np.ndarray:
    """Return each rank's place in its group, int array (num_ranks,), -1 for ranks in none."""
    found = np.full(num_ranks, -1, np.int64)
    found[members] = np.arange(members.shape[1])
    return found


def _check_kernels(step: Compute, kernels: Mapping[str, object], where: str) -> None:
    for k, name in enumerate(step.kernels):
        if name not in kernels:
            known = ", ".join(list(kernels)[:20]) or "none"
            raise ConfigError(f"{where}.kernels[{k}] is {name!r}; kernels are: {known}")


def _check_members(step: AnyMessage, places: np.ndarray, program: ProgramData, mine: np.ndarray, where: str) -> None:
    """Check that all ranks of a role are in a group of a step's, and have the peer that it names."""
    if (places < 0).any():
        rank = mine[np.flatnonzero(places < 0)[0]]
        raise ConfigError(f"{where}.group is {step.group!r}, which rank {rank} of the role is not in")
    if isinstance(step, Send | Receive):
        size = program.group_sets[step.group].num_ranks
        wrong = np.flatnonzero((places + step.peer < 0) | (places + step.peer >= size))
        if len(wrong):
            raise ConfigError(
                f"{where}.peer is {step.peer:+d}, but rank {mine[wrong[0]]} is number {places[wrong[0]]} of {size} in"
                f" its group of {step.group!r}; a message goes to a rank of the group, and does not wrap around"
            )


class _Agreement:
    """What earlier steps have said of algorithms and channels."""

    def __init__(self) -> None:
        self._algorithms: dict[tuple[str, str, int], tuple[str, str]] = {}
        self._channels: dict[tuple[str, str, int], tuple[int, str]] = {}

    def check(self, step: AnyMessage, where: str) -> None:
        """Raise ConfigError where a step contradicts an earlier one."""
        size = step.size_bytes
        if isinstance(step, Collective) and step.is_unequal:
            return  # one algorithm has unequal parts
        if isinstance(step, Collective):
            key = (step.group, step.collective, size)
            algorithm, first = self._algorithms.setdefault(key, (step.algorithm, where))
            if algorithm != step.algorithm:
                raise ConfigError(
                    f"{where}.algorithm is {step.algorithm!r}, but {first} runs the same {step.collective} of {size}"
                    f" bytes in {step.group!r} by {algorithm!r}; equal collectives of a group run one algorithm"
                )
            return
        way = step.peer if isinstance(step, Send) else -step.peer
        known, first = self._channels.setdefault((step.group, step.channel, way), (size, where))
        if known != size:
            raise ConfigError(
                f"{where}.num_bytes is {size}, but {first} gives the message on channel {step.channel!r} {known} bytes;"
                " both ends give one size"
            )


def _check_some_work(program: ProgramData) -> None:
    """Refuse a program without work: its iteration would take no time."""
    for role in program.roles.values():
        if any(not _is_idle(step) for step in _run_steps(role.phases, role.order.counts())):
            return
    raise ConfigError("no role computes or communicates in its iteration; a program has at least one step that does")


def _run_steps(phases: Mapping[str, tuple[Step, ...]], counts: Mapping[str, int]) -> Iterator[Step]:
    for name in counts:
        yield from phases[name]


def _is_idle(step: Step) -> bool:
    return step.kind == "wait"
