"""SimAI's workload text read: degrees in line 1, the number of rows in line 2, then a row for each part of a model.

Model: a rank runs its rows forward and then backward, last row first. A row's forward and input-gradient messages block
    it; those of weight gradients do not, and the update, once at the end, waits for them. Types without a suffix are of
    tp, of weight gradients of dp; _EP of ep, _DP_EP of the replicas of experts. Bytes are of the whole buffer. Ranks
    count tp first, then ep in dp, then pp. A text in which embedding_layer stands ga > 1 times holds all micro-batches,
    as AICB writes it; another one's rows are those of each. With pp > 1 all stages run these rows, in 1F1B order. vpp,
    which AICB writes as the number of layers, changes nothing. Messages in groups of one rank move nothing.
Source: the format as SimAI reads it and AICB writes it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rostam_py.documents import read_unpacked, refused, undamaged
from rostam_py.errors import ConfigError
from rostam_py.programs import Collective, Compute, Program, RankGroups, Receive, Repeat, Role, Send, Wait
from rostam_py.programs.ranks import MAX_RANKS
from rostam_py.programs.roles import Written
from rostam_py.programs.steps import Step

FIRST_WORD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
_COLUMNS = 12
_MOST_ROWS = 2**20
_MOST_MICRO_BATCHES = 10**6
_FIRST_LAYER = "embedding_layer"  # with which AICB begins every micro-batch
_DEGREES = {"model_parallel_NPU_group": "tp", "ep": "ep", "pp": "pp", "vpp": "vpp", "ga": "ga", "all_gpus": "all_gpus"}
_NOTHING = ("checkpoints", "checkpoint_initiates")  # rows that run forward again, which must be none
_COLLECTIVES = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all",
}  # fmt: skip
_SUFFIXES = {"_DP_EP": "dp_ep", "_EP": "ep"}  # the longer one first
_NUMBER = re.compile(r"([0-9]{1,18})(\.0+)?")
_OWN_GROUPS = {"forward": "tp", "input gradient": "tp", "weight gradient": "dp"}  # of types without a suffix


class _Header(NamedTuple):
    """Line 1. pp_comm: bytes of a message between stages, 0 where none is said."""

    tp: int
    ep: int
    pp: int
    vpp: int
    ga: int
    all_gpus: int
    pp_comm: int = 0

    @property
    def groups(self) -> dict[str, tuple[str, int, int]]:
        """Kind, ranks and stride of the groups of every label."""
        dp = self.all_gpus // (self.tp * self.pp)
        return {
            "tp": ("tp", self.tp, 1), "ep": ("ep", self.ep, self.tp), "dp": ("dp", dp, self.tp),
            "dp_ep": ("dp", dp // self.ep, self.tp * self.ep), "pp": ("pp", self.pp, self.tp * dp),
        }  # fmt: skip


class _Part(NamedTuple):
    """What a row does in one direction. group: "" for no message."""

    time_ns: int
    collective: str
    group: str
    num_bytes: int


class _Row(NamedTuple):
    """A row. update_ns: of its weights."""

    name: str
    forward: _Part
    input_gradient: _Part
    weight_gradient: _Part
    update_ns: int


class _Parts(NamedTuple):
    """Rows before the micro-batches, of one of them, and behind them; and all that the text holds."""

    before: Sequence[_Row]
    micro_batch: Sequence[_Row]
    behind: Sequence[_Row]
    rows: Sequence[_Row]


def read_simai(path: str | Path) -> Program:
    """Return the program that a SimAI workload text is.

    Raises: ConfigError with the line that cannot be read or simulated.
    """
    with undamaged(str(path)):
        data = read_unpacked(path)
        lines = data.decode("utf-8", "replace").rstrip().split("\n")
    header = _header(lines[0], f"{path}, line 1")
    rows = _rows(lines, str(path), header)
    parts = _split(rows, header.ga, str(path))
    with refused(f"{path}: the workload is refused"):
        roles = {f"stage {stage}": _role(header, stage, parts) for stage in range(header.pp)}
        steps = [step for role in roles.values() for steps in role.phases.values() for step in steps]
        used = {step.group for step in steps if isinstance(step, Collective | Send | Receive)}
        groups = {
            label: RankGroups(kind=kind, size=size, stride=stride)
            for label, (kind, size, stride) in header.groups.items()
            if label in used
        }
        return Program(name=Path(path).stem, num_ranks=header.all_gpus, roles=roles, groups=groups)


def _number(text: str, what: str, least: int = 0) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or int(match[1]) < least:
        raise ConfigError(f"{what} is {text[:40]!r}; it must be an integer >= {least}")
    return int(match[1])


def _header(line: str, where: str) -> _Header:
    words = line.split()
    if not words or words[0] != FIRST_WORD:
        raise ConfigError(f"{where} begins with {(words or [''])[0][:40]!r}; workloads of {FIRST_WORD} are read")
    if len(words) % 2 == 0:
        raise ConfigError(f"{where} has {len(words) - 1} words behind the first; each key has one value")
    said: dict[str, int] = {}
    for key, text in zip(words[1::2], words[2::2], strict=True):
        name = key.removesuffix(":")
        if name not in (*_DEGREES, *_NOTHING, "pp_comm"):
            raise ConfigError(f"{where} has {name[:40]!r}; keys are: {', '.join((*_DEGREES, *_NOTHING, 'pp_comm'))}")
        if name in said:
            raise ConfigError(f"{where} has {name!r} twice; a key is given once")
        said[name] = _number(text, f"{where}: {name}", 1 if name in _DEGREES else 0)
    return _checked(said, where)


def _checked(said: Mapping[str, int], where: str) -> _Header:
    """Return what line 1 says, where it can be run."""
    for name in _DEGREES:
        if name not in said:
            raise ConfigError(f"{where} has no {name!r}; it says all of: {', '.join(_DEGREES)}")
    for name in _NOTHING:
        if said.get(name):
            raise ConfigError(f"{where}: {name} is {said[name]}; only 0, nothing that is run forward again, is read")
    header = _Header(**{key: said[name] for name, key in _DEGREES.items()}, pp_comm=said.get("pp_comm", 0))
    if header.all_gpus > MAX_RANKS or header.all_gpus % (header.tp * header.pp * header.ep):
        raise ConfigError(
            f"{where}: all_gpus is {header.all_gpus}; it must be at most {MAX_RANKS}, and a multiple of"
            f" model_parallel_NPU_group x ep x pp = {header.tp * header.pp * header.ep}"
        )
    if header.ga > _MOST_MICRO_BATCHES:
        raise ConfigError(f"{where}: ga is {header.ga}; it must be at most {_MOST_MICRO_BATCHES}")
    if header.pp > 1 and not header.pp_comm:
        raise ConfigError(f"{where}: pp is {header.pp} without pp_comm; bytes of messages between stages are not known")
    return header


def _rows(lines: Sequence[str], path: str, header: _Header) -> list[_Row]:
    count = _number(lines[1].strip() if len(lines) > 1 else "", f"{path}, line 2: the number of rows", 1)
    if count != len(lines) - 2 or count > _MOST_ROWS:
        raise ConfigError(f"{path}, line 2: {count} rows, but {len(lines) - 2} follow; at most {_MOST_ROWS} are read")
    found = []
    for k, line in enumerate(lines[2:], 3):
        with refused(f"{path}, line {k}"):
            found.append(_row(line.split(), header))
    if not any(part.time_ns for row in found for part in (row.forward, row.input_gradient, row.weight_gradient)):
        raise ConfigError(f"{path}: no row takes time; one of them has at least 1 ns of a forward or gradients")
    return found


def _row(words: Sequence[str], header: _Header) -> _Row:
    if len(words) != _COLUMNS:
        raise ConfigError(f"the row has {len(words)} columns; it must have {_COLUMNS}")
    if words[1] != "-1":
        raise ConfigError(f"the dependency is {words[1][:40]!r}; only -1, the row before, is read")
    forward, inputs, weights = (
        _part(words[k : k + 3], what, header) for k, what in zip((2, 5, 8), _OWN_GROUPS, strict=True)
    )
    return _Row(words[0], forward, inputs, weights, _number(words[11], "the update's ns"))


def _part(words: Sequence[str], what: str, header: _Header) -> _Part:
    time_ns, num_bytes = _number(words[0], f"the {what}'s ns"), _number(words[2], f"the {what}'s bytes")
    suffix = next((one for one in _SUFFIXES if words[1].endswith(one)), "")
    kind = words[1].removesuffix(suffix)
    if words[1] == "NONE":
        return _Part(time_ns, "", "", 0)  # writers leave bytes behind it that nothing moves
    if kind not in _COLLECTIVES:
        known = ", ".join(("NONE", *_COLLECTIVES))
        raise ConfigError(f"the {what}'s type is {words[1][:40]!r}; types are: {known}, with _EP or _DP_EP behind")
    if not num_bytes or not time_ns:
        key = "bytes" if not num_bytes else "ns"
        raise ConfigError(f"the {what}'s {key} of a {words[1]} is 0; it must be at least 1, or it would run free")
    group = _SUFFIXES.get(suffix) or _OWN_GROUPS[what]
    if header.groups[group][1] == 1:
        return _Part(time_ns, "", "", 0)
    return _Part(time_ns, _COLLECTIVES[kind], group, num_bytes)


def _split(rows: list[_Row], ga: int, path: str) -> _Parts:
    """Return which rows are of micro-batches."""
    starts = [k for k, row in enumerate(rows) if row.name == _FIRST_LAYER]
    if ga == 1 or len(starts) != ga:
        return _Parts([], rows, [], rows)
    first, length = starts[0], starts[1] - starts[0]
    for k in range(first, first + ga * length):
        like = first + (k - first) % length
        if k >= len(rows) or rows[k] != rows[like]:
            raise ConfigError(
                f"{path}, line {min(k, len(rows) - 1) + 3}: the text holds {ga} micro-batches, but this row is not that"
                f" of line {like + 3}, in the first; they must be alike"
            )
    last = first + ga * length
    return _Parts(rows[:first], rows[first : first + length], rows[last:], rows)


class _Phase:
    """Writes the steps of a phase. channel, num_bytes: of messages between stages."""

    def __init__(self, channel: str, num_bytes: int, receives_from: int = 0) -> None:
        self.channel, self.num_bytes = channel, num_bytes
        self.steps: list[Step] = []
        self.last: tuple[int, ...] = ()  # what the next step waits for
        if receives_from:
            self._add(Receive(channel=channel, num_bytes=num_bytes, group="pp", peer=receives_from, after=()))

    def add(self, row: _Row, part: _Part, what: str, is_awaited: bool = True) -> None:
        """Add a row's kernel and its message."""
        name = f"{row.name} {what}"
        if part.time_ns:
            self._add(Compute(name=name, time=f"{part.time_ns} ns", after=self.last))
        if part.group:
            message = Collective(
                name=f"{name} {part.collective}", collective=part.collective, group=part.group,
                num_bytes=part.num_bytes, after=self.last,
            )  # fmt: skip
            self._add(message, is_awaited)

    def done(self, sends_to: int = 0) -> tuple[Step, ...]:
        """Return the steps; kernels of what follows wait for the last message that blocks."""
        if self.last and not isinstance(self.steps[self.last[0]], Compute):
            self._add(Wait(after=self.last))
        if sends_to:
            sent = Send(channel=self.channel, num_bytes=self.num_bytes, group="pp", peer=sends_to, after=self.last)
            self._add(sent, False)
        return tuple(self.steps)

    def _add(self, step: Step, is_awaited: bool = True) -> None:
        self.steps.append(step)
        if is_awaited:
            self.last = (len(self.steps) - 1,)


