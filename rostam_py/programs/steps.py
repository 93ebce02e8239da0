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

SCATTER, GATHER = "scatter", "gather"  # of one rank's buffer to all, of all ranks' to one
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
        """Return the step as a plan has it. Args: at: index of its first task. kernels: those it names."""
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
    num_bytes: int | str

    def __post_init__(self) -> None:
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

    collective: its name (rostam list collectives), SCATTER or GATHER. algorithm: one of its algorithms, or "auto".
    send_bytes: in place of ``num_bytes``, of an all-to-all of unequal parts: what a rank has for each place of the
    group, its own included, or a row of that for each place [bytes or text]. receive_bytes: what a rank gets from each,
    checked against the others' send_bytes. root: place in the group of the rank that scatters or gathers.
    """

    kind: Literal["collective"] = "collective"
    collective: str
    num_bytes: int | str = 0
    algorithm: str = AUTO
    send_bytes: tuple[int | str, ...] | tuple[tuple[int | str, ...], ...] | None = None
    receive_bytes: tuple[int | str, ...] | None = None
    root: int = 0

    def __post_init__(self) -> None:
        known = (*collectives(), SCATTER, GATHER)
        if self.collective not in known:
            raise ConfigError(f"collective is {self.collective!r}; it must be one of: {', '.join(known)}")
        if self.send_bytes is None:
            _Message.__post_init__(self)
            if self.receive_bytes is not None:
                raise ConfigError("receive_bytes is given without send_bytes; give both, or num_bytes alone")
        else:
            self._set_parts()
        self._check_root()
        known = (AUTO, "direct") if self.is_unequal else (AUTO, *algorithm_names(self.collective))
        if self.algorithm not in known:
            what = "unequal all_to_all" if self.send_bytes is not None else self.collective
            raise ConfigError(f"algorithm is {self.algorithm!r}; of {what} it must be one of: {', '.join(known)}")

    def _set_parts(self) -> None:
        if self.num_bytes or self.collective != "all_to_all":
            raise ConfigError("send_bytes is of an all_to_all, in place of num_bytes; others have equal parts")
        given = self.send_bytes or ()
        rows = given if given and isinstance(given[0], tuple | list) else (given,)
        parsed = tuple(_sizes(row, "send_bytes") for row in rows)
        if not parsed[0] or len({len(row) for row in parsed}) > 1:
            raise ConfigError("send_bytes has rows of different lengths, or none; a row has a size for each place")
        object.__setattr__(self, "send_bytes", parsed if rows is given else parsed[0])
        object.__setattr__(self, "num_bytes", 0)
        if self.receive_bytes is not None:
            object.__setattr__(self, "receive_bytes", _sizes(self.receive_bytes, "receive_bytes"))

    def _check_root(self) -> None:
        check_integer("root", self.root, 0)
        if self.root and self.collective not in (SCATTER, GATHER):
            raise ConfigError(
                f"root is {self.root}; a {self.collective} has none, or begins or ends at place 0 of its group: give it"
                " groups whose first rank is the root"
            )

    @property
    def is_unequal(self) -> bool:
        """Whether parts differ from pair to pair of ranks."""
        return self.send_bytes is not None or self.collective in (SCATTER, GATHER)

    @property
    def sent(self) -> tuple[tuple[int, ...], ...]:
        """``send_bytes`` as rows of numbers: one, or one for each place [bytes]. REQUIRES: they are given."""
        given = cast(tuple[Any, ...], self.send_bytes)
        return cast(tuple[tuple[int, ...], ...], given if isinstance(given[0], tuple) else (given,))

    @property
    def received(self) -> tuple[int, ...]:
        """``receive_bytes`` as numbers [bytes]. REQUIRES: they are given."""
        return cast(tuple[int, ...], self.receive_bytes)

    @property
    def size_bytes(self) -> int:
        """``num_bytes`` as a number, of unequal parts what the rank with the most sends [bytes]."""
        return max(map(sum, self.sent)) if self.send_bytes is not None else cast(int, self.num_bytes)

    @property
    def words(self) -> str:
        """Its name, or the collective and its groups."""
        return self.name or f"{self.collective} {self.group}"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime] = ()) -> tuple[Task, ...]:
        """Return the step as a plan has it."""
        collective = "all_to_all" if self.is_unequal else self.collective
        return (self._task("collective", deps, collective=collective),)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMessage:
    """One message of a batch. channel, num_bytes, peer: see Send."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    kind: Literal["send", "recv"]
    channel: str
    num_bytes: int | str
    peer: int

    def end(self, group: str) -> "Send | Receive":
        """Return it as a step of its own."""
        make = Send if self.kind == "send" else Receive
        return make(channel=self.channel, num_bytes=self.num_bytes, peer=self.peer, group=group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(_Step):
    """Messages that start together and are over together, as those of batch_isend_irecv; it holds its stream meanwhile.

    group: label of their process groups. Its stream is by default the group's own, and its place among the collectives
    of the group that of the step.
    """

    kind: Literal["batch"] = "batch"
    group: str
    messages: tuple[BatchMessage, ...]

    def __post_init__(self) -> None:
        if not self.messages:
            raise ConfigError("messages is empty; a batch has at least one")
        _ = self.ends  # each of them can be

    @property
    def ends(self) -> "tuple[Send | Receive, ...]":
        """Its messages as steps of their own."""
        found: list[Send | Receive] = []
        for k, one in enumerate(self.messages):
            try:
                found.append(one.end(self.group))
            except ConfigError as error:
                raise ConfigError(f"messages[{k}]: {error}") from error
        return tuple(found)

    @property
    def words(self) -> str:
        """Its name, or its kind and groups."""
        return self.name or f"batch {self.group}"

    def tasks(self, deps: tuple[int, ...], at: int, kernels: Sequence[KernelTime] = ()) -> tuple[Task, ...]:
        """Return the step as a plan has it: a point of its stream, the messages behind that, and one behind them."""
        mark: dict[str, Any] = {
            "kind": "compute", "group": self.group, "stream": self.stream or self.group, "is_mark": True,
        }  # fmt: skip
        messages = tuple(end.tasks((at,), at + 1 + k)[0] for k, end in enumerate(self.ends))
        behind = tuple(range(at + 1, at + 1 + len(messages)))
        return (
            Task(name=f"{self.words} begins", deps=deps, **mark), *messages, Task(name=self.words, deps=behind, **mark),
        )  # fmt: skip


AnyMessage = Collective | Send | Receive
Step = Compute | Wait | AnyMessage | Batch


def ends_of(step: Step) -> tuple[Send | Receive, ...]:
    """Return the ends of messages that a step is, or has."""
    if isinstance(step, Batch):
        return step.ends
    return (step,) if isinstance(step, Send | Receive) else ()


def _sizes(given: Sequence[int | str], key: str) -> tuple[int, ...]:
    return tuple(parse_size(one, f"{key}[{k}]") for k, one in enumerate(given))


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
