"""Steps: what a rank does in a phase; each kind is a class here and a line in STEPS.

Example:
    Compute(name="layer", kernels=("qkv", "attention"))
    Collective(collective="all_reduce", num_bytes="25 MB", group="dp", after=("layer",))
    Send(channel="activations", num_bytes="8 MiB", group="pp", peer=1)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from rostam_py.collectives.rank_groups import algorithm_names, collectives
from rostam_py.costs.families import UNNAMED_OP
from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.plan.tasks import COMPUTE_STREAM, KernelTime, Task
from rostam_py.plan.traffic import AUTO
from rostam_py.units import check_simulated, parse_size, parse_time

After = tuple[int | str, ...] | None  # None: as the role says, the step before or none
PREVIOUS, STREAM = "previous", "stream"  # what steps without an after of their own wait for


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What every step says.

    name: for timelines and for the ``after`` of later steps. after: earlier steps of the phase that must end first, by
    name or index, whatever their streams; None: as the role says; (): none. stream: first-in first-out queue, which
    kernels and messages of any groups may share.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    name: str = ""
    after: After = None
    stream: str = ""

    @property
    def words(self) -> str:
        """Its name, or what it is called without one."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(_Step):
    """Kernels, one after the other, by default on the compute stream.

    kernels: names of the program's kernels. time: in their place, how long the step takes [s or text].
    is_optimizer: it updates weights.
    """

    kind: Literal["compute"] = "compute"
    kernels: tuple[str, ...] = ()
    time: str | float | None = None
    is_optimizer: bool = False

    def __post_init__(self) -> None:
        if bool(self.kernels) == (self.time is not None):
            raise ConfigError("a compute step has kernels or a time: give one of them; kind 'wait' computes nothing")
        if self.time is not None:
            check_simulated(parse_time(self.time, "time"), "time")

    @property
    def words(self) -> str:
        """Its name, or its kernels."""
        return self.name or ", ".join(self.kernels[:3]) or "compute"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime]) -> tuple[Task, ...]:
        """Return the step as a plan has it. Args: kernels: those it names."""
        found = tuple(kernels)
        if self.time is not None:
            found = (KernelTime(name=self.words, module="", op_type=UNNAMED_OP, duration_s=parse_time(self.time)),)
        return (
            Task(
                kind="compute", name=self.words, deps=deps, kernels=found, is_optimizer=self.is_optimizer,
                stream=_compute_stream(self.stream),
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(_Step):
    """What follows on its stream, by default that of kernels, waits for the steps of ``after``; it takes no time.

    host: the host waits too, and launches later steps of all streams only then.
    """

    kind: Literal["wait"] = "wait"
    host: bool = False

    @property
    def words(self) -> str:
        """Its name, or its kind."""
        return self.name or "wait"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime] = ()) -> tuple[Task, ...]:
        """Return the step as a plan has it."""
        stream = _compute_stream(self.stream)
        return (Task(kind="compute", name=self.words, deps=deps, stream=stream, is_awaited=self.host),)


