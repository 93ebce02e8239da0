"""Programs as traces have them: each role's steps of one iteration in the order in which they run, waits by index."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rostam_py.errors import ConfigError
from rostam_py.plan.tasks import KernelTime
from rostam_py.programs import Batch, Collective, PlacedProgram, Receive, Send
from rostam_py.programs.steps import Step, dependences

MOST_STEPS = 2**22  # of a role in one iteration


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A step of an iteration. step: its channel, of a message, holds its micro-batch. after: indices of those that must
    end before it. kernels: of a compute step, with their times."""

    step: Step
    after: tuple[int, ...]
    kernels: tuple[KernelTime, ...]


def unrolled(program: PlacedProgram, role: str) -> list[Unrolled]:
    """Return the steps of a role in one iteration.

    Raises: ConfigError for batches and collectives of unequal parts, which traces cannot say, and for too many steps.
    """
    said = program.program.roles[role]
    placed = next(one for one in program.stages if one.name == role)
    found: list[Unrolled] = []
    for phase, micro_batch in _runs(program, role):
        steps, first = said.phases[phase], len(found)
        if first + len(steps) > MOST_STEPS:
            raise ConfigError(f"role {role!r} has more than {MOST_STEPS} steps in one iteration; a trace has fewer")
        deps = dependences(steps, said.place(phase), said.after)
        for k, step in enumerate(steps):
            _check(step, f"role {role!r}, {said.place(phase)}[{k}]")
            kernels = placed.templates[phase][k].kernels
            after = tuple(first + one for one in deps[k])
            found.append(Unrolled(_numbered(step, micro_batch), after, tuple(kernels)))
    return found


def _runs(program: PlacedProgram, role: str) -> Iterator[tuple[str, int]]:
    for segment in program.program.roles[role].order.segments:
        for turn in range(segment.count):
            for phase, number in segment.entries:
                yield phase, number + turn * segment.stride


def _check(step: Step, where: str) -> None:
    """Refuse what would have other tasks than steps."""
    if isinstance(step, Batch):
        raise ConfigError(f"{where} is a batch, which a trace cannot say: write its messages as steps of their own")
    if isinstance(step, Collective) and step.is_unequal:
        raise ConfigError(f"{where} is a {step.collective} of unequal parts, which a trace cannot say yet")


def _numbered(step: Step, micro_batch: int) -> Step:
    """Return a message with its micro-batch in its channel, which tells its partner in the one phase of a trace."""
    return replace(step, channel=f"{step.channel}#{micro_batch}") if isinstance(step, Send | Receive) else step