def _forward(rows: Sequence[_Row], num_bytes: int = 0, before: int = 0, behind: int = 0) -> tuple[Step, ...]:
    """Return rows forward. Args: before, behind: peers to receive from and send to, 0 for none."""
    phase = _Phase("activations", num_bytes, before)
    for row in rows:
        phase.add(row, row.forward, "forward")
    return phase.done(behind)


def _backward(rows: Sequence[_Row], num_bytes: int = 0, before: int = 0, behind: int = 0) -> tuple[Step, ...]:
    """Return rows backward, the last one first."""
    phase = _Phase("gradients", num_bytes, behind)
    for row in reversed(rows):
        phase.add(row, row.input_gradient, "input gradient")
        phase.add(row, row.weight_gradient, "weight gradient", is_awaited=False)
    return phase.done(before)


def _update(rows: Sequence[_Row]) -> tuple[Step, ...]:
    """Return the update of all rows, behind the messages of all weight gradients."""
    labels = sorted({row.weight_gradient.group for row in rows} - {""})
    steps: list[Step] = [Wait(name=f"messages of {label}", stream=label, after=()) for label in labels]
    awaited = tuple(range(len(steps)))
    time_ns = sum(row.update_ns for row in rows)
    if time_ns:
        steps.append(Compute(name="update", time=f"{time_ns} ns", is_optimizer=True, after=awaited))
    elif steps:
        steps.append(Wait(after=awaited))
    return tuple(steps)