def _compute_stream(stream: str) -> str:
    return "" if stream == COMPUTE_STREAM else stream


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message(_Step):
    """What every step that communicates says.

    group: label of its process groups. num_bytes: as in MODEL A4 [bytes or text]. Its stream is by default the group's
    own, of messages one for each peer.
    """

    group: str
    num_bytes: int | str | tuple[int | str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.num_bytes, tuple | list):
            raise ConfigError(
                f"num_bytes is a list of {len(self.num_bytes)} sizes; ranks that send different sizes are not modelled"
                " yet: give one size"
            )
        size = parse_size(self.num_bytes, "num_bytes")
        if size < 1:
            raise ConfigError(f"num_bytes is {self.num_bytes!r}; it must be at least 1 byte")
        object.__setattr__(self, "num_bytes", size)

    @property
    def size_bytes(self) -> int:
        """``num_bytes`` as a number [bytes]."""
        return cast(int, self.num_bytes)

    def _task(self, kind: str, deps: tuple[int, ...], **fields: Any) -> Task:
        return Task(
            kind=kind, name=self.words, deps=deps, group=self.group, num_bytes=self.size_bytes, stream=self.stream,
            **fields,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(_Message):
    """A collective, which all ranks of a group run.

    collective: its name (rostam list collectives). algorithm: one of its algorithms, or "auto".
    """

    kind: Literal["collective"] = "collective"
    collective: str
    algorithm: str = AUTO

    def __post_init__(self) -> None:
        _Message.__post_init__(self)
        if self.collective not in collectives():
            raise ConfigError(f"collective is {self.collective!r}; it must be one of: {', '.join(collectives())}")
        known = (AUTO, *algorithm_names(self.collective))
        if self.algorithm not in known:
            raise ConfigError(
                f"algorithm is {self.algorithm!r}; of {self.collective} it must be one of: {', '.join(known)}"
            )

    @property
    def words(self) -> str:
        """Its name, or the collective and its groups."""
        return self.name or f"{self.collective} {self.group}"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime] = ()) -> tuple[Task, ...]:
        """Return the step as a plan has it."""
        return (self._task("collective", deps, collective=self.collective),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _End(_Message):
    """One end of a message.

    channel: names what is sent; both ends give the same one. peer: the other end's rank in the group minus the own.
    """

    channel: str
    peer: int

    def __post_init__(self) -> None:
        _Message.__post_init__(self)
        check_integer("peer", abs(self.peer), 1)
        if not self.channel:
            raise ConfigError("channel is ''; both ends of a message give the same name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_End):
    """A message to another rank of the group."""

    kind: Literal["send"] = "send"

    @property
    def words(self) -> str:
        """Its name, or what it sends."""
        return self.name or f"send {self.channel}"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime] = ()) -> tuple[Task, ...]:
        """Return the step as a plan has it."""
        return (self._task("send", deps, channel=self.channel, peer=self.peer),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(_End):
    """A message from another rank of the group: that of the same channel and micro-batch."""

    kind: Literal["recv"] = "recv"

    @property
    def words(self) -> str:
        """Its name, or what it receives."""
        return self.name or f"recv {self.channel}"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime] = ()) -> tuple[Task, ...]:
        """Return the step as a plan has it."""
        return (self._task("recv", deps, channel=self.channel, peer=self.peer),)


AnyMessage = Collective | Send | Receive
Step = Compute | Wait | AnyMessage


def dependences(steps: Sequence[Step], place: str, default: str = PREVIOUS) -> list[tuple[int, ...]]:
    """Return for each step of a phase the indices of those that must end before it.

    Args: place: of the phase, for errors. default: what steps wait for that do not say it.
    Raises: ConfigError for a name that no earlier step has, or several have, and an index of no earlier step.
    """
    found: list[tuple[int, ...]] = []
    named: dict[str, list[int]] = {}
    for k, step in enumerate(steps):
        if step.after is None:
            found.append((k - 1,) if k and default == PREVIOUS else ())
        else:
            found.append(tuple(sorted({_earlier(one, named, k, place) for one in step.after})))
        named.setdefault(step.words, []).append(k)
    return found


def _earlier(given: int | str, named: dict[str, list[int]], index: int, place: str) -> int:
    where = f"{place}[{index}].after"
    if isinstance(given, str):
        places = named.get(given, [])
        if len(places) == 1:
            return places[0]
        if places:
            raise ConfigError(f"{where} names {given!r}, which {len(places)} earlier steps are called; give an index")
        known = ", ".join(list(named)[-8:]) or "none"
        raise ConfigError(f"{where} names {given!r}; earlier steps of the phase are: {known}")
    if isinstance(given, bool) or not 0 <= given < index:
        raise ConfigError(f"{where} has {given!r}; it must be the index of an earlier step, or its name")
    return given