def _role(header: _Header, stage: int, parts: _Parts) -> Role:
    """Return what the ranks of a stage run."""
    before, behind = -1 if stage else 0, 1 if stage < header.pp - 1 else 0
    ends = {"num_bytes": header.pp_comm, "before": before, "behind": behind}
    phases = {
        "first rows": _forward(parts.before), "forward": _forward(parts.micro_batch, **ends),
        "backward": _backward(parts.micro_batch, **ends), "last rows": _forward(parts.behind),
        "last rows backward": _backward(parts.behind), "first rows backward": _backward(parts.before),
        "update": _update(parts.rows),
    }  # fmt: skip
    lead = min(header.pp - 1 - stage, header.ga)  # forwards before the first backward, as 1F1B has them
    order: list[Written | Repeat] = ["first rows"]
    runs: tuple[tuple[tuple[tuple[str, int], ...], int], ...] = (
        ((("forward", 0),), lead), ((("forward", lead), ("backward", 0)), header.ga - lead),
        ((("backward", header.ga - lead),), lead),
    )  # fmt: skip
    for run, times in runs:
        run = tuple(one for one in run if phases[one[0]])
        if run and times:
            order.append(Repeat(run=run, times=times))
    order += ["last rows", "last rows backward", "first rows backward", "update"]
    size = header.all_gpus // header.pp
    return Role(
        phases={name: steps for name, steps in phases.items() if steps},
        iteration=tuple(one for one in order if isinstance(one, Repeat) or phases[str(one)]),
        ranks=(f"{stage * size}-{(stage + 1) * size - 1}",),
    )
